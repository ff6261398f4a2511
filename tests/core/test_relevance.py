"""The relevance model's edge moments against enumeration of the pair's joint."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta
from support.histories import ASYMMETRIC

from haystream.events import TABLE_1, TABLE_2
from haystream.models.relevance import conditional_table, edge_posterior, edge_prior, joint

probability = st.floats(0.02, 0.98)
correlation = st.floats(-0.99, 0.99)


@given(probability, probability, st.floats(-1, 1))
def test_the_joint_is_a_distribution_whatever_the_covariance(mean_u: float, mean_v: float, cov: float) -> None:
    *p, bound = joint(mean_u, mean_v, cov)
    assert min(p) >= -1e-15
    assert sum(p) == pytest.approx(1)
    assert p[2] + p[3] == pytest.approx(mean_u)
    assert p[1] + p[3] == pytest.approx(mean_v)
    assert bound == (abs(p[3] - mean_u * mean_v - cov) > 1e-12)


@given(probability, probability, correlation, st.sampled_from([TABLE_1, TABLE_2, ASYMMETRIC]))
def test_edge_prior_is_the_regression_of_p_on_the_pair(mean_u: float, mean_v: float, rho: float, table) -> None:  # type: ignore[no-untyped-def]
    cov = rho * np.sqrt(mean_u * (1 - mean_u) * mean_v * (1 - mean_v))
    *p, _ = joint(mean_u, mean_v, cov)
    mean, noise, beta_u, beta_v, residual, _ = edge_prior(conditional_table(table), mean_u, mean_v, cov)
    z = np.array([(0, 0), (0, 1), (1, 0), (1, 1)], dtype=float)
    rates = [beta(a, b) for a, b in zip(table.a, table.b, strict=True)]
    first = np.array([r.mean() for r in rates])
    second = np.array([r.var() for r in rates]) + first**2
    assert mean == pytest.approx(p @ first)
    assert noise == pytest.approx(p @ first - p @ second)
    fitted = mean + (z - [mean_u, mean_v]) @ [beta_u, beta_v]
    for column in (np.ones(4), z[:, 0], z[:, 1]):  # normal equations: the remainder is uncorrelated with Z
        assert p @ (column * (first - fitted)) == pytest.approx(0, abs=1e-9)
    variance = p @ second - mean**2
    assert residual == pytest.approx(variance - (p @ fitted**2 - mean**2), abs=1e-9)
    assert residual > 0


@given(probability, probability, correlation, st.floats(0, 40), st.floats(0, 1))
def test_edge_posterior_is_the_mixture_of_conjugate_betas(
    mean_u: float, mean_v: float, rho: float, n: float, share: float
) -> None:
    cov, y = rho * np.sqrt(mean_u * (1 - mean_u) * mean_v * (1 - mean_v)), share * n
    *p, _ = joint(mean_u, mean_v, cov)
    rates = [beta(a + y, b + n - y) for a, b in zip(ASYMMETRIC.a, ASYMMETRIC.b, strict=True)]
    first = np.array([r.mean() for r in rates])
    second = np.array([r.var() for r in rates]) + first**2
    mean, variance = edge_posterior(conditional_table(ASYMMETRIC), mean_u, mean_v, cov, n, y)
    assert mean == pytest.approx(p @ first)
    assert variance == pytest.approx(p @ second - (p @ first) ** 2, abs=1e-12)
