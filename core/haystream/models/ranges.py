"""In which ranges of a prior's numbers the engines are good: means within 1e-4 of a dense solve, in bounded time.

Found by trying them against each other (tests/core/test_ranges.py goes over the whole of them).
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from haystream.errors import Code, Rejected
from haystream.events import Prior


class Range(NamedTuple):
    """A closed interval."""

    least: float
    most: float

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int | float) and self.least <= number <= self.most

    def __str__(self) -> str:
        return f"{self.least!r} to {self.most!r}"


Ranges = Mapping[str, Range]
"""By field of `Prior`. Of `participants` and `conditional` every number is meant."""

PROBABILITY = Range(1e-6, 1.0 - 1e-6)
"""Nearer to certainty nothing is gained: means are told to 1e-4."""
CORRELATION = Range(-0.98, 0.98)
"""A solve takes some 10/(1 − |δ|) rounds of everybody it reaches, and reaches further the nearer δ is to 1."""
OF_ALL_MODELS: Ranges = {"mean": PROBABILITY, "correlation": CORRELATION, "participants": PROBABILITY}
"""Of the fields of `Prior` that every model has."""


def check_ranges(prior: Prior, ranges: Ranges) -> None:
    """Raise Rejected(OUT_OF_RANGE) for the first number of the prior that is not in its range."""
    for name, allowed in ranges.items():
        for place, number in _numbers(prior, name):
            if number not in allowed:
                raise Rejected(
                    Code.OUT_OF_RANGE,
                    f"prior.{place}: should be from {allowed} with the model {prior.model}, got {number!r}",
                )


def _numbers(prior: Prior, name: str) -> Iterator[tuple[str, float]]:
    """The numbers of a field, each with where it stands."""
    match name:
        case "participants":
            yield from ((f"participants[{who!r}]", mean) for who, mean in prior.participants.items())
        case "conditional":
            both = prior.conditional
            for z, beta in enumerate(zip(both.a, both.b, strict=True)):
                yield from ((f"conditional.{z:02b}", number) for number in beta)
        case _:
            yield name, getattr(prior, name)
