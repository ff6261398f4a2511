"""What verdicts say of the concentrations, read off the local engine (docs/method.md, "Expected remaining")."""

from haystream.arrays import Floats, Ints
from haystream.compiled import compiled
from haystream.engines.local.solve import VALUE
from haystream.engines.local.state import COMMON, MEAN, REMAINING, Edges, People
from haystream.models.concentration import LEAST, add_likelihood


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
