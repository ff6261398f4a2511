"""What a store is told of an engine's posterior, and what a reader makes of the rows that are there (`rows`)."""

import numpy as np

from haystream.collection.graph import Graph
from haystream.engines.contract import Engine
from haystream.engines.local.inverse.prior_inverse import GraphPrecision, prior_tolerance
from haystream.engines.local.solves.budget import DEFAULT_TOLERANCE
from haystream.events import Prior
from haystream.memory.arrays import Floats, Ints
from haystream.memory.places import Places
from haystream.models.base import Ends, without_data
from haystream.models.common import Common
from haystream.models.graph_prior import dense_covariance, prior_means
from haystream.models.registry import MODELS
from haystream.posterior.rows import NOBODY, Changes, Posterior, Rows, Size, Tables

LEAST_MOVE = 1e-3
"""A move of what all rows are read with counts if it moves a mean by more than this part of what is told of one."""


class Writer:
    """Makes a store's changes of what an engine says, from the engine's beginning on."""

    def __init__(self) -> None:
        self.common: Common | None = None
        """What all rows were read with as they were written last; None before."""
        self._people, self._edges = Places(), Places()

    @property
    def begun(self) -> bool:
        """Whether anything was written: the first time no other rows are to stay."""
        return self.common is not None

    def outdated(self, engine: Engine, told: float) -> bool:
        """Whether what all rows are read with has moved since. `told`: what readers are told of a mean."""
        return self.common is not None and (
            abs(engine.readings.known_common().mean_shift - self.common.mean_shift) > LEAST_MOVE * told
        )

    def concerned(self, engine: Engine, participants: Ints, edges: Ints) -> bool:
        """Whether a store has to be told of any of these: not if none has a row, and all are as the prior says."""
        if not engine.may_leave or self._people.has(participants).any() or self._edges.has(edges).any():
            return bool(len(participants) or len(edges))
        people_left, edges_left = engine.leave(participants, edges)
        return not (people_left.all() and edges_left.all())

    def changes(self, engine: Engine, size: Size, participants: Ints, edges: Ints, *, leaving: bool) -> Changes:
        """The rows of those of the participants and edges that differ from the prior, and what all share.

        All without pending screenings. Those that do not differ any more give theirs back, if they are to be
        looked for (`leaving`). The engine is settled, on a graph of that size. The rows are what it compares with
        to say what moves next, not what has moved since by too little to be told of: else a reader who was given
        that would not hear of its moving back.
        """
        people_back = edges_back = participants[:0]
        if leaving:
            people_left, edges_left = engine.leave(participants, edges)
            people_back = self._people.give_back(participants[people_left])
            edges_back = self._edges.give_back(edges[edges_left])
            participants, edges = participants[~people_left], edges[~edges_left]
        readings, whole = engine.readings, not self.begun
        self.common = readings.known_common()
        *people_told, covariance = engine.told(participants, edges)
        people_rows = np.array(people_told).T
        edge_rows = np.array([*readings.counts(edges)[:2], covariance]).T
        return Changes(
            rows_at(self._people, participants, people_rows, people_back),
            rows_at(self._edges, edges, edge_rows, edges_back),
            size,
            self.common,
            readings.discrepancy(),
            whole,
        )


def rows_at(places: Places, index: Ints, rows: Floats, back: Ints) -> Rows:
    """The rows, each at its place, and NOBODY's at those of the places `back` that nobody has now."""
    place = places.of(index)
    numbers = index.view(np.uint32)
    if len(back):
        back = np.sort(back[~np.isin(back, place)])
        numbers = np.concatenate([numbers, np.full(len(back), NOBODY, np.uint32)])
        rows = np.concatenate([rows, np.zeros((len(back), rows.shape[1]))])
        place = np.concatenate([place, back])
    return Rows(numbers, rows, place)


def settled_inverse(graph: Graph, prior: Prior, tolerance: float = DEFAULT_TOLERANCE) -> tuple[Floats, Floats]:
    """(Q⁻¹)_uu of the graph's participants, and (Q⁻¹)_uv of its edges, of the prior's Q; of an explicit Σ, Σ.

    Raises QueryFailed(TOO_MUCH_WORK).
    """
    if prior.covariance is None:
        return GraphPrecision(graph, prior.correlation, prior_tolerance(prior, tolerance)).settled_on(graph)
    sigma = dense_covariance(graph, prior.covariance)
    return sigma.diagonal().copy(), sigma[graph.tail, graph.head]


def laid_over(tables: Tables, graph: Graph, inverse: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """The rows of all participants, shape (m, PARTICIPANT_COLUMNS), and of all edges, shape (k, EDGE_COLUMNS).

    The prior's: X = μ, O = 1 (0 without a common mean), V = D_u² (Q⁻¹)_uu; n = y = 0 and D_u D_v (Q⁻¹)_uv.
    """
    on_participant, on_edge = inverse
    model, mean = MODELS[tables.prior.model](tables.prior), prior_means(graph, tables.prior)
    participants = np.column_stack(without_data(model, mean, on_participant))
    D, none = model.scale(mean, on_participant), np.zeros(len(on_edge))
    edges = np.column_stack([none, none, D[graph.tail] * D[graph.head] * on_edge])
    participants[tables.participants.index] = tables.participants.rows
    edges[tables.edges.index] = tables.edges.rows
    return participants, edges


def read(tables: Tables, graph: Graph, inverse: tuple[Floats, Floats] | None = None) -> Posterior:
    """What the tables say, with q the discrepancy, m̂ = X + Δ O and v = m̂ − clip(m̂, 0, 1):

        E[R_u | Y] = m̂_u − v_u
        Cov(R_u, R_v | Y) = σ² [C_uv + O_u O_v v_M] + v_u v_v / (1 + q)      C_uu = V_u, C_uv of the edge

    and the edge's P from these and its n and y, as the prior's model reads it (docs/method.md).

    `graph`: of the collection's log; it may be ahead of the tables. `inverse`: what `settled_inverse` says on it as
    of the tables' size, where that is known; else it is computed.
    """
    if graph.edges > tables.size.edges:
        graph = graph.as_of(tables.size.edges)
    participants, edges = laid_over(tables, graph, inverse or settled_inverse(graph, tables.prior))
    common, inflation = tables.common, 1.0 / (1.0 + tables.discrepancy)
    X, O, V = participants.T  # noqa: E741 - the letters of docs/method.md
    free = X + common.mean_shift * O
    constrained: Floats = np.clip(free, 0.0, 1.0)
    off = free - constrained
    variance = common.scale * (V + common.variance * O * O) + inflation * off * off
    n, y, C = np.ascontiguousarray(edges.T)
    u, v = graph.tail, graph.head
    covariance = common.scale * (C + common.variance * O[u] * O[v]) + inflation * off[u] * off[v]
    ends = Ends(free[u], free[v], variance[u], variance[v], covariance, O[u], O[v])
    edge_mean, edge_variance, _ = MODELS[tables.prior.model](tables.prior).posteriors(ends, n, y, common)
    return Posterior(constrained, variance, edge_mean, edge_variance, n, y)
