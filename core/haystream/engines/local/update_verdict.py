"""What changes with an edge's data: Λ by rank one, its inverse, and the right-hand sides."""

from haystream.arrays import Floats, Marked, mark, members_of, unmark_all
from haystream.compiled import compiled, inlined
from haystream.engines.local.budget import OWED_FACTOR
from haystream.engines.local.edge_priors import edge_prior
from haystream.engines.local.healing import add_strain, lower
from haystream.engines.local.sides import COMMON, MEAN, REMAINING
from haystream.engines.local.solve import (
    RESIDUAL,
    VALUE,
    add_off_diagonal,
    add_on_diagonal,
    begin,
    diagonal_of,
    forget,
    relax,
    solve,
    touch,
    touched_by,
)
from haystream.engines.local.state import Data, People, State
from haystream.overlay import add_to, add_to_cell, cell


@compiled
def regress(data: Data, edge: int, level: float, noise: float, residual: float) -> tuple[float, float, float]:
    """An edge's weight w, its deviation d − Δ₀ from the `level` E[P] + Δ₀, and L (1 − ρ), what its items on offer
    weigh."""
    n = data.n[edge]
    if n <= 0.0:
        return 0.0, 0.0, data.offered[edge]
    weight = n / (n * residual + noise)
    return weight, data.y[edge] / n - level, data.offered[edge] * (1.0 - residual * weight)


@compiled
def coefficient_of(side: int, weight: float, deviation: float, left: float) -> float:
    """What an edge adds to a right-hand side, over β̃: w (d − Δ₀), L (1 − ρ), or w."""
    if side == MEAN:
        return weight * deviation
    return left if side == REMAINING else weight


@inlined
def add_residual(people: People, unpushed: Marked, participant: int, side: int, value: float) -> None:
    """Add to a residual, and list the participant as unpushed."""
    if value != 0.0:  # memory that is written to is the query's own from then on
        people.residual[participant, side] += value
    mark(unpushed, participant)


@compiled
def push_side(state: State, side: int, limit: float) -> None:
    """Push a right-hand side's residuals, down to `limit` from those touched in `rooms.other` and the unpushed on,
    and keep the sums in step. The unpushed stay listed, for another side.

    A step s at u moves bᵀx + rᵀx by s r_u, and bᵀx₂ + x_bᵀr₂ by s times the other side's residual at u. Whoever
    takes a step has moved, but for REMAINING, which moves no reading."""
    people, sums, room = state.people, state.sums, state.rooms.other
    x, residual = people.x, people.residual
    for u in members_of(state.rooms.unpushed):
        if abs(residual[u, side]) > limit * diagonal_of(state.system, u):
            touch(state.system, room, u, residual[u, side])
    along = relax(state.system, residual, side, limit, room)
    sums.form[side] += along
    first, last = (0, COMMON) if side == COMMON else (COMMON, residual.shape[1])
    if side == COMMON:
        sums.border[COMMON] -= along
    for u in touched_by(room):
        step = room.cells[u, VALUE]
        residual[u, side] = room.cells[u, RESIDUAL]
        if step == 0.0:
            continue
        add_to_cell(x, u, side, step)
        if side != REMAINING:
            mark(state.news.moved, u)
        for other in range(first, last):
            sums.border[other if side == COMMON else side] -= step * residual[u, other]
    forget(room)


@compiled
def change_edge(state: State, edge: int, weight: float, coefficients: Floats) -> None:
    """Give an edge a new weight and new coefficients, shape (sides,): a rank-one change of Λ, and new right-hand
    sides.

    With K = Λ⁻¹β̃, γ = 1 + Δw β̃ᵀK and Δc the change of a coefficient, the solution moves by K (Δc − Δw β̃ᵀx) / γ
    and covariances by −K_u K_v Δw / γ (docs/method.md, "The local engine"). K is solved locally; what it leaves
    unsolved stays in the residuals, so the solutions' errors do not accumulate. Of side COMMON a part is owed."""
    system, edges, people, sums = state.system, state.edges, state.people, state.sums
    u, v, prior = edges.tail[edge], edges.head[edge], edge_prior(edges.prior, edge)
    beta_u, beta_v = prior.on_tail, prior.on_head
    x, residual, unpushed = people.x, people.residual, state.rooms.unpushed
    column, room = state.rooms.column, state.rooms.other
    K, left, gamma = column.cells[:, VALUE], column.cells[:, RESIDUAL], 1.0
    dw, sides = weight - edges.weight[edge], residual.shape[1]
    if dw != 0.0:
        gamma = change_weight(state, edge, dw)
        edges.weight[edge] = weight
    for side in range(sides):
        dc = coefficients[side] - edges.coefficient[side, edge]
        at_edge = beta_u * cell(x, u, side) + beta_v * cell(x, v, side)
        sums.change[side], sums.step[side] = dc, (dc - dw * at_edge) / gamma
        sums.along[side], sums.back[side] = at_edge, 0.0
        edges.coefficient[side, edge] += dc
        if dw == 0.0:
            sums.along[side] = 0.0  # there is no K
            add_residual(people, unpushed, u, side, dc * beta_u)
            add_residual(people, unpushed, v, side, dc * beta_v)
    own = 0.0
    for t in touched_by(column):
        own += K[t] * left[t]
        for side in range(sides):
            step, r = sums.step[side], residual[t, side]
            if K[t] != 0.0:
                sums.back[side] += K[t] * r
                add_to_cell(x, t, side, step * K[t])
            residual[t, side] = r + step * left[t]
    for side in range(sides):
        step, back = sums.step[side], sums.back[side]
        at_ends = sums.change[side] * (beta_u * cell(x, u, side) + beta_v * cell(x, v, side))
        sums.along[side] += back
        sums.form[side] += step * (sums.along[side] + back + step * own) + (2.0 if dw == 0.0 else 1.0) * at_ends
    if sides > COMMON:
        step, back = sums.step[COMMON], sums.back[COMMON]
        at_edge = beta_u * cell(x, u, COMMON) + beta_v * cell(x, v, COMMON)
        for side in range(sides):
            sums.border[side] += sums.change[side] * (1.0 - at_edge) - step * sums.along[side]
            sums.border[side] -= sums.step[side] * (back + step * own)
    for side in range(sides):
        if dw == 0.0 and sums.change[side] == 0.0:
            continue
        limit = state.tolerances.sides[side] * (OWED_FACTOR if side == COMMON else 1.0)
        for t in touched_by(column):
            if abs(residual[t, side]) > limit * diagonal_of(system, t):
                touch(system, room, t, residual[t, side])
        push_side(state, side, limit)
    unmark_all(unpushed)
    forget(column)
    mark(state.news.stale, edge)


@compiled
def change_weight(state: State, edge: int, change: float) -> float:
    """Have Λ and the entries of its inverse take a change of an edge's weight; return γ, and leave K in
    `rooms.column` (`change_edge`)."""
    system, edges, inverse, column = state.system, state.edges, state.inverse, state.rooms.column
    u, v, prior = edges.tail[edge], edges.head[edge], edge_prior(edges.prior, edge)
    beta_u, beta_v, tolerance = prior.on_tail, prior.on_head, inverse.tolerances.corrected
    K = column.cells[:, VALUE]
    begin(system, column, u, beta_u)
    begin(system, column, v, beta_v)
    solve(system, tolerance, column)
    gamma = 1.0 + change * (beta_u * K[u] + beta_v * K[v])
    shrink = change / gamma
    add_on_diagonal(system, u, change * beta_u * beta_u)
    add_on_diagonal(system, v, change * beta_v * beta_v)
    for t in touched_by(column):
        if K[t] == 0.0:
            continue
        mark(state.news.moved, t)
        least = 1.0 / diagonal_of(system, t)  # of an estimate too (`change_row`)
        lower(inverse.on_participant, t, shrink * K[t] * K[t], least)
        add_strain(inverse.healing, t, 2.0 * abs(shrink * K[t]) * tolerance, inverse.tolerances.strain)
        first = system.start[t]
        for j in range(first, first + system.degree[t]):
            other = system.contact[j]
            if other > t and K[other] != 0.0:
                e = system.incident[j]
                add_to(inverse.on_edge, e, -shrink * K[t] * K[other])
    add_off_diagonal(system, edge, change * beta_u * beta_v)
    return float(gamma)
