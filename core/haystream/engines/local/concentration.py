"""What verdicts say of the concentrations, read off the local engine (docs/method.md, "Expected remaining")."""

import numpy as np

from haystream.arrays import Floats, Growing, Ints
from haystream.compiled import compiled
from haystream.engines.local.edge_ends import at_ends, edge_reach
from haystream.engines.local.edge_priors import edge_prior
from haystream.engines.local.healing import Inverse
from haystream.engines.local.sides import MEAN, REMAINING
from haystream.engines.local.state import Edges, People, State
from haystream.models.common import Common
from haystream.models.concentration import LEAST_DIVISOR, add_likelihood, learned_concentration, no_likelihood
from haystream.overlay import entry

LEARNED_AT_ONCE = 4096
"""Up to so many screened edges the concentration is learned anew for every ranking: a third of a millisecond. With
more of them it is learned once in as many verdicts as there are multiples of this: a verdict's share of the work
stays the same, and what is learned is behind by one verdict in this many at most."""


class Concentrations:
    """What has been learned of the concentrations, and from which edges."""

    def __init__(self) -> None:
        self.log_c = 0.0, 0.0
        """E[log c | Y] and Var[log c | Y]."""
        self.slope = 0.0
        """d E[Σ L P | Y] / d log c."""
        self._screened = Growing(np.int32)
        self._known: set[int] = set()
        self._unlearned = 0
        self._settled = True

    @property
    def screened(self) -> Ints:
        """The edges that were ever screened, each once."""
        return self._screened.view()

    def count(self, edge: int, screened: float) -> None:
        """Take that items on an edge were screened, or that a verdict was taken back."""
        if screened > 0.0 and edge not in self._known:
            self._known.add(edge)
            self._screened.append(edge)
        self._unlearned += int(screened != 0.0)

    def settled(self) -> None:
        """Take that the posterior is up to date again, so that there may be something to learn."""
        self._settled = True

    def learn_if_due(self, state: State, common: Common, weight: float) -> None:
        """Learn, unless nothing has changed or it costs more than the verdicts since. `weight`: k."""
        many = self._screened.size > LEARNED_AT_ONCE
        if not self._settled or (many and self._unlearned * LEARNED_AT_ONCE < self._screened.size):
            return
        self._unlearned, self._settled = 0, False
        if weight:
            likelihood = no_likelihood()
            edges_likelihood(state, self.screened, common, likelihood)
            self.log_c = learned_concentration(likelihood)
        through = float(state.sums.border[REMAINING]) * common.variance
        of_edges = remaining_slope(state, self.screened, common._replace(variance=0.0), through)
        self.slope = common.mean_shift * weight * through + of_edges


@compiled
def edges_likelihood(state: State, screened: Ints, common: Common, out: Floats) -> None:
    """Add to `out` the log-likelihood of every edge in `screened` that was screened more than once.

    Without an edge's own data what is expected of its P is (f − w s Ȳ)/(1 − w s), and the variance that its ends
    give it s/(1 − w s), f and s being the two with them.
    """
    edges, people, inverse, n, y = state.edges, state.people, state.inverse, state.data.n, state.data.y
    for i in range(len(screened)):
        e = screened[i]
        if n[e] <= 1.0 or edges.weight[e] == 0.0:
            continue
        fitted, ends, _ = fit(edges, people, inverse, e, common)
        prior = edge_prior(edges.prior, e)
        level = prior.mean + common.mean_shift
        own = edges.weight[e] * ends
        rest = max(1.0 - own, LEAST_DIVISOR)
        mean = (prior.mean + fitted - own * y[e] / n[e]) / rest
        spread = (prior.residual + ends / rest) / prior.noise
        add_likelihood(out, level, mean, spread, n[e], y[e])


@compiled
def remaining_slope(state: State, screened: Ints, common: Common, through: float) -> float:
    """Σ ν_e (E[P_e | Y] − Ȳ_e) over the edges in `screened`, ν_e what a move of Ȳ_e moves expected remaining by.

    ν_e = L_e ρ_e + w_e (β̃_eᵀ Λ⁻¹h + reach_e `through`), and E[P_e | Y] − Ȳ_e = (1 − ρ_e)(β̃_eᵀx̂ + reach_e Δ −
    d_e), both before any constraint.
    """
    edges, people, inverse, total = state.edges, state.people, state.inverse, 0.0
    for i in range(len(screened)):
        e = screened[i]
        weight = edges.weight[e]
        if weight == 0.0:
            continue
        fitted, _, reach = fit(edges, people, inverse, e, common)
        prior = edge_prior(edges.prior, e)
        own = prior.residual * weight
        by_ends = at_ends(edges, people, e, REMAINING)
        moves = edges.coefficient[REMAINING, e] * own / (1.0 - own) + weight * (by_ends + reach * through)
        deviation = people.reference[0] + edges.coefficient[MEAN, e] / weight
        total += moves * (1.0 - own) * (fitted - deviation)
    return total


@compiled
def fit(edges: Edges, people: People, inverse: Inverse, e: int, common: Common) -> tuple[float, float, float]:
    """What the ends make of an edge's P: β̃ᵀ(x + Δ₀ x₂) + reach Δ, β̃ᵀΛ⁻¹β̃ + reach² v_M; and reach = 1 − β̃ᵀx₂, or
    0 without a common mean."""
    u, v, prior = edges.tail[e], edges.head[e], edge_prior(edges.prior, e)
    on_u, on_v = prior.on_tail, prior.on_head
    reach = edge_reach(edges, people, e)
    by_ends = at_ends(edges, people, e, MEAN) + people.reference[0] * (1.0 - reach)
    own = on_u * on_u * entry(inverse.on_participant, u) + on_v * on_v * entry(inverse.on_participant, v)
    own += 2.0 * on_u * on_v * entry(inverse.on_edge, e)
    return by_ends + reach * common.mean_shift, own + reach * reach * common.variance, reach
