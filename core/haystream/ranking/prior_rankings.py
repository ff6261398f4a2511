"""How a query that nobody has judged anything in ranks a collection: the same for all queries with its prior.

A query holds what differs from that (`set_ranking`), and nothing else. What is learned of the base rate moves every
score, so there is a ranking for each of its rounded values that a query has come to. One holds its best sets and
its totals: that is little, so that many are kept, and whoever comes to a value after others finds it there.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from haystream.collection.collection import Collection
from haystream.collection.item_sets import SetEdges
from haystream.events import Policy
from haystream.memory.arrays import Floats, Ints, Longs, Switches
from haystream.models.base import EdgeCounts, Posteriors
from haystream.models.common import Common
from haystream.ranking.scoring import Scored, Source, score_all, terms_of
from haystream.ranking.set_scores import SetCounts, moved_on
from haystream.ranking.tournament import LAST_HASH, TERMS, Hashes

MOST_RANKINGS = 256
"""Rankings kept of one prior, each of some 100 kB: queries come to the same base rates again and again."""

LEADERS = 4096
"""So many sets of a ranking are kept in order. A query that has more of them as its own asks for more."""

MADE_AT_ONCE = 16_384
"""So many sets are looked at in a turn of making a ranking: a millisecond or two, and what fits the cache."""


class PriorReadings(Protocol):
    """What is read off an engine that knows no verdict."""

    def scoring_at(self, edges: Ints, common: Common, counts: EdgeCounts) -> Posteriors:
        """Mean and variance of P to score by, and the slope, at these common quantities; with those counts."""
        ...

    def counts(self, edges: Ints) -> EdgeCounts:
        """Screened n, relevant y and unscreened items."""
        ...


Owned = Callable[[Ints], Switches]
"""Which of some sets a query has as its own, shape (k,)."""


class Leaders(NamedTuple):
    """Sets in rank order, best first, every member of shape (k,)."""

    sets: Ints
    score: Floats
    tie: Hashes

    def at(self, rows: Longs) -> "Leaders":
        """Those in some rows."""
        return Leaders(self.sets[rows], self.score[rows], self.tie[rows])

    def free(self, most: int, owned: Owned) -> "Leaders":
        """The first ones that are not `owned`, at most so many."""
        looked, found = 0, np.zeros(0, np.int64)
        while looked < len(self.sets) and len(found) < most:  # of thousands the first hundreds do
            more = self.sets[looked : looked + max(4 * most, looked)]
            found = np.append(found, looked + np.flatnonzero(~owned(more)))
            looked += len(more)
        return self.at(found[:most])

    def best(self, most: int) -> "Leaders":
        """The first `most` of these, which are in no order, by rank; they are in none either."""
        if len(self.sets) <= most:
            return self
        least = np.partition(self.score, -most)[-most]
        above, tied = np.flatnonzero(self.score > least), np.flatnonzero(self.score == least)
        room = most - len(above)
        return self.at(np.append(above, tied[np.argpartition(self.tie[tied], room - 1)[:room]]))

    def ordered(self) -> "Leaders":
        """These in rank order."""
        return self.at(np.lexsort((self.sets, self.tie, -self.score)))

    def with_more(self, others: "Leaders") -> "Leaders":
        """Others behind these."""
        sets, score = np.concatenate([self.sets, others.sets]), np.concatenate([self.score, others.score])
        return Leaders(sets, score, np.concatenate([self.tie, others.tie]))


LAST_TIE = np.uint64(LAST_HASH)

NO_LEADERS = Leaders(np.zeros(0, np.int32), np.zeros(0), np.zeros(0, np.uint64))


class PriorRankings:
    """The rankings of the first `items` items of a collection, as they were: what comes later changes nothing.

    Rankings are made when they are asked for, which another thread may do while the collection grows.
    """

    def __init__(self, collection: Collection, items: int, before: "PriorRankings | None" = None) -> None:
        """`before`: of fewer items of the collection, from which the new ones are counted on. Call `use` next."""
        sets, graph = collection.sets, collection.graph
        self.items = items
        self.sets = len(sets)
        """How many there are: they are numbered from 0."""
        self.left, self.tie = np.zeros(self.sets, np.int64), np.full(self.sets, LAST_HASH, np.uint64)
        """By set, its items but for those withdrawn, and the least of their hashes."""
        self.withdrawn = collection.withdrawn.size
        counted, taken = 0, 0
        if before is not None:
            counted, taken = before.items, before.withdrawn
            self.left[: before.sets], self.tie[: before.sets] = before.left, before.tie
        of = collection.sets_of(counted, items)
        np.add.at(self.left, of, 1)
        np.minimum.at(self.tie, of, collection.hashes_of(counted, items))
        gone = collection.sets_at(collection.withdrawn.data[taken : self.withdrawn])
        np.subtract.at(self.left, gone, 1)
        for which in set(gone.tolist()):
            first = collection.first_left(which)
            self.tie[which] = LAST_HASH if first is None else collection.hash_of(first)
        start = sets.start.view()[: self.sets + 1]
        self._layout = SetEdges(start, sets.edge.view()[: start[-1]])
        self._keys = graph.edge_key
        self._readings: PriorReadings
        self._known: dict[tuple[Policy, Common], PriorRanking] = {}

    def use(self, readings: PriorReadings) -> None:
        """Score by what these say from now on."""
        self._readings = readings

    def at(self, policy: Policy, common: Common) -> "PriorRanking":
        """The ranking at these common quantities, by a policy whose scores do not move by themselves."""
        return self._begun(policy, common).finished()

    def prepare(self, policy: Policy, common: Common) -> bool:
        """Do a part of what `at` will have to do, a millisecond or two; True if that is not all."""
        return self._begun(policy, common).make()

    def made(self, policy: Policy, common: Common) -> "PriorRanking | None":
        """The same if it is made already."""
        known = self._known.get(_key(policy, common))
        return known if known is not None and known.complete else None

    def glimpse(self, policy: Policy, common: Common, other: "PriorRanking | Glimpse", shift: float) -> "Glimpse":
        """The same before it is made, from another one, at common quantities whose mean is less by `shift`."""
        return Glimpse(self._begun(policy, common), other, shift)

    def _begun(self, policy: Policy, common: Common) -> "PriorRanking":
        key = _key(policy, common)
        ranking = self._known.pop(key, None) or PriorRanking(self, *key)
        self._known[key] = ranking  # the last to be let go
        for oldest in list(self._known)[:-MOST_RANKINGS]:
            del self._known[oldest]
        return ranking

    def scored(self, policy: Policy, common: Common, which: Ints | slice) -> Scored:
        """The scores of some sets, or of a stretch of them, at these common quantities."""
        layout, edges = self._layout.stretch(which) if isinstance(which, slice) else self._layout.of(which)
        of_edges = self._readings.counts(edges)
        moments = self._readings.scoring_at(edges, common, of_edges)
        source = Source(moments, of_edges, edges, self._keys, common.base_rate)
        return score_all(layout, self._counts(which), source, policy)

    def terms(self, common: Common, which: Ints) -> Floats:
        """What some sets add to the totals at these common quantities, shape (len(which), TERMS)."""
        if not len(which):
            return np.zeros((0, TERMS))
        layout, edges = self._layout.of(which)
        of_edges = self._readings.counts(edges)
        moments = self._readings.scoring_at(edges, common, of_edges)
        return terms_of(layout, self._counts(which), moments, of_edges)

    def _counts(self, which: Ints | slice) -> SetCounts:
        left = self.left[which]
        none: Longs = np.zeros(len(left), np.int64)
        return SetCounts(left, left, none, none, none)


class PriorRanking:
    """One of them: who leads, and what all of its items add up to. Good once `make` has nothing left to do."""

    def __init__(self, rankings: PriorRankings, policy: Policy, common: Common) -> None:
        self._rankings = rankings
        self._policy = policy
        self._common = common
        self._begin(LEADERS)

    def _begin(self, most: int) -> None:
        self.totals = np.zeros(TERMS)
        """Of the terms (`set_scores`) of all sets, shape (TERMS,)."""
        self._most = most
        self._made = 0
        self._least, self._last_tie = -np.inf, LAST_TIE
        """Whom so many are known to stand before scores less, or as much with a later tie."""
        self._leaders = NO_LEADERS

    def make(self) -> bool:
        """Look at the next MADE_AT_ONCE sets; True if there are more."""
        rankings, begin = self._rankings, self._made
        if begin == rankings.sets:
            return False
        end, least, last_tie = min(begin + MADE_AT_ONCE, rankings.sets), self._least, self._last_tie
        score, terms = rankings.scored(self._policy, self._common, slice(begin, end))
        totals, tie = self.totals + terms.sum(axis=0), rankings.tie[begin:end]
        good = np.flatnonzero((score > least) | ((score == least) & (tie <= last_tie)))
        known = self._leaders.with_more(Leaders((begin + good).astype(np.int32), score[good], tie[good]))
        if len(known.sets) > 2 * self._most:
            known = known.best(self._most)
            least = float(known.score.min())
            last_tie = known.tie[known.score == least].max()
        leaders = known.best(self._most).ordered() if end == rankings.sets else known
        # At last, as all queries share it: one that gets no memory above leaves it as it was.
        self._made, self.totals, self._least, self._last_tie, self._leaders = end, totals, least, last_tie, leaders
        return end < rankings.sets

    def finished(self) -> "PriorRanking":
        """This one, with all that was left to be made."""
        while self.make():
            pass
        return self

    def leaders(self, most: int, owned: Owned) -> Leaders:
        """The best sets but for those that are `owned`, at most so many."""
        while True:
            free = self._leaders.free(most, owned)
            if len(free.sets) == most or self.bound == -np.inf:
                return free
            more = PriorRanking(self._rankings, self._policy, self._common)
            more._begin(max(4 * self._most, most))
            vars(self).update(vars(more.finished()))

    def known_leaders(self, most: int, owned: Owned) -> Leaders:
        """Those of them that are kept in order: who is not among these scores `bound` at most."""
        return self._leaders.free(most, owned)

    @property
    def bound(self) -> float:
        """What all sets score at most that are not kept in order; −inf where all are."""
        known = self._leaders
        return float(known.score[-1]) if len(known.sets) < self._rankings.sets else -np.inf

    @property
    def complete(self) -> bool:
        """Whether nothing is left to be made."""
        return self._made == self._rankings.sets

    @property
    def best(self) -> Leaders:
        """Those that are kept in order."""
        return self._leaders

    def ordered(self, leaders: Leaders) -> Leaders:
        """These as they stand in this ranking, which need not be made for that."""
        score = self._rankings.scored(self._policy, self._common, leaders.sets).score
        return Leaders(leaders.sets, score, leaders.tie).ordered()

    @property
    def base_rate(self) -> float:
        """The common mean that it is made with."""
        return self._common.base_rate

    def terms(self, which: Ints) -> Floats:
        """What some sets add to the totals, shape (TERMS,)."""
        return np.asarray(self._rankings.terms(self._common, which).sum(axis=0))


class Glimpse:
    """A ranking that is not made yet: who leads in another one, at other common quantities, in the order that is
    right now; and that one's totals, moved on (`set_scores.moved_on`)."""

    def __init__(self, ranking: PriorRanking, other: "PriorRanking | Glimpse", shift: float) -> None:
        self._ranking = ranking
        self.best: Leaders = ranking.ordered(other.best)
        self.totals: Floats = other.totals + other.totals[-1] * moved_on(shift, ranking.base_rate)

    def leaders(self, most: int, owned: Owned) -> Leaders:
        """As `PriorRanking.leaders`, which it takes if it knows of fewer itself."""
        free = self.best.free(most, owned)
        return free if len(free.sets) == most else self._ranking.finished().leaders(most, owned)

    def known_leaders(self, most: int, owned: Owned) -> Leaders:
        """As `PriorRanking.known_leaders`, in the order that is right now."""
        return self.best.free(most, owned)

    @property
    def bound(self) -> float:
        """What all other sets score at most, but for those that what all share has moved by more."""
        return float(self.best.score[-1]) if len(self.best.sets) else -np.inf

    def terms(self, which: Ints) -> Floats:
        """What some sets add to the totals, shape (TERMS,)."""
        return self._ranking.terms(which)


def _key(policy: Policy, common: Common) -> tuple[Policy, Common]:
    return _without_chance(policy), common


@lru_cache(maxsize=256)
def _without_chance(policy: Policy) -> Policy:
    """The policy but for what only chance is made of: it is asked for several times a verdict."""
    return replace(policy, seed=0, epsilon=0.0)
