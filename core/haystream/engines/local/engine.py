"""The linear form on the sparse precision: a verdict costs what its neighbourhood costs (docs/local-engine.md).

The state that matters is the solution x of Λx = b with its residual, and the entries of Λ⁻¹ on the graph. All
that happens is local: an edge's data change Λ by rank one, a new edge by a few rows, and what a new edge does
to D and so to the priors of edges near by is taken in edge by edge. Only a graph that is largely new is solved
afresh. A common mean is a border of Λ: one more right-hand side, and a few sums.
"""

from copy import copy

import numpy as np

from haystream.collection.graph import Graph
from haystream.engines.contract import NEVER, NOTHING_MOVED, Moved
from haystream.engines.local.changes.edge_data import EdgeData, tolerances_of
from haystream.engines.local.changes.growth import Growth
from haystream.engines.local.changes.next_reference import next_reference
from haystream.engines.local.changes.push import push_unpushed
from haystream.engines.local.changes.refer import mark_reached, refer
from haystream.engines.local.changes.update_verdict import let_in
from haystream.engines.local.inverse.precision import Precision
from haystream.engines.local.readings.ahead import Ahead
from haystream.engines.local.readings.announce import look_closely
from haystream.engines.local.readings.readings import LocalReadings
from haystream.engines.local.readings.telling import last_told, leave, tell_all, tell_moved
from haystream.engines.local.solves.budget import (
    COMMON_SHIFT,
    COMMON_SHIFT_WAITS,
    LEAST_SCALE,
    closeness,
)
from haystream.engines.local.solves.healing import heal
from haystream.engines.local.state.columns import Arrays, Columns
from haystream.events import Prior
from haystream.memory.arrays import (
    Floats,
    Ints,
    Switches,
    mark_all,
    members_of,
    take_all,
    take_last,
    union,
    unmark_all,
)
from haystream.memory.copies import Template
from haystream.memory.overlay import put_all
from haystream.models.graph_prior import prior_means
from haystream.models.registry import MODELS


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
        model = MODELS[prior.model](prior)
        closely = closeness(model.largest_scale, prior.correlation, 0.0)
        self._columns = Columns(*tolerances_of(model, tolerance, closely), precision.workspace)
        self.readings = LocalReadings(self._columns, precision, prior)
        """The posterior."""
        self._data = EdgeData(self._columns, self.readings, model, prior.correlation, tolerance, closely)
        self._growth = Growth(precision, self._data)
        self._build = 0
        self._referred = False
        """Whether all who have a reach are still to be looked at since there is another reference."""
        self.may_leave = True
        """Growth, other settings, and data that are taken back may make it so."""
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
        which = np.atleast_1d(np.int32(edges))
        self._data.record(which, screened=screened, relevant=relevant, offered=offered, pending=pending)
        self.may_leave |= screened < 0.0 or relevant < 0.0

    def offer(self, edges: Ints, items: Floats) -> None:
        """Add new items to those on offer: one local update for all."""
        self._resize()
        self._data.offer(edges, items)

    def watch(self, prior: Prior) -> None:
        """Take another watch-list: new priors for the edges of those whose mean it changes, and for no others."""
        before, self._prior, self._data.model = self._prior.participants, prior, MODELS[prior.model](prior)
        self.readings.use(prior)
        self._ahead = None
        self._resize()
        self._data.follow()
        graph, precision, people = self._graph, self._precision, self._columns.state.people
        names = (name for name in before.keys() | prior.participants.keys())
        changed = (name for name in names if before.get(name) != prior.participants.get(name))
        which = [index for index in map(graph.participant, changed) if index is not None]
        people.prior_mean[which] = prior_means(graph, prior)[which]
        self.may_leave = True
        if precision.builds != self._build:
            return  # the next `settle` computes everything
        here = np.array([index for index in which if index < len(precision.inverse_diagonal)], dtype=np.int32)
        D = self._data.model.scale(people.prior_mean[here], precision.inverse_diagonal[here])
        put_all(people.scale, here, D)
        mark_all(self._columns.state.news.moved, here)
        edges = union(*map(graph.edges_of, here.tolist()))
        self._growth.renew_priors(let_in(self._columns.state, edges))

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
        put_all(people.scale, new, self._data.model.scale(mean, np.ones(len(mean))))
        mark_all(columns.state.news.moved, new)

    def _reckon_shift(self) -> None:
        shift = self.readings.known_common().mean_shift
        if abs(shift - self.readings.reference) > COMMON_SHIFT:
            self._refer(shift)

    def _refer(self, shift: float) -> None:
        """Take another reference for the common mean."""
        state, everybody = self._columns.state, self._columns.participants
        move = abs(shift - self.readings.reference)
        self._columns.fill_out()
        refer(state, self.readings.concentrations.screened, everybody, shift)
        push_unpushed(state, state.tolerances.sides)
        may_wait = move <= COMMON_SHIFT_WAITS and not (self._referred or state.news.later.size[0])
        if not may_wait:
            mark_reached(state, everybody)
        self._referred = may_wait

    def foresee(self, edge: int) -> bool:
        """Take the reference that a verdict on an item of the edge would take else; True if there is another one
        now, so that `tend` has something to do."""
        readings = self.readings
        shift = next_reference(readings.reference, readings.known_common().mean_shift, readings.shifts_after(edge))
        if shift == readings.reference:
            return False
        self._refer(shift)
        readings.check_solves()
        self.untold = max(self.untold, 1.0 + self._columns.state.news.moved.size.item(0))
        return True

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
        self._data.follow()
        precision.grow()
        changes = precision.changes.unread(self)
        if changes is None or precision.builds != self._build:
            self._growth.rebuild()
            self._build = precision.builds
            if self.readings.pending:
                self._await(None)
            self._reckon_shift()
            return self._tell_all()
        if not (changes or columns.state.news.waiting or self.readings.pending):
            self._growth.estimated = self.unfinished
            return NOTHING_MOVED
        self.readings.concentrations.settled()
        if changes:
            self._growth.follow(changes)
            self.may_leave = True
        self._growth.follow_lagging()
        self._reckon_shift()
        self.readings.check_solves()
        state = columns.state
        pending = None
        if self.readings.pending:
            pending = self._await(None if changes.moves_edges else members_of(state.news.stale).copy())
        moved = tell_moved(columns, self.readings)
        self._growth.estimated = self.unfinished
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
        """X, O and V of participants, and covariances of edges, as readers were told of them, shape (k,) each."""
        return last_told(self._columns, self.readings, participants, edges)

    def leave(self, participants: Ints, edges: Ints) -> tuple[Switches, Switches]:
        """Which are as without data, shape (k,) each: readers were told of them as such, from now on."""
        return leave(self._columns, self.readings, self._precision, self._data.model, participants, edges)

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
            self.drift = worst * self._data.tolerance / state.inverse.tolerances.corrected
        if self._data.owed and not (stop[0] or state.inverse.healing.state[1]):
            self._data.solve_owed()
        if self._referred and not stop[0]:
            mark_reached(state, self._columns.participants)
            self._referred = False
        look_closely(state.news, take_last(state.news.later, 0 if stop[0] else most - count))
        self.untold = max(self.untold, 1.0 + state.news.moved.size.item(0))  # what all share, as one more
        if not (self._moves or stop[0]):
            self.readings.learn()
        if not self.waiting:
            self._columns.pack()

    @property
    def participants_left(self) -> int:
        """How many participants wait for `tend`, those apart whose entries of Q⁻¹ do."""
        state = self._columns.state
        return state.news.later.size.item(0) + state.inverse.healing.state.item(1)

    @property
    def unfinished(self) -> bool:
        """True while growth was taken in by estimate, and `tend` has not yet healed everybody since, or readers
        have not been told of that."""
        return self._growth.estimated and (self._heals or self.untold > 0.0)

    @property
    def waiting(self) -> bool:
        """True while anybody waits for `tend`."""
        return self._moves or self.readings.concentrations.behind

    @property
    def _moves(self) -> bool:
        """Whether `tend` may move readings, or tell of moves."""
        return self._data.owed or self._referred or bool(self._columns.state.news.later.size[0]) or self._heals

    @property
    def _heals(self) -> bool:
        return self._precision.waiting or bool(self._columns.state.inverse.healing.state[1])

    @property
    def ahead(self) -> Ahead:
        """What scores may come to once what the graph got is followed."""
        if self._ahead is None:
            self._ahead = Ahead(self._columns, self.readings, self._graph, self._prior, self._data.model)
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
        """Whether `slim` has given anything up."""
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
        self._data.solve_owed()
        self._growth.let_none_lag()
        self._tell_all()
        news = self._columns.state.news
        for waiting in (news.moved, news.later, news.stale):
            unmark_all(waiting)
        return self._columns.template()

    def move(self, graph: Graph, precision: Precision) -> None:
        """Work with that graph and that precision from now on: they are this engine's own at another time."""
        self._graph, self._precision, self._ahead = graph, precision, None
        self._growth.precision = precision
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
        twin._columns, twin._ahead = columns, None
        twin.readings = self.readings.copy(columns)
        twin._data = self._data.on(columns, twin.readings)
        twin._growth = self._growth.on(twin._data)
        self._precision.changes.follow(twin, self)
        return twin
