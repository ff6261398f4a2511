"""The unscreened items of a query in the order in which to read them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter

import numpy as np

from haystream.arrays import Flags, Floats, Growing, Ints
from haystream.collection import Collection
from haystream.compiled import compiled
from haystream.engines.contract import Engine
from haystream.events import Policy
from haystream.ranking.policies import POLICIES, Moves, Posteriors, jump_of
from haystream.ranking.ranked import Estimate, RankedItem, Share
from haystream.ranking.set_scores import EdgeReadings, SetCounts, SetEdges, score_sets
from haystream.ranking.tournament import TERMS, Tournament
from haystream.ranking.turns import Turns

LAST_HASH = int(np.iinfo(np.uint64).max)
"""The tie hash of a set that has nothing left."""

SHARES_NAMED = 5
"""How many shares an item's `because` names: the largest ones."""

REASONS_SHIFT = 0.01
"""By how much the common mean may move until it is looked again whose shares are the largest."""


@compiled
def mark_sets(
    edges: Ints, last_link: Ints, linked: Ints, previous_link: Ints, flags: Flags, marked: Ints, count: int
) -> int:
    """Append the sets on `edges` to `marked`, each once (its flag says it is there); the new count."""
    for i in range(len(edges)):
        link = last_link[edges[i]]
        while link >= 0:
            which = linked[link]
            if flags[which] == 0:
                flags[which] = 1
                marked[count] = which
                count += 1
            link = previous_link[link]
    return count


class Queue:
    """The unscreened items by set, the sets in a tournament by score."""

    def __init__(self, collection: Collection, policy: Policy) -> None:
        self._collection = collection
        self._policy = policy
        self._taken: set[int] = set()
        self._holding: set[int] = set()
        """The sets that have items which are unscreened and not to be offered (`_pending` says how many)."""
        self._skip: dict[int, int] = {}
        self._left = Growing(np.int64)
        self._items = Growing(np.int64)
        self._screened = Growing(np.int64)
        self._relevant = Growing(np.int64)
        self._pending = Growing(np.int64)
        self._tie = Growing(np.uint64, fill=LAST_HASH)
        self._marked = Growing(np.int32)
        self._flags = Growing(np.uint8)
        self._marks = 0
        self._mean = Growing(np.float64)
        self._variance = Growing(np.float64)
        self._slope = Growing(np.float64)
        self._edge_screened = Growing(np.float64)
        self._score = Growing(np.float64)
        self._set_score = Growing(np.float64)
        self._tournament = Tournament()
        self._turns = Turns()
        self._step = -1
        self._reasons: dict[int, _Reasons] = {}

    def use(self, policy: Policy) -> None:
        """Score by another policy from the next `rescore` on."""
        self._policy = policy
        self._step = -1

    def add(self, begin: int, end: int) -> None:
        """New items, at places begin … end − 1 of the collection; unscreened."""
        sets = len(self._collection.sets)
        columns = self._left, self._items, self._screened, self._relevant, self._pending
        for column in (*columns, self._tie, self._marked, self._flags):
            column.resize(sets)
        of = self._collection.sets_of(begin, end)
        np.add.at(self._left.data, of, 1)
        np.add.at(self._items.data, of, 1)
        np.minimum.at(self._tie.data, of, self._collection.hashes_of(begin, end))
        for which in self._skip.keys() & of.tolist() if self._skip else ():
            del self._skip[which]  # an item may come before the first unscreened one
        new = np.unique(of[self._flags.data[of] == 0])
        self._flags.data[new] = 1
        self._marked.data[self._marks : self._marks + len(new)] = new
        self._marks += len(new)

    def offer(self, item: int, *, available: bool) -> None:
        """Take an item out of the queue, or put it back."""
        if available:
            self._taken.discard(item)
            self._put(item)
        else:
            self._taken.add(item)
            which = self._mark(item)
            self._left.data[which] -= 1
            self._tie.data[which] = next(map(self._collection.hash_of, self._unscreened(which)), LAST_HASH)

    def hold(self, item: int, *, held: bool) -> None:
        """Take an unscreened item out of the queue though it is among what remains, or put it back."""
        which = self._collection.set_of(item)
        self._pending.data[which] += 1 if held else -1
        if self._pending.data[which]:
            self._holding.add(which)
        else:
            self._holding.discard(which)
        self.offer(item, available=not held)

    def judge(self, item: int, *, screened: int, relevant: int) -> None:
        """Add to (or, with −1, take from) what is known of the item's set."""
        which = self._mark(item)
        self._screened.data[which] += screened
        self._relevant.data[which] += relevant

    def _put(self, item: int) -> None:
        which = self._mark(item)
        self._left.data[which] += 1
        self._tie.data[which] = min(int(self._tie.data[which]), self._collection.hash_of(item))
        self._skip.pop(which, None)  # it may come before the first unscreened one

    def _mark(self, item: int) -> int:
        which = self._collection.set_of(item)
        if not self._flags.data[which]:
            self._flags.data[which] = 1
            self._marked.data[self._marks] = which
            self._marks += 1
        return which

    def rescore(self, engine: Engine, edges: Ints, *, step: int) -> None:
        """Take in the edges' new posteriors, and the sets that gained or lost items."""
        graph, sets = self._collection.graph, self._collection.sets
        columns = self._mean, self._variance, self._slope, self._edge_screened, self._score
        for column in columns:
            column.resize(graph.edges)
        readings = EdgeReadings(*(column.view() for column in columns))
        mean, variance, entry = readings.mean, readings.variance, POLICIES[self._policy.name]
        if len(edges):
            mean[edges], variance[edges], readings.slope[edges] = engine.readings.scoring(edges)
        edges = self._also_moved(edges, step)
        if len(edges):
            readings.screened[edges], _, left = engine.readings.counts(edges)
        if len(edges) and entry.score is not None:
            keys = graph.edge_key[edges]
            posteriors = Posteriors(mean[edges], variance[edges], keys, left, step, self._turns.lap)
            readings.score[edges] = entry.score(posteriors, self._policy)
        chains = sets.last_link.data, sets.linked.data, sets.previous_link.data
        self._marks = mark_sets(edges, *chains, self._flags.data, self._marked.data, self._marks)
        which = self._marked.data[: self._marks].copy()
        self._marks = 0
        # What moved no edge of a set by the tolerance has not moved its shares either.
        self._reasons = {s: because for s, because in self._reasons.items() if not self._flags.data[s]}
        terms = np.zeros((len(which), TERMS))
        self._set_score.resize(len(sets))
        self._flags.data[which] = 0
        counts = SetCounts(
            *(c.view() for c in (self._left, self._items, self._screened, self._relevant, self._pending))
        )
        layout = SetEdges(sets.start.view(), sets.edge.view())
        horizon = self._policy.horizon if entry.score is None else 0
        base_rate = engine.readings.rounded_common().base_rate
        score_sets(which, layout, readings, counts, base_rate, horizon, self._set_score.data, terms)
        self._tournament.resize(len(sets))
        self._tournament.set(which, self._set_score.data[which], self._tie.data[which], terms)

    def _also_moved(self, edges: Ints, step: int) -> Ints:
        """With those edges, all whose scores move because the step does."""
        moves, keys = POLICIES[self._policy.name].moves, self._collection.graph.edge_key
        before, self._step = self._step, step
        if moves is Moves.NEVER:
            return edges if before >= 0 else np.arange(len(keys), dtype=np.int32)
        new_lap = self._turns.follow(keys)
        jump = moves is Moves.IN_JUMPS and jump_of(before, self._turns.lap) != jump_of(step, self._turns.lap)
        if before < 0 or new_lap or jump:
            return np.arange(len(keys), dtype=np.int32)
        if moves is Moves.IN_TURN and step != before:
            return np.union1d(edges, self._turns.between(before, step, keys))
        return edges

    def _unscreened(self, which: int) -> Iterator[int]:
        members = self._collection.sets.items[which]
        begin = self._skip.get(which, 0)
        while begin < len(members) and members[begin] in self._taken:
            begin += 1
        self._skip[which] = begin
        for item in islice(members, begin, None):
            if item not in self._taken:
                yield item

    # ---- reading ----

    def remaining(self, engine: Engine) -> Estimate:
        """Expected relevant items left: scored at the rounded common mean, moved to where it is, and to what is
        learned of the concentrations. What stays unknown of them adds to the posterior's variance.
        """
        mean, flips, slope = (self._tournament.totals() + self._held_terms()).tolist()
        moved = engine.readings.common().mean_shift - engine.readings.rounded_common().mean_shift
        log_c, doubt = engine.readings.concentration()
        on_c = engine.readings.concentration_slope() if doubt else 0.0
        variance = flips + engine.readings.remaining_variance() + on_c * on_c * doubt
        return Estimate(max(mean + slope * moved + on_c * log_c, 0.0), math.sqrt(variance))

    def _held_terms(self) -> Floats:
        """What items that are held add to the totals (`score_sets`)."""
        terms = np.zeros(TERMS)
        for which in sorted(self._holding):
            on = list(self._collection.sets.edges(which))
            m, slope = self._mean.data[on].mean(), self._slope.data[on].mean()
            spread = self._variance.data[on].mean() / len(on)
            terms += self._pending.data[which] * np.array([m, max(m - m * m - spread, 0.0), slope])
        return terms

    def moments(self, engine: Engine, sets: Sequence[int]) -> tuple[Floats, Floats]:
        """Posterior mean and variance of the relevance of an item of each set, exact, shape (len(sets),)."""
        edges = [self._collection.sets.edges(which) for which in sets]
        if not edges:
            return np.zeros(0), np.zeros(0)
        k = np.array([len(on) for on in edges])
        first = np.concatenate([[0], np.cumsum(k)[:-1]])
        mean, variance = engine.readings.edges(np.array([e for on in edges for e in on], dtype=np.int32))
        return np.add.reduceat(mean, first) / k, np.add.reduceat(variance, first) / (k * k)

    def items(self, most: int | None = None) -> Iterator[tuple[int, int, float]]:
        """(item, its set, score) in rank order: best score first, ties by the items' hashes.

        All of them, or the first `most` (a few more may come).
        """
        leaders, scores = self._tournament.leaders(len(self._collection.sets) if most is None else most)
        pairs = zip(leaders.tolist(), scores.tolist(), strict=True)
        for _, tied in groupby(pairs, key=itemgetter(1)):
            for item, which in self._merged([which for which, _ in tied]):
                yield item, which, float(self._set_score.data[which])

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
        items = list(islice(self.items(top), top))
        sets = list(dict.fromkeys(which for _, which, _ in items))
        mean, variance = self.moments(engine, sets)
        shift = engine.readings.known_common().mean_shift
        told = {
            which: (m, s, self._collection.set_participants(which), self._because(engine, which, shift))
            for which, m, s in zip(sets, mean.tolist(), np.sqrt(variance).tolist(), strict=True)
        }
        for rank, (item, which, score) in enumerate(items, start=1):
            yield RankedItem(self._collection.item_ids[item], rank, score, *told[which])

    def _because(self, engine: Engine, which: int, shift: float) -> tuple[Share, ...]:
        reasons = self._reasons.get(which)
        if reasons is None or abs(shift - reasons.shift) > REASONS_SHIFT:
            largest = engine.readings.shares(self._collection.sets.edges(which), most=SHARES_NAMED)
            reasons = self._reasons[which] = _Reasons(shift, largest)
        shares = reasons.shares
        if shift != reasons.shift and shares:
            deviation = engine.readings.deviations(np.array([edge for edge, _ in shares], dtype=np.int32))
            before = deviation - reasons.shift
            factors = np.divide(deviation - shift, before, out=np.ones_like(before), where=before != 0.0).tolist()
            moved = [(e, share * by) for (e, share), by in zip(shares, factors, strict=True) if math.isfinite(by)]
            shares = sorted(moved, key=lambda pair: -abs(pair[1]))
        names = self._collection.graph.names
        return tuple(Share(names(edge), share) for edge, share in shares)


@dataclass(frozen=True, slots=True)
class _Reasons:
    """The largest shares of a set, (screened edge, share), and the shift of the common mean that they were read at.

    A share is in proportion to d − Δ, d the edge's own deviation, so that it follows a move of Δ without a solve.
    """

    shift: float
    shares: list[tuple[int, float]]
