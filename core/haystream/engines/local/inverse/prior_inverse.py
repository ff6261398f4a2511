"""Q of the paper's graph-structured prior and Q⁻¹ on the graph, kept up as the graph grows; queries share them."""

import numpy as np
from numpy.typing import NDArray

from haystream.collection.collection import Collection
from haystream.collection.graph import Graph
from haystream.engines.contract import NEVER
from haystream.engines.local.inverse.inverse_entries import change_entries, change_row
from haystream.engines.local.inverse.precision import ALWAYS_ONE_BY_ONE, ONE_BY_ONE, Change, Changes, one_by_one
from haystream.engines.local.solves.budget import prior_closeness, prior_entries
from haystream.engines.local.solves.healing import HEALED_AT_ONCE, Inverse, forget_fresh, heal, healing, let_wait
from haystream.engines.local.solves.solve import EXCEEDED, System, fresh_steps, system
from haystream.engines.local.state.state import Workspace
from haystream.errors import Code, QueryFailed
from haystream.events import Prior
from haystream.memory.arrays import Floats, Growing, Ints, room_for, take_all, union
from haystream.memory.overlay import whole
from haystream.models.prior_snapshot import Snapshot
from haystream.models.registry import MODELS

DEGREE_STEPS = 1024
"""A degree enters Q rounded down to so many steps to an octave (so below 2,048 it enters as it is): a contact more
of a participant who has 100,000 then changes nothing, but for every 64th, instead of 100,000 entries. Entries of
Q are off by less than 1/1024 of themselves there, whatever the order of events."""

LARGELY_NEW = 10
"""Where one edge in so many is new, a pass over all edges costs less than what is near the new ones."""

MOST_UNREAD = 4
"""So many are kept of one collection that no engine has: queries go over to other priors, and end."""

NOBODY = np.zeros(0, np.uint8)
"""Flags that are not read."""

NO_DELTAS: tuple[Ints, Floats] = np.zeros(0, np.int32), np.zeros(0)
"""No edges, and their changes."""


class GraphPrecision:
    """Q of section 5.2.2: 1 on the diagonal, −δ / max(n_i, n_j) between contacts.

    A new edge changes the rows of its two ends, and Q⁻¹ near by: a few local solves, or an estimate where many come
    at once. Where much of the graph is new, everything is computed from scratch: one local solve per participant.
    """

    def __init__(self, graph: Graph, correlation: float, tolerance: float) -> None:
        self.builds = 0
        self.changes = Changes()
        self.workspace = Workspace()
        self.correlation = correlation
        self.tolerance = tolerance
        self._graph = graph
        self._steps = fresh_steps()
        self._rooms = self.workspace.rooms(graph, self._steps)
        self._tolerances = prior_entries(tolerance, correlation)
        self._begin()

    def _begin(self) -> None:
        """Know nothing of the graph."""
        self._degree = Growing(np.int64)
        """The degree of each participant as it stands in Q."""
        self._diagonal = Growing(np.float64, fill=1.0)
        self._off = Growing(np.float64)
        self._inverse_diagonal = Growing(np.float64, fill=1.0)
        self._inverse_edge = Growing(np.float64)
        self._healing = healing(0)
        self.amiss = False
        """Whether something was begun that has not come to its end, for want of memory: the next `grow` computes
        everything."""

    @property
    def diagonal(self) -> Floats:
        """The diagonal of Q, shape (participants,)."""
        return self._diagonal.view()

    @property
    def off(self) -> Floats:
        """Q_uv of each edge's ends, shape (edges,)."""
        return self._off.view()

    @property
    def inverse_diagonal(self) -> Floats:
        """(Q⁻¹)_uu, shape (participants,)."""
        return self._inverse_diagonal.view()

    @property
    def inverse_edge(self) -> Floats:
        """(Q⁻¹)_uv, shape (edges,)."""
        return self._inverse_edge.view()

    def grow(self) -> None:
        """Follow the graph."""
        from_scratch = self.amiss or not self.builds
        if self.amiss:
            self._begin()
        graph, known_people, known = self._graph, self._degree.size, self._off.size
        if not from_scratch and known_people == len(graph) and known == graph.edges:
            return
        self.amiss = True
        for of_people in (self._degree, self._diagonal, self._inverse_diagonal):
            of_people.resize(len(graph))
        for of_edges in (self._off, self._inverse_edge):
            of_edges.resize(graph.edges)
        if known_people < len(graph) or known < graph.edges:
            self._rooms = self.workspace.rooms(graph, self._steps)
        if len(self._healing.ring) < len(graph):
            self._healing = healing(room_for(len(graph)), self._healing)
        new = graph.edges - known
        if from_scratch or (new > ALWAYS_ONE_BY_ONE and LARGELY_NEW * new > graph.edges):
            self._join_all(known_people, known)
        elif not one_by_one(new, self._entries(known)):
            self._join_many(known)
        else:
            for edge in range(known, graph.edges):
                self._join(edge)
        self.amiss = False

    def _entries(self, known: int) -> int:
        """How many entries of Q the edges from `known` on may change."""
        graph, some = self._graph, slice(known, known + ONE_BY_ONE)
        return int((graph.degree[graph.tail[some]] + graph.degree[graph.head[some]]).sum())

    def settled_on(self, graph: Graph) -> tuple[Floats, Floats]:
        """(Q⁻¹)_uu and (Q⁻¹)_uv on that graph, copies: it is the one that this follows, at the same time or later.

        All that would wait for `tend` is done. Raises QueryFailed(TOO_MUCH_WORK).
        """
        self._graph = graph
        self.grow()
        while self.waiting and not self.given_up:
            self.tend(HEALED_AT_ONCE, NEVER)
        self.changes.clear()
        if self.given_up:
            raise QueryFailed(
                Code.TOO_MUCH_WORK,
                f"the prior on {len(graph):,} participants and {graph.edges:,} pairs takes too many steps",
            )
        return self.inverse_diagonal.copy(), self.inverse_edge.copy()

    def snapshot(self) -> Snapshot:
        """What `restore` starts from. What `waiting` participants have is an estimate."""
        diagonal, edge = self.inverse_diagonal.astype(np.float32), self.inverse_edge.astype(np.float32)
        return Snapshot(self._graph.digest(len(edge)), diagonal, edge)

    def restore(self, snapshot: Snapshot) -> bool:
        """Start from an earlier state of this graph instead of from nothing; False if it is not that.

        What the graph got since is for `grow`; after a first `grow` it is too late (False).
        """
        graph, people, edges = self._graph, len(snapshot.on_participant), len(snapshot.on_edge)
        if self.builds or people > len(graph) or edges > graph.edges or graph.digest(edges) != snapshot.digest:
            return False
        ends = np.concatenate([graph.tail[:edges], graph.head[:edges]])
        if int(ends.max(initial=-1)) + 1 != people:
            return False
        for of_people in (self._degree, self._diagonal, self._inverse_diagonal):
            of_people.resize(people)
        for of_edges in (self._off, self._inverse_edge):
            of_edges.resize(edges)
        degree = self._degree.view()
        degree[:] = effective_degree(np.bincount(ends, minlength=people))
        self.off[:] = -self.correlation / np.maximum(degree[graph.tail[:edges]], degree[graph.head[:edges]])
        self.inverse_diagonal[:], self.inverse_edge[:] = snapshot.on_participant, snapshot.on_edge
        return True

    def _join_all(self, known_people: int, known: int) -> None:
        """Let all edges from `known` on, and their new participants, in; entries of Q⁻¹ that this moves are healed.

        Until then (Q⁻¹)_uv of a new edge is taken as −Q_uv, and (Q⁻¹)_uu of a new participant as 1 + Σ Q_uv².
        """
        graph = self._graph
        self._degree.view()[:] = effective_degree(graph.degree)
        degree, tail, head = self._degree.view(), graph.tail, graph.head
        off = -self.correlation / np.maximum(degree[tail], degree[head])
        moved = off != self.off
        moved[known:] = True
        self.off[:] = off
        self.inverse_edge[known:] = -off[known:]
        ends = np.concatenate([tail[known:], head[known:]])
        square = np.bincount(ends, np.tile(off[known:] ** 2, 2), len(graph))
        self.inverse_diagonal[known_people:] = 1.0 + square[known_people:]
        forget_fresh(self._healing)
        let_wait(self._healing, union(tail[moved], head[moved]))
        self._heal(HEALED_AT_ONCE, NEVER)
        self.builds += 1
        self.changes.clear()

    def _join_many(self, known: int) -> None:
        """Let the edges from `known` on in, estimating what this does to Q⁻¹."""
        graph, degree = self._graph, self._degree.view()
        ends = union(graph.tail[known:], graph.head[known:])
        degree[ends] = effective_degree(graph.degree[ends])
        edges = union(*map(graph.edges_of, ends.tolist()))
        off = -self.correlation / np.maximum(degree[graph.tail[edges]], degree[graph.head[edges]])
        deltas = off - self.off[edges]
        changed = (deltas != 0.0) | (edges >= known)
        edges, deltas = edges[changed], deltas[changed]
        forget_fresh(self._healing)
        ends_wait = True
        change_entries(self._system, self._inverse, edges, deltas, ends_wait, self._rooms.people)
        self.changes.append(Change(None, edges, deltas, self._touched()))

    def tend(self, most: int, stop: Ints) -> None:
        """Solve the entries of Q⁻¹ afresh at up to `most` participants, until `stop` is set."""
        was, self.amiss = self.amiss, True
        self.changes.append(Change(None, *NO_DELTAS, self._heal(most, stop)))
        self.amiss = was

    @property
    def waiting(self) -> bool:
        """Whether any participants wait for `tend`."""
        return bool(self._healing.state[1])

    @property
    def given_up(self) -> bool:
        """Whether a solve took too many steps, ever."""
        return bool(self._steps[EXCEEDED])

    @property
    def _system(self) -> System:
        return system(self._graph, whole(self.off), NOBODY, whole(self.diagonal, 1))

    @property
    def _inverse(self) -> Inverse:
        return Inverse(whole(self.inverse_diagonal, 1), whole(self.inverse_edge), self._tolerances, self._healing)

    def _heal(self, most: int, stop: Ints) -> Ints:
        heal(self._system, self._inverse, most, self._rooms.column, self._rooms.people, stop)
        return self._touched()

    def _touched(self) -> Ints:
        """Whom a kernel has left in the room for people, which is empty then."""
        return take_all(self._rooms.people)

    def _join(self, edge: int) -> None:
        """Let a new edge in: first its ends' other entries shrink, so that Q stays diagonally dominant."""
        ends = self._graph.ends(edge)
        for u in ends:
            self._set_degree(u, edge)
        weight = -self.correlation / max(int(self._degree.data[u]) for u in ends)
        # Said even where the weight is 0: the edge's entry of the inverse is wanted.
        self._change(ends[0], np.array([edge], np.int32), np.array([weight]))

    def _set_degree(self, u: int, edge: int) -> None:
        """Take the participant's degree up to and with `edge` into Q (later edges come in their own turn)."""
        graph = self._graph
        begin = int(graph.start[u])
        incident = graph.incident[begin : begin + int(graph.degree[u])]
        incident = incident[: int(np.searchsorted(incident, edge))]  # a slab is in the order of the edges
        degree = int(effective_degree(np.array([len(incident) + 1]))[0])
        if degree == self._degree.data[u]:
            return
        self._degree.data[u] = degree
        of = self._degree.data
        weights = -self.correlation / np.maximum(of[graph.tail[incident]], of[graph.head[incident]])
        deltas = weights - self._off.data[incident]
        changed = deltas != 0.0
        if changed.any():
            self._change(u, incident[changed], deltas[changed])

    def _change(self, participant: int, edges: Ints, deltas: Floats) -> None:
        column, other, touched = self._rooms.column, self._rooms.other, self._rooms.people
        change_row(self._system, self._inverse, participant, edges, deltas, column, other, touched)
        self.changes.append(Change(participant, edges, deltas, self._touched()))


def shared_precisions(collection: Collection) -> dict[tuple[float, float], GraphPrecision]:
    """Those that the collection's queries have asked for, by (correlation, tolerance)."""
    return collection.shared.setdefault(GraphPrecision, {})


def prior_tolerance(prior: Prior, tolerance: float) -> float:
    """The tolerance that Q⁻¹ has for a query with this prior, whose own is `tolerance`."""
    return tolerance * prior_closeness(MODELS[prior.model](prior).correlation_weight)


def shared_precision(collection: Collection, correlation: float, tolerance: float) -> GraphPrecision:
    """The one that all queries with this correlation and tolerance share, made if it is new."""
    known, key = shared_precisions(collection), (correlation, tolerance)
    precision = known.get(key)
    if precision is None:
        unread = [other for other, each in list(known.items()) if not each.changes.followed]
        for oldest in unread[:-MOST_UNREAD]:
            known.pop(oldest, None)
        precision = known[key] = GraphPrecision(collection.graph, correlation, tolerance)
    return precision


def effective_degree(degree: NDArray[np.int64]) -> NDArray[np.int64]:
    """The degree as it enters Q: rounded down to DEGREE_STEPS an octave."""
    octave = np.floor(np.log2(np.maximum(degree, DEGREE_STEPS) / DEGREE_STEPS)).astype(np.int64)
    return degree >> octave << octave
