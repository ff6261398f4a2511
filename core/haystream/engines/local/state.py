"""What the local engine's kernels work on: columns per edge and per participant, and sums over the graph.

Two or three right-hand sides share one matrix. Side 0 is b = Σ w_e d_e β̃_e, whose solution is the adjusted mean
at the prior's common mean; side 1 is h = Σ L_e (1 − ρ_e) β̃_e, whose quadratic form is the part of the variance of
what remains that the participants carry. Where a common mean is learned there is side 2, o = Σ w_e β̃_e: what of a
move of that mean the data take back from each participant. All are sums over edges of a coefficient times β̃_e, and
change with an edge's data in the same way.
"""

from typing import NamedTuple

from haystream.arrays import Flags, Floats, Ints
from haystream.engines.local.healing import Healing
from haystream.engines.local.solve import Scratch

MEAN, REMAINING, COMMON = 0, 1, 2
"""The right-hand sides; the third is there only for a model with a common mean."""

ENTRIES = -1
"""Of an array of tolerances: after those of the right-hand sides, that of the entries of Λ⁻¹."""


class Edges(NamedTuple):
    """Per edge, shape (edges,) unless said otherwise."""

    tail: Ints
    head: Ints
    prior_mean: Floats
    """E[P_e]."""
    noise: Floats
    """s_e = E[P_e (1 − P_e)]."""
    on_tail: Floats
    """β̃_e at the tail: D_u β_u."""
    on_head: Floats
    residual: Floats
    """Var(η_e)."""
    weight: Floats
    """w_e = 1 / (Var(η_e) + s_e / n_e)."""
    coefficient: Floats
    """Shape (sides, edges): w_e d_e, then L_e (1 − ρ_e) with ρ_e = Var(η_e) w_e, then w_e."""
    covariance: Floats
    """(Λ⁻¹)_uv."""
    seen_covariance: Floats
    """D_u D_v (Λ⁻¹)_uv (`Engine.covariances`) that readers were last told of; inf before."""


class Data(NamedTuple):
    """What is known of each edge's items, every member of shape (edges,)."""

    n: Floats
    """Screened."""
    y: Floats
    """Relevant among them."""
    offered: Floats
    """L, the unscreened items on offer."""
    square: Floats
    """What the edge adds to Σ w d²."""
    own: Floats
    """What the edge's own η adds to the variance of what remains: L² Var(η)(1 − ρ)."""


class People(NamedTuple):
    """Per participant, shape (participants,) unless said otherwise."""

    prior_mean: Floats
    scale: Floats
    """D_uu."""
    variance: Floats
    """(Λ⁻¹)_uu."""
    prior_variance: Floats
    """(Q⁻¹)_uu, as it was last taken over."""
    sides: Floats
    """Shape (sides, participants, 4): the cells of the solve of each right-hand side (`solve.relax`)."""
    rhs: Floats
    """Shape (participants, sides)."""
    seen_mean: Floats
    """X, O and V (`Engine.given_common`) that readers were last told of."""
    seen_reach: Floats
    seen_variance: Floats


class Sums(NamedTuple):
    """What is summed over the whole graph, kept up to date by difference, shape (sides,)."""

    form: Floats
    """bᵀx of each right-hand side."""
    border: Floats
    """Σ_e c_e (1 − β̃_eᵀ x₂), c_e the side's coefficients and x₂ the solution of side 2: the border that the common
    mean adds to Λ. Zero without one. Σ_e c_e β̃_eᵀ x₂ = bᵀx₂ is taken as bᵀx₂ + xᵀr₂, which is bᵀΛ⁻¹b₂ to second
    order in what the solves leave out."""
    change: Floats
    """This and the rest: scratch. Of an edge's change, that of the coefficients, Δc."""
    step: Floats
    """How far the solution went along the column K."""
    along: Floats
    """bᵀK; or what a solve added up along its steps (`solve.relax`)."""
    across: Floats
    """xᵀ times what K leaves unsolved."""


class Work(NamedTuple):
    """What the kernels that change a posterior keep beside it."""

    sums: Sums
    healing: Healing
    """Of the entries of Λ⁻¹."""
    column: Scratch
    """Room for a column of Λ⁻¹."""
    room: Scratch
    """Room for another solve."""
    moved: Ints
    """Participants whose reading may have moved; how many is told and returned."""
    moved_flags: Flags
    """Marks them."""
    changed: Ints
    """Scratch, shape (participants,)."""
