"""How the play goes: the screen draws it, the summary reads it."""

import time
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from haystream_service.sources import Source
from haystream_service.wire.records import EstimateRecord, ShareRecord

SCREENINGS_REMEMBERED = 8


@dataclass(frozen=True, slots=True)
class Screened:
    """An item that was read, and what it was."""

    item_id: str
    participants: tuple[str, ...]
    relevant: bool
    because: tuple[ShareRecord, ...]
    """Why it was on top."""


@dataclass(slots=True)
class Progress:
    """What was sent, read and found so far."""

    source: Source
    screenings: int
    """How many to do at most."""
    items: int = 0
    """Sent so far."""
    verdicts: int = 0
    """Given so far."""
    screened: int = 0
    """Verdicts that the last ranking knows of."""
    found: int = 0
    """Relevant items among them, as the last ranking says."""
    expected_remaining: EstimateRecord | None = None
    """How many relevant items are left, as the last ranking says; None before the first."""
    latencies: list[float] = field(default_factory=list)
    """Seconds from sending a verdict to holding the ranking that knows it, one per verdict."""
    recent: deque[Screened] = field(default_factory=lambda: deque(maxlen=SCREENINGS_REMEMBERED))
    """The last items read, oldest first."""
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning; they stop at the end."""
        return (time.monotonic() if self.ended is None else self.ended) - self.began

    @property
    def random_found(self) -> float:
        """What so many screenings find in random order, on average: the share of relevant items in the source."""
        return self.screened * self.source.relevant / max(len(self.source), 1)

    @property
    def times_random(self) -> float | None:
        """How many times as much was found as random order finds; None where that finds nothing."""
        return self.found / self.random_found if self.random_found else None

    def latency_ms(self) -> dict[str, float | None]:
        """p50, p95, p99 of the latency in milliseconds; None before the first verdict."""
        names = ("p50", "p95", "p99")
        if not self.latencies:
            return dict.fromkeys(names)
        values = 1e3 * np.percentile(self.latencies, [50, 95, 99])
        return dict(zip(names, np.round(values, 2).tolist(), strict=True))
