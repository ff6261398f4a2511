"""What a model tells the engines: the prior of participants and edges, and how an edge's posterior is read.

A model says what a participant's variable R_u is (Z_u, a rate) and how an edge's probability P_e depends on it. The
engines do the rest, and know only this form (docs/method.md):

    P_e = E[P_e] + (M − E[M]) + β_eᵀ (D z)_uv + η_e        z ~ precision Q of the graph, η uncorrelated

with everything in units of a scale σ², and M common to all, or absent.
"""

from typing import NamedTuple, Protocol

import numpy as np

from haystream.collection.graph import Graph
from haystream.events import Prior
from haystream.memory.arrays import Flags, Floats, Ints, Longs
from haystream.models.common import Common


class Priors(NamedTuple):
    """Second-order priors of some edges' P, every member of shape (k,)."""

    prior_mean: Floats
    """E[P_e]."""
    noise: Floats
    """s_e: what one screening varies by, given P: Var(Ȳ_e | P_e) = s_e / n_e."""
    on_tail: Floats
    """β̃_e at the tail: D_u β_u."""
    on_head: Floats
    residual: Floats
    """Var(η_e)."""
    bound: Flags
    """1 where the prior's covariance is one that the model's variables cannot have, and a bound replaced it."""


class Ends(NamedTuple):
    """The adjusted moments of the two participants of some edges, every member of shape (k,).

    Means are those *before* the constraint of section 3.1; variances and covariances those after it (Lemma 2).
    """

    mean_tail: Floats
    mean_head: Floats
    variance_tail: Floats
    variance_head: Floats
    covariance: Floats
    reach_tail: Floats
    """How much of a move of the common mean the participant's own data let through: 1 − D_u (Λ⁻¹ Σ w β̃)_u; 0
    where there is no common mean."""
    reach_head: Floats


EdgeCounts = tuple[Floats, Floats, Floats]
"""Screened n, relevant y, and unscreened items on offer, on some edges, shape (k,) each."""


class Posteriors(NamedTuple):
    """Of some edges' P, every member of shape (k,)."""

    mean: Floats
    variance: Floats
    slope: Floats
    """d mean / d Δ, Δ the shift of the common mean: 0 where there is none."""


class Moments(Protocol):
    """The prior of a graph's participants and edges as dense matrices, in units of σ²: what `reference` needs."""

    mean: Floats
    """E[R], shape (m,)."""
    covariance: Floats
    """Var(R), shape (m, m)."""
    edge_mean: Floats
    """E[P], shape (edges,)."""
    noise: Floats
    """s_e, shape (edges,)."""
    bound: Flags
    """As in `Priors`, shape (edges,)."""
    common_variance: float
    """Var(M) = Cov(M, R_u) = Cov(M, P_e); 0 where there is no common mean."""

    def with_participants(self, edges: Longs) -> Floats:
        """Cov(R_u, P_e) of everyone, shape (m, len(edges))."""
        ...

    def between(self, first: Longs, second: Longs) -> Floats:
        """Cov(P_e, P_f), shape (len(first), len(second))."""
        ...


class Model(Protocol):
    """One of `registry.MODELS`, made from a query's `Prior`. What a query may say of it is in `settings`."""

    common_weight: float
    """k: how many screenings the starting common mean is worth, Var(M) = σ²/k; 0 for a model without one."""
    prior_scale: float
    """σ² before any data."""
    largest_scale: float
    """No D is larger."""

    def __init__(self, prior: Prior) -> None: ...

    @property
    def correlation_weight(self) -> float:
        """By how much the adjusted mean of an R follows the prior's correlation between contacts, about, at most; 0
        where no edge's prior is made of it."""
        ...

    def scale(self, mean: Floats, inverse_diagonal: Floats) -> Floats:
        """D of some participants, shape (k,), from their prior means and their entries of the diagonal of Q⁻¹."""
        ...

    def priors(
        self, tail: Ints, head: Ints, which: Ints, mean: Floats, scale: Floats, inverse_edge: Floats
    ) -> Priors:
        """The priors of the edges in `which`; all other arrays are those of the whole graph."""
        ...

    def posteriors(self, ends: Ends, n: Floats, y: Floats, common: Common) -> Posteriors:
        """E[P | Y] and Var[P | Y] of some edges, from their ends' moments and their own counts."""
        ...

    def moments(self, graph: Graph) -> Moments:
        """The whole prior, dense, participants and edges in the graph's numbering."""
        ...


def without_data(model: Model, mean: Floats, inverse_diagonal: Floats) -> tuple[Floats, Floats, Floats]:
    """X = μ, O = 1 (0 without a common mean) and V = D² (Q⁻¹)_uu of some participants, shape (k,) each."""
    D = model.scale(mean, inverse_diagonal)
    return mean, np.full(len(mean), 1.0 if model.common_weight else 0.0), D * D * inverse_diagonal
