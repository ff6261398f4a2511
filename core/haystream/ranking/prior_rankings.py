"""How a query that nobody has judged anything in ranks a collection: the same for all queries with its prior.

A query holds what differs from that, and nothing of the rest (`queue`). What is learned of the base rate moves
every score, so there is a ranking for each of its rounded values that a query has come to. One holds its best sets
and its totals: that is little, so that many are kept, and whoever comes to a value after others finds it there.
"""

from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np

from haystream.arrays import Floats, Ints, Longs
from haystream.collection import Collection
from haystream.events import Policy
from haystream.models.base import Posteriors
from haystream.models.common import Common
from haystream.ranking.scoring import Scored, Source, score_all
from haystream.ranking.set_scores import SetCounts, SetEdges
from haystream.ranking.tournament import RESOLUTION, Hashes

LAST_HASH = int(np.iinfo(np.uint64).max)
"""The tie hash of a set that has nothing left."""

MOST_RANKINGS = 256
"""Rankings kept of one prior, each of some 100 kB: queries come to the same base rates again and again."""

LEADERS = 4096
"""So many sets of a ranking are kept in order. A query that has more of them as its own asks for more."""


class PriorReadings(Protocol):
    """What is read off an engine that knows no verdict."""

    def scoring_at(self, edges: Ints, common: Common) -> Posteriors:
        """Mean and variance of P to score by, and the slope, at these common quantities."""
        ...

    def counts(self, edges: Ints) -> tuple[Floats, Floats, Floats]:
        """Screened n, relevant y and unscreened items."""
        ...


class Leaders(NamedTuple):
    """Sets in rank order, best first, every member of shape (k,)."""

    sets: Ints
    score: Floats
    """As computed."""
    rounded: Floats
    """As they are compared."""
    tie: Hashes


class PriorRankings:
    """The rankings of the first `items` items of a collection, as they were: what comes later changes nothing.

    Rankings are made when they are asked for, which another thread may do while the collection grows.
    """

    def __init__(self, collection: Collection, readings: PriorReadings, items: int) -> None:
        sets, graph = collection.sets, collection.graph
        self.sets = len(sets)
        """How many there are: they are numbered from 0."""
        self.left, self.tie = np.zeros(self.sets, np.int64), np.full(self.sets, LAST_HASH, np.uint64)
        """By set, its items, and the least of their hashes."""
        of = collection.sets_of(0, items)
        np.add.at(self.left, of, 1)
        np.minimum.at(self.tie, of, collection.hashes_of(0, items))
        start = sets.start.view()[: self.sets + 1]
        self._layout = SetEdges(start, sets.edge.view()[: start[-1]])
        self._edges = np.arange(graph.edges, dtype=np.int32)
        self._keys = graph.edge_key
        self._readings = readings
        self._known: dict[tuple[Policy, Common], PriorRanking] = {}

    def at(self, policy: Policy, common: Common) -> "PriorRanking":
        """The ranking at these common quantities, by a policy whose scores do not move by themselves."""
        key = replace(policy, seed=0, epsilon=0.0), common
        ranking = self._known.pop(key, None) or PriorRanking(self, *key)
        self._known[key] = ranking  # the last to be let go
        for oldest in list(self._known)[:-MOST_RANKINGS]:
            del self._known[oldest]
        return ranking

    def scored(self, policy: Policy, common: Common, which: Ints | None = None) -> Scored:
        """The scores of some sets, or of all, at these common quantities."""
        layout, edges = self._layout, self._edges
        left = self.left
        if which is not None:
            layout, edges = layout.of(which)
            left = left[which]
        none: Longs = np.zeros(len(left), np.int64)
        readings, keys = self._readings, self._keys[edges]
        source = Source(readings.scoring_at(edges, common), readings.counts(edges), keys, common.base_rate)
        return score_all(layout, SetCounts(left, left, none, none, none), source, policy)


class PriorRanking:
    """One of them: who leads, and what all of its items add up to."""

    def __init__(self, rankings: PriorRankings, policy: Policy, common: Common) -> None:
        self._rankings = rankings
        self._policy = policy
        self._common = common
        self._make(LEADERS)

    def _make(self, most: int) -> None:
        score, terms = self._rankings.scored(self._policy, self._common)
        self.totals = terms.sum(axis=0)
        """Of the terms (`set_scores`) of all sets, shape (TERMS,)."""
        rounded, tie = np.round(score / RESOLUTION) * RESOLUTION, self._rankings.tie
        first: Ints = np.arange(len(score), dtype=np.int32)
        if most < len(score):
            least = np.partition(rounded, len(score) - most)[len(score) - most]
            above, level = np.flatnonzero(rounded > least), np.flatnonzero(rounded == least)
            wanted = most - len(above)
            if wanted < len(level):
                level = level[np.argpartition(tie[level], wanted)[:wanted]]
            first = np.concatenate([above, level]).astype(np.int32)
        first = first[np.lexsort((first, tie[first], -rounded[first]))]
        self._leaders = Leaders(first, score[first], rounded[first], tie[first])

    def leaders(self, most: int, owned: Ints) -> Leaders:
        """The best sets but for those whose entry in `owned` is not 0, at most so many."""
        while True:
            known = self._leaders
            free = np.flatnonzero(owned[known.sets] == 0)[:most]
            if len(free) == most or len(known.sets) == self._rankings.sets:
                return Leaders(known.sets[free], known.score[free], known.rounded[free], known.tie[free])
            self._make(max(4 * len(known.sets), most))

    def terms(self, which: Ints) -> Floats:
        """What some sets add to the totals, shape (TERMS,)."""
        return np.asarray(self._rankings.scored(self._policy, self._common, which).terms.sum(axis=0))
