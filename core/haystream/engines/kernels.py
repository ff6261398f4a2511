"""The compiled updates of the local engine: an edge's data change, the graph grows."""

from haystream.compiled import compiled
from haystream.engines.inverse import STRAIN, Healing, add_strain, change_row
from haystream.engines.relax import (
    DIAGONAL,
    MARK,
    RESIDUAL,
    UNMARKED,
    VALUE,
    Flags,
    Floats,
    Ints,
    Scratch,
    System,
    begin,
    forget,
    relax,
    solve,
    touch,
)
from haystream.engines.state import COMMON, ENTRIES, REMAINING, Edges, People, Sums
from haystream.models.base import Priors


@compiled
def move(moved: Ints, moved_flags: Flags, count: int, participant: int) -> int:
    """List a participant among the moved, once; the new count."""
    if moved_flags[participant] & 1 == 0:
        moved_flags[participant] |= 1
        moved[count] = participant
        count += 1
    return count


@compiled
def push_side(
    system: System, people: People, side: int, tolerance: float, began: int, room: Scratch, sums: Sums
) -> int:
    """Push a right-hand side's residuals, from the first `began` of room.touched on, and keep the sums in step.

    A step s at u moves bᵀx₂ + x_bᵀr₂ by s times the other side's residual at u. Returns how many were reached, who
    are in room.touched and marked no more.
    """
    cells, sides = people.sides[side], len(people.sides)
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
    room: Scratch,
    sums: Sums,
    moved: Ints,
    moved_flags: Flags,
    moved_count: int,
) -> int:
    """Push a right-hand side's residuals; whom that reaches is appended to `moved`, but for REMAINING, which moves
    no reading. Returns its new length."""
    reached = push_side(system, people, side, tolerance, began, room, sums)
    if side != REMAINING:
        for i in range(reached):
            moved_count = move(moved, moved_flags, moved_count, room.touched[i])
    return moved_count


@compiled
def follow_row(
    system: System,
    edges: Edges,
    people: People,
    participant: int,
    which: Ints,
    deltas: Floats,
    tolerances: Floats,
    column: Scratch,
    room: Scratch,
    healing: Healing,
    sums: Sums,
    touched: Ints,
    moved: Ints,
    moved_flags: Flags,
    moved_count: int,
) -> int:
    """Add to Λ what was added to Q, at one participant: entries `deltas` of the edges in `which`.

    Returns the new length of `moved`.
    """
    for i in range(len(which)):  # r = b - Λx of the new Λ
        u, v = edges.tail[which[i]], edges.head[which[i]]
        for side in range(len(people.sides)):
            cells = people.sides[side]
            cells[u, RESIDUAL] -= deltas[i] * cells[v, VALUE]
            cells[v, RESIDUAL] -= deltas[i] * cells[u, VALUE]
            if len(people.sides) > COMMON:
                x_2 = people.sides[COMMON, :, VALUE]
                sums.border[side] += deltas[i] * (x_2[u] * cells[v, VALUE] + x_2[v] * cells[u, VALUE])
    count = change_row(
        system,
        edges.tail,
        edges.head,
        participant,
        which,
        deltas,
        people.variance,
        edges.covariance,
        tolerances[ENTRIES],
        column,
        room,
        healing,
        touched,
    )
    for i in range(count):
        moved_count = move(moved, moved_flags, moved_count, touched[i])
    for side in range(len(people.sides)):
        cells = people.sides[side]
        began = touch(cells, room, participant, 0)
        for i in range(len(which)):
            began = touch(cells, room, edges.tail[which[i]], began)
            began = touch(cells, room, edges.head[which[i]], began)
        moved_count = settle_side(
            system, people, side, tolerances[side], began, room, sums, moved, moved_flags, moved_count
        )
    return moved_count


@compiled
def rescale(
    system: System,
    people: People,
    noise: Floats,
    scale: Floats,
    inverse_edge: Floats,
    used_edge: Floats,
    touched: Ints,
    tolerance: float,
    edge_flags: Flags,
    stale_edges: Ints,
    moved: Ints,
    moved_flags: Flags,
    moved_count: int,
) -> tuple[int, int]:
    """Renew D at `touched` (`scale`, row by row) and find the edges there that have no prior yet, or a stale one.

    Compares with what was used, not with the last change, so that many small changes do not add up unseen.
    Returns how many edges there are, and the new length of `moved`.
    """
    count = 0
    for i in range(len(touched)):
        u = touched[i]
        rescaled = abs(scale[i] - people.scale[u]) > tolerance * people.scale[u]
        if rescaled:
            people.scale[u] = scale[i]
            moved_count = move(moved, moved_flags, moved_count, u)
        first = system.start[u]
        for j in range(first, first + system.degree[u]):
            e = system.incident[j]
            new = noise[e] == 0.0
            stale = new or rescaled or abs(inverse_edge[e] - used_edge[e]) > tolerance
            if stale and edge_flags[e] & 2 == 0:
                edge_flags[e] |= 2
                stale_edges[count] = e
                count += 1
    for i in range(count):
        e = stale_edges[i]
        used_edge[e] = inverse_edge[e]
        edge_flags[e] &= 1
    return count, moved_count


@compiled
def renew_unscreened(
    system: System,
    edges: Edges,
    people: People,
    which: Ints,
    priors: Priors,
    tolerance: float,
    room: Scratch,
    sums: Sums,
) -> None:
    """Give new priors to the edges of `which` that carry no weight: only REMAINING moves."""
    began = 0
    cells, rhs = people.sides[REMAINING], people.rhs[:, REMAINING]
    for i in range(len(which)):
        e = which[i]
        if edges.weight[e] != 0.0:
            continue
        u, v = edges.tail[e], edges.head[e]
        at_u = edges.coefficient[REMAINING, e] * (priors.on_tail[i] - edges.on_tail[e])
        at_v = edges.coefficient[REMAINING, e] * (priors.on_head[i] - edges.on_head[e])
        if at_u != 0.0 or at_v != 0.0:
            cells[u, RESIDUAL] += at_u
            cells[v, RESIDUAL] += at_v
            rhs[u] += at_u
            rhs[v] += at_v
            sums.form[REMAINING] += at_u * cells[u, VALUE] + at_v * cells[v, VALUE]
            if len(people.sides) > COMMON:
                x_2 = people.sides[COMMON, :, VALUE]
                sums.border[REMAINING] -= at_u * x_2[u] + at_v * x_2[v]
            began = touch(cells, room, u, began)
            began = touch(cells, room, v, began)
        take_prior(edges, e, priors, i)
    push_side(system, people, REMAINING, tolerance, began, room, sums)


@compiled
def take_prior(edges: Edges, edge: int, priors: Priors, row: int) -> None:
    """Copy a row of priors to an edge."""
    edges.prior_mean[edge] = priors.prior_mean[row]
    edges.noise[edge] = priors.noise[row]
    edges.on_tail[edge] = priors.on_tail[row]
    edges.on_head[edge] = priors.on_head[row]
    edges.residual[edge] = priors.residual[row]


@compiled
def change_edge(
    system: System,
    edges: Edges,
    people: People,
    edge: int,
    weight: float,
    coefficients: Floats,
    tolerances: Floats,
    column: Scratch,
    room: Scratch,
    healing: Healing,
    sums: Sums,
    moved: Ints,
    moved_flags: Flags,
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
    sides, rhs = people.sides, people.rhs
    dw = weight - edges.weight[edge]
    K, left, listed, gamma = column.cells[:, VALUE], column.cells[:, RESIDUAL], 0, 1.0
    if dw != 0.0:
        listed = begin(column, u, beta_u, listed)
        listed = begin(column, v, beta_v, listed)
        tolerance = tolerances[ENTRIES]
        listed = solve(system, tolerance, column, listed)
        gamma = 1.0 + dw * (beta_u * K[u] + beta_v * K[v])
        shrink = dw / gamma
        add_diagonal(sides, column, room, u, dw * beta_u * beta_u)
        add_diagonal(sides, column, room, v, dw * beta_v * beta_v)
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
        moved_count = settle_side(system, people, side, limit, began, room, sums, moved, moved_flags, moved_count)
    forget(column, listed)
    return moved_count


@compiled
def add_diagonal(sides: Floats, column: Scratch, room: Scratch, participant: int, delta: float) -> None:
    """Add to Λ_uu in all its copies."""
    for side in range(len(sides)):
        sides[side, participant, DIAGONAL] += delta
    column.cells[participant, DIAGONAL] += delta
    room.cells[participant, DIAGONAL] += delta
