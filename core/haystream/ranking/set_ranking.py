"""The item sets of a query by score, and what all of them add up to.

In a tournament stand those of the query's own that may lead; behind these all others, as they lie in the ranking by
the prior.

A set is a query's own once and for all (`own_sets`). Most of them have moved a little and lead nothing: of these,
the **rest**, nothing is kept but what all of them together add to the totals. A score is a function of what readers
were told and of what was counted (`Readings.scoring`): what a set added before can be computed anew.
"""

import math
from collections.abc import Iterator
from heapq import merge

import numpy as np

from haystream.collection.collection import Collection
from haystream.engines.contract import Engine
from haystream.engines.local import LocalEngine
from haystream.events import Policy
from haystream.memory.arrays import Floats, Ints, Longs, Switches, union
from haystream.memory.places import NOWHERE
from haystream.models.common import Common
from haystream.ranking.first import First
from haystream.ranking.foreseen import MOST_FORESEEN, Foreseen
from haystream.ranking.late import AT_ONCE, CANDIDATES, LATE_AT_ONCE, LateSets
from haystream.ranking.own_sets import DUE, LATE, NOTHING, OwnSets, sets_on
from haystream.ranking.prior_rankings import NO_LEADERS, Leaders, PriorRankings
from haystream.ranking.rest import Rest
from haystream.ranking.scorer import Scorer
from haystream.ranking.set_scores import moved_on
from haystream.ranking.tournament import TERMS, Tournament, ties_of
from haystream.ranking.unowned import Unowned

THIN_OUT_EVERY = 64
"""Where entries cannot be made rest, it is tried again after so many scorings: it takes a millisecond or two."""


def enough_lead(own: Leaders, by_prior: Leaders, score: float, most: int) -> bool:
    """Whether so many of these score that much at least."""
    return int(np.count_nonzero(own.score >= score)) + int(np.count_nonzero(by_prior.score >= score)) >= most


def _last_of(scores: Floats, most: int) -> float:
    """The least of the best so many scores; −inf where there are fewer, or none."""
    return float(np.partition(scores, -most)[-most]) if 0 < most <= len(scores) else -math.inf


class SetRanking:
    """Who leads, and the totals, as they were when `rescore` was last called."""

    def __init__(self, collection: Collection, policy: Policy, prior: PriorRankings | None) -> None:
        """`prior`: as which the engine began, then a `LocalEngine`; without it every set is the query's own."""
        self._collection = collection
        self._unowned = Unowned(prior) if prior else None
        """The sets that are not own; None where all are."""
        none = np.zeros(0, np.int64), np.zeros(0, np.uint64)
        self.own = OwnSets(collection.sets, *((prior.left, prior.tie) if prior else none))
        self._scorer = Scorer(collection, self.own, policy)
        self._new: list[Ints] = []
        """Sets that have become own since the last `rescore`."""
        self._entered: list[Ints] = []
        """Sets of the rest that have got entries since, as something was counted of them."""
        self._rest = Rest()
        self._least = -math.inf
        """The rest scores less than that."""
        self._thin_in = 0
        """How often `rescore` is to be called until it is looked again which entries can be made rest."""
        self._late: LateSets | None = None
        self._foreseen: dict[Common, Foreseen] = {}
        self._tournament = Tournament()
        self._common: Common | None = None
        """What all share, as scores were last made with."""
        self.first: First | None = None
        """Who leads, as it was last asked for; None where that may have changed."""
        if prior is None:
            self.own.keep_no_rest()

    @property
    def policy(self) -> Policy:
        """By which sets are scored."""
        return self._scorer.policy

    @property
    def prior(self) -> PriorRankings | None:
        """What ranks the sets that are not own; None where all are."""
        return self._unowned.prior if self._unowned else None

    def use(self, policy: Policy) -> None:
        """Score by another policy from the next `rescore` on."""
        self._scorer.use(policy)
        self._common, self.first, self._late = None, None, None
        self.forget_foreseen()

    # ---- what is owned ----

    def row(self, which: int) -> int:
        """The row of a set in the counts."""
        row = self.own.known_row(which)
        return row if row != NOWHERE else int(self._rows_of_each(np.array([which], np.int32))[0])

    def rows(self, of: Ints) -> Ints:
        """The row of each of these sets in the counts, shape (len(of),)."""
        each, back = np.unique(of, return_inverse=True)
        return self._rows_of_each(each)[back]

    def _rows_of_each(self, each: Ints) -> Ints:
        """The same of sets that are named once."""
        own = self.own
        known = own.among(each)
        self._entered.append(each[known & (own.places(each) == NOWHERE)])
        self._new.append(own.own(each))
        rows = own.rows(each)
        self._tournament.resize(own.entries, own.ties)
        return rows

    def _enter_all(self) -> None:
        """Keep no rest, and leave the ranking by the prior: every set has an entry here."""
        self.own.enter_all()
        self._tournament = Tournament()
        self._tournament.resize(self.own.entries, self.own.ties)
        self._rest.begin(None)
        self._entered = []
        self._leave_prior()

    def _leave_prior(self) -> None:
        """Have every set as the query's own."""
        self.own.own_all()
        self._unowned, self._new = None, []

    @property
    def _scores(self) -> Floats:
        """The score of each set that has an entry, by its place."""
        return self._tournament.places.score

    # ---- scores ----

    def rescore(self, engine: Engine, edges: Ints, *, step: int) -> Ints:
        """Take in the edges' new posteriors, and the sets that gained or lost items; return the sets that moved by
        themselves, and not as what all share did, shape (k,).
        """
        own, common = self.own, engine.readings.rounded_common()
        by_chance = self._scorer.by_chance
        edges = self._scorer.with_moved(edges, step) if by_chance else edges
        lost = isinstance(engine, LocalEngine) and engine.readings.before.lost
        if own.keeps_rest and by_chance:
            self._enter_all()
        elif self._unowned and lost:
            self._leave_prior()
        own.known = len(self._collection.sets)
        rest, known = self._mark(edges)
        due = own.flagged(DUE)
        moved = lost or common != self._common
        if not (len(due) or len(rest) or moved):
            return NOTHING  # and what readers were told before is still what scores are made of
        sets = np.concatenate([own.numbers(due), rest])
        self._scorer.read(engine, step)
        foreseen = self._foreseen.get(common)
        self.forget_foreseen()
        if moved and (lost or self._all_at_once(common)):
            self._score_all(common, rest)
        else:
            due = self._take_common(common, due, foreseen) if moved else due
            self._score_moved(due, rest, np.concatenate([rest[known], *self._entered]))
            if moved:  # who was foreseen to lead may score less than that
                scores = self._finite_scores()
                self._least = min(self._least, _last_of(scores, min(CANDIDATES // 4, len(scores))))
            self._own_new()
        self._new, self._entered = [], []
        if isinstance(engine, LocalEngine):
            engine.readings.before.forget()
        self._thin_out()
        self._look_out()
        return sets

    def _mark(self, edges: Ints) -> tuple[Ints, Switches]:
        """Have the sets on these edges as own, and those that have entries DUE; return those without an entry, and
        which of these were own before, shape (k,) each."""
        own, sets = self.own, self._collection.sets
        if not len(edges):
            return NOTHING, np.zeros(0, np.bool_)
        chains = sets.links.last.data, sets.linked.data, sets.links.previous.data
        which = sets_on(edges, sets.start.data, *chains)
        at = own.places(which)
        own.flags.data[at[at != NOWHERE]] = DUE
        rest = which[at == NOWHERE]
        known = own.among(rest)
        self._new.append(own.own(rest))
        return rest, known

    def _score_moved(self, due: Ints, rest: Ints, before: Ints) -> None:
        """Score the sets with entries at these places, and those of `rest`, which have none. `before`: those that
        were rest, whose part in its sum is to go."""
        if len(before):
            self._take_from_rest(before)
        self.own.flags.data[due] = 0
        terms, stays = self._score_some(due, rest)
        self._rest.add(terms[stays], rest[stays] < self._looked_at)

    def _take_from_rest(self, which: Ints) -> None:
        """Take what sets added to the rest's sum out of it, before they are scored again."""
        looked_at = which < self._looked_at
        self._rest.take_looked_at(self._terms_before(which[looked_at], self._common))
        self._rest.take(self._terms_before(which[~looked_at], self._rest.common))

    def _score_all(self, common: Common, rest: Ints) -> None:
        """Score all own sets at these common quantities. `rest`: those without an entry that are due."""
        own, unowned = self.own, self._unowned
        self._common, self._late, self.first, self._least = common, None, None, -math.inf
        self._rest.begin(common if own.keeps_rest else None)
        if unowned:
            unowned.begin(self.policy, common)
        at, rest, self._thin_in = own.all_entries(), own.without_entry(known=rest), 0
        own.flags.data[at] = 0
        for begin in range(0, max(len(rest), 1), CANDIDATES):
            some = rest[begin : begin + CANDIDATES]
            which = own.numbers(at, some)
            terms, stays = self._score_some(at, some, anew=len(at) > 0)
            self._rest.add(terms[stays], some[stays] < self._looked_at)
            if unowned:
                unowned.own(which, self._looked_at)
            self._thin_out()  # where nothing had a score all may lead, and room for entries is not given back
            at = NOTHING

    def _own_new(self) -> None:
        """Take what the prior says of sets that have become own out of its totals."""
        if self._unowned and self._new:
            self._unowned.own(np.concatenate(self._new), self._looked_at)

    def _all_at_once(self, common: Common) -> bool:
        """Whether all own sets are scored at these common quantities before anything is read, and not late."""
        if self._common is None or self._scorer.by_chance:
            return True
        soon = self._unowned is None or self._unowned.soon(self.policy, common)
        return soon and self.own.count <= AT_ONCE

    def _take_common(self, common: Common, due: Ints, foreseen: Foreseen | None) -> Ints:
        """Go on to other common quantities; return the places of the entries that are to be scored by them now:
        those that are `due`, and the best, unless they are foreseen. All others are `late`."""
        before, self._common, own = self._common, common, self.own
        assert before is not None
        self.first = None
        self._look_again(LateSets(common))
        shift = common.mean_shift - before.mean_shift
        if foreseen and not (foreseen.engine is self._scorer.engine and foreseen.engine.readings.scored_by_one):
            foreseen = None
        best, self._least = (foreseen.at, foreseen.least) if foreseen else self._best_at(shift)
        best, moved = union(best, due), moved_on(shift, common.base_rate)
        leaves = np.zeros(own.entries, np.bool_)
        if own.keeps_rest and before == self._rest.common:  # else the rest's sum would be of several moments
            leaves[own.uncounted()] = True
            leaves[best] = False
        left = self._tournament.retire(moved, leaves)
        own.flags.data[own.all_entries()] = LATE
        if own.keeps_rest:
            own.leave(np.flatnonzero(leaves).astype(np.int32))
        self._rest.move_on(left, moved)
        if self._unowned:
            self._unowned.move_on(self.policy, common, shift, moved)
        return self._take_foreseen(foreseen, due) if foreseen else best

    def _take_foreseen(self, foreseen: Foreseen, due: Ints) -> Ints:
        """Score those as is foreseen of whom that is still right; return the places of the others, and of those
        that are `due`."""
        own, scored, others = self.own, foreseen.scored, np.zeros(self.own.entries, np.bool_)
        others[due] = True
        if foreseen.engine.readings.pending:
            others[foreseen.at] |= self._scorer.near_pending(own.numbers(foreseen.at), foreseen.engine)
        kept = ~others[foreseen.at]
        at = foreseen.at[kept]
        own.flags.data[at] = own.near.data[at] = 0
        self._tournament.set(at, scored.score[kept], scored.terms[kept], own.ties)
        return np.flatnonzero(others).astype(np.int32)

    def foresee(self, engine: Engine, common: Common, most: int) -> Ints:
        """Score those that will be best at other common quantities before anything asks for it, if that is not
        done yet: a millisecond. Returns who will lead there, with so many items at least, shape (k,); nobody where
        nothing was to be done. The ranking by the prior is made there."""
        own, prior = self.own, self.prior
        known = common in {self._common, *self._foreseen}
        if known or self._common is None or self._all_at_once(common) or self.late:
            return NOTHING
        if prior is None or not own.keeps_rest or not isinstance(engine, LocalEngine):
            return NOTHING
        at, least = self._best_at(common.mean_shift - self._common.mean_shift)
        which = own.numbers(at)
        scored = self._scorer.score_at(engine, common, which, counts := own.counts(at))
        while len(self._foreseen) >= MOST_FORESEEN:
            del self._foreseen[next(iter(self._foreseen))]
        self._foreseen[common] = Foreseen(engine, at, least, scored)
        by_prior = prior.at(self.policy, common).known_leaders(most, own.among)
        first = Leaders(which, scored.score, ties_of(at, own.ties)).with_more(by_prior)
        left = np.append(counts.left, prior.left[by_prior.sets])
        order = np.lexsort((first.sets, first.tie, -first.score))
        return first.sets[order[: 1 + int(np.searchsorted(np.cumsum(left[order]), most))]]

    def forget_foreseen(self) -> None:
        """Keep nothing that is foreseen."""
        self._foreseen = {}

    @property
    def late(self) -> bool:
        """Whether sets wait for `make_up`."""
        return self._late is not None

    def make_up(self) -> None:
        """Score some of the sets that wait since what all share moved, a millisecond or two: see `late`."""
        late = self._late
        if late is None or (self._unowned and self._unowned.prepare(self.policy, late.common)):
            return
        self.forget_foreseen()
        with self._scorer.as_scored():
            self._make_up(late)
            self._thin_out()

    def _make_up(self, late: LateSets) -> None:
        own, unowned = self.own, self._unowned
        numbers, late.made = own.next(late.made, LATE_AT_ONCE)
        at = own.places(numbers)
        rest, at = numbers[at == NOWHERE], np.sort(at[at != NOWHERE])
        at = at[own.flags.data[at] == LATE]
        own.flags.data[at] = 0
        terms, stays = self._score_some(at, rest)
        self._rest.keep(terms[stays])
        self._rest.take(self._terms_before(rest[~stays], self._rest.common))
        whole = late.made == len(self._collection.sets)
        if unowned:
            unowned.look_at(numbers)
        if whole:
            self._late = None
            self._rest.finish(late.common)
            if unowned:
                unowned.finish()
                self.first = None

    def _look_again(self, late: LateSets) -> None:
        """Have all sets wait for `make_up`."""
        self._late = late
        self._rest.look_again()
        if self._unowned:
            self._unowned.look_again()

    @property
    def _looked_at(self) -> int:
        """Sets with lower numbers do not wait for `make_up`."""
        return self._late.made if self._late else len(self._collection.sets)

    # ---- who leads, and the rest ----

    def _score_some(self, at: Ints, rest: Ints, *, anew: bool = False) -> tuple[Floats, Switches]:
        """Score the sets with entries at these places, and those of `rest`, and give entries to those of these that
        may lead. Returns what each of `rest` adds to the totals, shape (k, TERMS), and whether it stays rest.

        `anew`: no others have a score, so that it is found anew how good the best of them are.
        """
        if not (len(at) or len(rest)):
            return np.zeros((0, TERMS)), np.zeros(0, np.bool_)
        own, entered, which = self.own, len(at), self.own.numbers(at, rest)
        (score, terms), near = self._scorer.score(which, own.counts(at, rest))
        own.near.data[at] = near[:entered]
        self._tournament.set(at, score[:entered], terms[:entered], own.ties)
        self._forget_first(which, score)
        if anew:
            self._least = self._least_of_best()
        score, terms, near = score[entered:], terms[entered:], near[entered:]
        may_lead = ((score >= self._least) | near) & (score > -np.inf)
        if self._late is not None and self._rest.common != self._common:
            may_lead |= rest >= self._late.made  # what it adds is known exactly, and the rest's sum is not
        if may_lead.any():
            at = own.enter(rest[may_lead])
            own.flags.data[at], own.near.data[at] = 0, near[may_lead]
            self._tournament.resize(own.entries, own.ties)
            self._tournament.set(at, score[may_lead], terms[may_lead], own.ties)
        return terms, ~may_lead

    def _terms_before(self, which: Ints, common: Common | None) -> Floats:
        """What sets of the rest added to its sum at these common quantities, of which they were before the last
        `settle`, shape (k, TERMS)."""
        engine = self._scorer.engine
        if not len(which) or common is None or not isinstance(engine, LocalEngine):
            return np.zeros((0, TERMS))
        return self._scorer.terms_before(which, common, engine)

    def _forget_first(self, which: Ints, score: Floats) -> None:
        if self.first and self.first.changes_with(which, score):
            self.first = None

    def _best_at(self, shift: float) -> tuple[Ints, float]:
        """The places of the entries that are foreseen to be best once the common mean has moved by so much, a
        fourth of as many as may lead, ascending; and what the rest is to score less than from there on.

        That is what as many as may lead are foreseen to score; where there are fewer, as many of these as were
        known to lead the rest.
        """
        at, score = self._tournament.foreseen(shift)
        least = self._least
        if self.own.keeps_rest:
            few = least > -math.inf and len(at) < CANDIDATES
            leading = np.count_nonzero(self._scores[at] >= least) if few else CANDIDATES
            least = _last_of(score, int(leading))
        return at[score >= _last_of(score, CANDIDATES // 4)], least

    def _least_of_best(self) -> float:
        """What the last of as many entries as may lead scores; −inf where there are fewer, or no rest is kept."""
        return _last_of(self._finite_scores(), CANDIDATES) if self.own.keeps_rest else -math.inf

    def _finite_scores(self) -> Floats:
        """The scores of entries that have one, shape (k,): among many that are −inf the best are found slowly."""
        score = self._scores[: self.own.entries]
        return score[score > -np.inf]

    def _thin_out(self) -> None:
        """Where there are many more entries than may lead, make the others rest, but for those that are counted,
        and those that pending screenings are in: what these add cannot be computed once more."""
        own = self.own
        self._thin_in -= 1
        if not own.keeps_rest or own.uncounted_entries <= 2 * CANDIDATES or self._thin_in > 0:
            return
        self._least = max(self._least, self._least_of_best())
        at = own.uncounted()
        at = at[(own.flags.data[at] == 0) & (self._scores[at] < self._least)]
        if self._late and self._rest.common != self._common:
            at = at[own.numbers(at) < self._late.made]  # the sum of the others is as it was
        self._score_some(at[own.near.data[at] != 0], NOTHING)
        at = at[(own.near.data[at] == 0) & (self._scores[at] < self._least)]
        self._make_rest(at)
        if own.uncounted_entries > 2 * CANDIDATES:
            self._thin_in = THIN_OUT_EVERY

    def _make_rest(self, at: Ints) -> None:
        own = self.own
        self._rest.add(self._tournament.places.terms[at], own.numbers(at) < self._looked_at)
        self._tournament.set(at, np.full(len(at), -np.inf), np.zeros((len(at), TERMS)), own.ties)
        own.leave(at)

    def _look_out(self) -> None:
        """Where few are left that are known to lead, begin to look through the rest."""
        if self._late is None and self._least > -math.inf:
            leading = np.count_nonzero(self._scores[: self.own.entries] >= self._least)
            if leading < CANDIDATES // 4:
                self._look_through_rest()

    def _look_through_rest(self) -> None:
        """Begin to give entries to those of the rest that may lead (`make_up`)."""
        assert self._common is not None
        self._look_again(LateSets(self._common, known_above=self._least))
        self._least = -math.inf

    # ---- reading ----

    def totals(self) -> Floats:
        """The sum of all sets' terms (`set_scores`), shape (TERMS,)."""
        totals = self._tournament.totals() + self._rest.terms
        return totals + self._unowned.totals if self._unowned else totals

    def unscreened(self) -> tuple[Ints, Longs]:
        """Sets, and how many items without a verdict they stand for, shape (k,) each: all that are own for their
        items, and one that is not for all of those, which neither data nor a watch-list reach: they are alike."""
        own, prior = self.own, self.prior
        sets, _ = own.next(0, own.count)
        at, items = own.places(sets), np.empty(len(sets), np.int64)
        entered = at != NOWHERE
        counts = own.counts(at[entered])
        items[entered] = counts.left + counts.pending
        items[~entered] = own.counts_before(sets[~entered]).left
        if prior is None:
            return sets, items
        others = np.flatnonzero(prior.left).astype(np.int32)
        others = others[~own.among(others)]
        if not len(others):
            return sets, items
        return np.append(sets, others[0]), np.append(items, prior.left[others].sum())

    def score_at(self, place: int) -> float:
        """The score of the entry at a place."""
        return float(self._scores[place])

    @property
    def rest_below(self) -> float:
        """Own sets without an entry score less; inf where that is not known."""
        return math.inf if self.late else self._least

    def leaders(self, most: int | None) -> Iterator[tuple[float, int, int]]:
        """(score, negative; tie hash; set) of the best sets, in rank order, at least so many; None for all."""
        while self.late and (most is None or most > CANDIDATES // 4):
            self.make_up()
        most = len(self._collection.sets) if most is None else most
        own, base = self._led(most), self._unowned.ranking if self._unowned else None
        if base is None:
            by_prior, bound = NO_LEADERS, -math.inf
        else:
            by_prior, bound = base.known_leaders(most, self.own.among), base.bound
        if base is not None and not enough_lead(own, by_prior, max(bound, self._known_above), most):
            by_prior = base.leaders(most, self.own.among)
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
        own = self.own
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
