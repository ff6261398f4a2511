"""The paper's model: a participant is relevant or not (Z ∈ {0, 1}), and P_uv | Z_u, Z_v is a beta.

A `table` holds a[4], then b[4], in the order z_u z_v = 00, 01, 10, 11, where u is the participant whose id sorts
first. The scale σ² of `models.base` is 1, and there is no common mean.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from haystream.collection.graph import Graph
from haystream.events import Conditional, Prior
from haystream.memory.arrays import Floats, Ints
from haystream.memory.compiled import compiled
from haystream.models.base import Ends, Posteriors, Priors
from haystream.models.common import Common
from haystream.models.graph_prior import dense_covariance, dense_precision, prior_means
from haystream.models.relevance_dense import Joints

SMALLEST_VARIANCE = 1e-12
"""A residual variance of P below this is taken as this, so that weights stay finite; it is the square of a
probability of 1e-6, far below anything that a verdict can resolve."""

ITEMS, FEW_ITEMS, LISTED, CORRELATION_STEPS = (1.0, 10.0, 100.0), (1.0, 10.0), (0.05, 0.25, 0.5, 0.75, 0.95), 64
"""Of `correlation_weight`: how many items, the means that a watch-list may have, and differences."""


class Relevance:
    """The paper's model as the engines need it (`models.base.Model`)."""

    common_weight = 0.0
    prior_scale = 1.0

    def __init__(self, prior: Prior) -> None:
        self._prior = prior
        self._table = conditional_table(prior.conditional)
        self.largest_scale = 0.5 if prior.covariance is None else 1.0

    @property
    def correlation_weight(self) -> float:
        """By `correlation_weight`, whatever means a watch-list has or will have."""
        prior = self._prior
        if prior.covariance is not None:
            return 0.0
        return correlation_weight(prior.conditional, prior.correlation, prior.mean)

    def scale(self, mean: Floats, inverse_diagonal: Floats) -> Floats:
        """B of Σ = B Q⁻¹ B, so that Var(Z) = E[Z] (1 − E[Z]); I for an explicit Σ, whose inverse Q then is."""
        if self._prior.covariance is not None:
            return np.ones(len(mean))
        return np.sqrt(mean * (1.0 - mean) / inverse_diagonal)

    def priors(
        self, tail: Ints, head: Ints, which: Ints, mean: Floats, scale: Floats, inverse_edge: Floats
    ) -> Priors:
        """The priors of the edges in `which`, by `edge_prior`."""
        a, b, c, d, e = np.empty((5, len(which)))
        out = Priors(a, b, c, d, e, np.empty(len(which), np.uint8))
        edge_priors(self._table, tail, head, which, mean, scale, inverse_edge, out)
        return out

    def posteriors(self, ends: Ends, n: Floats, y: Floats, common: Common) -> Posteriors:
        """E[P | Y], Var[P | Y] and slope of some edges, shape (k,) each, by `edge_posterior`."""
        out = Posteriors(np.empty(len(n)), np.empty(len(n)), np.zeros(len(n)))
        edge_posteriors(self._table, ends, n, y, out)
        return out

    def moments(self, graph: Graph) -> Joints:
        """Of Z by its covariance, and of P by the sequential Bayes linear joints of section 4.1."""
        prior, mean = self._prior, prior_means(graph, self._prior)
        if prior.covariance is not None:
            covariance = dense_covariance(graph, prior.covariance)
        else:
            inverse: Floats = np.asarray(np.linalg.inv(dense_precision(graph, prior.correlation)), np.float64)
            B = self.scale(mean, inverse.diagonal())
            covariance = B[:, None] * inverse * B
        edges = graph.edges
        edge_mean, noise, bound = np.empty(edges), np.empty(edges), np.zeros(edges, np.uint8)
        for e, (u, v) in enumerate(graph.pairs.tolist()):
            edge_mean[e], noise[e], *_, bound[e] = edge_prior(self._table, mean[u], mean[v], covariance[u, v])
        return Joints(
            graph.pairs.astype(np.int64),
            self._table[:4] / (self._table[:4] + self._table[4:]),
            mean=mean,
            covariance=covariance,
            edge_mean=edge_mean,
            noise=noise,
            bound=bound,
        )


def conditional_table(conditional: Conditional) -> NDArray[np.float64]:
    """Shape (8,): a then b, for z = 00, 01, 10, 11."""
    return np.array([*conditional.a, *conditional.b], dtype=np.float64)


@lru_cache(maxsize=64)
def correlation_weight(conditional: Conditional, correlation: float, mean: float) -> float:
    """By how much an adjusted mean follows the correlation of two contacts, at most, as it goes from a quarter of
    `correlation` to the whole, which two who have no other contacts have: by differences.

    One's prior mean is `mean`, the other's this or one of LISTED. That is what ITEMS on their edge, all of them
    relevant or all irrelevant, make of the mean of an end; and, of two whose mean is `mean`, a quarter of the
    relative change of their edge's weight with FEW_ITEMS, by which it counts against edges that say the contrary.
    """
    means, rho = np.array([mean, *LISTED]), np.linspace(0.25, 1.0, CORRELATION_STEPS + 1) * correlation
    deviation, between = np.sqrt(means * (1.0 - means)), np.tile(rho, len(means))
    which = np.arange(len(between), dtype=np.int32)
    tail, head = np.zeros_like(which), which // np.int32(len(rho))
    prior = Relevance(Prior(model="relevance", conditional=conditional)).priors(
        tail, head, which, means, deviation, between
    )
    at, by = means[[tail, head]], deviation[[tail, head]]
    product, beta = at.prod(axis=0), np.array([prior.on_tail, prior.on_head]) / by
    low, high = np.maximum(0.0, at.sum(axis=0) - 1.0), at.min(axis=0)
    covariance = np.clip(product + between * by.prod(axis=0), low, high) - product  # as `joint` has it
    with_ends = by * by * beta + covariance * beta[::-1]
    varies = prior.residual + (beta * with_ends).sum(axis=0)
    gain = np.abs(with_ends).max(axis=0) / (varies + prior.noise / np.array([ITEMS]).T)
    irrelevant, relevant = np.minimum(gain * np.array([[prior.prior_mean], [1.0 - prior.prior_mean]]), 1.0)
    weight = 0.25 * np.log(prior.residual + prior.noise / np.array([FEW_ITEMS]).T)[:, : len(rho)]
    most = max(float(np.abs(np.diff(of.reshape(-1, len(rho)))).max()) for of in (irrelevant, relevant, weight))
    return most / max(abs(float(rho[1] - rho[0])), 1e-12)


@compiled
def joint(mean_u: float, mean_v: float, covariance: float) -> tuple[float, float, float, float, bool]:
    """The joint distribution of (Z_u, Z_v) from two means and a covariance: p00, p01, p10, p11, bound.

    p11 = cov + E_u E_v is kept inside the Fréchet bounds max(0, E_u + E_v − 1) ≤ p11 ≤ min(E_u, E_v)
    (appendix C, as docs/method.md corrects it). `bound` says that a bound had to be used.
    """
    p11 = covariance + mean_u * mean_v
    low = max(0.0, mean_u + mean_v - 1.0)
    high = min(mean_u, mean_v)
    bound = p11 < low or p11 > high
    p11 = min(max(p11, low), high)
    return 1.0 - mean_u - mean_v + p11, mean_v - p11, mean_u - p11, p11, bound


@compiled
def edge_prior(
    table: NDArray[np.float64], mean_u: float, mean_v: float, covariance: float
) -> tuple[float, float, float, float, float, bool]:
    """Second-order prior of an edge's P: E[P], s = E[P(1 − P)], β_u, β_v, Var(η) and whether a bound was used.

    P = E[P] + β_u (Z_u − E) + β_v (Z_v − E) + η, β = Var(Z_u, Z_v)⁻¹ Cov((Z_u, Z_v), P), with the variance
    of the same 2×2 joint that gives the covariance: so Var(η) = Var(P) − βᵀ Cov((Z_u, Z_v), P) is never
    negative, bound or not (docs/method.md, "Why the linear form").
    """
    p00, p01, p10, p11, bound = joint(mean_u, mean_v, covariance)
    p = (p00, p01, p10, p11)
    mean, square, on_u, on_v = 0.0, 0.0, 0.0, 0.0
    for z in range(4):
        a, b = table[z], table[4 + z]
        first = a / (a + b)
        mean += p[z] * first
        square += p[z] * first * (a + 1.0) / (a + b + 1.0)
        if z >= 2:
            on_u += p[z] * first
        if z % 2 == 1:
            on_v += p[z] * first
    variance = square - mean * mean
    cov_u = on_u - mean_u * mean
    cov_v = on_v - mean_v * mean
    var_u = mean_u * (1.0 - mean_u)
    var_v = mean_v * (1.0 - mean_v)
    cov = p11 - mean_u * mean_v
    determinant = var_u * var_v - cov * cov
    if determinant > 1e-12 * var_u * var_v:
        beta_u = (var_v * cov_u - cov * cov_v) / determinant
        beta_v = (var_u * cov_v - cov * cov_u) / determinant
    else:  # Z_u and Z_v are the same variable: the least-norm regression shares the slope
        beta_u = 0.5 * cov_u / var_u
        beta_v = 0.5 * cov_v / var_v
    residual = variance - beta_u * cov_u - beta_v * cov_v
    return mean, mean - square, beta_u, beta_v, max(residual, SMALLEST_VARIANCE), bound


@compiled
def edge_posterior(
    table: NDArray[np.float64], mean_u: float, mean_v: float, covariance: float, n: float, y: float
) -> tuple[float, float]:
    """E[P | Y] and Var[P | Y]: the mixture, over the pair's adjusted joint, of the conjugate betas (section 4).

    mean_u, mean_v are the constrained adjusted means, covariance the constrained adjusted covariance.
    """
    p00, p01, p10, p11, _ = joint(mean_u, mean_v, covariance)
    p = (p00, p01, p10, p11)
    mean, square = 0.0, 0.0
    for z in range(4):
        a = table[z] + y
        total = table[z] + table[4 + z] + n
        first = a / total
        mean += p[z] * first
        square += p[z] * first * (a + 1.0) / (total + 1.0)
    return mean, max(square - mean * mean, 0.0)


@compiled
def edge_priors(
    table: Floats,
    tail: Ints,
    head: Ints,
    which: Ints,
    mean: Floats,
    scale: Floats,
    inverse_edge: Floats,
    out: Priors,
) -> None:
    """The priors of the edges in `which`, row i of `out` for which[i]."""
    for i in range(len(which)):
        e = which[i]
        u, v = tail[e], head[e]
        covariance = scale[u] * scale[v] * inverse_edge[e]
        p, noise, beta_u, beta_v, residual, bound = edge_prior(table, mean[u], mean[v], covariance)
        out.prior_mean[i] = p
        out.noise[i] = noise
        out.on_tail[i] = scale[u] * beta_u
        out.on_head[i] = scale[v] * beta_v
        out.residual[i] = residual
        out.bound[i] = bound


@compiled
def edge_posteriors(table: Floats, ends: Ends, screened: Floats, relevant: Floats, out: Posteriors) -> None:
    """E[P | Y] and Var[P | Y] of edges, from the adjusted moments of their ends: means constrained here."""
    for i in range(len(screened)):
        mean_u = min(max(ends.mean_tail[i], 0.0), 1.0)
        mean_v = min(max(ends.mean_head[i], 0.0), 1.0)
        mean, variance = edge_posterior(table, mean_u, mean_v, ends.covariance[i], screened[i], relevant[i])
        out.mean[i] = mean
        out.variance[i] = variance
