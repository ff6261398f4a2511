"""How concentrated participants and edges are (docs/method.md, "Expected remaining").

The prior's concentrations are settings, and known to a factor of two at best: they are to be multiplied by c. The
verdicts of an edge, predicted from those of all others, say how large c is.
"""

import math

import numpy as np

from haystream.compiled import compiled
from haystream.engines.base import Floats, Ints
from haystream.engines.relax import VALUE
from haystream.engines.state import COMMON, MEAN, REMAINING, Edges, People

DOUBT = math.log(2.0)
"""The prior sd of log c. Searches hardly tell concentrations of 2 from those of 8 (docs/method.md), so neither can
anyone who sets them."""

GRID = np.linspace(-3.0, 3.0, 13) * DOUBT
"""Where the likelihood of log c is evaluated: to three prior sd, every half."""

FACTORS = np.exp(GRID)
"""c there."""

FLOOR = 0.1
"""A prediction is kept above this share of the common level, and as much inside 1 (as `models.rates.FLOOR`)."""

LEAST = 1e-6
"""What is divided by is kept above this: it is a positive number off by rounding and by drift of the inverse."""


def no_likelihood() -> Floats:
    """The log-likelihood on `GRID` of no data."""
    return np.zeros(len(GRID))


def learned_concentration(likelihood: Floats) -> tuple[float, float]:
    """E[log c | Y] and Var[log c | Y] from the log-likelihood on `GRID`, with the prior N(0, DOUBT²)."""
    log = likelihood - 0.5 * (GRID / DOUBT) ** 2
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    mean = float(weight @ GRID)
    return mean, float(weight @ (GRID - mean) ** 2)


@compiled
def add_likelihood(likelihood: Floats, level: float, mean: float, spread: float, n: float, y: float) -> None:
    """Add that of one edge: y of n, beta-binomial of a prediction's mean and of concentration c / spread.

    Of an edge with a single screening it is the same for every c. `spread`: the variance of P before its own data
    over what one screening varies by.
    """
    level = min(max(level, LEAST), 1.0 - LEAST)
    mean = min(max(mean, FLOOR * level), 1.0 - FLOOR * (1.0 - level))
    counted = round(n)
    whole = abs(n - counted) < LEAST and abs(y - round(y)) < LEAST and counted <= 16
    for i in range(len(FACTORS)):
        total = FACTORS[i] / max(spread, LEAST)
        a, b = total * mean, total * (1.0 - mean)
        if whole:  # the same by products: a tenth of the time
            ratio = 1.0
            for k in range(counted):
                ratio *= (a + k if k < round(y) else b + k - round(y)) / (total + k)
            likelihood[i] += math.log(ratio)
        else:
            likelihood[i] += log_rising(a, y) + log_rising(b, n - y) - log_rising(total, n)


@compiled
def log_rising(start: float, steps: float) -> float:
    """log Γ(start + steps) / Γ(start)."""
    return math.lgamma(start + steps) - math.lgamma(start)


@compiled
def edges_likelihood(
    edges: Edges, people: People, screened: Ints, n: Floats, y: Floats, shift: float, variance: float, out: Floats
) -> None:
    """Add to `out` the log-likelihood of every edge in `screened` that was screened more than once.

    Without an edge's own data what is expected of its P is (f − w s Ȳ)/(1 − w s), and the variance that its ends
    give it s/(1 − w s), f and s being the two with them.
    """
    for i in range(len(screened)):
        e = screened[i]
        if n[e] <= 1.0 or edges.weight[e] == 0.0:
            continue
        fitted, ends, _ = fit(edges, people, e, shift, variance)
        level = edges.prior_mean[e] + shift
        own = edges.weight[e] * ends
        rest = max(1.0 - own, LEAST)
        mean = (edges.prior_mean[e] + fitted - own * y[e] / n[e]) / rest
        spread = (edges.residual[e] + ends / rest) / edges.noise[e]
        add_likelihood(out, level, mean, spread, n[e], y[e])


@compiled
def remaining_slope(edges: Edges, people: People, screened: Ints, shift: float, through: float) -> float:
    """Σ ν_e (E[P_e | Y] − Ȳ_e) over the edges in `screened`, ν_e what a move of Ȳ_e moves expected remaining by.

    ν_e = L_e ρ_e + w_e (β̃_eᵀ Λ⁻¹h + reach_e `through`), and E[P_e | Y] − Ȳ_e = (1 − ρ_e)(β̃_eᵀx̂ + reach_e `shift` −
    d_e), both before any constraint.
    """
    total = 0.0
    for i in range(len(screened)):
        e = screened[i]
        weight = edges.weight[e]
        if weight == 0.0:
            continue
        u, v = edges.tail[e], edges.head[e]
        fitted, _, reach = fit(edges, people, e, shift, 0.0)
        own = edges.residual[e] * weight
        by_ends = (
            edges.on_tail[e] * people.sides[REMAINING, u, VALUE]
            + edges.on_head[e] * people.sides[REMAINING, v, VALUE]
        )
        moves = edges.coefficient[REMAINING, e] * own / (1.0 - own) + weight * (by_ends + reach * through)
        total += moves * (1.0 - own) * (fitted - edges.coefficient[MEAN, e] / weight)
    return total


@compiled
def fit(edges: Edges, people: People, e: int, shift: float, variance: float) -> tuple[float, float, float]:
    """What the ends make of an edge's P: β̃ᵀx̂ + reach Δ, β̃ᵀΛ⁻¹β̃ + reach² v_M, and reach = 1 − β̃ᵀx₂ (or 0)."""
    u, v, on_u, on_v = edges.tail[e], edges.head[e], edges.on_tail[e], edges.on_head[e]
    reach = 0.0
    if len(people.sides) > COMMON:
        reach = 1.0 - on_u * people.sides[COMMON, u, VALUE] - on_v * people.sides[COMMON, v, VALUE]
    mean = on_u * people.sides[MEAN, u, VALUE] + on_v * people.sides[MEAN, v, VALUE] + reach * shift
    own = on_u * on_u * people.variance[u] + on_v * on_v * people.variance[v]
    return mean, own + 2.0 * on_u * on_v * edges.covariance[e] + reach * reach * variance, reach
