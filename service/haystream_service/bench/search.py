"""An analyst who searches: verdicts on the best items and on random ones, true to a hidden relevance."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from haystream.collection.collection import Collection
from haystream.collection.graph import stable_hashes
from haystream.events import Item, Outcome, Verdict
from haystream.ranking.ranked import RankedItem
from haystream_service.sources import RELEVANT_GIVEN

RELEVANT = 0.25
"""The share of participants who are relevant: the prior mean of the model `relevance`."""

Truth = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Screening:
    """A verdict as the counts see it."""

    edges: tuple[int, ...]
    relevant: bool


@dataclass(slots=True)
class Search:
    """A share `following` of its verdicts are on the first item of the ranking, the others on items drawn from all.

    That is how a search goes: data pile up on a few participants and their edges, and still come from everywhere.
    """

    query_id: str
    collection: Collection
    rng: np.random.Generator
    truth: Truth | None = None
    """Whether an item is relevant; a simulated relevance if it is not known."""
    following: float = 0.5
    judged: dict[str, Outcome] = field(default_factory=dict)
    screened: list[str] = field(default_factory=list)
    """Items in the order in which `verdict` judged them."""
    screenings: list[Screening] = field(default_factory=list)
    """The verdicts of `verdict`."""
    _given: int = 0

    def verdict(self, top: Sequence[RankedItem]) -> Verdict:
        """A verdict on an item that has none."""
        item_id = top[0].item_id if top and self.rng.random() < self.following else self._random()
        relevant = self._relevant(item_id)
        self.screened.append(item_id)
        self.screenings.append(Screening(edges_of(self.collection, item_id), relevant))
        return self._say(item_id, Outcome.RELEVANT if relevant else Outcome.IRRELEVANT)

    def change(self) -> Verdict:
        """Another verdict on an item that has one: taken back, or turned round."""
        item_id = self.screened[int(self.rng.integers(len(self.screened)))]
        match self.judged[item_id]:
            case Outcome.RETRACTED:
                outcome = Outcome.RELEVANT if self._relevant(item_id) else Outcome.IRRELEVANT
            case _ if self.rng.random() < 0.5:
                outcome = Outcome.RETRACTED
            case Outcome.RELEVANT:
                outcome = Outcome.IRRELEVANT
            case _:
                outcome = Outcome.RELEVANT
        return self._say(item_id, outcome)

    def unjudged(self) -> int:
        """How many items are left."""
        return len(self.collection) - len(self.judged)

    def _random(self) -> str:
        ids = self.collection.item_ids
        while (item_id := ids[int(self.rng.integers(len(ids)))]) in self.judged:
            pass
        return item_id

    def _say(self, item_id: str, outcome: Outcome) -> Verdict:
        self.judged[item_id] = outcome
        self._given += 1
        return Verdict(f"v{self._given}", self.query_id, item_id, "analyst", outcome, self._given)

    def _relevant(self, item_id: str) -> bool:
        if self.truth is not None:
            return self.truth(item_id)
        edges = edges_of(self.collection, item_id)
        u, v = self.collection.graph.names(edges[int(self.rng.integers(len(edges)))])
        relevant = sum(drawn < RELEVANT * 2**64 for drawn in stable_hashes((u, v)).tolist())
        return bool(self.rng.random() < RELEVANT_GIVEN[relevant])


def edges_of(collection: Collection, item_id: str) -> tuple[int, ...]:
    """The edges that a known item lies on."""
    place = collection.index(item_id)
    if place is None:
        raise KeyError(item_id)
    return collection.sets.edges(collection.set_of(place))


class Arrivals:
    """Items that come while the search goes on."""

    def __init__(self, collection: Collection, rng: np.random.Generator) -> None:
        self._collection = collection
        self._rng = rng
        self._made = 0

    def on_known_edge(self) -> Item:
        """One more item on an edge that has some."""
        graph = self._collection.graph
        return self._item(*graph.names(int(self._rng.integers(graph.edges))))

    def on_new_edge(self) -> Item:
        """An item between two who had none: one of them is met as often as they have contacts; the other is new
        half of the time.
        """
        graph = self._collection.graph
        while True:
            known = graph.names(int(self._rng.integers(graph.edges)))[int(self._rng.integers(2))]
            if self._rng.random() < 0.5:
                return self._item(f"new{self._made}", known)
            other = graph.participants[int(self._rng.integers(len(graph)))]
            pair = (known, other) if known < other else (other, known)
            if other != known and graph.edge_between(pair) is None:
                return self._item(other, known)

    def _item(self, sender: str, recipient: str) -> Item:
        self._made += 1
        return Item(f"new{self._made}", self._collection.name, sender, (recipient,))
