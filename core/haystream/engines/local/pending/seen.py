"""What pending screenings see of the common mean, and of the sum of what remains.

Λ' = Λ + W Wᵀ, W = B √Δw. A screening sees M by 1 − β̃ᵀx₂, and the sum of what remains by β̃ᵀΛ⁻¹h + L Var(η). With
v of both, √Δw times that, and g = W v,

    vᵀ (1 + WᵀΛ⁻¹W)⁻¹ v = vᵀv − gᵀΛ'⁻¹g        Λ⁻¹W (1 + WᵀΛ⁻¹W)⁻¹ v = Λ'⁻¹g

and with the columns K = (Λ + E)⁻¹U of the parts, and what M is between them, Λ'⁻¹g = y − K M Uᵀy, (Λ + E) y = g.
Both y matter to totals: where r of g is left, gᵀΛ'⁻¹g is (Λ'⁻¹(g − r))ᵀ(g + r), right to second order in r, and

    (Λ'⁻¹(g − r))ᵀ(g + r) = yᵀ(g + r) − (Uᵀy)ᵀ M (Uᵀy + 2 Kᵀr)

One is also read, times the variance of the common mean, which is small once there are some verdicts. So both are
solved loosely, and reach few people.
"""

from typing import NamedTuple

import numpy as np

from haystream.arrays import Floats, Ints, union
from haystream.compiled import compiled
from haystream.engines.local.budget import seen_tolerances
from haystream.engines.local.edge_priors import OWN_VARIANCE, numbers
from haystream.engines.local.low_rank import NO_COLUMNS, Columns, by_rows, columns_of, solve_with_left
from haystream.engines.local.pending.columns import Located, at_sources
from haystream.engines.local.pending.light import Screenings
from haystream.engines.local.pending.squares import Taken
from haystream.engines.local.sides import COMMON, REMAINING
from haystream.engines.local.state import OWN, State
from haystream.overlay import entries, rows


class Seen(NamedTuple):
    """What they see."""

    y: Columns
    """Of M, and of what remains."""
    people: Ints
    """Whose reach is shorter, ascending."""
    forms: Floats
    """vᵀ (1 + WᵀΛ⁻¹W)⁻¹ v of both, shape (2, 2)."""


NOTHING_SEEN = Seen(NO_COLUMNS, np.zeros(0, np.int32), np.zeros((2, 2)))


def seen_by(state: State, some: Screenings, taken: Taken, before: Seen, variance: float, short: Floats) -> Seen:
    """What screenings see.

    Args:
        before: what they saw before, from which y is found.
        variance: v_M at most, as variances are read with it.
        short: shape (participants,), zero before, and then what each one's reach is shorter by.
    """
    people, rooms, sums = state.people, state.rooms, state.sums
    x = rows(people.x, some.people)
    v = np.zeros((2, len(some.which)))
    if x.shape[1] > COMMON:
        v[0] = some.root - some.along(x[:, COMMON])
    own = state.data.offered[some.which] * numbers(state.edges.prior, some.which, OWN_VARIANCE)
    v[1] = some.along(x[:, REMAINING]) + some.root * own
    sources = np.column_stack([some.sources(each) for each in v])
    remaining = sums.data.item(OWN) + sums.form.item(REMAINING)
    corrected, size = state.inverse.tolerances.corrected, np.abs(sources).sum(axis=0)
    tolerances = seen_tolerances(state.tolerances, corrected, variance, remaining, size)

    g, E, q = columns_of(some.people, sources), taken.parts.E, taken.parts.mixed
    y, left = solve_with_left(state.system, g, tolerances, E, before.y, rooms.column)
    of_y, of_left = (
        Located(by_rows(y, rooms.row), rooms.row),
        Located(by_rows(left, rooms.other_row), rooms.other_row),
    )
    at_U, at_left = at_sources(taken.parts.U, of_y, q, 2), at_sources(taken.columns, of_left, q, 2)
    of_sources = at_sources(g, of_y, 2, 2) + at_sources(left, of_y, 2, 2)
    rooms.row[of_y.rows.people] = rooms.other_row[of_left.rows.people] = 0
    forms = v @ v.T - of_sources + (at_U + 2.0 * at_left).T @ taken.M @ at_U

    add_columns(y, np.array([1.0, 0.0]), short)
    add_columns(taken.columns, np.append(-taken.M @ at_U[:, 0], np.zeros(len(E.people))), short)
    reached = union(taken.people, y.who)
    short[reached] *= entries(people.scale, reached)
    return Seen(y, reached, 0.5 * (forms + forms.T))


@compiled
def add_columns(columns: Columns, factors: Floats, to: Floats) -> None:
    """Add columns, each times a factor, to an array of shape (participants,)."""
    for j in range(len(factors)):
        if factors[j] != 0.0:
            for i in range(columns.begin[j], columns.begin[j + 1]):
                to[columns.who[i]] += factors[j] * columns.value[i]
