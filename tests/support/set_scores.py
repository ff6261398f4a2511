"""The policy `look-ahead-by-set`, as docs/policies.md says it: one set at a time, in plain numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod


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
    score = mean * (1 + more * after) / (1 + more * mean)
    if record.screened > record.relevant or record.pending > record.relevant:
        return score
    return max(score, streak(edges, record, base_rate, mean, sure))


def streak(edges: Sequence[Edge], record: Record, base_rate: float, mean: float, sure: float) -> float:
    """Of a set in which everything screened was relevant: finds over screenings until something is not."""
    k, kappa, y = len(edges), 3.0, record.relevant
    seen = [e.screened - record.pending / k for e in edges]
    without = [
        max((e.mean * (kappa + n) - y / k) / max(kappa + n - y / k, kappa), 0.0) + 0.25 * base_rate * e.slope
        for e, n in zip(edges, seen, strict=True)
    ]
    before = min(sum(without) / k, 1.0)
    size = kappa * max(1.0, record.items / 8)
    all_hit = prod((size * before + sure * j) / (size + sure * j) for j in range(y))
    one, other = 0.01 * sure * before, (1 - 0.01 * sure * before) * all_hit
    q = one / (one + other) if one else 0.0
    tries = sum(mean**j for j in range(record.left))
    return (q * record.left + (1 - q) * mean * tries) / (q * record.left + (1 - q) * tries)
