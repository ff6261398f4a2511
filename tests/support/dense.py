"""The linear form solved the long way: every covariance dense, one batch adjustment of the joint specification.

Written from the definitions in docs/method.md, in covariance form (Var(Ȳ) and Cov(R, Ȳ), nothing of
precisions, borders, pushes or rank-one updates), so that it shares no step with the engine that it checks.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from haystream.events import Outcome, Pair, Query
from haystream.query.state import QueryState
from haystream.report import report

Floats = NDArray[np.float64]

TIGHT = 1e-12
"""The tolerance that the local engine is run with; agreement is asked to 1e-9 (error of the mean ≤ tolerance/(1-δ),
times the handful of steps between a mean and the quantity read)."""
CLOSE = 1e-9
STEP = 1e-3
"""Of a derivative by differences, in log c: off by its square."""


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
    scoring_mean: Floats
    scoring_variance: Floats
    discrepancy: float
    remaining_variance: float
    remaining: float
    """Before any constraint."""
    linear_variance: Floats
    """Of P likewise."""
    noise: Floats
    """What one screening varies by; variances are in units of `scale`, this in units of 1."""
    share_matrix: Floats
    """(edges, edges): the share of column f in the adjusted expectation of row e's P, at the adjusted M."""
    linear_mean: Floats
    """The adjusted expectation of P before any constraint."""
    prior_mean: Floats
    base_rate: float
    shift: float
    common_variance: float
    """In units of `scale`."""
    scale: float
    ends: NDArray[np.int64]
    unconstrained_covariance: Floats
    near: float
    """The common mean that scores are made with."""
    near_mean: Floats
    """Of R, there."""
    near_covariance: Floats
    """Likewise, in units of σ²."""
    known_common_variance: float = 0.0
    """Without pending screenings."""


@dataclass
class Form:
    """P = E[P] + (M − E[M]) + G (R − M − E[R − M]) + η, in units of σ²."""

    mean: Floats
    sigma: Floats
    """Of R − M."""
    edge_mean: Floats
    G: Floats
    residual: Floats
    noise: Floats
    common: float
    """Var(M)."""


def solve_with_pending(
    settings: Query, pairs: list[Pair], n: Floats, y: Floats, left: Floats, pending: Floats, concentration: float
) -> Dense:
    """The definition: screened with the outcomes that are expected, which moves no mean, and all variances."""
    known = solve(settings, pairs, n, y, left, concentration)
    known.known_common_variance = known.common_variance
    if not pending.any():
        return known
    made = n + pending
    after = solve(settings, pairs, made, y + pending * known.linear_mean, left, concentration)
    np.testing.assert_allclose(after.unconstrained_mean, known.unconstrained_mean, atol=CLOSE)
    np.testing.assert_allclose(after.shift, known.shift, atol=CLOSE)
    in_units = known.scale / after.scale
    excess = known.unconstrained_mean - known.mean
    covariance = in_units * after.unconstrained_covariance + np.outer(excess, excess) / (1 + known.discrepancy)
    posterior = rates_posterior if known.common_variance else relevance_posterior
    free, near, ends = known.unconstrained_mean, known.near, known.ends
    expected = y + pending * known.edge_mean
    _, edge_variance = posterior(settings, ends, free, covariance, made, expected, known.base_rate)
    near_covariance = near * (1 - near) * after.near_covariance if known.common_variance else covariance
    expected = y + pending * known.scoring_mean
    _, scoring_variance = posterior(settings, ends, known.near_mean, near_covariance, made, expected, near)
    return replace(
        known,
        unconstrained_variance=in_units * after.unconstrained_variance,
        covariance=covariance,
        edge_variance=edge_variance,
        scoring_variance=scoring_variance,
        remaining_variance=in_units * after.remaining_variance,
        linear_variance=in_units * after.linear_variance,
        common_variance=after.common_variance,
    )


def solve(
    settings: Query, pairs: list[Pair], n: Floats, y: Floats, left: Floats, concentration: float = 1.0
) -> Dense:
    """`concentration`: what all variances of participants and edges are divided by."""
    people = sorted({p for pair in pairs for p in pair})
    place = {p: i for i, p in enumerate(people)}
    ends = np.array([[place[u], place[v]] for u, v in pairs])
    prior = settings.prior
    mu = np.array([prior.participants.get(p, prior.mean) for p in people])
    form = (rates_form if prior.model == "rates" else relevance_form)(settings, ends, mu)
    form.sigma, form.residual = form.sigma / concentration, form.residual / concentration
    sigma, G, common = form.sigma, form.G, form.common

    seen = np.flatnonzero(n)
    deviation = y[seen] / n[seen] - form.edge_mean[seen]
    noise = np.diag(form.noise[seen] / n[seen])
    known_p = G @ sigma @ G.T + np.diag(form.residual)  # given M
    known_y = known_p[np.ix_(seen, seen)] + noise

    # M first: in units of σ², which drops out of its adjusted expectation.
    gain = np.linalg.solve(known_y + common, np.full(len(seen), common))
    shift = float(gain @ deviation)
    common_variance = common - common * gain.sum()
    base, scale = prior.mean, 1.0
    if common:
        # Between the estimates from nothing relevant, and from all: see models.common.
        low, high = prior.mean * (1 - gain.sum()), 1 - (1 - prior.mean) * (1 - gain.sum())
        base = float(np.clip(prior.mean + shift, low, high))
        scale = base * (1 - base)

    var_y, var_p = scale * (known_y + common), scale * (known_p + common)
    cov_ry = scale * (sigma @ G[seen].T + common)
    R_gain = np.linalg.solve(var_y, cov_ry.T).T
    q = float(deviation @ np.linalg.solve(var_y, deviation))
    free_mean = form.mean + R_gain @ deviation
    free_cov = scale * (sigma + common) - R_gain @ cov_ry.T
    excess = free_mean - np.clip(free_mean, 0, 1)
    mean, covariance = free_mean - excess, free_cov + np.outer(excess, excess) / (1 + q)

    posterior = rates_posterior if common else relevance_posterior
    edge_mean, edge_variance = posterior(settings, ends, free_mean, covariance, n, y, base)
    scoring_mean, scoring_variance = edge_mean, edge_variance
    near, at_near, cov = base, free_mean, covariance
    if common:
        # M moved to the rounded m as if it were known to be there, then given its variance again, rounded
        # beside the one that an edge has by itself.
        odds = prior.mean / (1 - prior.mean)
        odds *= step(base / (1 - base) / odds)
        near = odds / (1 + odds)
        known_gain = np.linalg.solve(known_y, G[seen] @ sigma).T
        at_near = form.mean + near - prior.mean
        at_near = at_near + known_gain @ (deviation - (near - prior.mean))
        reach, own = 1 - known_gain.sum(axis=1), 1 / prior.edge
        near_variance = max(0.0, (common + own) * step((common_variance + own) / (common + own)) - own)
        cov = sigma - known_gain @ G[seen] @ sigma + np.outer(reach, reach) * near_variance
        scoring_mean, scoring_variance = posterior(settings, ends, at_near, near * (1 - near) * cov, n, y, near)

    p_gain = np.linalg.solve(var_y, var_p[:, seen].T).T
    shares = np.zeros((len(pairs), len(pairs)))
    shares[:, seen] = np.linalg.solve(known_y, known_p[:, seen].T).T * (deviation - shift)
    p_cov = var_p - p_gain @ var_p[:, seen].T
    return Dense(
        people,
        pairs,
        free_mean,
        np.diag(free_cov),
        mean,
        covariance,
        edge_mean,
        edge_variance,
        scoring_mean,
        scoring_variance,
        q,
        float(left @ p_cov @ left),
        float(left @ (form.edge_mean + p_gain @ deviation)),
        p_cov.diagonal(),
        form.noise,
        shares,
        form.edge_mean + p_gain @ deviation,
        form.edge_mean,
        base,
        shift,
        common_variance,
        scale,
        ends,
        free_cov,
        near,
        at_near,
        cov,
    )


def step(ratio: float) -> float:
    """To half an octave."""
    return float(2 ** (np.round(2 * np.log2(ratio)) / 2))


def precision(settings: Query, ends: NDArray[np.int64], m: int) -> Floats:
    degree = np.bincount(ends.ravel(), minlength=m)
    Q = np.eye(m)
    for u, v in ends:
        Q[u, v] = Q[v, u] = -settings.prior.correlation / max(degree[u], degree[v])
    return Q


def rates_form(settings: Query, ends: NDArray[np.int64], mu: Floats) -> Form:
    prior, m, edges = settings.prior, len(mu), len(ends)
    inverse = np.linalg.inv(precision(settings, ends, m))
    C = inverse / np.sqrt(np.outer(np.diag(inverse), np.diag(inverse)))
    G = np.zeros((edges, m))
    for e, (u, v) in enumerate(ends):
        G[e, u] = G[e, v] = 0.5
    eta = np.full(edges, 1 / prior.edge)
    return Form(mu, C / prior.participant, G @ mu, G, eta, np.ones(edges), 1 / prior.weight)


def relevance_form(settings: Query, ends: NDArray[np.int64], mu: Floats) -> Form:
    prior, m, edges = settings.prior, len(mu), len(ends)
    inverse = np.linalg.inv(precision(settings, ends, m))
    B = np.sqrt(mu * (1 - mu) / np.diag(inverse))
    sigma = inverse * np.outer(B, B)
    a, b = np.array(prior.conditional.a), np.array(prior.conditional.b)
    first, second = a / (a + b), a * (a + 1) / ((a + b) * (a + b + 1))
    z = np.array([(0, 0), (0, 1), (1, 0), (1, 1)])
    p_mean, noise, residual = np.empty(edges), np.empty(edges), np.empty(edges)
    G = np.zeros((edges, m))
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
    return Form(mu, sigma, p_mean, G, residual, noise, 0.0)


def relevance_posterior(
    settings: Query, ends: NDArray[np.int64], mean: Floats, covariance: Floats, n: Floats, y: Floats, base: float
) -> tuple[Floats, Floats]:
    a, b = np.array(settings.prior.conditional.a), np.array(settings.prior.conditional.b)
    mean = np.clip(mean, 0, 1)
    edge_mean, edge_variance = np.empty(len(ends)), np.empty(len(ends))
    for e, (u, v) in enumerate(ends):
        p = pair_joint(mean[u], mean[v], covariance[u, v])
        alpha, total = a + y[e], a + b + n[e]
        edge_mean[e] = p @ (alpha / total)
        edge_variance[e] = p @ (alpha * (alpha + 1) / (total * (total + 1))) - edge_mean[e] ** 2
    return edge_mean, edge_variance


def rates_posterior(
    settings: Query, ends: NDArray[np.int64], mean: Floats, covariance: Floats, n: Floats, y: Floats, base: float
) -> tuple[Floats, Floats]:
    """As docs/method.md has it, with the floor at 0.1 m; below it a value still rises, by up to a hundredth of the
    floor."""
    kappa, (u, v) = settings.prior.edge, ends.T
    clipped, free = np.clip(mean, 0, 1), (mean[u] + mean[v]) / 2
    m = (clipped[u] + clipped[v]) / 2
    low, high = 0.1 * base, 1 - 0.1 * (1 - base)
    below, above = np.maximum(low - free, 0), np.maximum(free - high, 0)
    at_floor = low * (1 - 0.01 * below / (1 + below))
    at_ceiling = 1 - (1 - high) * (1 - 0.01 * above / (1 + above))
    m = np.where(m < low, at_floor, np.where(m > high, at_ceiling, m))
    variance = (covariance[u, u] + covariance[v, v] + 2 * covariance[u, v]) / 4
    M = (kappa * m + y) / (kappa + n)
    K = 1 / (1 / (kappa + n) + (kappa / (kappa + n)) ** 2 * variance / (base * (1 - base)))
    return M, M * (1 - M) / (K + 1)


def pair_joint(mean_u: float, mean_v: float, covariance: float) -> Floats:
    both = np.clip(covariance + mean_u * mean_v, max(0.0, mean_u + mean_v - 1), min(mean_u, mean_v))
    return np.array([1 - mean_u - mean_v + both, mean_v - both, mean_u - both, both])


def dense_of(query: QueryState, concentration: float = 1.0) -> Dense:
    """From the facts alone: counts recomputed, edges and participants named, nothing read off the engine."""
    collection = query.collection
    latest: dict[str, tuple[int, str, Outcome]] = {}
    for v in query.verdicts.values():
        latest[v.item_id] = max(latest.get(v.item_id, (-1, "", v.outcome)), (v.decided_at, v.verdict_id, v.outcome))
    pairs = sorted(collection.graph.names(e) for e in range(collection.graph.edges))
    place = {pair: i for i, pair in enumerate(pairs)}
    n, y, left, pending = np.zeros((4, len(pairs)))
    for number, item_id in enumerate(collection.item_ids):
        edges = [place[collection.graph.names(e)] for e in collection.sets.edges(collection.set_of(number))]
        withdrawn = number in collection.withdrawals
        outcome = Outcome.SKIPPED if withdrawn else latest.get(item_id, (0, "", Outcome.RETRACTED))[2]
        n[edges] += (outcome in (Outcome.RELEVANT, Outcome.IRRELEVANT)) / len(edges)
        y[edges] += (outcome == Outcome.RELEVANT) / len(edges)
        left[edges] += (outcome == Outcome.RETRACTED) / len(edges)
        pending[edges] += (outcome == Outcome.RETRACTED and item_id in query.pending) / len(edges)
    return solve_with_pending(query.settings, pairs, n, y, left, pending, concentration)


def assert_agrees(query: QueryState, close: float = CLOSE, *, shares_close: float | None = None) -> None:
    """`shares_close` where shares are solved so much less closely that it shows; sums have the errors of all."""
    of_shares = close if shares_close is None else shares_close
    expected, got = dense_of(query), report(query)
    engine, graph = query.engine, query.collection.graph
    people = np.array([graph.participant(name) for name in expected.people], dtype=np.int32)
    edges = np.array([graph.edge_between(pair) for pair in expected.pairs], dtype=np.int32)

    def same(value: object, reference: object, within: float = close) -> None:
        np.testing.assert_allclose(np.asarray(value), np.asarray(reference), rtol=within, atol=within)

    assert list(got.participants) == expected.people
    same([p[0] for p in got.participants.values()], expected.mean)
    same([p[1] for p in got.participants.values()], np.diag(expected.covariance))
    same(engine.readings.unconstrained(people)[0], expected.unconstrained_mean)
    same(engine.readings.unconstrained(people)[1], expected.unconstrained_variance)
    same([e.mean for e in got.edges], expected.edge_mean)
    same([e.variance for e in got.edges], expected.edge_variance)
    same(engine.readings.scoring(edges)[0], expected.scoring_mean)
    same(engine.readings.scoring(edges)[1], expected.scoring_variance)
    common = engine.readings.common()
    same(common.base_rate, expected.base_rate)
    same(common.mean_shift, expected.shift)
    same(common.variance, expected.common_variance)
    same(engine.readings.known_common().variance, expected.known_common_variance)
    same(common.scale, expected.scale)
    same(got.discrepancy, expected.discrepancy)
    same(engine.readings.remaining_variance(), expected.remaining_variance)
    more, less = (dense_of(query, float(np.exp(h))).remaining for h in (STEP, -STEP))
    slope = (more - less) / (2 * STEP)
    np.testing.assert_allclose(
        engine.readings.concentration_slope(), slope, rtol=10 * STEP**2, atol=max(close, 1e-7)
    )
    for e, row in zip(edges.tolist(), expected.share_matrix, strict=True):
        shares = dict(engine.readings.shares([e]))
        same([shares.get(f, 0.0) for f in edges.tolist()], row, of_shares)
        adjusted = (expected.linear_mean - expected.prior_mean)[edges.tolist().index(e)]
        same(sum(shares.values()), adjusted - expected.shift, of_shares)

    row_of = {edge: row for row, edge in enumerate(edges.tolist())}
    for which in range(len(query.collection.sets)):  # an item of several edges has the mean of their shares
        on = query.collection.sets.edges(which)
        shares = dict(engine.readings.shares(on))
        rows = [row_of[e] for e in on]
        same([shares.get(f, 0.0) for f in edges.tolist()], expected.share_matrix[rows].mean(axis=0), of_shares)

    means = [p[0] for p in got.participants.values()] + [e.mean for e in got.edges]
    assert all(0 <= mean <= 1 for mean in means)
    assert all(p[1] >= -1e-15 for p in got.participants.values())
    assert all(e.variance >= 0 for e in got.edges)
    score = dict(zip(expected.pairs, expected.edge_mean, strict=True))
    for ranked in got.items:
        which = query.collection.set_of(query.collection.index(ranked.item_id) or 0)
        own = np.mean([score[graph.names(e)] for e in query.collection.sets.edges(which)])
        same(ranked.mean, own)
    if query.settings.prior.model == "relevance":  # of `rates` it is moved from the rounded common mean, linearly
        moved = engine.readings.concentration_slope() * engine.readings.concentration()[0]
        total = float(engine.readings.counts(edges)[2] @ expected.edge_mean)
        same(got.expected_remaining.mean, max(total + moved, 0.0))
        if not query.pending:
            same(sum(i.mean for i in got.items), total)
    assert [i.score for i in got.items] == sorted((i.score for i in got.items), reverse=True) or np.all(
        np.diff([i.score for i in got.items]) < 1e-8
    )
