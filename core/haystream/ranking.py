"""The unscreened items of a query in the order in which to read them."""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from haystream.collection import Collection
from haystream.engines.base import Engine, Ints
from haystream.events import Pair, Policy
from haystream.growing import Growing
from haystream.policies import POLICIES, Posteriors
from haystream.tournament import Tournament

LAST = np.iinfo(np.uint64).max
"""The tie hash of a set that has nothing left."""

BECAUSE = 5
"""How many shares an item's `because` names: the largest ones."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """An expectation and its standard deviation."""

    mean: float
    sd: float


@dataclass(frozen=True, slots=True)
class Share:
    """What the data on one edge add to (or take from) the adjusted expectation of an item's relevance."""

    participants: Pair
    share: float


@dataclass(frozen=True, slots=True)
class RankedItem:
    """An item, its score under the policy, and the posterior of its relevance."""

    item_id: str
    rank: int
    score: float
    mean: float
    sd: float
    participants: tuple[str, ...]
    because: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class Ranking:
    """What is published to next-items, but for the query's name, the revision and the time."""

    policy: str
    screened: int
    found: int
    expected_remaining: Estimate
    discrepancy: float
    items: tuple[RankedItem, ...]


class Queue:
    """The unscreened items by set, the sets in a tournament by score.

    A set's score is the mean of its edges' scores: an item on k edges is drawn from one of them uniformly.
    """

    def __init__(self, collection: Collection, policy: Policy) -> None:
        self._collection = collection
        self._policy = policy
        self._taken: set[int] = set()
        self._skip: dict[int, int] = {}
        self._left = Growing(np.int64)
        self._mean = Growing(np.float64)
        self._variance = Growing(np.float64)
        self._score = Growing(np.float64)
        self._tournament = Tournament()
        self._changed: set[int] = set()
        self._step = 0

    def use(self, policy: Policy) -> None:
        """Score by another policy from the next `rescore` on."""
        self._policy = policy
        self._step = -1

    def add(self, item: int) -> None:
        """A new item, unscreened."""
        which = self._collection.set_of(item)
        self._left.resize(len(self._collection.set_edges))
        self._left.data[which] += 1
        self._skip.pop(which, None)  # it may come before the first unscreened one
        self._changed.add(which)

    def offer(self, item: int, *, available: bool) -> None:
        """Take an item out of the queue, or put it back."""
        which = self._collection.set_of(item)
        if available:
            self._taken.discard(item)
            self._skip.pop(which, None)
        else:
            self._taken.add(item)
        self._left.data[which] += 1 if available else -1
        self._changed.add(which)

    def rescore(self, engine: Engine, edges: Ints, *, step: int) -> None:
        """Take in the edges' new posteriors, and the sets that gained or lost items."""
        collection = self._collection
        new = collection.graph.edges - self._mean.size
        if new > 0:
            for column in (self._mean, self._variance, self._score):
                column.resize(collection.graph.edges)
        self._left.resize(len(collection.set_edges))
        self._tournament.resize(len(collection.set_edges))
        if len(edges):
            self._mean.data[edges], self._variance.data[edges] = engine.edges(edges)
        entry = POLICIES[self._policy.name]
        if self._step < 0 or (entry.moves_with_step and step != self._step):
            edges = np.arange(collection.graph.edges, dtype=np.int32)
        self._step = step
        if len(edges):
            self._score.data[edges] = entry.score(
                Posteriors(
                    self._mean.data[edges], self._variance.data[edges], collection.graph.edge_key[edges], step
                ),  # type: ignore[arg-type]
                self._policy,
            )
            for edge in edges.tolist():
                self._changed.update(collection.edge_sets[edge])
        if self._changed:
            self._enter(np.array(sorted(self._changed), dtype=np.int32))
            self._changed.clear()

    def _enter(self, which: Ints) -> None:
        score, terms = np.empty(len(which)), np.zeros((len(which), 2))
        tie = np.full(len(which), LAST, np.uint64)
        for i, entry in enumerate(which.tolist()):
            left = int(self._left.data[entry])
            if left == 0:
                score[i] = -np.inf
                continue
            mean, spread = self._of_set(entry)
            score[i] = self._average(self._score.view(), entry)
            first = next(self._unscreened(entry))
            tie[i] = self._collection.hash_of(first)
            # Items of a set are coin flips given P: E[Var] = left · E[p(1 - p)], p the mean of the P's.
            terms[i] = left * mean, left * max(mean - mean * mean - spread, 0.0)
        self._tournament.set(which, score, tie, terms)

    def _average(self, column: NDArray[np.generic], which: int) -> float:
        edges = self._collection.set_edges[which]
        if len(edges) == 1:
            return float(column[edges[0]])  # type: ignore[arg-type]
        return float(column[list(edges)].mean())  # type: ignore[attr-defined]

    def _of_set(self, which: int) -> tuple[float, float]:
        """Mean and variance of a set's P, the edges' P's taken as uncorrelated."""
        edges = len(self._collection.set_edges[which])
        return self._average(self._mean.view(), which), self._average(self._variance.view(), which) / edges

    def _unscreened(self, which: int) -> Iterator[int]:
        members = self._collection.set_items[which]
        begin = self._skip.get(which, 0)
        while begin < len(members) and members[begin] in self._taken:
            begin += 1
        self._skip[which] = begin
        for item in islice(members, begin, None):
            if item not in self._taken:
                yield item

    # ---- reading ----

    def totals(self) -> tuple[float, float]:
        """Expected relevant items left, and the part of its variance that is the items' own coin flips."""
        return self._tournament.totals()

    def items(self) -> Iterator[tuple[int, float, float, float]]:
        """(item, score, mean, variance) in rank order: best score first, ties by the items' hashes."""
        collection, sets = self._collection, self._tournament.descending()
        heap: list[tuple[float, int, int, int]] = []
        open_sets: dict[int, Iterator[int]] = {}
        upcoming = next(sets, None)

        def enter(which: int, item: int) -> None:
            heappush(heap, (-self._tournament.score(which), collection.hash_of(item), item, which))

        while heap or upcoming is not None:
            while upcoming is not None:
                items = self._unscreened(upcoming)
                first = next(items)
                key = (-self._tournament.score(upcoming), collection.hash_of(first))
                if heap and heap[0][:2] < key:
                    break
                open_sets[upcoming] = items
                enter(upcoming, first)
                upcoming = next(sets, None)
            _, _, item, which = heappop(heap)
            following = next(open_sets[which], None)
            if following is not None:
                enter(which, following)
            yield item, self._average(self._score.view(), which), *self._of_set(which)

    def best(self, engine: Engine, top: int) -> Iterator[RankedItem]:
        """The first `top` items, with what made their scores."""
        graph = self._collection.graph
        shares: dict[int, tuple[Share, ...]] = {}
        for rank, (item, score, mean, variance) in enumerate(islice(self.items(), top), start=1):
            which = self._collection.set_of(item)
            if which not in shares:
                largest = engine.shares(self._collection.set_edges[which])[:BECAUSE]
                shares[which] = tuple(Share(graph.names(edge), share) for edge, share in largest)
            yield RankedItem(
                item_id=self._collection.item_ids[item],
                rank=rank,
                score=score,
                mean=mean,
                sd=float(np.sqrt(variance)),
                participants=self._collection.set_participants(which),
                because=shares[which],
            )
