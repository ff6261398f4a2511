"""How many of its seeds, or of its cases, a long test is run with."""

from collections.abc import Iterable
from typing import Any

import pytest

ANOTHER_SEED, ANOTHER_FAULT = "another_seed", "another_fault"


def seeds(count: int) -> list[Any]:
    """Seeds to parametrize a test with: the first one, and where `--seeds all` asks for them so many in all."""
    return [0, *(pytest.param(seed, marks=pytest.mark.another_seed) for seed in range(1, count))]


def faults(cases: Iterable[Any], *sample: Any) -> list[Any]:
    """Cases to parametrize a test with: those of the sample, and all where `--faults all` asks for them."""
    return [case if case in sample else pytest.param(case, marks=pytest.mark.another_fault) for case in cases]


def alike(cases: Iterable[Any], *sample: Any) -> list[Any]:
    """Long cases that are alike, tuples where they have several parameters: those of the sample, and all where
    `--seeds all` asks for them."""
    return [
        case
        if case in sample
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.another_seed)
        for case in cases
    ]
