"""The linear form solved the long way: every covariance dense, one batch adjustment of the joint specification.

Written from NOTES.md sections 1 to 3 and 5 in covariance form (Var(Ȳ) and Cov(Z, Ȳ), nothing of precisions,
pushes or rank-one updates), so that it shares no step with the engine that it checks.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haystream.events import Pair, Query

Floats = NDArray[np.float64]


@dataclass
class Dense:
    people: list[str]
    pairs: list[Pair]
    unconstrained_mean: Floats
    unconstrained_variance: Floats
    mean: Floats
    covariance: Floats
    edge_mean: Floats
    edge_variance: Floats
    discrepancy: float
    remaining_variance: float
    share_matrix: Floats
    """(edges, edges): the share of column f in the adjusted expectation of row e's P."""
    linear_mean: Floats
    """The adjusted expectation of P before any constraint."""
    prior_mean: Floats


def solve(settings: Query, pairs: list[Pair], n: Floats, y: Floats, left: Floats) -> Dense:
    people = sorted({p for pair in pairs for p in pair})
    place = {p: i for i, p in enumerate(people)}
    ends = np.array([[place[u], place[v]] for u, v in pairs])
    m, edges = len(people), len(pairs)
    prior = settings.prior
    mu = np.array([prior.participants.get(p, prior.mean) for p in people])
    degree = np.bincount(ends.ravel(), minlength=m)
    Q = np.eye(m)
    for u, v in ends:
        Q[u, v] = Q[v, u] = -prior.correlation / max(degree[u], degree[v])
    inverse = np.linalg.inv(Q)
    B = np.sqrt(mu * (1 - mu) / np.diag(inverse))
    sigma = inverse * np.outer(B, B)

    a, b = np.array(prior.conditional.a), np.array(prior.conditional.b)
    first, second = a / (a + b), a * (a + 1) / ((a + b) * (a + b + 1))
    z = np.array([(0, 0), (0, 1), (1, 0), (1, 1)])
    p_mean, noise, residual = np.empty(edges), np.empty(edges), np.empty(edges)
    G = np.zeros((edges, m))  # P = E[P] + G (Z - E[Z]) + η
    for e, (u, v) in enumerate(ends):
        p = pair_joint(mu[u], mu[v], sigma[u, v])
        p_mean[e] = p @ first
        noise[e] = p_mean[e] - p @ second
        centred = z - np.array([mu[u], mu[v]])
        variance = centred.T @ (p[:, None] * centred)
        cov = centred.T @ (p * first)
        beta = np.linalg.solve(variance, cov)
        G[e, [u, v]] = beta
        residual[e] = p @ second - p_mean[e] ** 2 - beta @ cov

    seen = np.flatnonzero(n)
    var_p = G @ sigma @ G.T + np.diag(residual)
    var_y = var_p[np.ix_(seen, seen)] + np.diag(noise[seen] / n[seen])
    deviation = y[seen] / n[seen] - p_mean[seen]
    cov_zy = sigma @ G[seen].T
    gain = np.linalg.solve(var_y, cov_zy.T).T if len(seen) else np.zeros((m, 0))
    q = float(deviation @ np.linalg.solve(var_y, deviation)) if len(seen) else 0.0
    free_mean = mu + gain @ deviation
    free_cov = sigma - gain @ cov_zy.T
    excess = free_mean - np.clip(free_mean, 0, 1)
    mean, covariance = free_mean - excess, free_cov + np.outer(excess, excess) / (1 + q)

    edge_mean, edge_variance = np.empty(edges), np.empty(edges)
    for e, (u, v) in enumerate(ends):
        p = pair_joint(mean[u], mean[v], covariance[u, v])
        alpha, total = a + y[e], a + b + n[e]
        edge_mean[e] = p @ (alpha / total)
        edge_variance[e] = p @ (alpha * (alpha + 1) / (total * (total + 1))) - edge_mean[e] ** 2

    cov_py = var_p[:, seen]
    p_gain = np.linalg.solve(var_y, cov_py.T).T if len(seen) else np.zeros((edges, 0))
    shares = np.zeros((edges, edges))
    shares[:, seen] = p_gain * deviation
    p_cov = var_p - p_gain @ cov_py.T
    return Dense(
        people,
        pairs,
        free_mean,
        np.diag(free_cov),
        mean,
        covariance,
        edge_mean,
        edge_variance,
        q,
        float(left @ p_cov @ left),
        shares,
        p_mean + p_gain @ deviation,
        p_mean,
    )


def pair_joint(mean_u: float, mean_v: float, covariance: float) -> Floats:
    both = np.clip(covariance + mean_u * mean_v, max(0.0, mean_u + mean_v - 1), min(mean_u, mean_v))
    return np.array([1 - mean_u - mean_v + both, mean_v - both, mean_u - both, both])
