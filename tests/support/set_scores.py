"""The policy `look-ahead-by-set`, as docs/method.md says it: one set at a time, in plain numbers."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Edge:
    """What is known of an edge: moments of P, its slope in the common mean, screenings (those pending too)."""

    mean: float
    variance: float
    slope: float
    screened: float


@dataclass(frozen=True)
class Record:
    """Items of a set: on offer, ever, with a verdict that counts, relevant, handed out."""

    left: int
    items: int
    screened: int
    relevant: int
    pending: int = 0


def by_set(edges: Sequence[Edge], record: Record, base_rate: float, horizon: int) -> float:
    """The score of each item of the set."""
    k, kappa = len(edges), 3.0
    hopeful = min(sum(e.mean + 0.25 * base_rate * e.slope for e in edges) / k, 1.0)
    spreads = [e.variance / max(e.mean * (1 - e.mean) - e.variance, 1e-12) for e in edges]
    worth = [kappa + e.screened for e in edges]
    doubt = sum(max(s - 1 / w, 0.0) for s, w in zip(spreads, worth, strict=True)) / k
    sure = sum(min(s * w, 1.0) for s, w in zip(spreads, worth, strict=True)) / k
    if k == 1:
        mean, seen = hopeful, edges[0].screened
    else:
        own = 1 - 1 / k
        mean = (kappa * hopeful + own * record.relevant) / (kappa + own * record.screened)
        seen = record.screened + record.pending
    spread = sure / (kappa * max(1.0, record.items / 8) + seen) + doubt
    after = (mean + spread) / (1 + spread)
    more = min(record.left, horizon) - 1
    return mean * (1 + more * after) / (1 + more * mean)
