"""How much expected remaining hangs on the prior's concentrations (docs/method.md, "Expected remaining")."""

import math

from haystream.compiled import compiled
from haystream.engines.base import Ints
from haystream.engines.state import COMMON, MEAN, REMAINING, Edges, People

DOUBT = math.log(2.0)
"""One sd of log c, c what the prior's concentrations are to be multiplied by: a factor of two. Searches hardly tell
concentrations of 2 from those of 8 (docs/method.md), so neither can anyone who sets them."""


@compiled
def remaining_slope(edges: Edges, people: People, screened: Ints, shift: float, through: float) -> float:
    """Σ ν_e (E[P_e | Y] − Ȳ_e) over the edges in `screened`, ν_e what a move of Ȳ_e moves expected remaining by.

    ν_e = L_e ρ_e + w_e (β̃_eᵀ Λ⁻¹h + reach_e `through`), and E[P_e | Y] − Ȳ_e = (1 − ρ_e)(β̃_eᵀx̂ + reach_e `shift` −
    d_e), both before any constraint, with reach_e = 1 − β̃_eᵀx₂, or 0 without a common mean.
    """
    total = 0.0
    for i in range(len(screened)):
        e = screened[i]
        weight = edges.weight[e]
        if weight == 0.0:
            continue
        u, v, on_u, on_v = edges.tail[e], edges.head[e], edges.on_tail[e], edges.on_head[e]
        reach = 0.0
        if len(people.x) > COMMON:
            reach = 1.0 - on_u * people.x[COMMON, u] - on_v * people.x[COMMON, v]
        own = edges.residual[e] * weight
        fitted = on_u * people.x[MEAN, u] + on_v * people.x[MEAN, v] + reach * shift
        by_ends = on_u * people.x[REMAINING, u] + on_v * people.x[REMAINING, v] + reach * through
        moves = edges.coefficient[REMAINING, e] * own / (1.0 - own) + weight * by_ends
        total += moves * (1.0 - own) * (fitted - edges.coefficient[MEAN, e] / weight)
    return total
