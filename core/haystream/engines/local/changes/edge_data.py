"""What is recorded of edges' items, and how Λ and its right-hand sides follow that."""

from dataclasses import dataclass, field, replace

import numpy as np

from haystream.engines.local.changes.push import push_everybody
from haystream.engines.local.changes.update_item import change_edges, offer_items
from haystream.engines.local.changes.update_verdict import change_edge, heaviest, let_in, regress_edges
from haystream.engines.local.readings.readings import LocalReadings
from haystream.engines.local.solves.budget import (
    EntryTolerances,
    Tolerances,
    closeness,
    for_items,
    posterior_entries,
    prior_closeness,
    tolerances,
)
from haystream.engines.local.solves.sides import REMAINING
from haystream.engines.local.state.columns import Columns
from haystream.engines.local.state.state import COUNTED
from haystream.memory.arrays import Floats, Ints, change_flags, union
from haystream.models.base import Model


def tolerances_of(model: Model, tolerance: float, closely: float) -> tuple[Tolerances, EntryTolerances]:
    """The tolerances of an engine's numbers, before it knows how many items there are, and of the entries of Λ⁻¹.

    `closely`: how many times `tolerance` all is solved to (`budget.closeness`).
    """
    sides, entries = 3 if model.common_weight else 2, posterior_entries(tolerance * closely, model.prior_scale)
    of_prior = prior_closeness(model.correlation_weight)
    return tolerances(tolerance, entries, sides, closely=closely, of_prior=of_prior), entries


@dataclass(slots=True)
class EdgeData:
    """The data of an engine's edges, of which Λ and its right-hand sides may be behind until `follow`."""

    columns: Columns
    readings: LocalReadings
    model: Model
    correlation: float
    tolerance: float
    closely: float
    """How many times the tolerance all is solved to (`budget.closeness`)."""
    judged: bool = False
    """Whether anything was ever counted: until then Λ is Q."""
    owed: bool = False
    """Whether sides may be off by more than their tolerances (`Tolerances.owed`) since something was judged.

    Before that all but REMAINING are 0, and what is left of that one matters to second order alone.
    """
    _offered_total: float = 0.0
    _counted: list[Ints] = field(default_factory=list)
    """Edges, as they were recorded, whose counts are still to be followed."""
    _offered: list[Ints] = field(default_factory=list)
    """The same of edges where nothing was counted, but items were put on offer or taken off."""

    def on(self, columns: Columns, readings: LocalReadings) -> "EdgeData":
        """A copy for columns that say the same and are settled."""
        return replace(self, columns=columns, readings=readings, _counted=[], _offered=[])

    def record(self, which: Ints, *, screened: float, relevant: float, offered: float, pending: float) -> None:
        """Add to the counts of the edges in `which`; the next `follow` follows them, all at once."""
        data = self.columns.state.data
        self.readings.concentrations.count(which, screened)
        counted = screened != 0.0 or relevant != 0.0
        if counted:
            self.judged = True
            self.readings.before.note_counts(which, data.n[which], data.y[which])
        data.n[which] += screened
        data.y[which] += relevant
        data.offered[which] += offered
        self._offered_total += offered * len(which)
        if pending != 0.0:
            self.readings.pending.add(which, pending)
        if counted:
            self._counted.append(which)
        elif offered != 0.0:
            self._offered.append(which)

    def offer(self, edges: Ints, items: Floats) -> None:
        """Add new items to those on offer, and follow that: one local update for all."""
        self.follow()
        self.columns.fill_out()
        self.columns.state.data.offered[edges] += items
        self._offered_total += float(items.sum())
        self.reckon_items()
        offer_items(self.columns.state, let_in(self.columns.state, edges))
        self.readings.check_solves()

    def follow(self) -> None:
        """Bring edges in line with what was recorded of them since this was last done."""
        if not (self._counted or self._offered):
            return
        counted, all_of_them = self._counted, [*self._counted, *self._offered]
        self._counted, self._offered = [], []
        self.weigh(union(*all_of_them))
        for edges in counted:
            change_flags(self.columns.state.news.stale, edges, COUNTED)  # an edge that is not let in is not in

    def weigh(self, edges: Ints) -> None:
        """Bring edges' weights and coefficients in line with their counts and their priors."""
        state = self.columns.state
        which = let_in(state, edges)
        weights, coefficients = np.empty(len(which)), np.empty((len(which), len(state.sums.form)))
        regress_edges(state, which, weights, coefficients)
        if self.solve_closely_for(which, weights):
            self.columns.fill_out()
            push_everybody(self.columns.state, self.columns.participants)
        self._change(which, weights, coefficients)

    def take_out(self, edges: Ints) -> None:
        """Have edges weigh nothing, whatever was counted on them."""
        self._change(edges, np.zeros(len(edges)), np.zeros((len(edges), len(self.columns.state.sums.form))))

    def _change(self, which: Ints, weights: Floats, coefficients: Floats) -> None:
        """Give edges other weights, shape (k,), and other coefficients, shape (k, sides)."""
        if not len(which):
            return
        self.reckon_items()
        self.columns.fill_out()
        state = self.columns.state
        weighs = bool((weights != state.edges.weight[which]).any())
        self.owed |= weighs
        if len(which) == 1 and weighs:
            change_edge(state, which.item(), weights.item(), coefficients[0])
        else:
            change_edges(state, which, weights, coefficients)
        self.readings.check_solves()

    def solve_closely_for(self, which: Ints, weights: Floats) -> bool:
        """Solve as closely from now on as edges of such weights, shape (k,), ask; return whether that is closer."""
        heavy = heaviest(self.columns.state, which, weights)
        closely = closeness(self.model.largest_scale, self.correlation, heavy)
        if closely >= self.closely:
            return False
        self.closely = closely
        self.columns.solve_to(*tolerances_of(self.model, self.tolerance, closely))
        self.reckon_items()
        return True

    def reckon_items(self) -> None:
        """Have what remains solved as closely as the items on offer ask: before anything is pushed."""
        state, people = self.columns.state, max(self.columns.participants, 1)
        for_items(state.tolerances, 2.0 * self._offered_total / people, state.sums.form.item(REMAINING) / people)

    def solve_owed(self) -> None:
        """Solve all sides to their tolerances."""
        self.columns.fill_out()
        push_everybody(self.columns.state, self.columns.participants)
        self.owed = False
        self.readings.check_solves()
