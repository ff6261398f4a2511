"""What changes with an edge's data: Λ by rank one, its inverse, and the right-hand sides."""

from haystream.arrays import Floats, Marked, mark
from haystream.compiled import compiled
from haystream.engines.local.budget import OWED_FACTOR
from haystream.engines.local.edge_priors import edge_prior
from haystream.engines.local.healing import add_strain
from haystream.engines.local.sides import COMMON, MEAN, REMAINING
from haystream.engines.local.solve import (
    RESIDUAL,
    VALUE,
    Scratch,
    System,
    add_off_diagonal,
    begin,
    forget,
    relax,
    solve,
    touch,
    touched_by,
)
from haystream.engines.local.state import Data, People, State, Sums
from haystream.overlay import entry, put


@compiled
def regress(data: Data, edge: int, prior_mean: float, noise: float, residual: float) -> tuple[float, float, float]:
    """An edge's weight w, its deviation d = Ȳ − E[P], and L (1 − ρ), what its items on offer weigh."""
    n = data.n[edge]
    if n <= 0.0:
        return 0.0, 0.0, data.offered[edge]
    weight = n / (n * residual + noise)
    return weight, data.y[edge] / n - prior_mean, data.offered[edge] * (1.0 - residual * weight)


@compiled
def coefficient_of(side: int, weight: float, deviation: float, left: float) -> float:
    """What an edge adds to a right-hand side, over β̃: w d, L (1 − ρ), or w."""
    if side == MEAN:
        return weight * deviation
    return left if side == REMAINING else weight


@compiled
def push_side(
    system: System, people: People, sums: Sums, side: int, limit: float, room: Scratch, moved: Marked
) -> None:
    """Push a right-hand side's residuals, down to `limit` from those touched in `room` on, and keep the sums in
    step.

    A step s at u moves bᵀx + rᵀx by s r_u, and bᵀx₂ + x_bᵀr₂ by s times the other side's residual at u. Whoever
    takes a step has moved, but for REMAINING, which moves no reading."""
    cells, sides = people.sides[side], people.sides
    first, last = (0, COMMON) if side == COMMON else (min(COMMON, len(sides)), len(sides))
    along = room.along[: last - first + 1]
    along[:] = 0.0
    relax(system, cells, limit, room, sides[first:last], along)
    sums.form[side] += along[-1]
    for i in range(last - first):
        sums.border[i if side == COMMON else side] -= along[i]
    if side == COMMON:
        sums.border[COMMON] -= along[-1]
    for u in touched_by(room):
        step = room.cells[u, VALUE]
        cells[u, RESIDUAL] = room.cells[u, RESIDUAL]
        if step != 0.0:
            cells[u, VALUE] += step
            if side != REMAINING:
                mark(moved, u)
    forget(room)


@compiled
def change_edge(state: State, edge: int, weight: float, coefficients: Floats) -> None:
    """Give an edge a new weight and new coefficients, shape (sides,): a rank-one change of Λ, and new right-hand
    sides.

    With K = Λ⁻¹β̃, γ = 1 + Δw β̃ᵀK and Δc the change of a coefficient, the solution moves by K (Δc − Δw β̃ᵀx) / γ
    and covariances by −K_u K_v Δw / γ (docs/method.md, "The local engine"). K is solved locally; what it leaves
    unsolved stays in the residuals, so the solutions' errors do not accumulate. Of side COMMON a part is owed."""
    system, edges, people, inverse, sums = state.system, state.edges, state.people, state.inverse, state.sums
    u, v, prior = edges.tail[edge], edges.head[edge], edge_prior(edges.prior, edge)
    beta_u, beta_v = prior.on_tail, prior.on_head
    sides = people.sides
    column, room = state.rooms.column, state.rooms.other
    dw = weight - edges.weight[edge]
    K, left, gamma = column.cells[:, VALUE], column.cells[:, RESIDUAL], 1.0
    if dw != 0.0:
        begin(system, column, u, beta_u)
        begin(system, column, v, beta_v)
        tolerance = inverse.tolerances.corrected
        solve(system, tolerance, column)
        gamma = 1.0 + dw * (beta_u * K[u] + beta_v * K[v])
        shrink = dw / gamma
        system.diagonal[u] += dw * beta_u * beta_u
        system.diagonal[v] += dw * beta_v * beta_v
        for t in touched_by(column):
            if K[t] == 0.0:
                continue
            mark(state.news.moved, t)
            least = 1.0 / system.diagonal[t]  # of an estimate too (`change_row`)
            inverse.on_participant[t] = max(inverse.on_participant[t] - shrink * K[t] * K[t], least)
            add_strain(inverse.healing, t, 2.0 * abs(shrink * K[t]) * tolerance, inverse.tolerances.strain)
            first = system.start[t]
            for j in range(first, first + system.degree[t]):
                other = system.contact[j]
                if other > t and K[other] != 0.0:
                    e = system.incident[j]
                    put(inverse.on_edge, e, entry(inverse.on_edge, e) - shrink * K[t] * K[other])
        add_off_diagonal(system, edge, dw * beta_u * beta_v)
        edges.weight[edge] = weight
    back, own = 0.0, 0.0
    for side in range(len(sides)):
        cells = sides[side]
        dc = coefficients[side] - edges.coefficient[side, edge]
        at_edge = beta_u * cells[u, VALUE] + beta_v * cells[v, VALUE]
        step = (dc - dw * at_edge) / gamma
        back, own = 0.0, 0.0
        for t in touched_by(column):
            if K[t] != 0.0:
                back += K[t] * cells[t, RESIDUAL]
                own += K[t] * left[t]
                cells[t, VALUE] += step * K[t]
            cells[t, RESIDUAL] += step * left[t]
        along = at_edge + back
        if dw == 0.0:
            along = 0.0  # there is no K
            cells[u, RESIDUAL] += dc * beta_u
            cells[v, RESIDUAL] += dc * beta_v
        edges.coefficient[side, edge] += dc
        at_ends = dc * (beta_u * cells[u, VALUE] + beta_v * cells[v, VALUE])
        sums.form[side] += step * (along + back + step * own) + (2.0 if dw == 0.0 else 1.0) * at_ends
        sums.step[side], sums.along[side], sums.change[side] = step, along, dc
    if len(sides) > COMMON:
        x_2, step = sides[COMMON, :, VALUE], sums.step[COMMON]
        at_edge = beta_u * x_2[u] + beta_v * x_2[v]
        for side in range(len(sides)):
            sums.border[side] += sums.change[side] * (1.0 - at_edge) - step * sums.along[side]
            sums.border[side] -= sums.step[side] * (back + step * own)
    for side in range(len(sides)):
        if dw == 0.0 and sums.change[side] == 0.0:
            continue
        cells, limit = sides[side], state.tolerances.sides[side] * (OWED_FACTOR if side == COMMON else 1.0)
        for t in touched_by(column):
            if abs(cells[t, RESIDUAL]) > limit * system.diagonal[t]:
                touch(system, room, t, cells[t, RESIDUAL])
        if dw == 0.0:
            touch(system, room, u, cells[u, RESIDUAL])
            touch(system, room, v, cells[v, RESIDUAL])
        push_side(system, people, sums, side, limit, room, state.news.moved)
    forget(column)
    mark(state.news.stale, edge)
