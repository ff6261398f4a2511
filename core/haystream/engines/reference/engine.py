"""The paper's lemmas as printed: dense, batch, for graphs of up to a few hundred screened edges.

This engine is the specification that `local` is measured against. Nothing here is clever or incremental;
every `settle` starts from the prior. Participants and edges are taken in the order of their ids, so that the
result does not depend on the order in which the items came.

Pending screenings are taken at their word: a second adjustment counts each as screened, with the outcome that is
expected of it. Means are those of the first, variances those of the second.
"""

from collections.abc import Sequence
from itertools import chain, pairwise

import numpy as np

from haystream.collection.graph import Graph
from haystream.engines.contract import NEVER, LargestShares, Moved
from haystream.engines.reference.adjustment import Adjustment, Observations, adjust, adjusted_common
from haystream.events import Prior
from haystream.memory.arrays import Floats, Ints, Longs, Switches
from haystream.models.base import EdgeCounts, Ends, Moments, Posteriors
from haystream.models.common import Common, learned, rounded
from haystream.models.concentration import add_likelihood, learned_concentration, log_likelihood, no_likelihood
from haystream.models.registry import MODELS


class ReferenceEngine:
    """Bayes linear adjustment by Lemmas 1 to 3 (as docs/method.md corrects them)."""

    _dense: Moments
    """The prior."""
    _known: Adjustment
    """By what has been screened: all means are its."""
    _all: Adjustment
    """By that and by the pending screenings, each with the outcome that `_known` expects: all variances are its."""

    def __init__(self, graph: Graph, prior: Prior) -> None:
        self._graph = graph
        self._prior = prior
        self._model = MODELS[prior.model](prior)
        self._n = self._y = self._offered = self._pending = np.zeros(0)

    def record(
        self,
        edges: int | Ints,
        *,
        screened: float = 0.0,
        relevant: float = 0.0,
        offered: float = 0.0,
        pending: float = 0.0,
    ) -> None:
        """Add to edges' counts."""
        self._grow()
        self._n[edges] += screened
        self._y[edges] += relevant
        self._offered[edges] += offered
        self._pending[edges] += pending

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
        self._set_prior()
        prior, weight = self._prior, self._model.common_weight
        edges = self._by_names(self._n)
        n = self._n[edges]
        seen = self._observed(edges, n, self._y[edges] - n * self._dense.edge_mean[edges])
        shift, variance = adjusted_common(self._dense, seen)
        self._known = self._all = adjust(self._dense, seen, learned(prior.mean, weight, shift, variance))
        waiting = self._by_names(self._pending)
        if len(waiting):
            p = self._pending[waiting]
            expected = p * self._known.expects(self._cov_pp(waiting, edges))
            both = self._observed(
                np.concatenate([edges, waiting]),
                np.concatenate([n, p]),
                np.concatenate([seen.deviation, expected]),
            )
            _, variance = adjusted_common(self._dense, both)
            self._all = adjust(self._dense, both, self._known.common._replace(variance=variance))
        everyone, everywhere = (np.arange(k, dtype=np.int32) for k in (len(self._graph), self._graph.edges))
        return Moved(everyone, everywhere, everywhere)

    def _by_names(self, counts: Floats) -> Longs:
        """The edges that have a count."""
        return np.array(sorted(np.flatnonzero(counts).tolist(), key=self._graph.names), dtype=np.int64)

    def _observed(self, edges: Longs, n: Floats, deviation: Floats) -> Observations:
        """Lemma 3: Cov(R, Y), and Var(Y_e) = E[n(n-1)P² + nP] - n²E[P]² = n² Var(P_e) + n E[P(1-P)]."""
        var_y = self._cov_pp(edges, edges) * np.outer(n, n) + np.diag(n * self._dense.noise[edges])
        return Observations(edges, n, deviation, self._cov_zp(edges) * n, var_y)

    @property
    def mean(self) -> Floats:
        """Constrained, of everyone."""
        return self._known.constrained_mean

    @property
    def covariance(self) -> Floats:
        """Constrained covariance of everyone's R, shape (participants, participants)."""
        return self._all.constrained_covariance

    @property
    def readings(self) -> "ReferenceEngine":
        """The posterior: this engine reads it off itself."""
        return self

    def told(self, participants: Ints, edges: Ints) -> tuple[Floats, Floats, Floats, Floats]:
        """As they are: whatever moves is told of."""
        return *self.given_common(participants), self.covariances(edges)

    drift = 0.0

    may_leave = False

    untold = 0.0

    def leave(self, participants: Ints, edges: Ints) -> tuple[Switches, Switches]:
        """None: a graph for this engine is small."""
        return np.zeros(len(participants), np.bool_), np.zeros(len(edges), np.bool_)

    def tend(self, most: int, stop: Ints = NEVER) -> None:
        """Nothing drifts."""

    def foresee(self, edge: int) -> bool:
        """Nothing is done ahead of time."""
        return False

    @property
    def participants_left(self) -> int:
        """How many participants wait for `tend`: none."""
        return 0

    @property
    def unfinished(self) -> bool:
        """Whether estimates are left: never."""
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
        return self._known.mean[participants], self._all.covariance.diagonal()[participants]

    def given_common(self, participants: Ints) -> tuple[Floats, Floats, Floats]:
        """The unconstrained moments less what the common mean's shift and variance give them."""
        common, reach = self._known.common, self._known.reach[participants]
        variance = self._known.covariance.diagonal()[participants] / common.scale
        mean = self._known.mean[participants]
        return mean - common.mean_shift * reach, reach, variance - common.variance * reach * reach

    def covariances(self, edges: Ints) -> Floats:
        """Of the ends, likewise."""
        known, (u, v) = self._known, (self._graph.tail[edges], self._graph.head[edges])
        shared = known.common.variance * known.reach[u] * known.reach[v]
        return np.asarray(known.covariance[u, v] / known.common.scale - shared)

    def participants(self, participants: Ints) -> tuple[Floats, Floats]:
        """Constrained adjusted mean and variance of R."""
        return self.mean[participants], self.covariance.diagonal()[participants]

    def edges(self, edges: Ints) -> tuple[Floats, Floats]:
        """Adjusted mean and variance of P."""
        known, everything = self._known, self._all
        mean, variance, _ = self._posteriors(
            edges,
            (known.constrained_covariance, everything.constrained_covariance),
            (known.common, everything.common),
            known.mean,
        )
        return mean, variance

    def scoring(self, edges: Ints, counts: EdgeCounts | None = None) -> Posteriors:
        """At a shift of M the R's move by what they reach; what M's variance adds to theirs is reach reachᵀ v_M."""
        known = self._known

        def near(at: Adjustment) -> tuple[Floats, Common]:
            common = self._rounded(at.common)
            shared = np.outer(at.reach, at.reach) * (common.variance - at.common.variance)
            return common.scale * (at.covariance / at.common.scale + shared), common

        (without, known_common), (covariance, common) = near(known), near(self._all)
        mean = known.mean + (common.mean_shift - known.common.mean_shift) * known.reach
        return self._posteriors(edges, (without, covariance), (known_common, common), mean)

    def _posteriors(
        self, edges: Ints, covariances: tuple[Floats, Floats], commons: tuple[Common, Common], mean: Floats
    ) -> Posteriors:
        """The mean without pending screenings, and the variance with them, their outcomes as that mean expects.

        `covariances` and `commons`: without, and with.
        """
        u, v = self._graph.tail[edges], self._graph.head[edges]
        n, y, p = self._n[edges], self._y[edges], self._pending[edges]

        def read(at: Adjustment, covariance: Floats, common: Common, n: Floats, y: Floats) -> Posteriors:
            varies, reach = covariance.diagonal(), at.reach
            ends = Ends(mean[u], mean[v], varies[u], varies[v], covariance[u, v], reach[u], reach[v])
            return self._model.posteriors(ends, n, y, common)

        known = read(self._known, covariances[0], commons[0], n, y)
        everything = read(self._all, covariances[1], commons[1], n + p, y + p * known.mean)
        return known._replace(variance=everything.variance)

    def common(self) -> Common:
        """What all share, pending screenings counted as made."""
        return self._all.common

    def known_common(self) -> Common:
        """What all share, without pending screenings."""
        return self._known.common

    def rounded_common(self) -> Common:
        """What all share, as `scoring` takes it: rounded."""
        return self._rounded(self._all.common)

    def _rounded(self, common: Common) -> Common:
        return rounded(common, self._prior.mean, self._model.common_weight, 1.0 / self._prior.edge)

    def rounded_after(self, edge: int) -> tuple[Common, Common]:
        """What it is now: nothing is made ahead of time here."""
        return self.rounded_common(), self.rounded_common()

    def discrepancy(self) -> float:
        """The discrepancy of the data from the prior."""
        return self._known.discrepancy

    def remaining_variance(self) -> float:
        """Var(Σ L_e P_e | Y) by the Bayes linear adjustment of the P's themselves."""
        seen, scale = self._all.seen, self._all.common.scale
        offered = np.flatnonzero(self._offered)
        L = self._offered[offered]
        prior = scale * self._cov_pp(offered, offered)
        against = scale * (L @ self._cov_pp(offered, seen.edges)) * seen.n
        return max(float(L @ prior @ L - against @ np.linalg.solve(seen.var_y, against)), 0.0)

    def concentration(self) -> tuple[float, float]:
        """Ȳ_e less what the others' data say of it is (V⁻¹d)_e / (V⁻¹)_ee, and varies by 1 / (V⁻¹)_ee."""
        if not self._model.common_weight:
            return 0.0, 0.0
        likelihood, (edges, n, deviation, _, var_y) = no_likelihood(), self._known.seen
        if len(edges):
            average, noise = self._y[edges] / n, self._dense.noise[edges]
            inverse = np.linalg.inv(var_y) * self._known.common.scale * np.outer(n, n)
            varies = 1.0 / inverse.diagonal()
            mean = average - varies * (inverse @ (deviation / n))
            level = self._dense.edge_mean[edges] + self._known.common.mean_shift
            for i in np.flatnonzero(n > 1.0):
                spread = varies[i] / noise[i] - 1.0 / n[i]
                add_likelihood(likelihood, level[i], mean[i], spread, n[i], self._y[edges[i]])
        return learned_concentration(log_likelihood(likelihood))

    def concentration_slope(self) -> float:
        """Of uᵀ V⁻¹ d, the adjustment of Σ L P: u and V = N + K/c + Var(M) have a part in 1/c and one of Var(M). So
        with ν = V⁻¹u and α = V⁻¹d it is Δ (Σ L − Σ ν) − νᵀ N α.
        """
        edges, n, deviation, _, var_y = self._known.seen
        offered, common = np.flatnonzero(self._offered), self._known.common
        L = self._offered[offered]
        u = common.scale * (L @ self._cov_pp(offered, edges)) * n
        moves = np.linalg.solve(var_y, u) * n
        missed = common.scale * np.linalg.solve(var_y, deviation) * self._dense.noise[edges]
        return float(common.mean_shift * (L.sum() - moves.sum()) - moves @ missed)

    def shares(self, edges: Sequence[int]) -> list[tuple[int, float]]:
        """The additive shares of the screened edges in the mean of P over `edges`, the adjusted M taken as M."""
        screened, n, deviation, _, var_y = self._known.seen
        scale, known = self._known.common.scale, self._dense.common_variance
        var_y = var_y - scale * known * np.outer(n, n)
        against = scale * (self._cov_pp(np.asarray(edges), screened).mean(axis=0) - known) * n
        shares = np.linalg.solve(var_y, against) * (deviation - n * self._known.common.mean_shift)
        order = np.argsort(-np.abs(shares), kind="stable")
        return [(int(screened[i]), float(shares[i])) for i in order if shares[i] != 0.0]

    def largest_shares(self, start: Longs, edges: Ints, most: int) -> LargestShares:
        """A solve for each."""
        found = [self.shares(edges[a:b].tolist())[:most] for a, b in pairwise(start)]
        rows = list(chain.from_iterable(found))
        edge, share = (np.array([row[i] for row in rows], kind) for i, kind in enumerate((np.int32, np.float64)))
        return LargestShares(np.cumsum([0, *map(len, found)]), edge, share)

    def deviations(self, edges: Ints) -> Floats:
        """Of the counts as they stand."""
        n = self._n[edges]
        rates = np.divide(self._y[edges], n, out=np.full_like(n, np.nan), where=n != 0.0)
        return np.asarray(rates - self._dense.edge_mean[edges])

    def infeasible(self) -> int:
        """Edges where a bound had to replace the prior's covariance."""
        return int(self._dense.bound.sum())

    # ---- the prior (section 4.1) ----

    def _grow(self) -> None:
        missing = self._graph.edges - len(self._n)
        if missing:
            counts = self._n, self._y, self._offered, self._pending
            self._n, self._y, self._offered, self._pending = (np.append(a, np.zeros(missing)) for a in counts)

    def _set_prior(self) -> None:
        self._dense = self._model.moments(self._graph)

    def _cov_zp(self, edges: Longs) -> Floats:
        """Cov(R_k, P_e) for everyone, shape (m, len(edges))."""
        return self._dense.with_participants(edges)

    def _cov_pp(self, first: Longs, second: Longs) -> Floats:
        """Cov(P_e, P_f), shape (len(first), len(second))."""
        return self._dense.between(first, second)
