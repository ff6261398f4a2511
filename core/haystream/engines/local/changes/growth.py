"""What the graph's growth does to an engine: Λ follows Q, D follows Q⁻¹, and the priors of edges follow D."""

from dataclasses import dataclass, field, replace

import numpy as np

from haystream.engines.local.changes.edge_data import EdgeData
from haystream.engines.local.changes.rebuild import rebuild, weigh
from haystream.engines.local.changes.update_growth import (
    Rescaling,
    find_lagging,
    follow_residuals,
    push_ends,
    renew,
    rescale,
    take_prior,
)
from haystream.engines.local.inverse.inverse_entries import (
    change_entries,
    change_matrix,
    change_row,
    find_reached,
    take_entries,
)
from haystream.engines.local.inverse.precision import Change, Precision, UnreadChanges
from haystream.engines.local.solves.budget import LEAST_SCALE
from haystream.engines.local.solves.healing import forget_fresh, last_to_wait, let_go
from haystream.engines.local.state.state import COUNTED, State
from haystream.memory.arrays import Flags, Floats, Ints, mark_all_as, members_by_bit, take_all
from haystream.memory.held import held
from haystream.memory.overlay import entries, put_all
from haystream.models.base import Priors


@dataclass(slots=True)
class Growth:
    """How an engine follows its precision, and what is left to do of that."""

    precision: Precision
    data: EdgeData
    estimated: bool = False
    """Whether growth was taken in by estimate, and not everybody may be healed since, or told of that."""
    _lagging: bool = False
    """Whether D may lag anywhere far from data (`budget.FAR_FACTOR`)."""
    _doubtful: set[int] = field(default_factory=set)
    """Who waits for healing since something was estimated, as it was of Q⁻¹."""

    def on(self, data: EdgeData) -> "Growth":
        """A copy for columns that say the same."""
        return replace(self, data=data, _doubtful=set(self._doubtful))

    def follow(self, changes: UnreadChanges) -> None:
        """Do to Λ what was done to Q, then renew the priors of the edges that it moved."""
        self.data.columns.fill_out()
        if self.data.judged:
            self.data.owed |= changes.moves_edges
            self._follow_inverse(changes)
        else:
            self._follow_prior(changes)
        self._rescale(self.data.columns.state, changes.touched)

    def follow_lagging(self) -> None:
        """Have D and priors as exact as near data where data have come to since these moved."""
        if not self._lagging:
            return
        state = self.data.columns.state
        find_lagging(state)
        late = take_all(state.rooms.people)
        if len(late):
            self._rescale(state, late)

    def let_none_lag(self) -> None:
        """Have D and priors as exact everywhere as near data."""
        state = self.data.columns.state
        exact = held(state._replace(tolerances=state.tolerances._replace(far=state.tolerances.scale)))
        self._rescale(exact, members_by_bit(state.people.lagging))
        state.people.lagging[:] = 0
        self._lagging = False

    def renew_priors(self, which: Ints) -> None:
        """Give these edges new priors, and have readers told of them: who was told nothing has the new priors, too,
        whether or not these move the posterior."""
        self._renew(which)
        mark_all_as(self.data.columns.state.news.stale, which, COUNTED)

    def rebuild(self) -> None:
        """Solve everything afresh, from the last solution."""
        self.data.reckon_items()
        columns, precision, people = self.data.columns, self.precision, self.data.columns.state.people
        columns.fill_out()
        m = columns.participants
        D = self.data.model.scale(people.prior_mean[:m], precision.inverse_diagonal)
        put_all(people.scale, columns.everyone(), D)
        priors = self._priors(columns.everywhere())
        weigh(columns, precision, priors)
        self.data.solve_closely_for(columns.everywhere(), columns.state.edges.weight[: columns.edge_count])
        rebuild(columns, precision, priors)
        self.data.readings.check_solves()
        self.estimated, self.data.owed, self._lagging = True, False, False
        self._doubtful.clear()
        people.lagging[:m] = 0

    # ---- Λ follows Q ----

    def _follow_prior(self, changes: UnreadChanges) -> None:
        """Do to Λ what was done to Q where nothing was ever counted: its inverse is Q⁻¹."""
        self.data.reckon_items()
        self.estimated |= changes.estimated
        state, touched = self.data.columns.state, changes.touched
        for change in changes.of_edges:
            follow_residuals(state, change.edges, change.deltas)
            change_matrix(state.system, change.edges, change.deltas)
            push_ends(state, change.edges)
        self._take_entries(touched, np.zeros(len(touched), np.uint8))

    def _follow_inverse(self, changes: UnreadChanges) -> None:
        """Do to Λ what was done to Q where data are in Λ: its inverse is corrected, or estimated, and healed."""
        columns, precision, solved, touched = self.data.columns, self.precision, changes.solved, changes.touched
        by_data, waited = self._by_data(touched), int(columns.state.inverse.healing.state[1])
        for change in changes.of_edges:
            self._follow_one(change)
        inverse, taken = columns.state.inverse, columns.state.people.prior_variance
        if changes.estimated:
            self._doubtful.update(last_to_wait(inverse.healing, waited))
        if len(solved):
            # What was estimated since is not by data; what was corrected knows of them.
            if changes.estimated:
                put_all(taken, touched, entries(inverse.on_participant, touched) - by_data)
            elif changes.moves_edges:
                put_all(taken, touched, precision.inverse_diagonal[touched])
            self._take_inverse(solved)
        put_all(taken, touched, precision.inverse_diagonal[touched])

    def _follow_one(self, change: Change) -> None:
        self.data.reckon_items()
        state, edges, deltas = self.data.columns.state, change.edges, change.deltas
        system, inverse, rooms = state.system, state.inverse, state.rooms
        follow_residuals(state, edges, deltas)
        if change.row is None:
            self.estimated = True
            forget_fresh(inverse.healing)
            ends_wait = False  # Q⁻¹ is healed there, and Λ⁻¹ follows
            change_entries(system, inverse, edges, deltas, ends_wait, rooms.people)
        else:
            change_row(system, inverse, change.row, edges, deltas, rooms.column, rooms.other, rooms.people)
        push_ends(state, edges)

    def _by_data(self, participants: Ints) -> Floats:
        """What data have made of participants' entries of Λ⁻¹: the difference to what was last taken of Q⁻¹."""
        state = self.data.columns.state
        now, taken = state.inverse.on_participant, state.people.prior_variance
        return entries(now, participants) - entries(taken, participants)

    def _take_inverse(self, solved: Ints) -> None:
        """Where Q⁻¹ was solved afresh, have Λ⁻¹ be so, too; where data have reached, when there is time.

        The edges that this moves are told with their new priors (`rescale`), or when Λ⁻¹ is healed there.
        """
        state, reached = self.data.columns.state, np.empty(len(solved), np.uint8)
        find_reached(state.system, state.inverse, solved, state.people.prior_variance, reached)
        self._take_entries(solved, reached)
        if self._doubtful:
            known = self._doubtful.intersection(solved[reached == 0].tolist())
            self._doubtful.difference_update(solved.tolist())
            let_go(state.inverse.healing, np.array(sorted(known), np.int32))

    def _take_entries(self, participants: Ints, reached: Flags) -> None:
        state, precision = self.data.columns.state, self.precision
        entries = precision.inverse_diagonal, precision.inverse_edge
        take_entries(state.system, state.inverse, participants, reached, *entries, state.people.prior_variance)

    # ---- D follows Q⁻¹, and priors follow D ----

    def _rescale(self, state: State, participants: Ints) -> None:
        """Renew D at these, and the priors of the edges there, as far as they have moved by what is followed."""
        precision = self.precision
        D = self.data.model.scale(state.people.prior_mean[participants], precision.inverse_diagonal[participants])
        unit = max(self.data.readings.rounded_common().scale, LEAST_SCALE)
        prior = Rescaling(D, precision.inverse_edge, unit)
        self._lagging |= rescale(state, prior, participants, state.rooms.edges)
        self.renew_priors(take_all(state.rooms.edges))

    def _renew(self, which: Ints) -> None:
        """Give these edges the priors that hold now; those that this changes by much are taken out and put back."""
        self.data.reckon_items()
        columns, state = self.data.columns, self.data.columns.state
        columns.fill_out()
        priors = self._priors(which)
        new = columns.bound[which] != priors.bound
        columns.bound[which[new]] = priors.bound[new]  # memory that is written to is the query's own from then on
        rough = np.zeros(len(which), np.uint8)
        renew(state, which, priors, rough)
        for row in np.flatnonzero(rough).tolist():
            edge = which[row : row + 1]
            if state.edges.weight[edge] > 0.0:
                self.data.take_out(edge)
            take_prior(state.edges.prior, edge.item(), priors, row)
            self.data.weigh(edge)

    def _priors(self, which: Ints) -> Priors:
        edges, people = self.data.columns.state.edges, self.data.columns.state.people
        inverse_edge, scale = self.precision.inverse_edge, self.data.columns.state.rooms.scale
        for ends in (edges.tail[which], edges.head[which]):
            scale[ends] = entries(people.scale, ends)
        return self.data.model.priors(edges.tail, edges.head, which, people.prior_mean, scale, inverse_edge)
