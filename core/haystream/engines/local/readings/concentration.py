"""What verdicts say of the concentrations, read off the local engine (docs/method.md, "Expected remaining")."""

import numpy as np

from haystream.engines.local.solves.healing import Inverse
from haystream.engines.local.solves.sides import MEAN, REMAINING
from haystream.engines.local.state.edge_ends import at_ends, edge_reach
from haystream.engines.local.state.edge_priors import edge_prior
from haystream.engines.local.state.state import Edges, People, State
from haystream.memory.arrays import Floats, Growing, Ints
from haystream.memory.compiled import compiled
from haystream.memory.overlay import entry
from haystream.models.common import Common
from haystream.models.concentration import (
    LEAST_DIVISOR,
    add_likelihood,
    learned_concentration,
    log_likelihood,
    no_likelihood,
)

LEARNED_AT_ONCE = 256
"""Up to so many screened edges the concentration is learned anew for every ranking: a tenth of a millisecond. With
more of them it is learned once in as many verdicts as there are multiples of this, and when nobody waits: a
verdict's share of the work stays the same, and what is learned is behind by one verdict in this many at most."""


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

    def count(self, edges: Ints, screened: float) -> None:
        """Take that items on some edges were screened, or that verdicts were taken back."""
        for edge in edges.tolist() if screened > 0.0 else ():
            if edge not in self._known:
                self._known.add(edge)
                self._screened.append(edge)
        self._unlearned += len(edges) * int(screened != 0.0)

    def settled(self) -> None:
        """Take that the posterior is up to date again, so that there may be something to learn."""
        self._settled = True

    @property
    def behind(self) -> bool:
        """Whether anything has moved that nothing was learned from, as that would have cost too much."""
        return self._settled and self._screened.size > LEARNED_AT_ONCE

    def learn_if_due(self, state: State, common: Common, weight: float) -> None:
        """Learn, unless nothing has changed or it costs more than the verdicts since. `weight`: k."""
        costly = self._screened.size > LEARNED_AT_ONCE * max(self._unlearned, 1)
        if self._settled and not costly:
            self.learn(state, common, weight)

    def learn(self, state: State, common: Common, weight: float) -> None:
        """Learn from all that were screened."""
        self._unlearned, self._settled = 0, False
        through = float(state.sums.border[REMAINING]) * common.variance
        likelihood = no_likelihood()
        of_edges = read_screened(state, self.screened, common, through, likelihood)
        self.slope = common.mean_shift * weight * through + of_edges
        if weight:
            self.log_c = learned_concentration(log_likelihood(likelihood))


@compiled
def read_screened(state: State, screened: Ints, common: Common, through: float, likelihood: Floats) -> float:
    """Σ ν_e (E[P_e | Y] − Ȳ_e) over the edges in `screened`. Of those screened more than once the likelihood is
    added to `likelihood` (`add_likelihood`).

    ν_e = L_e ρ_e + w_e (β̃_eᵀ Λ⁻¹h + reach_e `through`), what a move of Ȳ_e moves expected remaining by, and
    E[P_e | Y] − Ȳ_e = (1 − ρ_e)(β̃_eᵀx̂ + reach_e Δ − d_e), both before any constraint. Without an edge's own data
    what is expected of its P is (f − w s Ȳ)/(1 − w s), and the variance that its ends give it s/(1 − w s), f and s
    being the two with them.
    """
    edges, people, n, y, total = state.edges, state.people, state.data.n, state.data.y, 0.0
    for i in range(len(screened)):
        e = screened[i]
        weight = edges.weight[e]
        if weight == 0.0:
            continue
        fitted, reach = fit(edges, people, e, common)
        prior = edge_prior(edges.prior, e)
        own = prior.residual * weight
        by_ends = at_ends(edges, people, e, REMAINING)
        moves = edges.coefficient[REMAINING, e] * own / (1.0 - own) + weight * (by_ends + reach * through)
        deviation = people.reference[0] + edges.coefficient[MEAN, e] / weight
        total += moves * (1.0 - own) * (fitted - deviation)
        if n[e] <= 1.0:
            continue
        ends = weight * fit_variance(edges, state.inverse, e, reach, common)
        rest = max(1.0 - ends, LEAST_DIVISOR)
        mean = (prior.mean + fitted - ends * y[e] / n[e]) / rest
        spread = (prior.residual + ends / weight / rest) / prior.noise
        add_likelihood(likelihood, prior.mean + common.mean_shift, mean, spread, n[e], y[e])
    return total


@compiled
def fit(edges: Edges, people: People, e: int, common: Common) -> tuple[float, float]:
    """What the ends make of an edge's P, β̃ᵀ(x + Δ₀ x₂) + reach Δ; and reach = 1 − β̃ᵀx₂, or 0 without a common
    mean."""
    reach = edge_reach(edges, people, e)
    by_ends = at_ends(edges, people, e, MEAN) + people.reference[0] * (1.0 - reach)
    return by_ends + reach * common.mean_shift, reach


@compiled
def fit_variance(edges: Edges, inverse: Inverse, e: int, reach: float, common: Common) -> float:
    """The variance of that, β̃ᵀΛ⁻¹β̃ + reach² v_M."""
    u, v, prior = edges.tail[e], edges.head[e], edge_prior(edges.prior, e)
    on_u, on_v = prior.on_tail, prior.on_head
    own = on_u * on_u * entry(inverse.on_participant, u) + on_v * on_v * entry(inverse.on_participant, v)
    own += 2.0 * on_u * on_v * entry(inverse.on_edge, e)
    return own + reach * reach * common.variance
