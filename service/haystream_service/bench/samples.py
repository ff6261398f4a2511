"""Timed samples of an operation, and what is said of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from time import perf_counter

import numpy as np

FEWEST = 20
"""Samples that are taken whatever they cost: a median of fewer says little."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How long an operation took, in microseconds."""

    p50_us: float
    p99_us: float
    samples: int


class Samples:
    """Durations of operations by name, in seconds."""

    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = {}

    def add(self, operation: str, seconds: float) -> None:
        """One more sample."""
        self._seconds.setdefault(operation, []).append(seconds)

    def timings(self) -> dict[str, Timing]:
        """In the order in which operations were first seen."""
        return {operation: timing(seconds) for operation, seconds in self._seconds.items()}


def timing(seconds: list[float]) -> Timing:
    """Median and 99th percentile."""
    p50, p99 = np.percentile(seconds, [50, 99]) * 1e6
    return Timing(round(float(p50), 2), round(float(p99), 2), len(seconds))


def within(seconds: float, *, most: int) -> Iterator[int]:
    """0, 1, 2 … for as long as the budget lasts: at least FEWEST and at most `most` of them."""
    end = perf_counter() + seconds
    for number in count():
        if number >= most or (number >= FEWEST and perf_counter() > end):
            return
        yield number
