"""What the local engine's kernels work on: columns per edge and per participant, and sums over the graph.

Arrays have spare room, so that growth is amortised. `sides` are the right-hand sides of `solves.sides`.
"""

from typing import NamedTuple

import numpy as np

from haystream.collection.graph import Graph
from haystream.engines.local.solves.budget import Tolerances
from haystream.engines.local.solves.healing import Inverse
from haystream.engines.local.solves.solve import Scratch, System, scratch
from haystream.engines.local.solves.solve_beside import COLUMNS_BESIDE
from haystream.engines.local.state.edge_priors import PRIOR_COLUMNS, whole_priors
from haystream.memory.arrays import Bits, Floats, Ints, Longs, Marked, marked, room_for
from haystream.memory.copies import zeros_as_needed
from haystream.memory.overlay import Overlay


class Edges(NamedTuple):
    """Per edge, shape (edges,) unless said otherwise.

    From `weight` on with `Data`, what belongs to one edge lies side by side.
    """

    tail: Ints
    head: Ints
    prior: Overlay
    """Rows of `edge_priors`."""
    weight: Floats
    """w_e = 1 / (Var(η_e) + s_e / n_e)."""
    coefficient: Floats
    """Shape (sides, edges): w_e (d_e − Δ₀), then L_e (1 − ρ_e) with ρ_e = Var(η_e) w_e, then w_e."""


class Data(NamedTuple):
    """What is known of each edge's items, every member of shape (edges,)."""

    n: Floats
    """Screened."""
    y: Floats
    """Relevant among them."""
    offered: Floats
    """L, the unscreened items on offer."""
    square: Floats
    """What the edge adds to Σ w (d − Δ₀)²."""
    own: Floats
    """What the edge's own η adds to the variance of what remains: L² Var(η)(1 − ρ)."""


class People(NamedTuple):
    """Per participant, shape (participants,) unless said otherwise."""

    prior_mean: Floats
    scale: Overlay
    """D_uu."""
    prior_variance: Overlay
    """(Q⁻¹)_uu, as it was last taken over."""
    lagging: Bits
    """A bit each: 1 where D has moved by less than is followed far from data, and more than near them."""
    x: Overlay
    """The solution of each right-hand side, a row a participant and a column a side."""
    residual: Floats
    """r of each, shape (participants, sides). The side itself is Λx + r, and kept nowhere."""
    reference: Floats
    """Δ₀, the shift of the common mean that side MEAN counts from (`sides`), shape (1,)."""


class Sums(NamedTuple):
    """What is summed over the whole graph, kept up to date by difference; shape (sides,) but for `data`."""

    form: Floats
    """bᵀx + rᵀx of each right-hand side: bᵀΛ⁻¹b but for rᵀΛ⁻¹r, of second order in what the solve leaves out."""
    border: Floats
    """Σ_e c_e (1 − β̃_eᵀ x₂), c_e the side's coefficients and x₂ the solution of side 2: the border that the common
    mean adds to Λ. Zero without one. Σ_e c_e β̃_eᵀ x₂ = bᵀx₂ is taken as bᵀx₂ + xᵀr₂, which is bᵀΛ⁻¹b₂ to second
    order in what the solves leave out."""
    data: Floats
    """Shape (2,): SQUARE, Σ w (d − Δ₀)², and OWN, Σ L² Var(η)(1 − ρ)."""
    change: Floats
    """This and the rest: scratch. Of an edge's change, that of the coefficients, Δc."""
    step: Floats
    """How far the solution went along the column K."""
    back: Floats
    """rᵀK before the change."""
    along: Floats
    """β̃ᵀx + rᵀK before the change. As b = Λx + r, and ΛK = β̃ but for what K leaves unsolved, this is bᵀK and xᵀ
    times what K leaves unsolved."""


SQUARE, OWN = 0, 1
"""Places in `Sums.data`."""


class Told(NamedTuple):
    """What readers were last told of; inf before."""

    people: Overlay
    """X, O and V of each participant (`contract.Engine`), a row each: AT_MEAN, AT_REACH, AT_VARIANCE."""
    covariance: Overlay
    """D_u D_v (Λ⁻¹)_uv of each edge's ends, a column."""


AT_MEAN, AT_REACH, AT_VARIANCE = 0, 1, 2
"""Columns of `Told.people`."""

NOT_TOLD = np.array([np.inf, 0.0, np.inf])
"""A row of it."""


class Rooms(NamedTuple):
    """Room for what is needed meanwhile. When nobody works it is empty, or zero; from `scale` on, anything."""

    column: Scratch
    """For a column of Λ⁻¹."""
    other: Scratch
    """For another solve, or for the ring of those whose residuals are pushed (`push`)."""
    beside: Floats
    """For some columns side by side (`solve_beside`), which take memory as far as they reach."""
    unpushed: Marked
    """Participants whose residuals have changed, and are to be pushed."""
    people: Marked
    edges: Marked
    row: Ints
    """Of each participant in what is worked on (`low_rank.Rows`), shape (participants,)."""
    other_row: Ints
    """The same in something else, shape (participants,)."""
    added: Floats
    """What is added to each one's entry of a diagonal (`low_rank.OnDiagonal`), shape (participants,)."""
    scale: Floats
    """D of those whose edges get other priors, shape (participants,)."""
    shares: Floats
    """Shape (edges,)."""
    rows_before: Floats
    """What those in `people` were told of before (`Told.people`), row by row, shape (participants, 3)."""
    covariances_before: Floats
    """The same of those in `edges`, shape (edges,)."""


NO_DATA = Data(*np.zeros((5, 0)))
_NONE, _NOBODY = np.zeros(0), np.zeros(0, np.int32)
NO_EDGES = Edges(_NOBODY, _NOBODY, whole_priors(np.zeros((0, PRIOR_COLUMNS)), 0), _NONE, np.zeros((0, 0)))


class Workspace:
    """The rooms of all who work on one graph. Only one of them does at a time, so nobody needs any of his own."""

    def __init__(self) -> None:
        self._rooms = _rooms(0, 0)

    def rooms(self, graph: Graph, steps: Longs) -> Rooms:
        """As large as the graph asks for, and with somebody's own count of steps (`Scratch.steps`)."""
        rooms, people, edges = self._rooms, len(graph), graph.edges
        if len(rooms.column.ring) < people or len(rooms.shares) < edges:
            rooms = self._rooms = _rooms(room_for(people), room_for(edges))
        column, other = rooms.column._replace(steps=steps), rooms.other._replace(steps=steps)
        return rooms._replace(column=column, other=other)


def _rooms(people: int, edges: int) -> Rooms:
    before = np.zeros((people, len(NOT_TOLD))), np.zeros(edges)
    return Rooms(
        scratch(people),
        scratch(people),
        zeros_as_needed(people, 2 * COLUMNS_BESIDE),
        marked(people),
        marked(people),
        marked(edges),
        np.zeros(people, np.int32),
        np.zeros(people, np.int32),
        np.zeros(people),
        np.zeros(people),
        np.zeros(edges),
        *before,
    )


NO_ROOMS = _rooms(0, 0)


class News(NamedTuple):
    """What may have to be told to readers, and what they were last told (`announce`)."""

    told: Told
    moved: Marked
    """Participants whose reading may have moved; flagged CLOSELY: may not wait, and the covariances of whose edges
    may have moved alone."""
    later: Marked
    """Participants whose reading has moved by so little that it may wait until there is time."""
    stale: Marked
    """Edges that are to be scored again; flagged COUNTED: screened or relevant items have been counted."""

    @property
    def waiting(self) -> bool:
        """Whether there is anything to tell now."""
        return bool(self.moved.size[0] or self.stale.size[0])


CLOSELY = COUNTED = 2
"""Flags."""


class State(NamedTuple):
    """All that the kernels of one engine work on."""

    system: System
    """Λ."""
    inverse: Inverse
    """Λ⁻¹."""
    edges: Edges
    data: Data
    people: People
    sums: Sums
    news: News
    rooms: Rooms
    tolerances: Tolerances
