"""The paper's lemmas as printed: dense, batch, for graphs of up to a few hundred screened edges.

This engine is the specification that `local` is measured against. Nothing here is clever or incremental;
every `settle` starts from the prior. Participants and edges are taken in the order of their ids, so that the
result does not depend on the order in which the items came.

A common mean M is one more variable of the joint specification, whose covariance with every R and every P is its
variance. All covariances are in units of σ² until M is adjusted, which is what says how large σ² is.
"""

from collections.abc import Sequence

import numpy as np

from haystream.engines.base import Common, Floats, Ints, Longs, Moved
from haystream.engines.common import learned, rounded
from haystream.engines.concentration import add_likelihood, learned_concentration, no_likelihood
from haystream.events import Prior
from haystream.graph import Graph
from haystream.models import MODELS
from haystream.models.base import Ends, Posteriors


class ReferenceEngine:
    """Bayes linear adjustment by Lemmas 1 to 3 (with the errata of NOTES.md)."""

    def __init__(self, graph: Graph, prior: Prior) -> None:
        self._graph = graph
        self._prior = prior
        self._model = MODELS[prior.model](prior)
        self._n = self._y = self._offered = np.zeros(0)
        self._mean: Floats
        self._sigma: Floats
        self._p_mean: Floats
        self._cov_zy: Floats
        self._var_y: Floats
        self._common_variance: float

    def record(self, edge: int, *, screened: float = 0.0, relevant: float = 0.0, offered: float = 0.0) -> None:
        """Add to an edge's counts."""
        self._grow()
        self._n[edge] += screened
        self._y[edge] += relevant
        self._offered[edge] += offered

    def offer(self, edges: Ints, items: Floats) -> None:
        """Add new items to those on offer."""
        self._grow()
        self._offered[edges] += items

    def watch(self, prior: Prior) -> None:
        """Take another watch-list."""
        self._prior, self._model = prior, MODELS[prior.model](prior)

    def settle(self) -> Moved:
        """Adjust the prior by all the data, from scratch."""
        self._grow()
        graph, m = self._graph, len(self._graph)
        self._set_prior()
        self._screened = np.array(sorted(np.flatnonzero(self._n).tolist(), key=graph.names), dtype=np.int64)
        n, y = self._n[self._screened], self._y[self._screened]
        self._moments(n)
        self._deviation = y - n * self._p_mean[self._screened]
        self._adjust_common(n)
        if len(n):
            H: Floats = np.asarray(np.linalg.solve(self._var_y, self._cov_zy.T).T, dtype=np.float64)
            self._q = float(self._deviation @ np.linalg.solve(self._var_y, self._deviation))
        else:
            H = np.zeros((m, 0))
            self._q = 0.0
        mean: Floats = self._mean + H @ self._deviation
        covariance = self._sigma - H @ self._cov_zy.T
        self._unconstrained = mean, covariance
        self._constrain(H, mean)
        edges = np.arange(graph.edges, dtype=np.int32)
        return Moved(np.arange(m, dtype=np.int32), edges, edges)

    def _adjust_common(self, n: Floats) -> None:
        """The adjusted M, and from here on everything at its σ²; `_reach` is Cov(R, M | Y) / Var(M | Y)."""
        prior, weight = self._prior, self._model.common_weight
        before = self._common_variance
        H = np.linalg.solve(self._var_y, before * n) if len(n) else np.zeros(0)
        after = before - before * float(H @ n)
        self._common = common = learned(prior.mean, weight, float(H @ self._deviation), after)
        self._reach = (before - self._cov_zy @ H) / after if weight else np.zeros(len(self._mean))
        self._sigma, self._cov_zy, self._var_y = (
            common.scale * a for a in (self._sigma, self._cov_zy, self._var_y)
        )

    def _constrain(self, H: Floats, mean: Floats) -> None:
        """Lemma 2 for each R_k whose unconstrained mean is outside [0, 1]; then the covariances of (2.4)."""
        H = H.copy()
        constrained = np.clip(mean, 0.0, 1.0)
        spread = self._var_y + np.outer(self._deviation, self._deviation)
        for k in np.flatnonzero(constrained != mean):
            target = self._cov_zy[k] + (constrained[k] - self._mean[k]) * self._deviation
            H[k] = np.linalg.solve(spread, target)
        bias = self._mean + H @ self._deviation - constrained  # E[R_k − h0 − hᵀY] with h0 = c − hᵀy
        self.mean = constrained
        self.covariance = (
            self._sigma - H @ self._cov_zy.T - self._cov_zy @ H.T + H @ self._var_y @ H.T + np.outer(bias, bias)
        )

    drift = 0.0

    def tend(self, most: int) -> None:
        """Nothing drifts."""

    @property
    def unfinished(self) -> bool:
        """Never."""
        return False

    @property
    def waiting(self) -> bool:
        """Nothing drifts."""
        return False

    def counts(self, edges: Ints) -> tuple[Floats, Floats, Floats]:
        """Screened n, relevant y and unscreened items."""
        return self._n[edges], self._y[edges], self._offered[edges]

    def unconstrained(self, participants: Ints) -> tuple[Floats, Floats]:
        """Adjusted mean and variance of R before the constraint."""
        mean, covariance = self._unconstrained
        return mean[participants], covariance.diagonal()[participants]

    def given_common(self, participants: Ints) -> tuple[Floats, Floats, Floats]:
        """The unconstrained moments less what the common mean's shift and variance give them."""
        common, reach = self._common, self._reach[participants]
        mean, variance = self.unconstrained(participants)
        without = variance / common.scale - common.variance * reach * reach
        return mean - common.mean_shift * reach, reach, without

    def covariances(self, edges: Ints) -> Floats:
        """Of the ends, likewise."""
        common, (u, v) = self._common, (self._graph.tail[edges], self._graph.head[edges])
        shared = common.variance * self._reach[u] * self._reach[v]
        return np.asarray(self._unconstrained[1][u, v] / common.scale - shared)

    def participants(self, participants: Ints) -> tuple[Floats, Floats]:
        """Constrained adjusted mean and variance of R."""
        return self.mean[participants], self.covariance.diagonal()[participants]

    def edges(self, edges: Ints) -> tuple[Floats, Floats]:
        """Adjusted mean and variance of P."""
        mean, variance, _ = self._posteriors(edges, self._unconstrained[0], self.covariance, self._common)
        return mean, variance

    def scoring(self, edges: Ints) -> tuple[Floats, Floats, Floats]:
        """At a shift of M the R's move by what they reach; what M's variance adds to theirs is reach reachᵀ v_M."""
        exact, common = self._common, self.rounded_common()
        mean, covariance = self._unconstrained
        mean = mean + (common.mean_shift - exact.mean_shift) * self._reach
        shared = np.outer(self._reach, self._reach) * (common.variance - exact.variance)
        covariance = common.scale * (covariance / exact.scale + shared)
        return self._posteriors(edges, mean, covariance, common)

    def rounded_common(self) -> Common:
        """As `scoring` takes it."""
        return rounded(self._common, self._prior.mean, self._model.common_weight)

    def _posteriors(self, edges: Ints, mean: Floats, covariance: Floats, common: Common) -> Posteriors:
        u, v = self._graph.tail[edges], self._graph.head[edges]
        variance, reach = covariance.diagonal(), self._reach
        ends = Ends(mean[u], mean[v], variance[u], variance[v], covariance[u, v], reach[u], reach[v])
        return self._model.posteriors(ends, self._n[edges], self._y[edges], common)

    def common(self) -> Common:
        """What all share."""
        return self._common

    def discrepancy(self) -> float:
        """The discrepancy of the data from the prior."""
        return self._q

    def remaining_variance(self) -> float:
        """Var(Σ L_e P_e | Y) by the Bayes linear adjustment of the P's themselves."""
        offered, scale = np.flatnonzero(self._offered), self._common.scale
        L = self._offered[offered]
        prior = scale * self._cov_pp(offered, offered)
        if not len(self._screened):
            return float(L @ prior @ L)
        against = scale * (L @ self._cov_pp(offered, self._screened)) * self._n[self._screened]
        return max(float(L @ prior @ L - against @ np.linalg.solve(self._var_y, against)), 0.0)

    def concentration(self) -> tuple[float, float]:
        """Ȳ_e less what the others' data say of it is (V⁻¹d)_e / (V⁻¹)_ee, and varies by 1 / (V⁻¹)_ee."""
        if not self._model.common_weight:
            return 0.0, 0.0
        likelihood = no_likelihood()
        edges, n = self._screened, self._n[self._screened]
        if len(edges):
            average, noise = self._y[edges] / n, self._dense.noise[edges]
            inverse = np.linalg.inv(self._var_y) * self._common.scale * np.outer(n, n)
            varies = 1.0 / inverse.diagonal()
            mean = average - varies * (inverse @ (self._deviation / n))
            level = self._p_mean[edges] + self._common.mean_shift
            for i in np.flatnonzero(n > 1.0):
                spread = varies[i] / noise[i] - 1.0 / n[i]
                add_likelihood(likelihood, level[i], mean[i], spread, n[i], self._y[edges[i]])
        return learned_concentration(likelihood)

    def concentration_slope(self) -> float:
        """Of uᵀ V⁻¹ d, the adjustment of Σ L P: u and V = N + K/c + Var(M) have a part in 1/c and one of Var(M). So
        with ν = V⁻¹u and α = V⁻¹d it is Δ (Σ L − Σ ν) − νᵀ N α.
        """
        if not len(self._screened):
            return 0.0
        offered, scale, n = np.flatnonzero(self._offered), self._common.scale, self._n[self._screened]
        L = self._offered[offered]
        u = scale * (L @ self._cov_pp(offered, self._screened)) * n
        moves = np.linalg.solve(self._var_y, u) * n
        missed = scale * np.linalg.solve(self._var_y, self._deviation) * self._dense.noise[self._screened]
        return float(self._common.mean_shift * (L.sum() - moves.sum()) - moves @ missed)

    def shares(self, edges: Sequence[int], *, most: int | None = None) -> list[tuple[int, float]]:
        """The additive shares of the screened edges in the mean of P over `edges`, the adjusted M taken as M."""
        if not len(self._screened):
            return []
        n, scale, known = self._n[self._screened], self._common.scale, self._common_variance
        var_y = self._var_y - scale * known * np.outer(n, n)
        against = scale * (self._cov_pp(np.asarray(edges), self._screened).mean(axis=0) - known) * n
        deviation = self._deviation - n * self._common.mean_shift
        shares = np.linalg.solve(var_y, against) * deviation
        order = np.argsort(-np.abs(shares), kind="stable")
        return [(int(self._screened[i]), float(shares[i])) for i in order[:most] if shares[i] != 0.0]

    def infeasible(self) -> int:
        """Edges where a bound had to replace the prior's covariance."""
        return int(self._dense.bound.sum())

    # ---- the prior (section 4.1) ----

    def _grow(self) -> None:
        missing = self._graph.edges - len(self._n)
        if missing:
            self._n, self._y, self._offered = (
                np.concatenate([a, np.zeros(missing)]) for a in (self._n, self._y, self._offered)
            )

    def _set_prior(self) -> None:
        self._dense = self._model.moments(self._graph)

    def _moments(self, n: Floats) -> None:
        """Lemma 3 for the screened edges: Cov(R, Y) and Var(Y)."""
        edges, prior = self._screened, self._dense
        self._mean, self._sigma, self._p_mean = prior.mean, prior.covariance, prior.edge_mean
        self._common_variance = prior.common_variance
        self._cov_zy = self._cov_zp(edges) * n
        # Var(Y_e) = E[n(n-1)P² + nP] - n²E[P]² = n² Var(P_e) + n E[P(1-P)]: erratum 1.
        self._var_y = self._cov_pp(edges, edges) * np.outer(n, n) + np.diag(n * prior.noise[edges])

    def _cov_zp(self, edges: Longs) -> Floats:
        """Cov(R_k, P_e) for everyone, shape (m, len(edges))."""
        return self._dense.with_participants(edges)

    def _cov_pp(self, first: Longs, second: Longs) -> Floats:
        """Cov(P_e, P_f), shape (len(first), len(second))."""
        return self._dense.between(first, second)
