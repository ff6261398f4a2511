"""The linear form on the sparse precision: a verdict costs what its neighbourhood costs (NOTES, sections 1-4).

The state that matters is the solution x of Λx = b with its residual, and the entries of Λ⁻¹ on the graph. A
change of an edge's data is a rank-one change of Λ, applied locally. Growth of the graph, or a new prior, is
taken in by `settle`, which then solves afresh, from the last solution.
"""

from collections.abc import Sequence

import numpy as np

from haystream.engines.kernels import (
    RIGHT_HAND_SIDES,
    Edges,
    People,
    change_edge,
    collect_shares,
    edge_posteriors,
    edge_priors,
    settle_moved,
)
from haystream.engines.relax import Floats, Ints, inverse_entries, relax, scratch, system
from haystream.events import Prior
from haystream.graph import Graph
from haystream.models.relevance import conditional_table
from haystream.prior import Precision, prior_means

DEFAULT_TOLERANCE = 1e-5
"""Residuals are pushed until |r| ≤ tolerance × diagonal, in units of x (standard deviations of Z at the prior,
about). Errors of the adjusted means stay within 1/(1 − δ) times as much: 5e-5 here, half the promised 1e-4."""


class LocalEngine:
    """Bayes linear adjustment by local solves.

    `precision` may be shared by all queries of a collection with the same correlation.
    """

    def __init__(
        self, graph: Graph, prior: Prior, precision: Precision, *, tolerance: float = DEFAULT_TOLERANCE
    ) -> None:
        self._graph = graph
        self._prior = prior
        self._precision = precision
        self._tolerance = tolerance
        self._table = conditional_table(prior.conditional)
        self._n = self._y = self._offered = np.zeros(0)
        self._x = np.zeros((RIGHT_HAND_SIDES, 0))
        self._settled_size = (-1, -1)
        self._moved_count = 0
        self._told_edges: list[int] = []

    # ---- changes ----

    def observe(self, edge: int, screened: float, relevant: float) -> None:
        """Add screenings on an edge: one local update, or a note for `settle` where the graph has grown."""
        self._resize_counts()
        self._n[edge] += screened
        self._y[edge] += relevant
        self._change(edge)

    def offer(self, edge: int, items: float) -> None:
        """Add unscreened items on an edge."""
        self._resize_counts()
        self._offered[edge] += items
        self._change(edge)

    def _resize_counts(self) -> None:
        missing = self._graph.edges - len(self._n)
        if missing > 0:
            self._n, self._y, self._offered = (
                np.concatenate([a, np.zeros(missing)]) for a in (self._n, self._y, self._offered)
            )

    def _change(self, edge: int) -> None:
        if self._stale():
            return
        n, y, offered = float(self._n[edge]), float(self._y[edge]), float(self._offered[edge])
        edges = self._edges
        residual, noise = float(edges.residual[edge]), float(edges.noise[edge])
        old_w, old_c = float(edges.weight[edge]), float(edges.coefficient[0, edge])
        weight = n / (n * residual + noise) if n > 0 else 0.0
        deviation = y / n - float(edges.prior_mean[edge]) if n > 0 else 0.0
        self._moved_count, gain_0, gain_1 = change_edge(
            self._system,
            edges,
            self._people,
            edge,
            weight,
            weight * deviation,
            offered * (1.0 - residual * weight),
            self._tolerance,
            self._tolerance * self._offered_scale,
            self._column,
            self._room,
            self._moved,
            self._moved_flags,
            self._moved_count,
        )
        self._square += weight * deviation * deviation - (old_c * old_c / old_w if old_w else 0.0)
        self._form_0 += gain_0
        self._form_1 += gain_1
        own = offered * offered * residual * (1.0 - residual * weight)
        self._own += own - self._own_of[edge]
        self._own_of[edge] = own
        if not self._edge_flags[edge]:
            self._edge_flags[edge] = 1
            self._told_edges.append(edge)

    def _stale(self) -> bool:
        return self._settled_size != (len(self._graph), self._graph.edges)

    # ---- settling ----

    def settle(self) -> tuple[Ints, Ints]:
        """Take in growth, then name the participants and edges whose readings changed."""
        if self._stale():
            self._rebuild()
            return np.arange(len(self._graph), dtype=np.int32), np.arange(self._graph.edges, dtype=np.int32)
        told = len(self._told_edges)
        self._changed_edges[:told] = self._told_edges
        people, count = settle_moved(
            self._system,
            self._people,
            self._tolerance,
            self._moved,
            self._moved_flags,
            self._moved_count,
            self._changed,
            self._edge_flags,
            self._changed_edges,
            told,
        )
        self._moved_count = 0
        self._told_edges.clear()
        edges = np.sort(self._changed_edges[:count])
        self._edge_flags[edges] = 0
        return np.sort(self._changed[:people]), edges

    def _rebuild(self) -> None:
        graph, precision = self._graph, self._precision
        self._resize_counts()
        precision.grow()
        m, edges = len(graph), graph.edges
        tail, head = graph.tail.copy(), graph.head.copy()
        mean = prior_means(graph, self._prior)
        scale = precision.scale(mean)
        columns = np.empty((5, edges))
        self._infeasible = edge_priors(self._table, tail, head, mean, scale, precision.inverse_edge, columns)
        p_mean, noise, on_tail, on_head, residual = columns
        n, y, offered = self._n, self._y, self._offered
        weight = n / (n * residual + noise)
        deviation = np.divide(y, n, out=p_mean.copy(), where=n > 0) - p_mean
        leverage = residual * weight
        coefficient = np.stack([weight * deviation, offered * (1.0 - leverage)])

        def at_people(at_tail: Floats, at_head: Floats) -> Floats:
            return np.bincount(tail, at_tail, m).astype(np.float64) + np.bincount(head, at_head, m)

        diagonal = precision.diagonal + at_people(weight * on_tail**2, weight * on_head**2)
        off = precision.off + weight * on_tail * on_head
        rhs = np.stack([at_people(c * on_tail, c * on_head) for c in coefficient])
        x = np.zeros((RIGHT_HAND_SIDES, m))
        x[:, : self._x.shape[1]] = self._x
        applied = [diagonal * row + at_people(off * row[head], off * row[tail]) for row in x]
        self._x = x
        self._system = system(graph, diagonal, off)
        self._column, self._room = scratch(m), scratch(m)
        self._offered_scale = max(1.0, float(offered.sum()) / max(edges, 1))
        r = rhs - np.stack(applied)
        for side, tolerance in enumerate((self._tolerance, self._tolerance * self._offered_scale)):
            self._room.touched[:] = np.arange(m)
            self._room.flags[:] = 2
            relax(self._system, x[side], r[side], rhs[side], tolerance, self._room, m)
            self._room.flags[:] = 0
        variance, covariance = precision.inverse_diagonal.copy(), precision.inverse_edge.copy()
        if weight.any():
            everyone = np.arange(m, dtype=np.int32)
            inverse_entries(self._system, everyone, self._tolerance, variance, covariance, self._room)
        self._edges = Edges(tail, head, p_mean, noise, on_tail, on_head, residual, weight, coefficient, covariance)
        self._people = People(mean, scale, variance, x, r, rhs, mean + scale * x[0], scale * scale * variance)
        self._square = float((weight * deviation * deviation).sum())
        self._own_of = offered * offered * residual * (1.0 - leverage)
        self._own = float(self._own_of.sum())
        self._form_0, self._form_1 = float(rhs[0] @ x[0]), float(rhs[1] @ x[1])
        self._moved, self._changed = np.empty(m, np.int32), np.empty(m, np.int32)
        self._moved_flags = np.zeros(m, np.uint8)
        self._moved_count = 0
        self._edge_flags = np.zeros(edges, np.uint8)
        self._changed_edges = np.empty(edges, np.int32)
        self._told_edges.clear()
        self._settled_size = (m, edges)

    # ---- readings ----

    def counts(self, edges: Ints) -> tuple[Floats, Floats]:
        """Screened n and relevant y."""
        return self._n[edges], self._y[edges]

    def unconstrained(self, participants: Ints) -> tuple[Floats, Floats]:
        """Adjusted mean and variance of Z before the constraint."""
        people, scale = self._people, self._people.scale[participants]
        mean = people.prior_mean[participants] + scale * people.x[0, participants]
        return mean, scale * scale * people.variance[participants]

    def participants(self, participants: Ints) -> tuple[Floats, Floats]:
        """Constrained adjusted mean and variance: m̂ − v and Ĉ + v vᵀ / (1 + q) (NOTES, section 2)."""
        mean, variance = self.unconstrained(participants)
        constrained = np.clip(mean, 0.0, 1.0)
        return constrained, variance + (mean - constrained) ** 2 / (1.0 + self.discrepancy())

    def edges(self, edges: Ints) -> tuple[Floats, Floats]:
        """Adjusted mean and variance of P."""
        mean, variance = np.empty(len(edges)), np.empty(len(edges))
        edge_posteriors(
            self._table,
            self._edges,
            self._people,
            edges,
            self._n,
            self._y,
            self.discrepancy(),
            mean,
            variance,
        )
        return mean, variance

    def discrepancy(self) -> float:
        """q = Σ w d² − bᵀx̂."""
        return max(self._square - self._form_0, 0.0)

    def remaining_variance(self) -> float:
        """Σ L² Var(η)(1 − ρ) + hᵀ Λ⁻¹ h."""
        return max(self._own + self._form_1, 0.0)

    def shares(self, edges: Sequence[int]) -> list[tuple[int, float]]:
        """The additive shares of the screened edges in the mean of P over `edges`: one local solve."""
        which = np.asarray(edges, dtype=np.int32)
        found, values = np.empty(self._graph.edges, np.int32), np.empty(self._graph.edges)
        count = collect_shares(
            self._system,
            self._edges,
            which,
            self._tolerance,
            self._column,
            self._edge_flags,
            found,
            values,
        )
        total = dict(zip(found[:count].tolist(), values[:count].tolist(), strict=True))
        for e in edges:
            if self._n[e] > 0:  # the edge's own data speak of its own η too: ρ_e d_e = Var(η_e) w_e d_e
                own = self._edges.residual[e] * self._edges.coefficient[0, e] / len(edges)
                total[e] = total.get(e, 0.0) + float(own)
        return sorted(((e, share) for e, share in total.items() if share != 0.0), key=lambda pair: -abs(pair[1]))

    def infeasible(self) -> int:
        """Edges where a Fréchet bound had to replace the prior's covariance."""
        return self._infeasible
