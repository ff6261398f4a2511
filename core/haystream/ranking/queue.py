"""The unscreened items of a query in the order in which to read them."""

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter

import numpy as np

from haystream.arrays import Floats, Ints, Switches
from haystream.collection import Collection
from haystream.engines.contract import Engine
from haystream.engines.local import LocalEngine
from haystream.engines.local.ahead import Ahead
from haystream.events import Policy
from haystream.models.common import Common
from haystream.places import NOWHERE
from haystream.ranking.first import First
from haystream.ranking.late import AT_ONCE, CANDIDATES, LATE_AT_ONCE, LateSets
from haystream.ranking.own_sets import DUE, LATE, OwnSets, sets_on
from haystream.ranking.policies import POLICIES, Moves, jump_of
from haystream.ranking.prior_rankings import (
    MADE_AT_ONCE,
    NO_LEADERS,
    Glimpse,
    Leaders,
    PriorRanking,
    PriorRankings,
)
from haystream.ranking.ranked import Estimate, RankedItem
from haystream.ranking.reasons import Reasons
from haystream.ranking.scoring import Scored, Source, score_all, terms_of
from haystream.ranking.set_scores import ONE_MATTER, OPTIMISM, SetCounts, moved_on
from haystream.ranking.tournament import LAST_HASH, TERMS, Tournament, ties_of
from haystream.ranking.turns import Turns

THIN_OUT_EVERY = 64
"""Where entries cannot be made rest, it is tried again after so many scorings: it takes a millisecond or two."""


def enough_lead(own: Leaders, by_prior: Leaders, score: float, most: int) -> bool:
    """Whether so many of these score that much at least."""
    return int(np.count_nonzero(own.score >= score)) + int(np.count_nonzero(by_prior.score >= score)) >= most


class Queue:
    """The unscreened items by set: in a tournament by score those of the query's own that may lead; behind these
    all others, as they lie in the ranking by the prior.

    A set is a query's own once and for all (`own_sets`). Most of them have moved a little and lead nothing: of
    these, the **rest**, nothing is kept but what all of them together add to the totals. A score is a function of
    what readers were told and of what was counted (`Readings.scoring`), so that what a set added before these
    changed can be computed from what they were.
    """

    def __init__(self, collection: Collection, policy: Policy, prior: PriorRankings | None = None) -> None:
        """`prior`: as which the engine began, then a `LocalEngine`; without it every set is the query's own."""
        self._collection = collection
        self._policy = policy
        self.scores_edges = POLICIES[policy.name].score is not None
        """Whether a set's score is made of its edges': then an item may move those of other sets on its edges."""
        self._prior = prior
        none = np.zeros(0, np.int64), np.zeros(0, np.uint64)
        self._own = OwnSets(collection.sets, *((prior.left, prior.tie) if prior else none))
        self._new: list[Ints] = []
        """Sets that have become own since the last `rescore`."""
        self._entered: list[Ints] = []
        """Sets of the rest that have got entries since, as something was counted of them."""
        self._base: PriorRanking | Glimpse | None = None
        """The ranking of all that is not owned."""
        self._owned_terms: Floats = np.zeros(TERMS)
        """What it says of sets that are owned."""
        self._rest_terms: Floats = np.zeros(TERMS)
        """What the rest adds to the totals."""
        self._rest_common: Common | None = None
        """The common quantities at which that was exact."""
        self._rest_moved: Floats = np.zeros(TERMS)
        """How far it has been moved on since (`set_scores.moved_on`)."""
        self._least = -math.inf
        """The rest scores less than that."""
        self._thin_in = 0
        """How often `rescore` is to be called until it is looked again which entries can be made rest."""
        self._taken: set[int] = set()
        self._holding: set[int] = set()
        """The sets that have items which are unscreened and not to be offered (`OwnSets.pending` says how many)."""
        self._skip: dict[int, int] = {}
        self._late: LateSets | None = None
        self._tournament = Tournament()
        self._read: tuple[Engine, int]
        """What scores were last made with: the engine that has the readings, and the step."""
        self._turns = Turns()
        self._step = -1
        self._common: Common | None = None
        """What all share, as scores were last made with."""
        self._first: First | None = None
        """Who leads, as it was last asked for; None where that may have changed."""
        self._reasons = Reasons(collection)
        if prior is None:
            self._own.keep_no_rest()

    def use(self, policy: Policy) -> None:
        """Score by another policy from the next `rescore` on."""
        self._policy, self.scores_edges = policy, POLICIES[policy.name].score is not None
        self._step, self._common, self._first, self._late = -1, None, None, None

    def add(self, begin: int, end: int) -> None:
        """New items, at places begin … end − 1 of the collection; unscreened."""
        of = self._collection.sets_of(begin, end)
        own, row = self._own, self._rows(of)
        np.add.at(own.left.data, row, 1)
        np.add.at(own.items.data, row, 1)
        np.minimum.at(own.tie.data, row, self._collection.hashes_of(begin, end))
        for which in self._skip.keys() & of.tolist() if self._skip else ():
            del self._skip[which]  # an item may come before the first unscreened one

    def offer(self, item: int, *, available: bool) -> None:
        """Take an item out of the queue, or put it back."""
        which = self._collection.set_of(item)
        row = self._row(which)
        left, tie = self._own.left.data, self._own.tie.data
        if available:
            self._taken.discard(item)
            left[row] += 1
            tie[row] = min(int(tie[row]), self._collection.hash_of(item))
            self._skip.pop(which, None)  # it may come before the first unscreened one
        else:
            self._taken.add(item)
            left[row] -= 1
            tie[row] = self._first_hash(which)

    def hold(self, item: int, *, held: bool) -> None:
        """Take an unscreened item out of the queue though it is among what remains, or put it back."""
        which = self._collection.set_of(item)
        row = self._row(which)
        pending = self._own.pending.data
        pending[row] += 1 if held else -1
        if pending[row]:
            self._holding.add(which)
        else:
            self._holding.discard(which)
        self.offer(item, available=not held)

    def withdraw(self, items: Ints) -> None:
        """Take items out for good, and out of what their sets are known to hold; places of the collection."""
        of = self._collection.sets_at(items)
        own, row = self._own, self._rows(of)
        free = np.array([item not in self._taken for item in items.tolist()], dtype=np.int32)
        np.subtract.at(own.left.data, row, free)
        np.subtract.at(own.items.data, row, 1)
        for at, which in set(zip(row.tolist(), of.tolist(), strict=True)):
            own.tie.data[at] = self._first_hash(which)

    def judge(self, item: int, *, screened: int, relevant: int) -> None:
        """Add to (or, with −1, take from) what is known of the item's set."""
        row = self._row(self._collection.set_of(item))
        self._own.screened.data[row] += screened
        self._own.relevant.data[row] += relevant

    # ---- what is owned ----

    def _row(self, which: int) -> int:
        """The row of a set in the counts."""
        row = self._own.known_row(which)
        return row if row != NOWHERE else int(self._rows(np.array([which], np.int32))[0])

    def _rows(self, of: Ints) -> Ints:
        """The row of each of these sets in the counts, shape (len(of),)."""
        own, each = self._own, np.unique(of)
        known = own.among(each)
        self._entered.append(each[known & (own.places(each) == NOWHERE)])
        self._new.append(own.own(each))
        rows = own.rows(of)
        self._tournament.resize(own.entries, own.ties)
        return rows

    def _enter_all(self) -> None:
        """Keep no rest, and leave the ranking by the prior: every set has an entry here."""
        self._own.enter_all()
        self._tournament = Tournament()
        self._tournament.resize(self._own.entries, self._own.ties)
        self._leave_prior()

    def _leave_prior(self) -> None:
        """Have every set as the query's own."""
        self._own.own_all()
        self._prior, self._base, self._owned_terms, self._new = None, None, np.zeros(TERMS), []

    @property
    def _scores(self) -> Floats:
        """The score of each set that has an entry, by its place."""
        return self._tournament.places.score

    @property
    def owned(self) -> int:
        """How many sets are the query's own: it scores these by itself."""
        return self._own.count

    # ---- scores ----

    def rescore(self, engine: Engine, edges: Ints, *, step: int) -> None:
        """Take in the edges' new posteriors, and the sets that gained or lost items."""
        own, common = self._own, engine.readings.rounded_common()
        edges = self._also_moved(edges, step) if self._by_chance else edges
        lost = isinstance(engine, LocalEngine) and engine.readings.before.lost
        if own.keeps_rest and self._by_chance:
            self._enter_all()
        elif self._prior is not None and lost:
            self._leave_prior()
        own.known = len(self._collection.sets)
        rest, known = self._mark(edges)
        due = own.flagged(DUE)
        moved = lost or common != self._common
        if not (len(due) or len(rest) or moved):
            return  # and what readers were told before is still what scores are made of
        self._reasons.forget(own.numbers(due))
        self._reasons.forget(rest)
        self._read = engine, step
        if moved:
            due = self._take_common(common, due, anew=lost or self._common is None)
        own.flags.data[due] = 0
        self._score_entries(due)
        if moved:
            self._least, self._first = self._least_of_best(), None
        at_once = self._late is not None and self._late.at_once
        if not at_once:
            self._rescore_rest(rest, np.concatenate([rest[known], *self._entered]))
            self._count_new()
        self._new, self._entered = [], []
        if isinstance(engine, LocalEngine):
            engine.readings.before.forget()
        while at_once and self._late:
            self.make_up()
        self._thin_out()
        self._look_out()

    @property
    def _by_chance(self) -> bool:
        return POLICIES[self._policy.name].moves is not Moves.NEVER

    def _mark(self, edges: Ints) -> tuple[Ints, Switches]:
        """Have the sets on these edges as own, and those that have entries DUE; return those without an entry, and
        which of these were own before, shape (k,) each."""
        own, sets = self._own, self._collection.sets
        if not len(edges):
            return np.zeros(0, np.int32), np.zeros(0, np.bool_)
        chains = sets.links.last.data, sets.linked.data, sets.links.previous.data
        which = sets_on(edges, sets.start.data, *chains)
        at = own.places(which)
        own.flags.data[at[at != NOWHERE]] = DUE
        rest = which[at == NOWHERE]
        known = own.among(rest)
        self._new.append(own.own(rest))
        return rest, known

    def _rescore_rest(self, rest: Ints, before: Ints) -> None:
        """Score sets without an entry. `before`: those that were rest, whose part in its sum is to go."""
        late = self._late
        seen = before < (late.made if late else len(self._collection.sets))
        gone = self._terms_before(before[seen], seen=True)
        self._rest_terms = self._rest_terms - gone.sum(axis=0)
        self._rest_terms = self._rest_terms - self._terms_before(before[~seen], seen=False).sum(axis=0)
        scored, stays = self._score_rest(rest)
        self._rest_terms = self._rest_terms + scored[stays].sum(axis=0)
        if late:
            late.rest_terms += scored[stays & (rest < late.made)].sum(axis=0) - gone.sum(axis=0)

    def _count_new(self) -> None:
        """Take what the prior says of sets that have become own out of its totals."""
        prior, base, late = self._prior, self._base, self._late
        new = np.concatenate([np.zeros(0, np.int32), *self._new])
        if prior is None or base is None or not len(new):
            return
        new = new[new < prior.sets]
        self._owned_terms = self._owned_terms + base.terms(new)
        if late:
            late.owned_terms += base.terms(new[new < late.made])

    def _take_common(self, common: Common, due: Ints, *, anew: bool) -> Ints:
        """Go on to other common quantities; return the places of the entries that are to be scored by them now.

        These are all of them, or, where that would take long, the best and those that are `due` (`late`). `anew`:
        nothing is known of before.
        """
        before, self._common, prior, own = self._common, common, self._prior, self._own
        made = prior.made(self._policy, common) if prior is not None else None
        soon = made is not None or prior is None or self._base is None or prior.sets <= MADE_AT_ONCE
        at_once = anew or self._by_chance or (soon and own.count <= AT_ONCE)
        self._late = LateSets(*self._read, common, at_once) if own.keeps_rest or not at_once else None
        if at_once or before is None:
            self._base = prior.at(self._policy, common) if prior is not None else None
            if self._late:
                self._late.base = self._base
            return own.all_entries()
        shift = common.mean_shift - before.mean_shift
        moved, best = moved_on(shift, common.base_rate), self._best_entries(due)
        if own.keeps_rest and before == self._rest_common:  # else the rest's sum would be of several moments
            self._make_rest(np.setdiff1d(own.uncounted(), best, assume_unique=True))
        self._tournament.retire(moved)
        own.flags.data[own.all_entries()] = LATE
        self._rest_terms = self._rest_terms + self._rest_terms[-1] * moved
        self._rest_moved = self._rest_moved + moved
        if prior is not None and self._base is not None:
            self._owned_terms = self._owned_terms + self._owned_terms[-1] * moved
            self._base = made or prior.glimpse(self._policy, common, self._base, shift)
        return best

    @property
    def late(self) -> bool:
        """Whether sets wait for `make_up`."""
        return self._late is not None

    def make_up(self) -> None:
        """Score some of the sets that wait since what all share moved, a millisecond or two: see `late`."""
        late, prior = self._late, self._prior
        if late is None:
            return
        if prior is not None and late.base is None:
            if prior.prepare(self._policy, late.common):
                return
            late.base = prior.at(self._policy, late.common)
        with self._as_scored():
            self._make_up(late)
            self._thin_out()

    def _make_up(self, late: LateSets) -> None:
        base, own = late.base, self._own
        numbers, late.made = own.next(late.made, LATE_AT_ONCE)
        at = own.places(numbers)
        rest, at = numbers[at == NOWHERE], np.sort(at[at != NOWHERE])
        at = at[own.flags.data[at] == LATE]
        own.flags.data[at] = 0
        self._score_entries(at)
        if not late.at_once:  # nobody asks for the sum before it is made anew
            self._rest_terms = self._rest_terms - self._terms_before(rest, seen=False).sum(axis=0)
        scored, stays = self._score_rest(rest)
        added = scored[stays].sum(axis=0)
        self._rest_terms, late.rest_terms = self._rest_terms + added, late.rest_terms + added
        whole = late.made == len(self._collection.sets)
        if base is not None and self._prior is not None:
            late.owned_terms += base.terms(numbers[numbers < self._prior.sets])
            if whole:
                self._base, self._owned_terms, self._first = base, late.owned_terms, None
        if whole:
            self._late, self._rest_terms = None, late.rest_terms
            self._rest_common, self._rest_moved = late.common, np.zeros(TERMS)

    # ---- who leads, and the rest ----

    def _score_rest(self, which: Ints) -> tuple[Floats, Switches]:
        """Score sets without an entry, and give one to those that may lead. Returns what each adds to the totals,
        shape (k, TERMS), and whether it stays rest."""
        if not len(which):
            return np.zeros((0, TERMS)), np.zeros(0, np.bool_)
        (score, terms), near = self._score(which, self._own.counts_before(which))
        may_lead = ((score >= self._least) | near) & (score > -np.inf)
        if self._late is not None and self._rest_common != self._common:
            may_lead |= which >= self._late.made  # what it adds is known exactly, and the rest's sum is not
        if may_lead.any():
            at = self._own.enter(which[may_lead])
            order = np.argsort(at)
            self._own.flags.data[at], self._own.near.data[at] = 0, near[may_lead]
            self._tournament.resize(self._own.entries, self._own.ties)
            self._tournament.set(at[order], score[may_lead][order], terms[may_lead][order], self._own.ties)
        self._forget_first(which, score)
        return terms, ~may_lead

    def _score_entries(self, at: Ints) -> None:
        """Score the sets with entries at these places."""
        own = self._own
        (score, terms), near = self._score(own.numbers(at), own.counts(at))
        own.near.data[at] = near
        self._tournament.set(at, score, terms, own.ties)
        self._forget_first(own.numbers(at), score)

    def _score(self, which: Ints, counts: SetCounts) -> tuple[Scored, Switches]:
        """The scores of some sets, and whether pending screenings are in them (False where no rest is kept)."""
        (engine, step), sets, own = self._read, self._collection.sets, self._own
        layout, edges = sets.layout.of(which)
        readings, near = engine.readings, np.zeros(len(which), np.bool_)
        if own.keeps_rest and isinstance(engine, LocalEngine) and engine.readings.pending and len(which):
            near = np.logical_or.reduceat(engine.readings.near_pending(edges), layout.start[:-1])
        of_edges, keys = readings.counts(edges), self._collection.graph.edge_key
        base_rate, lap = readings.rounded_common().base_rate, self._turns.lap
        source = Source(readings.scoring(edges, of_edges), of_edges, edges, keys, base_rate, step, lap)
        return score_all(layout, counts, source, self._policy), near

    def _terms_before(self, which: Ints, *, seen: bool) -> Floats:
        """What sets add to the rest's sum, of which they were before the last `settle`, shape (k, TERMS).

        `seen`: they have been scored since what all share moved (`late`).
        """
        engine, sets = self._read[0], self._collection.sets
        common = self._common if seen else self._rest_common
        if not len(which) or common is None or not isinstance(engine, LocalEngine):
            return np.zeros((0, TERMS))
        layout, edges = sets.layout.of(which)
        with self._as_scored():
            of_edges = engine.readings.counts(edges)
            moments = engine.readings.scoring_at(edges, common, of_edges)
        terms = terms_of(layout, self._own.counts_before(which), moments, of_edges)
        return terms if seen else terms + terms[:, -1:] * self._rest_moved

    def _as_scored(self) -> AbstractContextManager[None]:
        """Have the engine's readings be those that scores were made of, while what it tells is not in them yet."""
        engine = self._read[0]
        return engine.readings.as_scored() if isinstance(engine, LocalEngine) else nullcontext()

    def _forget_first(self, which: Ints, score: Floats) -> None:
        if self._first and self._first.changes_with(which, score):
            self._first = None

    def _best_entries(self, due: Ints) -> Ints:
        """The places of the best entries, as many as may lead, and of those that are `due`, ascending."""
        score = self._scores[: self._own.entries]
        best = (score >= self._last_of_best()) & (score > -np.inf)
        best[due] = True
        return np.flatnonzero(best).astype(np.int32)

    def _least_of_best(self) -> float:
        """The same as `_last_of_best`; −inf where no rest is kept."""
        return self._last_of_best() if self._own.keeps_rest else -math.inf

    def _last_of_best(self) -> float:
        """What the last of as many entries as may lead scores; −inf where there are fewer."""
        score = self._scores[: self._own.entries]
        score = score[score > -np.inf]  # among many that are alike it takes much longer to find
        return float(np.partition(score, -CANDIDATES)[-CANDIDATES]) if len(score) >= CANDIDATES else -math.inf

    def _thin_out(self) -> None:
        """Where there are many more entries than may lead, make the others rest, but for those that are counted,
        and those that pending screenings are in: what these add cannot be computed once more."""
        own = self._own
        self._thin_in -= 1
        if not own.keeps_rest or own.uncounted_entries <= 2 * CANDIDATES or self._thin_in > 0:
            return
        self._least = max(self._least, self._least_of_best())
        at = own.uncounted()
        at = at[(own.flags.data[at] == 0) & (self._scores[at] < self._least)]
        if self._late and self._rest_common != self._common:
            at = at[own.numbers(at) < self._late.made]  # the sum of the others is as it was
        self._score_entries(at[own.near.data[at] != 0])
        at = at[(own.near.data[at] == 0) & (self._scores[at] < self._least)]
        self._make_rest(at)
        if own.uncounted_entries > 2 * CANDIDATES:
            self._thin_in = THIN_OUT_EVERY

    def _make_rest(self, at: Ints) -> None:
        own, late = self._own, self._late
        terms, which = self._tournament.places.terms[at], own.numbers(at)
        self._rest_terms = self._rest_terms + terms.sum(axis=0)
        if late:
            late.rest_terms += terms[which < late.made].sum(axis=0)
        self._tournament.set(at, np.full(len(at), -np.inf), np.zeros((len(at), TERMS)), own.ties)
        own.leave(at)

    def _look_out(self) -> None:
        """Where few are left that are known to lead, begin to look through the rest."""
        if self._late is None and self._least > -math.inf:
            leading = np.count_nonzero(self._scores[: self._own.entries] >= self._least)
            if leading < CANDIDATES // 4:
                self._look_through_rest()

    def _look_through_rest(self) -> None:
        """Begin to give entries to those of the rest that may lead (`make_up`)."""
        assert self._common is not None
        self._late = LateSets(*self._read, self._common, known_above=self._least)
        self._least = -math.inf

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
        totals = self._tournament.totals() + self._rest_terms + self._held_terms(engine)
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
        sets = np.array(sorted(self._holding), np.int32)
        layout, edges = self._collection.sets.layout.of(sets)
        (mean, variance, slope), k = layout.sums(engine.readings.scoring(edges)), layout.sizes
        mean, slope = mean / k, slope / k
        flips = np.maximum(mean - mean * mean - variance / (k * k), 0.0)
        held = self._own.counts(self._own.places(sets)).pending
        return np.asarray(held @ np.column_stack([mean, flips, slope]))

    def moments(self, engine: Engine, sets: Sequence[int]) -> tuple[Floats, Floats]:
        """Posterior mean and variance of the relevance of an item of each set, exact, shape (len(sets),)."""
        layout, edges = self._collection.sets.layout.of(np.array(sets, np.int32))
        (mean, variance), k = layout.sums(engine.readings.edges(edges)), layout.sizes
        return mean / k, variance / (k * k)

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
        has, known, edges = self._own.has, self._own.known, self._collection.sets.edges
        own = [which for which in sets if (has(which) if which < known else edges(which)[0] < known_edges)]
        return (tuple(which for which in sets if which not in own), own) if own else (sets, own)

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
        own = self._own
        if which >= own.known:
            return False
        known = own.counted(which)
        if known is None:
            if self._late is not None:
                return False
            most, left = self._least, own.left_before(which)
            items = left
        else:
            place, left, items, streak = known
            if streak or own.flags.data[place]:
                return False
            most = float(self._scores[place])
        count = self._collection.items_left(which)
        return left > 0 and most * (left + count - items) < score * left

    def score_ahead(self, ahead: Ahead, which: Ints, more: int) -> Floats:
        """What sets will score at most with all items that the collection has, `more` than were added here.

        For a policy whose scores do not move by themselves; shape (len(which),).
        """
        sets = self._collection.sets
        layout, edges = sets.layout.of(which)
        moments, (screened, relevant, left) = ahead.scoring(edges)
        keys, base_rate = self._collection.graph.edge_key, ahead.base_rate
        source = Source(moments, (screened, relevant, left + more), edges, keys, base_rate)
        return score_all(layout, self._counts_ahead(which), source, self._policy).score

    def _counts_ahead(self, which: Ints) -> SetCounts:
        items = np.array([self._collection.items_left(each) for each in which.tolist()], np.int64)
        counts = SetCounts(items, items.copy(), *np.zeros((3, len(which)), np.int64))
        at = self._own.places(which)
        known = np.flatnonzero(at != NOWHERE)
        now = self._own.counts(at[known])
        counts.left[known] += now.left - now.items
        for column, of_known in zip(counts[2:], now[2:], strict=True):
            column[known] = of_known
        return counts

    def _leaders(self, most: int) -> Iterator[tuple[float, int, int]]:
        """(score, negative; tie hash; set) of the best sets, in rank order, at least so many."""
        own, base = self._led(most), self._base
        if base is None:
            by_prior, bound = NO_LEADERS, -math.inf
        else:
            by_prior, bound = base.known_leaders(most, self._own.among), base.bound
        if base is not None and not enough_lead(own, by_prior, max(bound, self._known_above), most):
            by_prior = base.leaders(most, self._own.among)
        if not enough_lead(own, by_prior, self._known_above, most):
            self._find_leaders()
            own = self._led(most)
        return merge(
            *(
                zip((-each.score).tolist(), each.tie.tolist(), each.sets.tolist(), strict=True)
                for each in (own, by_prior)
            )
        )

    @property
    def _known_above(self) -> float:
        """Whoever of its own scores so much is known to be in the tournament, if nothing is late."""
        return max(self._least, self._late.known_above) if self._late else self._least

    def _led(self, most: int) -> Leaders:
        own = self._own
        at = self._tournament.leaders(most, own.ties)
        return Leaders(own.numbers(at), self._scores[at], ties_of(at, own.ties))

    def _find_leaders(self) -> None:
        """Make up for what is late, and give entries to all of the rest."""
        while self.late:
            self.make_up()
        if self._least > -math.inf:
            self._look_through_rest()
            self._thin_in = len(self._collection.sets)  # not before all are made up
            while self.late:
                self.make_up()
            self._thin_in = THIN_OUT_EVERY

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
        reasons, people = self._reasons.of(engine, sets), map(self._collection.set_participants, sets)
        columns = mean.tolist(), np.sqrt(variance).tolist(), people, reasons
        told = dict(zip(sets, zip(*columns, strict=True), strict=True))
        details = self._collection.details
        for rank, (item, which, score) in enumerate(items, start=1):
            yield RankedItem(self._collection.item_ids[item], rank, score, *told[which], *details.of(item))
