"""The compiled update of the local engine when an edge's data change."""

from haystream.arrays import Flags, Floats, Ints
from haystream.compiled import compiled
from haystream.engines.local.healing import STRAIN, add_strain
from haystream.engines.local.solve import (
    DIAGONAL,
    MARK,
    RESIDUAL,
    UNMARKED,
    VALUE,
    System,
    begin,
    forget,
    relax,
    solve,
    touch,
)
from haystream.engines.local.state import COMMON, ENTRIES, REMAINING, Data, Edges, People, Work

MOVED, WAITING, CLOSELY = 1, 2, 4
"""Bits of `moved_flags`: listed in `moved`; listed in `later`; moved so that a reading may not wait, and the
covariances of edges may have moved alone (`settle_moved`)."""


@compiled
def move(moved: Ints, moved_flags: Flags, count: int, participant: int) -> int:
    """List a participant among the moved, once; the new count."""
    if moved_flags[participant] & MOVED == 0:
        moved_flags[participant] |= MOVED
        moved[count] = participant
        count += 1
    return count


@compiled
def move_closely(moved: Ints, moved_flags: Flags, count: int, participants: Ints) -> int:
    """List all of these, to be looked at closely; the new count."""
    for participant in participants:
        count = move(moved, moved_flags, count, participant)
        moved_flags[participant] |= CLOSELY
    return count


@compiled
def regress(data: Data, edge: int, prior_mean: float, noise: float, residual: float) -> tuple[float, float, float]:
    """An edge's weight w, its deviation d = Ȳ − E[P], and L (1 − ρ), what its items on offer weigh."""
    n = data.n[edge]
    if n <= 0.0:
        return 0.0, 0.0, data.offered[edge]
    weight = n / (n * residual + noise)
    return weight, data.y[edge] / n - prior_mean, data.offered[edge] * (1.0 - residual * weight)


@compiled
def push_side(
    system: System,
    people: People,
    side: int,
    tolerance: float,
    began: int,
    work: Work,
) -> int:
    """Push a right-hand side's residuals, from the first `began` of room.touched on, and keep the sums in step.

    A step s at u moves bᵀx₂ + x_bᵀr₂ by s times the other side's residual at u. Returns how many were reached, who
    are in room.touched and marked no more.
    """
    cells, sides, room, sums = people.sides[side], len(people.sides), work.room, work.sums
    first, last = (0, sides) if side == COMMON else (min(COMMON, sides), sides)
    along = sums.along[first:last]
    along[:] = 0.0
    reached, gain = relax(
        system, cells, tolerance, room, began, people.rhs[:, side], people.sides[first:last], along
    )
    sums.form[side] += gain
    for i in range(len(along)):
        sums.border[i if side == COMMON else side] -= along[i]
    for i in range(reached):
        cells[room.touched[i], MARK] = UNMARKED
    return reached


@compiled
def settle_side(
    system: System,
    people: People,
    side: int,
    tolerance: float,
    began: int,
    work: Work,
    moved_count: int,
) -> int:
    """Push a right-hand side's residuals; whom that reaches is appended to `moved`, but for REMAINING, which moves
    no reading. Returns its new length."""
    moved, moved_flags, touched = work.moved, work.moved_flags, work.room.touched
    reached = push_side(system, people, side, tolerance, began, work)
    if side != REMAINING:
        for i in range(reached):
            moved_count = move(moved, moved_flags, moved_count, touched[i])
    return moved_count


@compiled
def change_edge(
    system: System,
    edges: Edges,
    people: People,
    edge: int,
    weight: float,
    coefficients: Floats,
    tolerances: Floats,
    work: Work,
    moved_count: int,
) -> int:
    """Give an edge a new weight and new coefficients: a rank-one change of Λ, and new right-hand sides.

    With K = Λ⁻¹β̃, γ = 1 + Δw β̃ᵀK and Δc the change of a coefficient, the solution moves by
    K (Δc − Δw β̃ᵀx) / γ and covariances by −K_u K_v Δw / γ (NOTES, section 4). K is solved locally; what it
    leaves unsolved stays in the residuals, so the solutions' errors do not accumulate. The participants that
    moved are appended to `moved`, each once.

    `coefficients`: (sides,). `tolerances`: (sides + 1,). Returns the new length of `moved`.
    """
    u, v = edges.tail[edge], edges.head[edge]
    beta_u, beta_v = edges.on_tail[edge], edges.on_head[edge]
    sides, rhs, sums = people.sides, people.rhs, work.sums
    column, room, healing, moved, moved_flags = work.column, work.room, work.healing, work.moved, work.moved_flags
    dw = weight - edges.weight[edge]
    K, left, listed, gamma = column.cells[:, VALUE], column.cells[:, RESIDUAL], 0, 1.0
    if dw != 0.0:
        listed = begin(column, u, beta_u, listed)
        listed = begin(column, v, beta_v, listed)
        tolerance = tolerances[ENTRIES]
        listed = solve(system, tolerance, column, listed)
        gamma = 1.0 + dw * (beta_u * K[u] + beta_v * K[v])
        shrink = dw / gamma
        add_diagonal(sides, work, u, dw * beta_u * beta_u)
        add_diagonal(sides, work, v, dw * beta_v * beta_v)
        for i in range(listed):
            t = column.touched[i]
            if K[t] == 0.0:
                continue
            moved_count = move(moved, moved_flags, moved_count, t)
            least = 1.0 / column.cells[t, DIAGONAL]  # of an estimate too (`change_row`)
            people.variance[t] = max(people.variance[t] - shrink * K[t] * K[t], least)
            add_strain(healing, t, 2.0 * abs(shrink * K[t]) * tolerance, STRAIN * tolerance)
            first = system.start[t]
            for j in range(first, first + system.degree[t]):
                other = system.contact[j]
                if other > t:
                    edges.covariance[system.incident[j]] -= shrink * K[t] * K[other]
        system.off[edge] += dw * beta_u * beta_v
        edges.weight[edge] = weight
    for side in range(len(sides)):
        cells = sides[side]
        dc = coefficients[side] - edges.coefficient[side, edge]
        step = (dc - dw * (beta_u * cells[u, VALUE] + beta_v * cells[v, VALUE])) / gamma
        along, across, back, own = 0.0, 0.0, 0.0, 0.0
        for i in range(listed):
            t = column.touched[i]
            across += cells[t, VALUE] * left[t]
            if K[t] != 0.0:
                along += K[t] * rhs[t, side]
                back += K[t] * cells[t, RESIDUAL]
                own += K[t] * left[t]
                cells[t, VALUE] += step * K[t]
            cells[t, RESIDUAL] += step * left[t]
        if dw == 0.0:
            cells[u, RESIDUAL] += dc * beta_u
            cells[v, RESIDUAL] += dc * beta_v
        edges.coefficient[side, edge] += dc
        rhs[u, side] += dc * beta_u
        rhs[v, side] += dc * beta_v
        sums.form[side] += step * along + dc * (beta_u * cells[u, VALUE] + beta_v * cells[v, VALUE])
        sums.step[side], sums.along[side], sums.across[side] = step, along, across
        sums.change[side] = dc
    if len(sides) > COMMON:
        x_2, step = sides[COMMON, :, VALUE], sums.step[COMMON]
        at_edge = beta_u * x_2[u] + beta_v * x_2[v]
        for side in range(len(sides)):
            sums.border[side] += sums.change[side] * (1.0 - at_edge) - step * (sums.along[side] + sums.across[side])
            sums.border[side] -= sums.step[side] * (back + step * own)
    for side in range(len(sides)):
        if dw == 0.0 and sums.change[side] == 0.0:
            continue
        cells, limit = sides[side], tolerances[side]
        began = 0
        for i in range(listed):
            t = column.touched[i]
            if abs(cells[t, RESIDUAL]) > limit * cells[t, DIAGONAL]:
                began = touch(cells, room, t, began)
        if dw == 0.0:
            began = touch(cells, room, u, began)
            began = touch(cells, room, v, began)
        moved_count = settle_side(system, people, side, limit, began, work, moved_count)
    forget(column, listed)
    return moved_count


@compiled
def add_diagonal(sides: Floats, work: Work, participant: int, delta: float) -> None:
    """Add to Λ_uu in all its copies."""
    for side in range(len(sides)):
        sides[side, participant, DIAGONAL] += delta
    work.column.cells[participant, DIAGONAL] += delta
    work.room.cells[participant, DIAGONAL] += delta
