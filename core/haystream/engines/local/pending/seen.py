"""What pending screenings see of the common mean, and of the sum of what remains.

Λ' = Λ + W Wᵀ, W = B √Δw. A screening sees M by 1 − β̃ᵀx₂, and the sum of what remains by β̃ᵀΛ⁻¹h + L Var(η). With
v of both, √Δw times that, and g = W v,

    vᵀ (1 + WᵀΛ⁻¹W)⁻¹ v = vᵀv − gᵀΛ'⁻¹g        Λ⁻¹W (1 + WᵀΛ⁻¹W)⁻¹ v = Λ'⁻¹g

and with the columns K = (Λ + E)⁻¹U of the parts, and what M is between them, p = Λ'⁻¹g = y − K M Uᵀy, with
(Λ + E) y = g. Of many screenings vᵀv − gᵀp is a small difference of large numbers. It is the least that

    (v − Wᵀp)ᵀ(v − Wᵀp) + pᵀΛp

comes to at any p: a sum, right to second order in what p misses. What x₂ and Λ⁻¹h leave of their right-hand sides,
r, puts v off by WᵀΛ⁻¹r, and this by 2 pᵀr, as W (v − Wᵀp) is Λp.

One is also read, times the variance of the common mean, which is small once there are some verdicts. So both are
solved loosely, and reach few people.
"""

from typing import NamedTuple

import numpy as np

from haystream.engines.local.inverse.low_rank import NO_COLUMNS, Columns, by_rows, columns_of, solve_columns
from haystream.engines.local.pending.columns import Located, at_sources
from haystream.engines.local.pending.light import Screenings
from haystream.engines.local.pending.squares import Taken
from haystream.engines.local.solves.budget import seen_tolerances
from haystream.engines.local.solves.sides import COMMON, REMAINING
from haystream.engines.local.solves.solve import System, diagonal_of
from haystream.engines.local.state.edge_priors import OWN_VARIANCE, numbers
from haystream.engines.local.state.state import OWN, State
from haystream.memory.arrays import Floats, Ints, union
from haystream.memory.compiled import compiled
from haystream.memory.overlay import entries, entry, rows


class Sources(NamedTuple):
    """What they see, unless they were made: the right-hand sides of y."""

    v: Floats
    """Shape (2, screenings)."""
    g: Floats
    """Shape (people of the screenings, 2)."""
    tolerances: Floats
    """Down to what residuals y is solved, shape (2,)."""

    def asks_no_more(self, than: "Sources") -> bool:
        """Whether what was solved for others is good for these."""
        return np.array_equal(self.v, than.v) and bool((self.tolerances >= than.tolerances).all())


class Seen(NamedTuple):
    """What pending screenings see of both sums, and what that was made of."""

    sources: Sources
    y: Columns
    """Of M, and of what remains."""
    people: Ints
    """Whose reach is shorter, ascending."""
    D: Floats
    """Of these."""
    forms: Floats
    """vᵀ (1 + WᵀΛ⁻¹W)⁻¹ v of both, shape (2, 2)."""


NO_SOURCES = Sources(np.zeros((2, 0)), np.zeros((0, 2)), np.zeros(2))
NOTHING_SEEN = Seen(NO_SOURCES, NO_COLUMNS, np.zeros(0, np.int32), np.zeros(0), np.zeros((2, 2)))


def sources_of(state: State, some: Screenings, variance: float) -> Sources:
    """v and g of screenings. `variance`: v_M at most, as variances are read with it."""
    x, sums = rows(state.people.x, some.people), state.sums
    v = np.zeros((2, len(some.which)))
    if x.shape[1] > COMMON:
        v[0] = some.root - some.along(x[:, COMMON])
    own = state.data.offered[some.which] * numbers(state.edges.prior, some.which, OWN_VARIANCE)
    v[1] = some.along(x[:, REMAINING]) + some.root * own
    g = np.column_stack([some.sources(each) for each in v])
    remaining = sums.data.item(OWN) + sums.form.item(REMAINING)
    corrected, size = state.inverse.tolerances.corrected, np.abs(g).sum(axis=0)
    return Sources(v, g, seen_tolerances(state.tolerances, corrected, variance, remaining, size))


def seen_by(state: State, some: Screenings, taken: Taken, sources: Sources, before: Columns, short: Floats) -> Seen:
    """What screenings see; residuals are read.

    Args:
        before: y of what they saw before, from which it is found.
        short: shape (participants,), zero before, and then what each one's reach is shorter by.
    """
    people, rooms = state.people, state.rooms
    E, q = taken.parts.E, taken.parts.mixed
    y = solve_columns(state.system, columns_of(some.people, sources.g), sources.tolerances, E, before, rooms.column)
    of_y = Located(by_rows(y, rooms.row), rooms.row)
    between = taken.M @ at_sources(taken.parts.U, of_y, q, 2)
    rooms.row[of_y.rows.people] = 0
    reached, p = union(taken.people, y.who), (short, rooms.added)
    for number, to in enumerate(p):
        add_columns(y, np.eye(2)[number], to)
        add_columns(taken.columns, np.append(-between[:, number], np.zeros(len(E.people))), to)
    left = sources.v - np.array([some.along(to[some.people]) for to in p])
    forms = left @ left.T
    add_forms(state.system, people.residual, reached, *p, forms)
    rooms.added[reached] = 0.0
    D = entries(people.scale, reached)
    short[reached] *= D
    return Seen(sources, y, reached, D, forms)


@compiled
def add_forms(
    system: System, residual: Floats, reached: Ints, of_common: Floats, of_rest: Floats, to: Floats
) -> None:
    """Add pᵀΛp, and what x has left of its right-hand sides, to vᵀ (1 + WᵀΛ⁻¹W)⁻¹ v. Both p are zero but at those
    `reached`."""
    for u in reached:
        if of_common[u] == 0.0 and of_rest[u] == 0.0:
            continue
        diagonal = diagonal_of(system, u)
        common, rest = diagonal * of_common[u], diagonal * of_rest[u]
        for i in range(system.start[u], system.start[u] + system.degree[u]):
            v = system.contact[i]
            if of_common[v] != 0.0 or of_rest[v] != 0.0:
                off = entry(system.off, system.incident[i])
                common += off * of_common[v]
                rest += off * of_rest[v]
        left, left_of_common = residual[u, REMAINING], 0.0
        if residual.shape[1] > COMMON:
            left_of_common = residual[u, COMMON]
        across = of_common[u] * (rest + left) - of_rest[u] * left_of_common
        to[0, 0] += of_common[u] * (common - 2.0 * left_of_common)
        to[0, 1] += across
        to[1, 0] += across
        to[1, 1] += of_rest[u] * (rest + 2.0 * left)


@compiled
def add_columns(columns: Columns, factors: Floats, to: Floats) -> None:
    """Add columns, each times a factor, to an array of shape (participants,)."""
    for j in range(len(factors)):
        if factors[j] != 0.0:
            for i in range(columns.begin[j], columns.begin[j + 1]):
                to[columns.who[i]] += factors[j] * columns.value[i]
