"""One adjustment of the joint specification by a batch of observations: Lemmas 1 to 3 as printed, dense.

An observation is y relevant items of n on an edge; an edge may be observed more than once. A common mean M is one
more variable, whose covariance with every R and every P is its variance. All is in units of σ² until M is adjusted,
which is what says how large σ² is.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from haystream.memory.arrays import Floats, Longs
from haystream.models.base import Moments
from haystream.models.common import Common


class Observations(NamedTuple):
    """Shape (k,) each, and the covariances that Lemma 3 gives, in units of σ²."""

    edges: Longs
    n: Floats
    deviation: Floats
    """y − E[Y]."""
    cov_zy: Floats
    """Cov(R, Y), shape (m, k)."""
    var_y: Floats
    """Shape (k, k)."""


@dataclass(frozen=True, slots=True)
class Adjustment:
    """What the observations make of the prior."""

    seen: Observations
    """Their covariances now in units of 1."""
    common: Common
    reach: Floats
    """Cov(R, M | Y) / Var(M | Y), shape (m,); 0 without a common mean."""
    mean: Floats
    """Of R, before the constraint, shape (m,)."""
    covariance: Floats
    """Likewise, shape (m, m)."""
    constrained_mean: Floats
    constrained_covariance: Floats
    discrepancy: float

    def expects(self, between: Floats) -> Floats:
        """What is expected of some P − E[P]; `between`: Cov(P, P_e) with the observed edges e, in units of σ²."""
        against = self.common.scale * between * self.seen.n
        return np.asarray(against @ np.linalg.solve(self.seen.var_y, self.seen.deviation))


def adjusted_common(prior: Moments, seen: Observations) -> tuple[float, float]:
    """E[M | Y] − E[M], and Var(M | Y) in units of σ²."""
    before = prior.common_variance
    H = np.linalg.solve(seen.var_y, before * seen.n)
    return float(H @ seen.deviation), before - before * float(H @ seen.n)


def adjust(prior: Moments, seen: Observations, common: Common) -> Adjustment:
    """Everything but M, whose adjustment is `common`."""
    before = prior.common_variance
    gain = np.linalg.solve(seen.var_y, before * seen.n)
    reach = (before - seen.cov_zy @ gain) / common.variance if before else np.zeros(len(prior.mean))
    seen = seen._replace(cov_zy=common.scale * seen.cov_zy, var_y=common.scale * seen.var_y)
    sigma = common.scale * prior.covariance
    H: Floats = np.asarray(np.linalg.solve(seen.var_y, seen.cov_zy.T).T, dtype=np.float64)
    mean: Floats = prior.mean + H @ seen.deviation
    return Adjustment(
        seen,
        common,
        reach,
        mean,
        sigma - H @ seen.cov_zy.T,
        *_constrained(prior.mean, sigma, seen, H, mean),
        float(seen.deviation @ np.linalg.solve(seen.var_y, seen.deviation)),
    )


def _constrained(
    prior_mean: Floats, sigma: Floats, seen: Observations, H: Floats, mean: Floats
) -> tuple[Floats, Floats]:
    """Lemma 2 for each R_k whose unconstrained mean is outside [0, 1]; then the covariances of (2.4)."""
    H = H.copy()
    constrained: Floats = np.clip(mean, 0.0, 1.0)
    spread = seen.var_y + np.outer(seen.deviation, seen.deviation)
    for k in np.flatnonzero(constrained != mean):
        target = seen.cov_zy[k] + (constrained[k] - prior_mean[k]) * seen.deviation
        H[k] = np.linalg.solve(spread, target)
    bias = prior_mean + H @ seen.deviation - constrained  # E[R_k − h0 − hᵀY] with h0 = c − hᵀy
    covariance = sigma - H @ seen.cov_zy.T - seen.cov_zy @ H.T + H @ seen.var_y @ H.T + np.outer(bias, bias)
    return constrained, covariance
