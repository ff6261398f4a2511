"""Rates: how often what a participant is party to turns out relevant, around a common mean that is learned.

R_u = M + o_u + x_u and P_uv = (R_u + R_v)/2 + η, all second-order (docs/method.md, "The model `rates`"). With
x = D z, z of precision Q, every variance carries the same σ² = m (1 − m): in units of it Var(M) = 1/k,
Var(x) = C/κₐ with C of unit diagonal, Var(η) = 1/κ and Var(Ȳ | P) = 1/n.
"""

import numpy as np

from haystream.collection.graph import Graph
from haystream.events import Prior
from haystream.memory.arrays import Floats, Ints
from haystream.memory.compiled import compiled
from haystream.models.base import Ends, Posteriors, Priors
from haystream.models.common import Common
from haystream.models.rates_dense import LinearMoments

FLOOR_SHARE = 0.1
"""An edge's mean before its own data is kept above this share of m (and this share of 1 − m below 1), so that a
beta is a beta. Results did not change for floors between 0.02 m and 0.3 m."""

TIE_SHARE = 0.01
"""Edges below the floor are told apart by how far below they would be: by up to this share of the floor."""


class Rates:
    """The model as the engines need it (`models.base.Model`)."""

    correlation_weight = 0.0

    def __init__(self, prior: Prior) -> None:
        self._prior = prior
        self.common_weight = prior.weight
        self.prior_scale = prior.mean * (1.0 - prior.mean)
        self.largest_scale = prior.participant**-0.5  # the diagonal of Q⁻¹ is 1 or more

    def scale(self, mean: Floats, inverse_diagonal: Floats) -> Floats:
        """D of x = D z: 1/sqrt(κₐ (Q⁻¹)_uu), so that Var(x_u) = 1/κₐ."""
        return 1.0 / np.sqrt(self._prior.participant * inverse_diagonal)

    def priors(
        self, tail: Ints, head: Ints, which: Ints, mean: Floats, scale: Floats, inverse_edge: Floats
    ) -> Priors:
        """P = (R_u + R_v)/2 + η, and one screening's σ²."""
        u, v, k = tail[which], head[which], len(which)
        return Priors(
            prior_mean=0.5 * (mean[u] + mean[v]),
            noise=np.ones(k),
            on_tail=0.5 * scale[u],
            on_head=0.5 * scale[v],
            residual=np.full(k, 1.0 / self._prior.edge),
            bound=np.zeros(k, np.uint8),
        )

    def posteriors(self, ends: Ends, n: Floats, y: Floats, common: Common) -> Posteriors:
        """E[P | Y], Var[P | Y] and slope of some edges, shape (k,) each, by `edge_posteriors`."""
        out = Posteriors(*np.empty((3, len(n))))
        edge_posteriors(self._prior.edge, common.base_rate, common.scale, ends, n, y, out)
        return out

    def moments(self, graph: Graph) -> LinearMoments:
        """Straight from R = M + o + x and P = (R_u + R_v)/2 + η."""
        return LinearMoments(graph, self._prior)


@compiled
def edge_posteriors(
    concentration: float, base: float, scale: float, ends: Ends, n: Floats, y: Floats, out: Posteriors
) -> None:
    """A beta of mean M_e = (κ m_e + y)/(κ + n), and of a concentration that knows how uncertain m_e is.

    m_e = (R_u + R_v)/2 of the constrained means, kept inside (0, 1); 1/K = 1/(κ + n) + (κ/(κ + n))² Var(m_e)/σ²;
    the variance is M (1 − M)/(K + 1) (docs/method.md).
    """
    for i in range(len(n)):
        free = 0.5 * (ends.mean_tail[i] + ends.mean_head[i])
        mean, slope = 0.0, 0.0
        for r, reach in ((ends.mean_tail[i], ends.reach_tail[i]), (ends.mean_head[i], ends.reach_head[i])):
            mean += 0.5 * min(max(r, 0.0), 1.0)
            if 0.0 < r < 1.0:
                slope += 0.5 * reach
        floor, ceiling = FLOOR_SHARE * base, FLOOR_SHARE * (1.0 - base)
        if mean < floor:
            mean, slope = floor * (1.0 - TIE_SHARE * saturating(floor - free)), FLOOR_SHARE
        elif mean > 1.0 - ceiling:
            mean, slope = 1.0 - ceiling * (1.0 - TIE_SHARE * saturating(free - 1.0 + ceiling)), FLOOR_SHARE
        variance = 0.25 * (ends.variance_tail[i] + ends.variance_head[i]) + 0.5 * ends.covariance[i]
        total = concentration + n[i]
        part = concentration / total
        posterior = part * mean + y[i] / total
        spread = 1.0 / total + part * part * max(variance, 0.0) / scale
        out.mean[i] = posterior
        out.variance[i] = posterior * (1.0 - posterior) * spread / (1.0 + spread)
        out.slope[i] = part * slope


@compiled
def saturating(distance: float) -> float:
    """Grows from 0 towards 1 with a distance from 0 up."""
    return max(distance, 0.0) / (1.0 + max(distance, 0.0))
