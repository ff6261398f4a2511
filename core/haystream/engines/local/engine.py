"""The linear form on the sparse precision: a verdict costs what its neighbourhood costs (docs/local-engine.md).

The state that matters is the solution x of Λx = b with its residual, and the entries of Λ⁻¹ on the graph. All
that happens is local: an edge's data change Λ by rank one, a new edge by a few rows, and what a new edge does
to D and so to the priors of edges near by is taken in edge by edge. Only a graph that is largely new is solved
afresh. A common mean is a border of Λ: one more right-hand side, and a few sums.
"""

from copy import copy

import numpy as np

from haystream.arrays import (
    Flags,
    Floats,
    Ints,
    Switches,
    change_flags,
    mark_all,
    mark_all_as,
    members_by_bit,
    members_of,
    take_all,
    take_last,
    union,
    unmark_all,
)
from haystream.copies import Template
from haystream.engines.contract import NEVER, NOTHING_MOVED, Moved
from haystream.engines.local.ahead import Ahead
from haystream.engines.local.announce import look_closely
from haystream.engines.local.budget import (
    COMMON_SHIFT,
    COMMON_SHIFT_WAITS,
    LEAST_SCALE,
    EntryTolerances,
    Tolerances,
    closeness,
    for_items,
    posterior_entries,
    prior_closeness,
    tolerances,
)
from haystream.engines.local.columns import Arrays, Columns
from haystream.engines.local.healing import forget_fresh, heal, last_to_wait, let_go
from haystream.engines.local.inverse_entries import (
    change_entries,
    change_matrix,
    change_row,
    find_reached,
    take_entries,
)
from haystream.engines.local.prior_inverse import Change, Precision, UnreadChanges
from haystream.engines.local.push import push_everybody, push_unpushed
from haystream.engines.local.readings import LocalReadings
from haystream.engines.local.rebuild import rebuild, weigh
from haystream.engines.local.refer import mark_reached, refer
from haystream.engines.local.sides import REMAINING
from haystream.engines.local.state import COUNTED, State
from haystream.engines.local.telling import last_told, leave, tell_all, tell_moved
from haystream.engines.local.update_growth import (
    Rescaling,
    find_lagging,
    follow_residuals,
    offer_items,
    push_ends,
    renew,
    rescale,
    take_prior,
)
from haystream.engines.local.update_item import change_edges
from haystream.engines.local.update_verdict import change_edge, heaviest, let_in, regress_edges
from haystream.events import Prior
from haystream.graph import Graph
from haystream.held import held
from haystream.models import MODELS
from haystream.models.base import Priors
from haystream.models.graph_prior import prior_means
from haystream.overlay import entries, put_all


class LocalEngine:
    """Bayes linear adjustment by local solves.

    `precision` may be shared by all queries of a collection with the same correlation.

    Raises:
        QueryFailed: TOO_MUCH_WORK, from whatever solves; the engine cannot be used any more.
    """

    def __init__(self, graph: Graph, prior: Prior, precision: Precision, *, tolerance: float) -> None:
        self._graph = graph
        self._prior = prior
        self._precision = precision
        self._tolerance = tolerance
        self._model = MODELS[prior.model](prior)
        self._closely = closeness(self._model.largest_scale, prior.correlation, 0.0)
        """How many times the tolerance all is solved to (`budget.closeness`)."""
        sides = 3 if self._model.common_weight else 2
        self._columns = Columns(sides, *self._tolerances(sides), precision.workspace)
        self._build = 0
        self._estimated = False
        self._owed = False
        """Whether sides may be off by more than their tolerances (`Tolerances.owed`) since something was judged.

        Before that all but REMAINING are 0, and what is left of that one matters to second order alone.
        """
        self._referred = False
        """Whether all who have a reach are still to be looked at since there is another reference."""
        self._lagging = False
        """Whether D may lag anywhere far from data (`budget.FAR_FACTOR`)."""
        self._doubtful: set[int] = set()
        """Who waits for healing since something was estimated, as it was of Q⁻¹."""
        self._offered_total = 0.0
        self._counted: list[Ints] = []
        """Edges, as they were recorded, whose counts Λ and its right-hand sides are still to follow."""
        self._offered: list[Ints] = []
        """The same of edges where nothing was counted, but items were put on offer or taken off."""
        self._judged = False
        """Whether anything was ever counted: until then Λ is Q."""
        self.may_leave = True
        """Growth, other settings, and data that are taken back may make it so."""
        self.readings = LocalReadings(self._columns, precision, prior)
        """The posterior."""
        self._ahead: Ahead | None = None
        self.drift = 0.0
        """By how much the entries of the inverse that were last solved afresh had been off, estimates apart."""
        self.untold = 0.0
        """At how many participants `tend` may have moved readings since the last `settle`, about."""
        self._unsaid: Moved = NOTHING_MOVED
        """What `follow` has moved since the last `settle`."""

    # ---- data ----

    def record(
        self,
        edges: int | Ints,
        *,
        screened: float = 0.0,
        relevant: float = 0.0,
        offered: float = 0.0,
        pending: float = 0.0,
    ) -> None:
        """Add to edges' counts; the next `settle` follows them, all at once."""
        self._resize()
        which, data = np.atleast_1d(np.int32(edges)), self._columns.state.data
        self.readings.concentrations.count(which, screened)
        counted = screened != 0.0 or relevant != 0.0
        if counted:
            self._judged = True
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
        self.may_leave |= screened < 0.0 or relevant < 0.0

    def offer(self, edges: Ints, items: Floats) -> None:
        """Add new items to those on offer: one local update for all."""
        self._resize()
        self._follow_counts()
        self._columns.fill_out()
        self._columns.state.data.offered[edges] += items
        self._offered_total += float(items.sum())
        self._reckon_items()
        offer_items(self._columns.state, let_in(self._columns.state, edges))
        self.readings.check_solves()

    def watch(self, prior: Prior) -> None:
        """Take another watch-list: new priors for the edges of those whose mean it changes, and for no others."""
        before, self._prior, self._model = self._prior.participants, prior, MODELS[prior.model](prior)
        self.readings.use(prior)
        self._ahead = None
        self._resize()
        self._follow_counts()
        graph, precision, people = self._graph, self._precision, self._columns.state.people
        names = (name for name in before.keys() | prior.participants.keys())
        changed = (name for name in names if before.get(name) != prior.participants.get(name))
        which = [index for index in map(graph.participant, changed) if index is not None]
        people.prior_mean[which] = prior_means(graph, prior)[which]
        self.may_leave = True
        if precision.builds != self._build:
            return  # the next `settle` computes everything
        here = np.array([index for index in which if index < len(precision.inverse_diagonal)], dtype=np.int32)
        D = self._model.scale(people.prior_mean[here], precision.inverse_diagonal[here])
        put_all(people.scale, here, D)
        mark_all(self._columns.state.news.moved, here)
        edges = union(*map(graph.edges_of, here.tolist()))
        self._take_priors(let_in(self._columns.state, edges))

    def _resize(self) -> None:
        """Make rows for what the graph got; its new edges carry nothing until `settle` lets them in."""
        graph, columns = self._graph, self._columns
        known = columns.participants
        if known == len(graph) and columns.edge_count == graph.edges:
            return
        columns.resize(graph)
        mean, people = prior_means(graph, self._prior, known), columns.state.people
        people.prior_mean[known : len(graph)] = mean
        new = np.arange(known, len(graph), dtype=np.int32)
        put_all(people.scale, new, self._model.scale(mean, np.ones(len(mean))))
        mark_all(columns.state.news.moved, new)

    def _follow_counts(self) -> None:
        """Bring edges in line with what was recorded of them since the last `settle`."""
        if not (self._counted or self._offered):
            return
        counted, all_of_them = self._counted, [*self._counted, *self._offered]
        self._counted, self._offered = [], []
        self._follow_data(union(*all_of_them))
        for edges in counted:
            change_flags(self._columns.state.news.stale, edges, COUNTED)  # an edge that is not let in is not in

    def _follow_data(self, edges: Ints) -> None:
        """Bring edges' weights and coefficients in line with their counts and their priors."""
        state = self._columns.state
        which = let_in(state, edges)
        weights, coefficients = np.empty(len(which)), np.empty((len(which), len(state.sums.form)))
        regress_edges(state, which, weights, coefficients)
        if self._solve_closely_for(which, weights):
            self._columns.fill_out()
            push_everybody(self._columns.state, self._columns.participants)
        self._change(which, weights, coefficients)

    def _solve_closely_for(self, which: Ints, weights: Floats) -> bool:
        """Solve as closely from now on as edges of such weights, shape (k,), ask; return whether that is closer."""
        heavy = heaviest(self._columns.state, which, weights)
        closely = closeness(self._model.largest_scale, self._prior.correlation, heavy)
        if closely >= self._closely:
            return False
        self._closely = closely
        self._columns.solve_to(*self._tolerances(len(self._columns.state.sums.form)))
        self._reckon_items()
        return True

    def _tolerances(self, sides: int) -> tuple[Tolerances, EntryTolerances]:
        entries = posterior_entries(self._tolerance * self._closely, self._model.prior_scale)
        of_prior = prior_closeness(self._model.correlation_weight)
        return tolerances(self._tolerance, entries, sides, closely=self._closely, of_prior=of_prior), entries

    def _change(self, which: Ints, weights: Floats, coefficients: Floats) -> None:
        """Give edges other weights, shape (k,), and other coefficients, shape (k, sides)."""
        if not len(which):
            return
        self._reckon_items()
        self._columns.fill_out()
        state = self._columns.state
        weighs = bool((weights != state.edges.weight[which]).any())
        self._owed |= weighs
        if len(which) == 1 and weighs:
            change_edge(state, which.item(), weights.item(), coefficients[0])
        else:
            change_edges(state, which, weights, coefficients)
        self.readings.check_solves()

    def _reckon_items(self) -> None:
        state, people = self._columns.state, max(len(self._graph), 1)
        for_items(state.tolerances, 2.0 * self._offered_total / people, state.sums.form.item(REMAINING) / people)

    def _reckon_shift(self) -> None:
        state, shift = self._columns.state, self.readings.known_common().mean_shift
        move, everybody = abs(shift - state.people.reference.item()), self._columns.participants
        if move <= COMMON_SHIFT:
            return
        self._columns.fill_out()
        refer(state, self.readings.concentrations.screened, everybody, shift)
        push_unpushed(state, state.tolerances.sides)
        may_wait = move <= COMMON_SHIFT_WAITS and not (self._referred or state.news.later.size[0])
        if not may_wait:
            mark_reached(state, everybody)
        self._referred = may_wait

    # ---- settling ----

    def settle(self) -> Moved:
        """Take in growth, then say what moved."""
        moved = self._settle().joined(self._unsaid)
        self._unsaid = NOTHING_MOVED
        return moved

    def follow(self) -> None:
        """Take in growth, of which the next `settle` says what moved: this one's, and that of each `twin`."""
        self._unsaid = self.settle()

    def _settle(self) -> Moved:
        self._resize()
        precision, columns, before = self._precision, self._columns, self.readings.before
        self.untold = 0.0
        before.begin()
        self._follow_counts()
        precision.grow()
        changes = precision.changes.unread(self)
        if changes is None or precision.builds != self._build:
            self._rebuild()
            self._reckon_shift()
            return self._tell_all()
        if not (changes or columns.state.news.waiting or self.readings.pending):
            self._estimated = self.unfinished
            return NOTHING_MOVED
        self.readings.concentrations.settled()
        if changes:
            self._follow(changes)
            self.may_leave = True
        if self._lagging:
            self._follow_lagging()
        self._reckon_shift()
        self.readings.check_solves()
        state = columns.state
        pending = None
        if self.readings.pending:
            pending = self._await(None if changes.moves_edges else members_of(state.news.stale).copy())
        moved = tell_moved(columns, self.readings)
        self._estimated = self.unfinished
        self.readings.take_step()
        return moved if pending is None else moved._replace(scores=union(moved.scores, pending))

    def _await(self, stale: Ints | None) -> Ints:
        """Take in pending screenings, as `Pending.settle` does; return the edges whose variance they moved."""
        scale = max(self.readings.rounded_common().scale, LEAST_SCALE)
        told = self._columns.state.tolerances.told
        variance = self.readings.largest_common_variance()
        edges = self.readings.pending.settle(self._columns, told / scale, variance, stale)
        self.readings.check_solves()
        return edges

    def _tell_all(self) -> Moved:
        """Say that everything is new."""
        self.may_leave, self._referred = True, False
        return tell_all(self._columns, self.readings)

    def told(self, participants: Ints, edges: Ints) -> tuple[Floats, Floats, Floats, Floats]:
        """Of one who has not been told of yet, what there is to tell."""
        return last_told(self._columns, self.readings, participants, edges)

    def leave(self, participants: Ints, edges: Ints) -> tuple[Switches, Switches]:
        """Which are as without data, shape (k,) each: readers were told of them as such, from now on."""
        return leave(self._columns, self.readings, self._precision, self._model, participants, edges)

    def tend(self, most: int, stop: Ints = NEVER) -> None:
        """Heal the entries of an inverse at up to `most` participants; then do what is owed. Tell of who waited,
        and learn from all verdicts."""
        state, estimated = self._columns.state, self.unfinished
        if not self._moves:
            self.readings.learn()
            self._columns.pack()
            return
        if self._precision.waiting:
            self._precision.tend(most, stop)
            self.readings.check_solves()
            self.untold = self.untold + most if self._precision.waiting else np.inf  # before anybody is healed here
            return
        self.may_leave |= estimated
        healed = state.rooms.people
        worst = heal(state.system, state.inverse, most, state.rooms.column, healed, stop)
        count = int(healed.size[0])
        look_closely(state.news, take_all(healed))
        self.readings.check_solves()
        if count and not estimated:
            # Of a variance, less D².
            self.drift = worst * self._tolerance / state.inverse.tolerances.corrected
        if self._owed and not (stop[0] or state.inverse.healing.state[1]):
            self._solve_owed()
        if self._referred and not stop[0]:
            mark_reached(state, self._columns.participants)
            self._referred = False
        look_closely(state.news, take_last(state.news.later, 0 if stop[0] else most - count))
        self.untold = max(self.untold, 1.0 + state.news.moved.size.item(0))  # what all share, as one more
        if not (self._moves or stop[0]):
            self.readings.learn()
        if not self.waiting:
            self._columns.pack()

    def _solve_owed(self) -> None:
        """Solve all sides to their tolerances."""
        self._columns.fill_out()
        push_everybody(self._columns.state, self._columns.participants)
        self._owed = False
        self.readings.check_solves()

    @property
    def participants_left(self) -> int:
        """How many participants wait for `tend`, those apart whose entries of Q⁻¹ do."""
        state = self._columns.state
        return state.news.later.size.item(0) + state.inverse.healing.state.item(1)

    @property
    def unfinished(self) -> bool:
        """True while growth was taken in by estimate, and `tend` has not yet healed everybody since, or readers
        have not been told of that."""
        return self._estimated and (self._heals or self.untold > 0.0)

    @property
    def waiting(self) -> bool:
        """True while anybody waits for `tend`."""
        return self._moves or self.readings.concentrations.behind

    @property
    def _moves(self) -> bool:
        """Whether `tend` may move readings, or tell of moves."""
        return self._owed or self._referred or bool(self._columns.state.news.later.size[0]) or self._heals

    @property
    def _heals(self) -> bool:
        return self._precision.waiting or bool(self._columns.state.inverse.healing.state[1])

    @property
    def ahead(self) -> Ahead:
        """What scores may come to once what the graph got is followed."""
        if self._ahead is None:
            self._ahead = Ahead(self._columns, self.readings, self._graph, self._prior, self._model)
        return self._ahead

    @property
    def pairs_behind(self) -> int:
        """Edges that the graph got since the engine last followed it."""
        return self._graph.edges - self._columns.edge_count

    # ---- memory ----

    def slim(self) -> None:
        """Give up memory for what can be computed again, in some milliseconds on a graph of a million edges, by
        whatever needs it."""
        self._columns.slim(self._graph)

    @property
    def is_slim(self) -> bool:
        """Whether anything is given up."""
        return self._columns.is_slim

    # ---- copies ----

    @property
    def behind(self) -> float:
        """At how many participants Q⁻¹ has moved since the last `settle`, each time counted; inf if throughout."""
        rebuilt = self._precision.builds != self._build
        return np.inf if rebuilt else self._precision.changes.pending(self)

    def template(self) -> Template[Arrays]:
        """The arrays as they are now, for `copy`: settled, and without any data.

        Readers take the prior for what they are not told of, so nothing waits to be told here. What has to be
        scored again in a copy is what differs from here. Nor is anything owed, nor does D lag: each copy would do
        that by itself.
        """
        self._solve_owed()
        state = self._columns.state
        exact = held(state._replace(tolerances=state.tolerances._replace(far=state.tolerances.scale)))
        self._rescale(exact, members_by_bit(state.people.lagging))
        state.people.lagging[:] = 0
        self._lagging = False
        self._tell_all()
        news = self._columns.state.news
        for waiting in (news.moved, news.later, news.stale):
            unmark_all(waiting)
        return self._columns.template()

    def move(self, graph: Graph, precision: Precision) -> None:
        """Work with that graph and that precision from now on: they are this engine's own at another time."""
        self._graph, self._precision, self._ahead = graph, precision, None
        self._columns.move(graph, precision.workspace)
        self.readings.move(precision)

    def copy(self, template: Template[Arrays], *, laid_over: bool = True) -> "LocalEngine":
        """An engine like this one when the template was made, on arrays that take memory where they change
        (`Columns.copy`)."""
        return self._on(self._columns.copy(template, self._graph, laid_over=laid_over))

    def twin(self, template: Template[Arrays]) -> "LocalEngine | None":
        """An engine like this one, which is a copy laid over that template, as it is now: without any data, and
        settled. None where that cannot be had (`Columns.twin`)."""
        columns = self._columns.twin(template, self._graph)
        return None if columns is None else self._on(columns)

    def _on(self, columns: Columns) -> "LocalEngine":
        twin = copy(self)
        twin._ahead, twin._doubtful, twin._counted, twin._offered = None, set(self._doubtful), [], []
        twin._columns = columns
        twin.readings = self.readings.copy(columns)
        self._precision.changes.follow(twin, self)
        return twin

    # ---- growth ----

    def _follow(self, changes: UnreadChanges) -> None:
        """Do to Λ what was done to Q, then renew the priors of the edges that it moved."""
        self._columns.fill_out()
        if self._judged:
            self._owed |= changes.moves_edges
            self._follow_inverse(changes)
        else:
            self._follow_prior(changes)
        self._rescale(self._columns.state, changes.touched)

    def _follow_prior(self, changes: UnreadChanges) -> None:
        """Do to Λ what was done to Q where nothing was ever counted: its inverse is Q⁻¹."""
        self._reckon_items()
        self._estimated |= changes.estimated
        state, touched = self._columns.state, changes.touched
        for change in changes.of_edges:
            follow_residuals(state, change.edges, change.deltas)
            change_matrix(state.system, change.edges, change.deltas)
            push_ends(state, change.edges)
        self._take_entries(touched, np.zeros(len(touched), np.uint8))

    def _follow_inverse(self, changes: UnreadChanges) -> None:
        """The same where data are in Λ."""
        columns, precision, solved, touched = self._columns, self._precision, changes.solved, changes.touched
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

    def _rescale(self, state: State, participants: Ints) -> None:
        """Renew D at these, and the priors of the edges there, as far as they have moved by what is followed."""
        precision = self._precision
        D = self._model.scale(state.people.prior_mean[participants], precision.inverse_diagonal[participants])
        unit = max(self.readings.rounded_common().scale, LEAST_SCALE)
        prior = Rescaling(D, precision.inverse_edge, unit)
        self._lagging |= rescale(state, prior, participants, state.rooms.edges)
        self._take_priors(take_all(state.rooms.edges))

    def _follow_lagging(self) -> None:
        """Have D and priors as exact as near data where data have come to since these moved."""
        state = self._columns.state
        find_lagging(state)
        late = take_all(state.rooms.people)
        if len(late):
            self._rescale(state, late)

    def _follow_one(self, change: Change) -> None:
        self._reckon_items()
        state, edges, deltas = self._columns.state, change.edges, change.deltas
        system, inverse, rooms = state.system, state.inverse, state.rooms
        follow_residuals(state, edges, deltas)
        if change.row is None:
            self._estimated = True
            forget_fresh(inverse.healing)
            ends_wait = False  # Q⁻¹ is healed there, and Λ⁻¹ follows
            change_entries(system, inverse, edges, deltas, ends_wait, rooms.people)
        else:
            change_row(system, inverse, change.row, edges, deltas, rooms.column, rooms.other, rooms.people)
        push_ends(state, edges)

    def _by_data(self, participants: Ints) -> Floats:
        """What data have made of participants' entries of Λ⁻¹: the difference to what was last taken of Q⁻¹."""
        state = self._columns.state
        now, taken = state.inverse.on_participant, state.people.prior_variance
        return entries(now, participants) - entries(taken, participants)

    def _take_inverse(self, solved: Ints) -> None:
        """Where Q⁻¹ was solved afresh, have Λ⁻¹ be so, too; where data have reached, when there is time.

        The edges that this moves are told with their new priors (`rescale`), or when Λ⁻¹ is healed there.
        """
        state, reached = self._columns.state, np.empty(len(solved), np.uint8)
        find_reached(state.system, state.inverse, solved, state.people.prior_variance, reached)
        self._take_entries(solved, reached)
        if self._doubtful:
            known = self._doubtful.intersection(solved[reached == 0].tolist())
            self._doubtful.difference_update(solved.tolist())
            let_go(state.inverse.healing, np.array(sorted(known), np.int32))

    def _take_entries(self, participants: Ints, reached: Flags) -> None:
        state, precision = self._columns.state, self._precision
        entries = precision.inverse_diagonal, precision.inverse_edge
        take_entries(state.system, state.inverse, participants, reached, *entries, state.people.prior_variance)

    def _take_priors(self, which: Ints) -> None:
        """Give these edges new priors, and have readers told of them: who was told nothing has the new priors, too,
        whether or not these move the posterior."""
        self._renew(which)
        mark_all_as(self._columns.state.news.stale, which, COUNTED)

    def _renew(self, which: Ints) -> None:
        """Give these edges the priors that hold now; those that this changes by much are taken out and put back."""
        self._reckon_items()
        columns, state = self._columns, self._columns.state
        columns.fill_out()
        priors = self._priors(which)
        new = columns.bound[which] != priors.bound
        columns.bound[which[new]] = priors.bound[new]  # memory that is written to is the query's own from then on
        rough = np.zeros(len(which), np.uint8)
        renew(state, which, priors, rough)
        for row in np.flatnonzero(rough).tolist():
            edge = which[row : row + 1]
            if state.edges.weight[edge] > 0.0:
                self._change(edge, np.zeros(1), np.zeros((1, len(state.sums.form))))
            take_prior(state.edges.prior, edge.item(), priors, row)
            self._follow_data(edge)

    def _priors(self, which: Ints) -> Priors:
        edges, people = self._columns.state.edges, self._columns.state.people
        inverse_edge, scale = self._precision.inverse_edge, self._columns.state.rooms.scale
        for ends in (edges.tail[which], edges.head[which]):
            scale[ends] = entries(people.scale, ends)
        return self._model.priors(edges.tail, edges.head, which, people.prior_mean, scale, inverse_edge)

    def _rebuild(self) -> None:
        """Solve everything afresh, from the last solution."""
        self._reckon_items()
        columns, precision, people = self._columns, self._precision, self._columns.state.people
        columns.fill_out()
        m = columns.participants
        D = self._model.scale(people.prior_mean[:m], precision.inverse_diagonal)
        put_all(people.scale, columns.everyone(), D)
        priors = self._priors(columns.everywhere())
        weigh(columns, precision, priors)
        self._solve_closely_for(columns.everywhere(), columns.state.edges.weight[: columns.edge_count])
        rebuild(columns, precision, priors)
        self.readings.check_solves()
        self._build = precision.builds
        self._estimated, self._owed, self._lagging = True, False, False
        self._doubtful.clear()
        people.lagging[:m] = 0
        if self.readings.pending:
            self._await(None)
