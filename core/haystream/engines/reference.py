"""The paper's lemmas as printed: dense, batch, for graphs of up to a few hundred screened edges.

This engine is the specification that `local` is measured against. Nothing here is clever or incremental;
every `settle` starts from the prior. Participants and edges are taken in the order of their ids, so that the
result does not depend on the order in which the items came.
"""

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from haystream.engines.base import Floats, Ints
from haystream.events import Prior
from haystream.graph import Graph
from haystream.models.relevance import conditional_table, edge_posterior, edge_prior
from haystream.prior import dense_covariance, dense_precision, prior_means

Longs = NDArray[np.int64]


class ReferenceEngine:
    """Bayes linear adjustment by Lemmas 1 to 3 (with the errata of NOTES.md)."""

    def __init__(self, graph: Graph, prior: Prior) -> None:
        self._graph = graph
        self._prior = prior
        self._table = conditional_table(prior.conditional)
        self._n = self._y = self._offered = np.zeros(0)

    def record(self, edge: int, *, screened: float = 0.0, relevant: float = 0.0, offered: float = 0.0) -> None:
        """Add to an edge's counts."""
        self._grow()
        self._n[edge] += screened
        self._y[edge] += relevant
        self._offered[edge] += offered

    def settle(self) -> tuple[Ints, Ints]:
        """Adjust the prior by all the data, from scratch."""
        self._grow()
        graph, m = self._graph, len(self._graph)
        self._set_prior()
        self._screened = np.array(sorted(np.flatnonzero(self._n).tolist(), key=graph.names), dtype=np.int64)
        n, y = self._n[self._screened], self._y[self._screened]
        self._moments(n)
        deviation = y - n * self._p_mean[self._screened]
        if len(n):
            H: Floats = np.asarray(np.linalg.solve(self._var_y, self._cov_zy.T).T, dtype=np.float64)
            self._q = float(deviation @ np.linalg.solve(self._var_y, deviation))
        else:
            H = np.zeros((m, 0))
            self._q = 0.0
        mean: Floats = self._mean + H @ deviation
        covariance = self._sigma - H @ self._cov_zy.T
        self._unconstrained = mean, covariance.diagonal()
        self._constrain(H, mean, deviation)
        return np.arange(m, dtype=np.int32), np.arange(graph.edges, dtype=np.int32)

    def _constrain(self, H: Floats, mean: Floats, deviation: Floats) -> None:
        """Lemma 2 for each Z_k whose unconstrained mean is outside [0, 1]; then the covariances of (2.4)."""
        H = H.copy()
        constrained = np.clip(mean, 0.0, 1.0)
        spread = self._var_y + np.outer(deviation, deviation)
        for k in np.flatnonzero(constrained != mean):
            target = self._cov_zy[k] + (constrained[k] - self._mean[k]) * deviation
            H[k] = np.linalg.solve(spread, target)
        bias = self._mean + H @ deviation - constrained  # E[Z_k − h0 − hᵀY] with h0 = c − hᵀy
        self.mean = constrained
        self.covariance = (
            self._sigma - H @ self._cov_zy.T - self._cov_zy @ H.T + H @ self._var_y @ H.T + np.outer(bias, bias)
        )

    def tend(self, most: int) -> bool:
        """Nothing drifts."""
        return False

    def counts(self, edges: Ints) -> tuple[Floats, Floats, Floats]:
        """Screened n, relevant y and unscreened items."""
        return self._n[edges], self._y[edges], self._offered[edges]

    def unconstrained(self, participants: Ints) -> tuple[Floats, Floats]:
        """Adjusted mean and variance of Z before the constraint."""
        mean, variance = self._unconstrained
        return mean[participants], variance[participants]

    def participants(self, participants: Ints) -> tuple[Floats, Floats]:
        """Constrained adjusted mean and variance of Z."""
        return self.mean[participants], self.covariance.diagonal()[participants]

    def edges(self, edges: Ints) -> tuple[Floats, Floats]:
        """Adjusted mean and variance of P."""
        mean, variance = np.empty(len(edges)), np.empty(len(edges))
        for i, e in enumerate(edges):
            u, v = self._graph.pairs[e]
            mean[i], variance[i] = edge_posterior(
                self._table, self.mean[u], self.mean[v], self.covariance[u, v], self._n[e], self._y[e]
            )
        return mean, variance

    def discrepancy(self) -> float:
        """The discrepancy of the data from the prior."""
        return self._q

    def remaining_variance(self) -> float:
        """Var(Σ L_e P_e | Y) by the Bayes linear adjustment of the P's themselves."""
        offered = np.flatnonzero(self._offered)
        L = self._offered[offered]
        prior = self._cov_pp(offered, offered)
        if not len(self._screened):
            return float(L @ prior @ L)
        against = L @ self._cov_pp(offered, self._screened) * self._n[self._screened]
        return max(float(L @ prior @ L - against @ np.linalg.solve(self._var_y, against)), 0.0)

    def shares(self, edges: Sequence[int]) -> list[tuple[int, float]]:
        """The additive shares of the screened edges in the mean of P over `edges`."""
        if not len(self._screened):
            return []
        n = self._n[self._screened]
        against = self._cov_pp(np.asarray(edges), self._screened).mean(axis=0) * n
        deviation = self._y[self._screened] - n * self._p_mean[self._screened]
        shares = np.linalg.solve(self._var_y, against) * deviation
        order = np.argsort(-np.abs(shares), kind="stable")
        return [(int(self._screened[i]), float(shares[i])) for i in order if shares[i] != 0.0]

    def infeasible(self) -> int:
        """Edges where a Fréchet bound had to replace the prior's covariance."""
        return int(self._bound.sum())

    # ---- the prior (section 4.1) ----

    def _grow(self) -> None:
        missing = self._graph.edges - len(self._n)
        if missing:
            self._n, self._y, self._offered = (
                np.concatenate([a, np.zeros(missing)]) for a in (self._n, self._y, self._offered)
            )

    def _set_prior(self) -> None:
        graph, prior = self._graph, self._prior
        self._mean = prior_means(graph, prior)
        if prior.covariance is not None:
            self._sigma = dense_covariance(graph, prior.covariance)
        else:
            inverse = np.linalg.inv(dense_precision(graph, prior.correlation))
            B = np.sqrt(self._mean * (1.0 - self._mean) / inverse.diagonal())
            self._sigma = B[:, None] * inverse * B
        edges = graph.edges
        self._ends = np.array(graph.pairs, dtype=np.int64).reshape(edges, 2)
        self._p_mean, self._s, self._bound = np.empty(edges), np.empty(edges), np.zeros(edges, bool)
        for e, (u, v) in enumerate(graph.pairs):
            self._p_mean[e], self._s[e], *_, self._bound[e] = edge_prior(
                self._table, self._mean[u], self._mean[v], self._sigma[u, v]
            )

    def _moments(self, n: Floats) -> None:
        """Lemma 3 for the screened edges: Cov(Z, Y) and Var(Y)."""
        edges = self._screened
        self._cov_zy = self._cov_zp(edges) * n
        # Var(Y_e) = E[n(n-1)P² + nP] - n²E[P]² = n² Var(P_e) + n E[P(1-P)]: erratum 1.
        self._var_y = self._cov_pp(edges, edges) * np.outer(n, n) + np.diag(n * self._s[edges])

    def _cov_zp(self, edges: Longs) -> Floats:
        """Cov(Z_k, P_e) for everyone, shape (m, len(edges)): Z_k comes last in the joint."""
        m = len(self._graph)
        k, e = (a.ravel() for a in np.meshgrid(np.arange(m), edges, indexing="ij"))
        ends = self._ends[e]
        expected = np.empty(len(e))
        inside = (ends == k[:, None]).any(axis=1)
        for rows, order in ((inside, ends), (~inside, np.column_stack([ends, k]))):
            for part in chunks(np.flatnonzero(rows)):
                z, p = self._joint(order[part])
                z_k = values_of(k[part], order[part], z)
                expected[part] = (p * z_k * self._given(e[part], order[part], z)).sum(axis=1)
        return (expected - self._mean[k] * self._p_mean[e]).reshape(m, len(edges))

    def _cov_pp(self, first: Longs, second: Longs) -> Floats:
        """Cov(P_e, P_f), shape (len(first), len(second)), for each unordered pair of edges once."""
        e, f = (a.ravel() for a in np.meshgrid(first, second, indexing="ij"))
        pairs, place = np.unique(np.sort(np.column_stack([e, f]), axis=1), axis=0, return_inverse=True)
        e, f = pairs.T
        expected = np.empty(len(e))
        same = e == f
        expected[same] = self._p_mean[e[same]] - self._s[e[same]]  # E[P²] = E[P] - E[P(1-P)]
        meet = (self._ends[e][:, :, None] == self._ends[f][:, None, :]).any(axis=(1, 2)) & ~same
        for part in chunks(np.flatnonzero(meet)):
            expected[part] = self._product(e[part], f[part], self._orders_meeting(e[part], f[part]))
        for part in chunks(np.flatnonzero(~meet & ~same)):
            both = np.column_stack([self._ends[e[part]], self._ends[f[part]]])
            orders = [both[:, order] for order in ([0, 1, 2, 3], [0, 1, 3, 2], [2, 3, 0, 1], [2, 3, 1, 0])]
            expected[part] = self._product(e[part], f[part], orders)
        covariance = expected - self._p_mean[e] * self._p_mean[f]
        return np.asarray(covariance[place.ravel()]).reshape(len(first), len(second))

    def _orders_meeting(self, e: Longs, f: Longs) -> list[Longs]:
        """Two edges that share a participant: one's two ends, then the other's remaining end; both ways."""
        orders = []
        for one, other in ((self._ends[e], self._ends[f]), (self._ends[f], self._ends[e])):
            shared = (other[:, :1] == one).any(axis=1)
            orders.append(np.column_stack([one, np.where(shared, other[:, 1], other[:, 0])]))
        return orders

    def _product(self, e: Longs, f: Longs, orders: list[Longs]) -> Floats:
        """E[P_e P_f]. The order of the joint matters a little where it is not linear: the mean over orders."""
        total = np.zeros(len(e))
        for order in orders:
            z, p = self._joint(order)
            total += (p * self._given(e, order, z) * self._given(f, order, z)).sum(axis=1)
        return total / len(orders)

    def _given(self, edges: Longs, order: Longs, z: Floats) -> Floats:
        """E[P_e | z_u, z_v] = a/(a + b) in every state, shape (len(edges), 2^k)."""
        ends = self._ends[edges]
        state = 2 * values_of(ends[:, 0], order, z) + values_of(ends[:, 1], order, z)
        return np.asarray((self._table[:4] / (self._table[:4] + self._table[4:]))[state.astype(np.int64)])

    def _joint(self, order: Longs) -> tuple[Floats, Floats]:
        """The sequential Bayes linear joint of section 4.1.1, for rows of k different participants.

        P(z_j | z_1 … z_(j-1)) is the constrained adjusted expectation of Z_j. Returns the states, shape
        (2^k, k), and their probabilities, shape (rows, 2^k).
        """
        z = np.array(list(product((0.0, 1.0), repeat=order.shape[1])))
        p = np.ones((len(order), len(z)))
        for j in range(order.shape[1]):
            before, this = order[:, :j], order[:, j]
            expected = np.repeat(self._mean[this][:, None], len(z), axis=1)
            if j:
                variance = self._sigma[before[:, :, None], before[:, None, :]]
                gain = np.linalg.solve(variance, self._sigma[before, this[:, None]][:, :, None])
                expected += ((z[None, :, :j] - self._mean[before][:, None, :]) @ gain)[:, :, 0]
            expected = np.clip(expected, 0.0, 1.0)
            p *= np.where(z[:, j] == 1.0, expected, 1.0 - expected)
        return z, p


def values_of(who: Longs, order: Longs, z: Floats) -> Floats:
    """The value of participant who[i] in every state of the joint over order[i], shape (len(who), 2^k)."""
    return np.asarray(z.T[(order == who[:, None]).argmax(axis=1)])


def chunks(rows: Longs, size: int = 20_000) -> list[Longs]:
    """Rows in parts that keep the joints of one part within some tens of megabytes."""
    return [rows[i : i + size] for i in range(0, len(rows), size)]
