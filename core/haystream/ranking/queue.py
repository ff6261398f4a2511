"""The unscreened items of a query in the order in which to read them."""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from operator import itemgetter

import numpy as np

from haystream.collection.collection import Collection
from haystream.engines.contract import Engine
from haystream.events import Policy
from haystream.memory.arrays import Floats, Ints
from haystream.models.common import is_beyond
from haystream.ranking.first import First
from haystream.ranking.policies import POLICIES
from haystream.ranking.prior_rankings import PriorRankings
from haystream.ranking.prospects import Prospects
from haystream.ranking.ranked import Estimate, RankedItem
from haystream.ranking.reasons import SETS_FORESEEN, Reasons
from haystream.ranking.set_ranking import SetRanking
from haystream.ranking.tournament import TERMS
from haystream.ranking.unscreened import Unscreened


class Queue:
    """The items of each set as they are read, the sets as they are ranked."""

    def __init__(self, collection: Collection, policy: Policy, prior: PriorRankings | None = None) -> None:
        """`prior`: as which the engine began, then a `LocalEngine`; without it every set is the query's own."""
        self._collection = collection
        self._ranking = SetRanking(collection, policy, prior)
        self._unscreened = Unscreened(collection)
        self._holding: set[int] = set()
        """The sets that have items which are unscreened and not to be offered (`OwnSets.pending` says how many)."""
        self._reasons = Reasons(collection)
        self._people: dict[int, tuple[str, ...]] = {}
        """Everyone on the sets that `best` was last asked for."""
        self.prospects = Prospects(collection, self._ranking)
        """What its sets will score with what it has not taken in yet."""

    def use(self, policy: Policy) -> None:
        """Score by another policy from the next `rescore` on."""
        self._ranking.use(policy)

    @property
    def scores_edges(self) -> bool:
        """Whether a set's score is made of its edges': then an item may move those of other sets on its edges."""
        return POLICIES[self._ranking.policy.name].score is not None

    def add(self, begin: int, end: int) -> None:
        """New items, at places begin … end − 1 of the collection; unscreened."""
        of = self._collection.sets_of(begin, end)
        own, row = self._ranking.own, self._ranking.rows(of)
        np.add.at(own.left.data, row, 1)
        np.add.at(own.items.data, row, 1)
        np.minimum.at(own.tie.data, row, self._collection.hashes_of(begin, end))
        self._unscreened.come(of)

    def offer(self, item: int, *, available: bool) -> None:
        """Take an item out of the queue, or put it back."""
        which = self._collection.set_of(item)
        row = self._ranking.row(which)
        left, tie = self._ranking.own.left.data, self._ranking.own.tie.data
        if available:
            self._unscreened.give_back(item)
            left[row] += 1
            tie[row] = min(int(tie[row]), self._collection.hash_of(item))
        else:
            self._unscreened.take(item)
            left[row] -= 1
            tie[row] = self._unscreened.first_hash(which)

    def hold(self, item: int, *, held: bool) -> None:
        """Take an unscreened item out of the queue though it is among what remains, or put it back."""
        which = self._collection.set_of(item)
        row = self._ranking.row(which)
        pending = self._ranking.own.pending.data
        pending[row] += 1 if held else -1
        if pending[row]:
            self._holding.add(which)
        else:
            self._holding.discard(which)
        self.offer(item, available=not held)

    def withdraw(self, items: Ints) -> None:
        """Take items out for good, and out of what their sets are known to hold; places of the collection."""
        of = self._collection.sets_at(items)
        own, row = self._ranking.own, self._ranking.rows(of)
        np.subtract.at(own.left.data, row, self._unscreened.free(items))
        np.subtract.at(own.items.data, row, 1)
        for at, which in set(zip(row.tolist(), of.tolist(), strict=True)):
            own.tie.data[at] = self._unscreened.first_hash(which)

    def judge(self, item: int, *, screened: int, relevant: int) -> None:
        """Add to (or, with −1, take from) what is known of the item's set."""
        own, row = self._ranking.own, self._ranking.row(self._collection.set_of(item))
        own.screened.data[row] += screened
        own.relevant.data[row] += relevant

    # ---- scores ----

    @property
    def owned(self) -> int:
        """How many sets are the query's own: it scores these by itself."""
        return self._ranking.own.count

    def rescore(self, engine: Engine, edges: Ints, *, step: int) -> None:
        """Take in the edges' new posteriors, and the sets that gained or lost items."""
        self._reasons.forget(self._ranking.rescore(engine, edges, step=step))

    @property
    def late(self) -> bool:
        """Whether sets wait for `make_up`."""
        return self._ranking.late

    def make_up(self) -> None:
        """Score some of the sets that wait since what all share moved, a millisecond or two."""
        self._ranking.make_up()

    def prepare(self, engine: Engine, top: int) -> bool:
        """Make a part of the rankings by the prior that the next verdict will ask for, if it is on the best item
        and takes the base rate to another of its steps; True if there is more to make.

        The first `top` items are known then, too, so that news can be compared with them.
        """
        edge, prior, policy = self._best_edge(top), self._ranking.prior, self._ranking.policy
        if prior is None or edge is None:
            return False
        return any(prior.prepare(policy, common) for common in engine.readings.rounded_after(edge))

    def foresee(self, engine: Engine, top: int) -> bool:
        """Do a part of what else that verdict would take time for; True if there is more to do.

        That is what the engine has to do then; and, at the steps that it may lead to, what the query's own best
        sets score, and the reasons of who will lead.
        """
        edge = self._best_edge(top)
        if edge is None or self._ranking.prior is None:
            return False
        if engine.foresee(edge):
            return True
        for common in engine.readings.rounded_after(edge):
            leading = self._ranking.foresee(engine, common, top)
            if len(leading):
                self._reasons.prepare(engine, leading[:SETS_FORESEEN].tolist())
                return True
        return False

    def _best_edge(self, top: int) -> int | None:
        """An edge of the best item, if there is one."""
        best = self.first(top)
        return self._collection.sets.edges(best[0][1])[0] if best else None

    def forget_foreseen(self) -> None:
        """Keep nothing of what `foresee` did but what all queries share."""
        self._ranking.forget_foreseen()

    # ---- reading ----

    def remaining(self, engine: Engine) -> Estimate:
        """Expected relevant items left, at what is learned of the concentrations. What stays unknown of them adds
        to the posterior's variance.
        """
        mean, flips = self._expected(engine)
        log_c, doubt = engine.readings.concentration()
        on_c = engine.readings.concentration_slope() if doubt else 0.0
        # What outcomes leave open is 0 where everything is read, but for rounding; moved far, it may come out less.
        variance = max(flips, 0.0) + engine.readings.remaining_variance() + on_c * on_c * doubt
        return Estimate(max(mean + on_c * log_c, 0.0), math.sqrt(variance))

    def _expected(self, engine: Engine) -> tuple[float, float]:
        """The sums of E[p] and E[p (1 − p)] over what is left: as scored at the rounded common mean, the first
        moved to where that is; or, where that is too far for a line, since means stay in [0, 1], of the sets anew.
        """
        exact, near = engine.readings.common(), engine.readings.rounded_common()
        if is_beyond(exact, near):
            sets, items = self._ranking.unscreened()
            of_sets, variance = self.moments(engine, sets)
            return float(items @ of_sets), float(items @ np.maximum(of_sets - of_sets**2 - variance, 0.0))
        mean, flips, slope = (self._ranking.totals() + self._held_terms(engine)).tolist()
        return mean + slope * (exact.mean_shift - near.mean_shift), flips

    def _held_terms(self, engine: Engine) -> Floats:
        """What items that are held add to the totals (`score_sets`)."""
        if not self._holding:
            return np.zeros(TERMS)
        own, sets = self._ranking.own, np.array(sorted(self._holding), np.int32)
        layout, edges = self._collection.sets.layout.of(sets)
        (mean, variance, slope), k = layout.sums(engine.readings.scoring(edges)), layout.sizes
        mean, slope = mean / k, slope / k
        flips = np.maximum(mean - mean * mean - variance / (k * k), 0.0)
        held = own.counts(own.places(sets)).pending
        return np.asarray(held @ np.column_stack([mean, flips, slope]))

    def moments(self, engine: Engine, sets: Sequence[int] | Ints) -> tuple[Floats, Floats]:
        """Posterior mean and variance of the relevance of an item of each set, exact, shape (len(sets),)."""
        layout, edges = self._collection.sets.layout.of(np.array(sets, np.int32))
        (mean, variance), k = layout.sums(engine.readings.edges(edges)), layout.sizes
        return mean / k, variance / (k * k)

    def items(self, most: int | None = None) -> Iterator[tuple[int, int, float]]:
        """(item, its set, score) in rank order: best score first, ties by the items' hashes.

        All of them, or the first `most` (a few more may come).
        """
        for less, tied in groupby(self._ranking.leaders(most), key=itemgetter(0)):
            for item, which in self._unscreened.of_tied([which for _, _, which in tied]):
                yield item, which, -less

    def first(self, most: int) -> Sequence[tuple[int, int, float]]:
        """The first `most` of `items`, or all that there are. Costs nothing where nobody has come or gone since."""
        first = self._ranking.first
        if first is None or first.most < most:
            first = self._ranking.first = First(self._collection, most, list(islice(self.items(most), most)))
        return first.items[:most]

    def known_first(self, most: int) -> First | None:
        """The first `most` items as they were last asked for; None where they may have changed since."""
        first = self._ranking.first
        return first.at_most(most) if first and first.most >= most else None

    def best(self, engine: Engine, top: int) -> list[RankedItem]:
        """The first `top` items, with what made their scores."""
        items = self.first(top)
        sets = list(dict.fromkeys(which for _, which, _ in items))
        mean, variance = self.moments(engine, sets)
        reasons, known = self._reasons.of(engine, sets), self._people
        self._people = {which: known.get(which) or self._collection.set_participants(which) for which in sets}
        columns = mean.tolist(), np.sqrt(variance).tolist(), self._people.values(), reasons
        told = dict(zip(sets, zip(*columns, strict=True), strict=True))
        ids, details = self._collection.item_ids, self._collection.details
        return [
            RankedItem._make((ids[item], rank, score, *told[which], *details.of(item)))
            for rank, (item, which, score) in enumerate(items, start=1)
        ]
