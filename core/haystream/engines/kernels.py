"""The compiled updates of the local engine: an edge's data change, the graph grows."""

from haystream.compiled import compiled
from haystream.engines.inverse import STRAIN, Healing, add_strain, change_row
from haystream.engines.relax import Flags, Floats, Ints, Scratch, System, begin, forget, relax, touch
from haystream.engines.state import COMMON, ENTRIES, MEAN, REMAINING, Edges, People, Sums
from haystream.models.base import Priors


@compiled
def recount(people: People, participant: int, border: Floats) -> None:
    """Renew what a participant adds to bᵀx₂ of every side, which the border subtracts.

    b_u x₂_u + x_u r₂_u: with the second term the sum is bᵀΛ⁻¹b₂ to second order in what the solves leave out.
    """
    x_2, r_2 = people.x[COMMON, participant], people.r[COMMON, participant]
    for side in range(len(border)):
        part = people.rhs[side, participant] * x_2 + people.x[side, participant] * r_2
        border[side] -= part - people.counted[side, participant]
        people.counted[side, participant] = part


@compiled
def move(moved: Ints, moved_flags: Flags, count: int, participant: int) -> int:
    """List a participant among the moved, once; the new count."""
    if moved_flags[participant] & 1 == 0:
        moved_flags[participant] |= 1
        moved[count] = participant
        count += 1
    return count


@compiled
def settle_sides(
    system: System,
    people: People,
    tolerances: Floats,
    began: int,
    room: Scratch,
    sums: Sums,
    moved: Ints,
    moved_flags: Flags,
    moved_count: int,
) -> int:
    """Push every right-hand side's residuals, from the first `began` of room.touched on, which are left flagged.

    Whom that moved is appended to `moved`, but for row 1, which moves no reading. Returns its new length; the
    scratch is put back to zero.
    """
    sides = len(people.x)
    common = sides > COMMON
    for side in range(sides):
        reached, gain = relax(
            system, people.x[side], people.r[side], people.rhs[side], tolerances[side], room, began
        )
        sums.form[side] += gain
        for i in range(reached):
            t = room.touched[i]
            if i >= began:
                room.flags[t] = 0
            if common and (i >= began or side == COMMON):
                recount(people, t, sums.border)
            if side != REMAINING and (i >= began or side == MEAN):
                moved_count = move(moved, moved_flags, moved_count, t)
    for i in range(began):
        room.flags[room.touched[i]] = 0
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
    x, r = people.x, people.r
    for i in range(len(which)):  # r = b - Λx of the new Λ
        u, v = edges.tail[which[i]], edges.head[which[i]]
        for side in range(len(x)):
            r[side, u] -= deltas[i] * x[side, v]
            r[side, v] -= deltas[i] * x[side, u]
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
    began = touch(room, participant, 0)
    for i in range(len(which)):
        began = touch(room, edges.tail[which[i]], began)
        began = touch(room, edges.head[which[i]], began)
    return settle_sides(system, people, tolerances, began, room, sums, moved, moved_flags, moved_count)


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
    """Give new priors to the edges of `which` that carry no weight: only row 1 moves."""
    began = 0
    r, rhs, x = people.r[REMAINING], people.rhs[REMAINING], people.x[REMAINING]
    for i in range(len(which)):
        e = which[i]
        if edges.weight[e] != 0.0:
            continue
        u, v = edges.tail[e], edges.head[e]
        at_u = edges.coefficient[REMAINING, e] * (priors.on_tail[i] - edges.on_tail[e])
        at_v = edges.coefficient[REMAINING, e] * (priors.on_head[i] - edges.on_head[e])
        if at_u != 0.0 or at_v != 0.0:
            r[u] += at_u
            r[v] += at_v
            rhs[u] += at_u
            rhs[v] += at_v
            sums.form[REMAINING] += at_u * x[u] + at_v * x[v]
            began = touch(room, u, began)
            began = touch(room, v, began)
        take_prior(edges, e, priors, i)
    reached, gain = relax(system, x, r, rhs, tolerance, room, began)
    sums.form[REMAINING] += gain
    for i in range(reached):
        room.flags[room.touched[i]] = 0
        if len(people.x) > COMMON:
            recount(people, room.touched[i], sums.border)


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
    x, r, rhs = people.x, people.r, people.rhs
    dw = weight - edges.weight[edge]
    listed, began = 0, 0
    if dw != 0.0:
        listed = begin(column, u, beta_u, listed)
        listed = begin(column, v, beta_v, listed)
        tolerance = tolerances[ENTRIES]
        listed, _ = relax(system, column.x, column.r, column.r, tolerance, column, listed)
        K = column.x
        gamma = 1.0 + dw * (beta_u * K[u] + beta_v * K[v])
        for side in range(len(x)):
            dc = coefficients[side] - edges.coefficient[side, edge]
            step = (dc - dw * (beta_u * x[side, u] + beta_v * x[side, v])) / gamma
            along = 0.0
            for i in range(listed):
                t = column.touched[i]
                x[side, t] += step * K[t]
                r[side, t] += step * column.r[t]
                along += K[t] * rhs[side, t]
            sums.form[side] += step * along
        shrink = dw / gamma
        for i in range(listed):
            t = column.touched[i]
            began = touch(room, t, began)
            if K[t] == 0.0:
                continue
            people.variance[t] -= shrink * K[t] * K[t]
            add_strain(healing, t, 2.0 * abs(shrink * K[t]) * tolerance, STRAIN * tolerance)
            first = system.start[t]
            for j in range(first, first + system.degree[t]):
                other = system.contact[j]
                if other > t:
                    edges.covariance[system.incident[j]] -= shrink * K[t] * K[other]
        system.diagonal[u] += dw * beta_u * beta_u
        system.diagonal[v] += dw * beta_v * beta_v
        system.off[edge] += dw * beta_u * beta_v
        edges.weight[edge] = weight
    else:
        for side in range(len(x)):
            dc = coefficients[side] - edges.coefficient[side, edge]
            r[side, u] += dc * beta_u
            r[side, v] += dc * beta_v
        began = touch(room, u, began)
        began = touch(room, v, began)
    for side in range(len(x)):
        dc = coefficients[side] - edges.coefficient[side, edge]
        edges.coefficient[side, edge] += dc
        rhs[side, u] += dc * beta_u
        rhs[side, v] += dc * beta_v
        sums.form[side] += dc * (beta_u * x[side, u] + beta_v * x[side, v])
        if len(x) > COMMON:
            sums.border[side] += dc
    forget(column, listed)
    return settle_sides(system, people, tolerances, began, room, sums, moved, moved_flags, moved_count)
