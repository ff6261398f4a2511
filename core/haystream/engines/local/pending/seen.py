"""What pending screenings see of the common mean, and of the sum of what remains.

Λ' = Λ + W Wᵀ, W = B √Δw. A screening sees M by 1 − β̃ᵀx₂, and the sum of what remains by β̃ᵀΛ⁻¹h + L Var(η). With
v of both, √Δw times that, and g = W v,

    vᵀ (1 + WᵀΛ⁻¹W)⁻¹ v = vᵀv − gᵀΛ'⁻¹g        Λ⁻¹W (1 + WᵀΛ⁻¹W)⁻¹ v = Λ'⁻¹g

and with the columns K = (Λ + E)⁻¹U of the parts, and what M is between them, Λ'⁻¹g = y − K M Uᵀy, (Λ + E) y = g.
"""

from typing import NamedTuple

import numpy as np

from haystream.arrays import Floats, Ints, union
from haystream.compiled import compiled
from haystream.engines.local.edge_priors import OWN_VARIANCE, numbers
from haystream.engines.local.low_rank import (
    NO_COLUMNS,
    NOWHERE,
    Columns,
    OnDiagonal,
    by_rows,
    columns_of,
    solve_columns,
)
from haystream.engines.local.pending.columns import LOOSER, Located, at_sources, differing, left_of
from haystream.engines.local.pending.light import Screenings
from haystream.engines.local.pending.squares import Taken
from haystream.engines.local.sides import COMMON, REMAINING
from haystream.engines.local.state import State
from haystream.overlay import entries, rows


class Seen(NamedTuple):
    """What they see."""

    y: Columns
    """Of M, and of what remains."""
    tolerances: Floats
    """Down to what residuals they were solved, shape (2,)."""
    E: OnDiagonal
    people: Ints
    """Whose reach is shorter, ascending."""
    forms: Floats
    """vᵀ (1 + WᵀΛ⁻¹W)⁻¹ v of both, shape (2, 2)."""


NOTHING_SEEN = Seen(NO_COLUMNS, np.zeros(0), NOWHERE, np.zeros(0, np.int32), np.zeros((2, 2)))


def seen_by(state: State, some: Screenings, taken: Taken, before: Seen, where: Ints | None, short: Floats) -> Seen:
    """What screenings see.

    Args:
        before: what they saw before, from which y is found.
        where: at whom alone Λ has changed since then; None if others were pending, or for any.
        short: shape (participants,), zero before, and then what each one's reach is shorter by.
    """
    people, rooms, parts = state.people, state.rooms, taken.parts
    x = rows(people.x, some.people)
    v = np.zeros((2, len(some.which)))
    if x.shape[1] > COMMON:
        v[0] = some.root - some.along(x[:, COMMON])
    own = state.data.offered[some.which] * numbers(state.edges.prior, some.which, OWN_VARIANCE)
    v[1] = some.along(x[:, REMAINING]) + some.root * own
    g = columns_of(some.people, np.column_stack([some.sources(each) for each in v]))
    size = np.sqrt((v * v).sum(axis=1) / (some.root @ some.root))
    y, tolerances, E = before.y, before.tolerances, parts.E
    wanted = state.inverse.tolerances.corrected * size
    if where is not None:
        looked_at = union(where, some.people, differing(before.E, E))
        left = left_of(state, g, y, E, tolerances, looked_at) | (LOOSER * wanted < tolerances)
    if where is None or left.any():
        y, tolerances = solve_columns(state.system, g, wanted, E, y, rooms.column), wanted

    at = Located(by_rows(y, rooms.row), rooms.row)
    at_U, at_g = at_sources(parts.U, at, parts.mixed, 2), at_sources(g, at, 2, 2)
    rooms.row[at.rows.people] = 0
    forms = v @ v.T - at_g + at_U.T @ taken.M @ at_U
    add_columns(y, np.array([1.0, 0.0]), short)
    add_columns(taken.columns, np.append(-taken.M @ at_U[:, 0], np.zeros(len(E.people))), short)
    reached = union(taken.people, y.who)
    short[reached] *= entries(people.scale, reached)
    return Seen(y, tolerances, E, reached, 0.5 * (forms + forms.T))


@compiled
def add_columns(columns: Columns, factors: Floats, to: Floats) -> None:
    """Add columns, each times a factor, to an array of shape (participants,)."""
    for j in range(len(factors)):
        if factors[j] != 0.0:
            for i in range(columns.begin[j], columns.begin[j + 1]):
                to[columns.who[i]] += factors[j] * columns.value[i]
