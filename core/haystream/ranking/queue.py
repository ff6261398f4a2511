"""The unscreened items of a query in the order in which to read them."""

import math
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter

import numpy as np

from haystream.arrays import Flags, Floats, Growing, Ints, Longs
from haystream.collection import Collection
from haystream.compiled import allocating
from haystream.engines.contract import Engine
from haystream.engines.local.ahead import Ahead
from haystream.events import Policy
from haystream.models.common import Common
from haystream.ranking.first import First
from haystream.ranking.late import AT_ONCE, CANDIDATES, LATE_AT_ONCE, LateSets, moved_on
from haystream.ranking.policies import POLICIES, Moves, jump_of
from haystream.ranking.prior_rankings import MADE_AT_ONCE, Glimpse, PriorRanking, PriorRankings
from haystream.ranking.ranked import Estimate, RankedItem
from haystream.ranking.reasons import Reasons
from haystream.ranking.scoring import Source, score_all
from haystream.ranking.set_scores import (
    ONE_MATTER,
    OPTIMISM,
    CountedSets,
    SetCounts,
    SetEdges,
    counts_of,
    numbers_of,
)
from haystream.ranking.tournament import LAST_HASH, TERMS, Hashes, Ties, Tournament, ties_of
from haystream.ranking.turns import Turns

DUE, LATE = 1, 2
"""Flags of a set: to be scored again at the next `rescore`, or when there is time (`late`)."""


@allocating
def sets_on(edges: Ints, last_link: Ints, linked: Ints, previous_link: Ints, place: Ints, flags: Flags) -> Ints:
    """The sets on `edges` that are not owned (`place`), or not DUE by their flags, each once, shape (k,)."""
    found, count = np.empty(16 + len(edges), np.int32), 0
    for i in range(len(edges)):
        link = last_link[edges[i]]
        while link >= 0:
            which = linked[link]
            if place[which] == 0 or (place[which] > 0 and flags[place[which] - 1] != DUE):
                if count == len(found):
                    found = np.append(found, np.empty(count, np.int32))
                found[count] = which
                count += 1
                if place[which] == 0:
                    place[which] = -1
                else:
                    flags[place[which] - 1] = DUE
            link = previous_link[link]
    for i in range(count):
        which = found[i]
        if place[which] < 0:
            place[which] = 0
        else:
            flags[place[which] - 1] = 0
    return found[:count]


class Queue:
    """The unscreened items by set: in a tournament by score those of the query's own, which differ from what the
    prior says of them; behind these all others, as they lie in the ranking by the prior.

    What differs is owned once and for all. Where that is most, or no ranking by the prior is given, all is owned.
    """

    def __init__(self, collection: Collection, policy: Policy, prior: PriorRankings | None = None) -> None:
        self._collection = collection
        self._policy = policy
        self.scores_edges = POLICIES[policy.name].score is not None
        """Whether a set's score is made of its edges': then an item may move those of other sets on its edges."""
        self._prior = prior
        self._left_before: Longs = prior.left if prior else np.zeros(0, np.int64)
        """Items of each set that the query begins with, shape (sets of the prior,)."""
        self._tie_before: Hashes = prior.tie if prior else np.zeros(0, np.uint64)
        """The hash of the first of them."""
        self._base: PriorRanking | Glimpse | None = None
        """The ranking of all that is not owned."""
        self._owned_terms: Floats = np.zeros(TERMS)
        """What it says of sets that are owned."""
        self._taken: set[int] = set()
        self._holding: set[int] = set()
        """The sets that have items which are unscreened and not to be offered (`_pending` says how many)."""
        self._skip: dict[int, int] = {}
        self._place = Growing(np.int32)
        """By set: 0, or 1 more than its place in the columns of those that are owned."""
        self._set = Growing(np.int32)
        """By place: the set, or −1 − its row in the counts, where anything was counted that the query did not begin
        with."""
        self._number = Growing(np.int32)
        """By row, as those that follow: the set."""
        self._tie = Growing(np.uint64, fill=LAST_HASH)
        """The hash of its first item."""
        self._left = Growing(np.int32)
        self._items = Growing(np.int32)
        self._screened = Growing(np.int32)
        self._relevant = Growing(np.int32)
        self._pending = Growing(np.int32)
        self._flags = Growing(np.uint8)
        """DUE where a set is to be scored again; or LATE."""
        self._late: LateSets | None = None
        self._scored = 0
        """How many were owned at the last `rescore`."""
        self._tournament = Tournament()
        self._turns = Turns()
        self._step = -1
        self._common: Common | None = None
        """What all share, as scores were last made with."""
        self._first: First | None = None
        """Who leads, as it was last asked for; None where that may have changed."""
        self._reasons = Reasons(collection)

    def use(self, policy: Policy) -> None:
        """Score by another policy from the next `rescore` on."""
        self._policy, self.scores_edges = policy, POLICIES[policy.name].score is not None
        self._step, self._common, self._first, self._late = -1, None, None, None

    def add(self, begin: int, end: int) -> None:
        """New items, at places begin … end − 1 of the collection; unscreened."""
        of = self._collection.sets_of(begin, end)
        row = self._counted(of)
        np.add.at(self._left.data, row, 1)
        np.add.at(self._items.data, row, 1)
        np.minimum.at(self._tie.data, row, self._collection.hashes_of(begin, end))
        for which in self._skip.keys() & of.tolist() if self._skip else ():
            del self._skip[which]  # an item may come before the first unscreened one

    def offer(self, item: int, *, available: bool) -> None:
        """Take an item out of the queue, or put it back."""
        which = self._collection.set_of(item)
        row, tie = self._counted_one(which), self._tie.data
        if available:
            self._taken.discard(item)
            self._left.data[row] += 1
            tie[row] = min(int(tie[row]), self._collection.hash_of(item))
            self._skip.pop(which, None)  # it may come before the first unscreened one
        else:
            self._taken.add(item)
            self._left.data[row] -= 1
            tie[row] = self._first_hash(which)

    def hold(self, item: int, *, held: bool) -> None:
        """Take an unscreened item out of the queue though it is among what remains, or put it back."""
        which = self._collection.set_of(item)
        row = self._counted_one(which)
        self._pending.data[row] += 1 if held else -1
        if self._pending.data[row]:
            self._holding.add(which)
        else:
            self._holding.discard(which)
        self.offer(item, available=not held)

    def withdraw(self, items: Ints) -> None:
        """Take items out for good, and out of what their sets are known to hold; places of the collection."""
        of = self._collection.sets_at(items)
        row = self._counted(of)
        free = np.array([item not in self._taken for item in items.tolist()], dtype=np.int32)
        np.subtract.at(self._left.data, row, free)
        np.subtract.at(self._items.data, row, 1)
        for at, which in set(zip(row.tolist(), of.tolist(), strict=True)):
            self._tie.data[at] = self._first_hash(which)

    def judge(self, item: int, *, screened: int, relevant: int) -> None:
        """Add to (or, with −1, take from) what is known of the item's set."""
        row = self._counted_one(self._collection.set_of(item))
        self._screened.data[row] += screened
        self._relevant.data[row] += relevant

    # ---- what is owned ----

    def _counted_one(self, which: int) -> int:
        # Most have a row, and arrays of one cost several times what is done with them: a verdict asks twice.
        place = int(self._place.data[which]) - 1 if which < self._place.size else -1
        if place >= 0 and self._set.data[place] < 0:
            self._flags.data[place] = DUE
            return -1 - int(self._set.data[place])
        return int(self._counted(np.array([which], np.int32))[0])

    def _counted(self, of: Ints) -> Ints:
        """Own these sets; return the row of each in the counts, shape (len(of),)."""
        at = self._own(of)
        new = at[self._set.data[at] >= 0]
        if len(new):
            new = np.unique(new)
            known, count = self._number.size, self._number.size + len(new)
            self._tie.resize(count)
            for column in (self._number, *self._counts):
                column.resize(count)
            sets = self._number.data[known:count] = self._set.data[new]
            began = np.flatnonzero(sets < len(self._left_before))
            self._tie.data[known + began] = self._tie_before[sets[began]]
            self._left.data[known + began] = self._items.data[known + began] = self._left_before[sets[began]]
            self._set.data[new] = -1 - np.arange(known, count)
        return -1 - self._set.data[at]

    @property
    def _counts(self) -> tuple[Growing[np.int32], ...]:
        """As in `SetCounts`."""
        return self._left, self._items, self._screened, self._relevant, self._pending

    def _counts_at(self, at: Ints) -> SetCounts:
        counts = SetCounts(*(column.data for column in self._counts))
        return SetCounts(*counts_of(at, self._counted_sets, counts))

    def _sets(self, at: Ints) -> Ints:
        """The sets at some places, shape (len(at),)."""
        return numbers_of(at, self._counted_sets)

    @property
    def _counted_sets(self) -> CountedSets:
        return CountedSets(self._set.data, self._number.data, self._left_before)

    @property
    def _ties(self) -> Ties:
        return Ties(self._set.data, self._tie.data, self._tie_before)

    def _own(self, of: Ints) -> Ints:
        """Have these sets as the query's own, to be scored again; return the place of each, shape (len(of),)."""
        self._place.resize(len(self._collection.sets))
        new = of[self._place.data[of] == 0]
        if len(new):
            new = np.unique(new)
            known, count = self._set.size, self._set.size + len(new)
            for column in (self._set, self._flags):
                column.resize(count)
            self._tournament.resize(count, self._ties)
            self._place.data[new] = np.arange(known, count) + 1
            self._set.data[known:count] = new
        at = self._place.data[of] - np.int32(1)
        self._flags.data[at] = DUE
        return at

    @property
    def _scores(self) -> Floats:
        """The score of each set that is owned."""
        return self._tournament.places.score

    def _own_all(self) -> None:
        """Leave the ranking by the prior: every set of it is to be scored here."""
        if self._prior is not None:
            self._own(np.arange(self._prior.sets, dtype=np.int32))
            self._prior, self._base, self._owned_terms = None, None, np.zeros(TERMS)

    # ---- scores ----

    def rescore(self, engine: Engine, edges: Ints, *, step: int) -> None:
        """Take in the edges' new posteriors, and the sets that gained or lost items."""
        common, sets = engine.readings.rounded_common(), self._collection.sets
        chance = POLICIES[self._policy.name].moves is not Moves.NEVER
        edges = self._also_moved(edges, step) if chance else edges
        if self._prior is not None and (chance or 2 * max(len(edges), self._set.size) > self._prior.sets):
            self._own_all()
        self._place.resize(len(sets))
        chains = sets.links.last.data, sets.linked.data, sets.links.previous.data
        if len(edges):
            self._own(sets_on(edges, *chains, self._place.data, self._flags.data))
        moved = common != self._common
        at = np.flatnonzero(self._flags.view() == DUE).astype(np.int32)
        if not len(at) and not moved:
            return
        self._reasons.forget(self._sets(at))
        if moved:
            at = self._take_common(common, at, engine, step)
        self._flags.data[at] = 0
        self._score_own(engine, at, step)
        if moved or (self._first and self._first.changes_with(self._sets(at), self._scores[at])):
            self._first = None
        if self._prior is not None and self._base is not None:
            new = self._sets(np.arange(self._scored, self._set.size, dtype=np.int32))
            self._owned_terms += self._base.terms(new[new < self._prior.sets])
        self._scored = self._set.size

    def _take_common(self, common: Common, due: Ints, engine: Engine, step: int) -> Ints:
        """Go on to other common quantities; return the places of the sets that are to be scored by them now.

        These are all of them, or, where that would take long, the best and those that are `due` (`late`).
        """
        before, self._common, prior, self._late = self._common, common, self._prior, None
        made = prior.made(self._policy, common) if prior is not None else None
        soon = made is not None or prior is None or self._base is None or prior.sets <= MADE_AT_ONCE
        by_chance = POLICIES[self._policy.name].moves is not Moves.NEVER
        if before is None or by_chance or (soon and self._set.size <= AT_ONCE):
            self._scored, self._owned_terms = 0, np.zeros(TERMS)
            self._base = prior.at(self._policy, common) if prior is not None else None
            return np.arange(self._set.size, dtype=np.int32)
        self._late = LateSets(engine, common, step)
        shift = common.mean_shift - before.mean_shift
        best = self._tournament.leaders(CANDIDATES, self._ties)
        self._tournament.retire(moved_on(shift, common.base_rate))
        self._flags.view()[:] = LATE
        if prior is not None and self._base is not None:
            self._owned_terms = self._owned_terms + self._owned_terms[-1] * moved_on(shift, common.base_rate)
            self._base = made or prior.glimpse(self._policy, common, self._base, shift)
        return np.union1d(best, due)

    @property
    def owned(self) -> int:
        """How many sets are the query's own: it scores these by itself."""
        return self._set.size

    @property
    def late(self) -> bool:
        """Whether sets wait for `make_up`."""
        return self._late is not None

    def make_up(self) -> None:
        """Score some of the sets that wait since what all share moved, a millisecond or two: see `late`."""
        late, prior = self._late, self._prior
        if late is None or (prior is not None and prior.prepare(self._policy, late.common)):
            return
        begin, end = late.made, min(late.made + LATE_AT_ONCE, self._scored)
        at = begin + np.flatnonzero(self._flags.data[begin:end] == LATE).astype(np.int32)
        self._flags.data[at] = 0
        self._score_own(late.engine, at, late.step)
        if self._first and self._first.changes_with(self._sets(at), self._scores[at]):
            self._first = None
        late.made = end
        if prior is not None:
            base, owned = prior.at(self._policy, late.common), self._sets(np.arange(begin, end, dtype=np.int32))
            late.owned_terms += base.terms(owned[owned < prior.sets])
            if end == self._scored:
                self._base, self._owned_terms, self._first = base, late.owned_terms, None
        if end == self._scored:
            self._late = None

    def foresee(self, engine: Engine, top: int) -> bool:
        """Do a part of what the next verdict will ask for, if it is on the best item; True if there is more to do.

        That is the ranking by the prior, where a verdict would take the base rate to another of its steps. The
        first `top` items are known then, too, so that news can be compared with them.
        """
        best = self.first(top)
        if self._prior is None or not best:
            return False
        edge = self._collection.sets.edges(best[0][1])[0]
        return any(self._prior.prepare(self._policy, common) for common in engine.readings.rounded_after(edge))

    def _score_own(self, engine: Engine, at: Ints, step: int) -> None:
        readings, sets = engine.readings, self._collection.sets
        layout, edges = SetEdges(sets.start.view(), sets.edge.view()).of(self._sets(at))
        counts, keys = readings.counts(edges), self._collection.graph.edge_key
        base_rate, lap = readings.rounded_common().base_rate, self._turns.lap
        source = Source(readings.scoring(edges, counts), counts, edges, keys, base_rate, step, lap)
        scored = score_all(layout, self._counts_at(at), source, self._policy)
        self._tournament.set(at, *scored, self._ties)

    def _also_moved(self, edges: Ints, step: int) -> Ints:
        """With those edges, all whose scores move because the step does."""
        moves, keys = POLICIES[self._policy.name].moves, self._collection.graph.edge_key
        before, self._step = self._step, step
        new_lap = self._turns.follow(keys)
        jump = moves is Moves.IN_JUMPS and jump_of(before, self._turns.lap) != jump_of(step, self._turns.lap)
        if before < 0 or new_lap or jump:
            return np.arange(len(keys), dtype=np.int32)
        if moves is Moves.IN_TURN and step != before:
            return np.union1d(edges, self._turns.between(before, step, keys))
        return edges

    def _first_hash(self, which: int) -> int:
        return next(map(self._collection.hash_of, self._unscreened(which)), LAST_HASH)

    def _unscreened(self, which: int) -> Iterator[int]:
        members, taken, gone = self._collection.members.ordered(which), self._taken, self._collection.withdrawals
        begin = self._skip.get(which, 0)
        while begin < len(members) and (members[begin] in taken or members[begin] in gone):
            begin += 1
        self._skip[which] = begin
        for item in islice(members, begin, None):
            if item not in taken and item not in gone:
                yield item

    # ---- reading ----

    def remaining(self, engine: Engine) -> Estimate:
        """Expected relevant items left: scored at the rounded common mean, moved to where it is, and to what is
        learned of the concentrations. What stays unknown of them adds to the posterior's variance.
        """
        totals = self._tournament.totals() + self._held_terms(engine)
        if self._base is not None:
            totals += self._base.totals - self._owned_terms
        mean, flips, slope = totals.tolist()
        moved = engine.readings.common().mean_shift - engine.readings.rounded_common().mean_shift
        log_c, doubt = engine.readings.concentration()
        on_c = engine.readings.concentration_slope() if doubt else 0.0
        variance = flips + engine.readings.remaining_variance() + on_c * on_c * doubt
        return Estimate(max(mean + slope * moved + on_c * log_c, 0.0), math.sqrt(variance))

    def _held_terms(self, engine: Engine) -> Floats:
        """What items that are held add to the totals (`score_sets`)."""
        if not self._holding:
            return np.zeros(TERMS)
        sets = sorted(self._holding)
        edges, first, k = self._edges_of(sets)
        mean, variance, slope = (np.add.reduceat(column, first) / k for column in engine.readings.scoring(edges))
        flips = np.maximum(mean - mean * mean - variance / k, 0.0)
        held = self._counts_at(self._place.data[sets] - np.int32(1)).pending
        return np.asarray(held @ np.column_stack([mean, flips, slope]))

    def _edges_of(self, sets: Sequence[int]) -> tuple[Ints, Longs, Longs]:
        """The edges of the sets one after the other, at which of them each set begins, and how many each has."""
        edges = [self._collection.sets.edges(which) for which in sets]
        k = np.array([len(on) for on in edges])
        return np.array([e for on in edges for e in on], dtype=np.int32), np.cumsum(k) - k, k

    def moments(self, engine: Engine, sets: Sequence[int]) -> tuple[Floats, Floats]:
        """Posterior mean and variance of the relevance of an item of each set, exact, shape (len(sets),)."""
        if not sets:
            return np.zeros(0), np.zeros(0)
        edges, first, k = self._edges_of(sets)
        mean, variance = engine.readings.edges(edges)
        return np.add.reduceat(mean, first) / k, np.add.reduceat(variance, first) / (k * k)

    def items(self, most: int | None = None) -> Iterator[tuple[int, int, float]]:
        """(item, its set, score) in rank order: best score first, ties by the items' hashes.

        All of them, or the first `most` (a few more may come).
        """
        while self.late and (most is None or most > CANDIDATES // 4):
            self.make_up()
        leaders = self._leaders(len(self._collection.sets) if most is None else most)
        for less, tied in groupby(leaders, key=itemgetter(0)):
            for item, which in self._merged([which for _, _, which in tied]):
                yield item, which, -less

    def first(self, most: int) -> Sequence[tuple[int, int, float]]:
        """The first `most` of `items`, or all that there are. Costs nothing where nobody has come or gone since."""
        if self._first is None or self._first.most < most:
            self._first = First(self._collection, most, list(islice(self.items(most), most)))
        return self._first.items[:most]

    def known_first(self, most: int) -> "First | None":
        """The first `most` items as they were last asked for; None where they may have changed since."""
        return self._first.at_most(most) if self._first and self._first.most >= most else None

    # ---- what is not followed yet ----

    def not_own(self, sets: tuple[int, ...], known_edges: int) -> tuple[tuple[int, ...], list[int]]:
        """Those of the sets that are as the prior says, or as it will say, and the others, in the same order.

        The former are not the query's own, or none of their edges is among the first so many, which are known.
        """
        known, place, edges = self._place.size, self._place.data, self._collection.sets.edges
        for which in sets:
            if place[which] if which < known else edges(which)[0] < known_edges:
                break
        else:
            return sets, []
        others = [
            which for which in sets if (not place[which] if which < known else edges(which)[0] >= known_edges)
        ]
        return tuple(others), sorted(set(sets).difference(others))

    def most_by_prior(self, which: int, mean: float) -> float:
        """What a set that is as the prior says scores at most with the items that it has got; inf where that is not
        plain.

        That is a bound of `score_ahead` at a glance, for policies that score sets: it comes to
        M L / (1 + (L - 1) M) at most by M⁺ ≤ 1 (`stopping_score`), and to (Q L + M) / (Q L + 1), Q = q/(1 - q),
        by T ≥ 1 (`streak_score`), `mean` being the most that its edges' means are.
        """
        hoped, count = (1.0 + OPTIMISM) * mean, self._collection.items_left(which)
        if hoped >= 1.0:
            return math.inf
        rest = min(count, self._policy.horizon) - 1.0
        whole = ONE_MATTER * hoped / (1.0 - ONE_MATTER * hoped) * count
        return max(hoped * (1.0 + rest) / (1.0 + rest * hoped), (whole + hoped) / (whole + 1.0))

    def stays_below(self, which: int, score: float) -> bool:
        """Whether it is plain that one of the query's own sets will score less than that with the items that it has
        got, for policies that score sets.

        One that has items left comes to as many times its score as it has items then, unless all that was screened
        of it is relevant.
        """
        if which >= self._place.size:
            return False
        place = int(self._place.data[which]) - 1
        if self._flags.data[place]:
            return False
        row = -1 - int(self._set.data[place])
        left = items = int(self._left_before[which]) if which < len(self._left_before) else 0
        if row >= 0:
            left, items = int(self._left.data[row]), int(self._items.data[row])
            if 0 < self._relevant.data[row] == self._screened.data[row]:
                return False
        count = self._collection.items_left(which)
        return left > 0 and bool(self._scores[place] * (left + count - items) < score * left)

    def score_ahead(self, ahead: Ahead, which: Ints, more: int) -> Floats:
        """What sets will score at most with all items that the collection has, `more` than were added here.

        For a policy whose scores do not move by themselves; shape (len(which),).
        """
        sets = self._collection.sets
        layout, edges = SetEdges(sets.start.view(), sets.edge.view()).of(which)
        moments, (screened, relevant, left) = ahead.scoring(edges)
        keys, base_rate = self._collection.graph.edge_key, ahead.base_rate
        source = Source(moments, (screened, relevant, left + more), edges, keys, base_rate)
        return score_all(layout, self._counts_ahead(which), source, self._policy).score

    def _counts_ahead(self, which: Ints) -> SetCounts:
        items = np.array([self._collection.items_left(each) for each in which.tolist()], np.int64)
        counts = SetCounts(items, items.copy(), *np.zeros((3, len(which)), np.int64))
        known = np.flatnonzero(which < self._place.size)
        known = known[self._place.data[which[known]] > 0]
        now = self._counts_at(self._place.data[which[known]] - np.int32(1))
        counts.left[known] += now.left - now.items
        for column, of_known in zip(counts[2:], now[2:], strict=True):
            column[known] = of_known
        return counts

    def _leaders(self, most: int) -> Iterator[tuple[float, int, int]]:
        """(score, negative; tie hash; set) of the best sets, in rank order, at least so many."""
        at, ties = self._tournament.leaders(most, self._ties), self._ties
        columns = [(-self._scores[at], ties_of(at, ties), self._sets(at))]
        if self._base is not None:
            sets, score, tie = self._base.leaders(most, self._place.data)
            columns.append((-score, tie, sets))
        return merge(*(zip(*(column.tolist() for column in of), strict=True) for of in columns))

    def _merged(self, tied: list[int]) -> Iterator[tuple[int, int]]:
        """(item, set) of the sets' unscreened items by the items' hashes."""
        if len(tied) <= 1:
            return ((item, which) for which in tied for item in self._unscreened(which))
        return ((item, which) for _, item, which in merge(*map(self._hashed, tied)))

    def _hashed(self, which: int) -> Iterator[tuple[int, int, int]]:
        """(hash, item, set) of the set's unscreened items."""
        for item in self._unscreened(which):
            yield self._collection.hash_of(item), item, which

    def best(self, engine: Engine, top: int) -> Iterator[RankedItem]:
        """The first `top` items, with what made their scores."""
        items = self.first(top)
        sets = list(dict.fromkeys(which for _, which, _ in items))
        mean, variance = self.moments(engine, sets)
        told = {
            which: (m, s, self._collection.set_participants(which), because)
            for which, m, s, because in zip(
                sets, mean.tolist(), np.sqrt(variance).tolist(), self._reasons.of(engine, sets), strict=True
            )
        }
        details = self._collection.details
        for rank, (item, which, score) in enumerate(items, start=1):
            yield RankedItem(self._collection.item_ids[item], rank, score, *told[which], *details.of(item))
