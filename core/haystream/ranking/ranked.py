"""What is published of a query: its ranking, as plain values."""

from dataclasses import dataclass
from typing import NamedTuple

from haystream.events import Pair


@dataclass(frozen=True, slots=True)
class Estimate:
    """An expectation and its standard deviation."""

    mean: float
    sd: float


class Share(NamedTuple):
    """What the data on one edge add to (or take from) the adjusted expectation of an item's relevance."""

    participants: Pair
    share: float


class RankedItem(NamedTuple):
    """An item, its score under the policy, and the posterior of its relevance.

    `sent_at` is in microseconds since the Unix epoch; that and `uri` are None where nobody has said.
    """

    item_id: str
    rank: int
    score: float
    mean: float
    sd: float
    participants: tuple[str, ...]
    because: tuple[Share, ...]
    sent_at: int | None = None
    uri: str | None = None


@dataclass(frozen=True, slots=True)
class Ranking:
    """What is published to next-items, but for the query's name, the revision and the time."""

    policy: str
    screened: int
    found: int
    expected_remaining: Estimate
    discrepancy: float
    items: tuple[RankedItem, ...]
