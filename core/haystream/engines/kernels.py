"""The compiled steps of the local engine: one edge's data change, and reading what it moved.

x, r and rhs hold two right-hand sides on one matrix, shape (2, participants). Row 0 is b = Σ w_e d_e β̃_e, whose
solution is the adjusted mean; row 1 is h = Σ L_e (1 − ρ_e) β̃_e, whose quadratic form is the part of the
variance of what remains that the participants carry. Both are sums over edges of a coefficient times β̃_e,
and both change with an edge's data in the same way.
"""

from typing import NamedTuple

from haystream.compiled import compiled
from haystream.engines.inverse import STRAIN, Healing, add_strain, change_row
from haystream.engines.relax import (
    Flags,
    Floats,
    Ints,
    Scratch,
    System,
    begin,
    forget,
    relax,
    touch,
)
from haystream.models.relevance import edge_posterior, edge_prior

RIGHT_HAND_SIDES = 2


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
    """Shape (2, edges): w_e d_e, and L_e (1 − ρ_e) with ρ_e = Var(η_e) w_e."""
    covariance: Floats
    """(Λ⁻¹)_uv."""


class People(NamedTuple):
    """Per participant, shape (participants,) unless said otherwise."""

    prior_mean: Floats
    scale: Floats
    """D_uu."""
    variance: Floats
    """(Λ⁻¹)_uu."""
    x: Floats
    """Shape (2, participants)."""
    r: Floats
    """Shape (2, participants)."""
    rhs: Floats
    """Shape (2, participants)."""
    seen_mean: Floats
    """The adjusted mean that readers were last told of."""
    seen_variance: Floats


class Priors(NamedTuple):
    """Second-order priors of some edges' P, every member of shape (k,); meanings as in `Edges`."""

    prior_mean: Floats
    noise: Floats
    on_tail: Floats
    on_head: Floats
    residual: Floats
    bound: Flags
    """1 where a Fréchet bound had to replace the covariance."""


@compiled
def edge_priors(
    table: Floats,
    tail: Ints,
    head: Ints,
    which: Ints,
    mean: Floats,
    scale: Floats,
    inverse_edge: Floats,
    out: Priors,
) -> None:
    """The priors of the edges in `which`, row i of `out` for which[i]."""
    for i in range(len(which)):
        e = which[i]
        u, v = tail[e], head[e]
        covariance = scale[u] * scale[v] * inverse_edge[e]
        p, noise, beta_u, beta_v, residual, bound = edge_prior(table, mean[u], mean[v], covariance)
        out.prior_mean[i] = p
        out.noise[i] = noise
        out.on_tail[i] = scale[u] * beta_u
        out.on_head[i] = scale[v] * beta_v
        out.residual[i] = residual
        out.bound[i] = bound


@compiled
def move(moved: Ints, moved_flags: Flags, count: int, participant: int) -> int:
    """List a participant among the moved, once; the new count."""
    if moved_flags[participant] == 0:
        moved_flags[participant] = 1
        moved[count] = participant
        count += 1
    return count


@compiled
def follow_row(
    system: System,
    edges: Edges,
    people: People,
    participant: int,
    which: Ints,
    deltas: Floats,
    tolerance_0: float,
    tolerance_1: float,
    column: Scratch,
    room: Scratch,
    healing: Healing,
    touched: Ints,
    moved: Ints,
    moved_flags: Flags,
    moved_count: int,
) -> tuple[int, float, float]:
    """Add to Λ what was added to Q, at one participant: entries `deltas` of the edges in `which`.

    Returns the new length of `moved`, and by how much rhsᵀx grew for either right-hand side.
    """
    x, r = people.x, people.r
    for i in range(len(which)):  # r = b - Λx of the new Λ
        u, v = edges.tail[which[i]], edges.head[which[i]]
        for side in range(RIGHT_HAND_SIDES):
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
        tolerance_0,
        column,
        room,
        healing,
        touched,
    )
    for i in range(count):
        moved_count = move(moved, moved_flags, moved_count, touched[i])
    gain_0, gain_1 = 0.0, 0.0
    for side in range(RIGHT_HAND_SIDES):
        began = touch(room, participant, 0)
        for i in range(len(which)):
            began = touch(room, edges.tail[which[i]], began)
            began = touch(room, edges.head[which[i]], began)
        tolerance = tolerance_0 if side == 0 else tolerance_1
        reached, gain = relax(system, x[side], r[side], people.rhs[side], tolerance, room, began)
        if side == 0:
            gain_0 = gain
        else:
            gain_1 = gain
        for i in range(reached):
            t = room.touched[i]
            room.flags[t] = 0
            if side == 0:
                moved_count = move(moved, moved_flags, moved_count, t)
    return moved_count, gain_0, gain_1


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
    tolerance_1: float,
    room: Scratch,
) -> float:
    """Give new priors to the edges of `which` that carry no weight: only the second right-hand side moves.

    Returns by how much its rhsᵀx grew.
    """
    began, gain = 0, 0.0
    r, rhs, x = people.r[1], people.rhs[1], people.x[1]
    for i in range(len(which)):
        e = which[i]
        if edges.weight[e] != 0.0:
            continue
        u, v = edges.tail[e], edges.head[e]
        at_u = edges.coefficient[1, e] * (priors.on_tail[i] - edges.on_tail[e])
        at_v = edges.coefficient[1, e] * (priors.on_head[i] - edges.on_head[e])
        if at_u != 0.0 or at_v != 0.0:
            r[u] += at_u
            r[v] += at_v
            rhs[u] += at_u
            rhs[v] += at_v
            gain += at_u * x[u] + at_v * x[v]
            began = touch(room, u, began)
            began = touch(room, v, began)
        take_prior(edges, e, priors, i)
    reached, more = relax(system, x, r, rhs, tolerance_1, room, began)
    for i in range(reached):
        room.flags[room.touched[i]] = 0
    return gain + more


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
    coefficient_0: float,
    coefficient_1: float,
    tolerance_0: float,
    tolerance_1: float,
    column: Scratch,
    room: Scratch,
    healing: Healing,
    moved: Ints,
    moved_flags: Flags,
    moved_count: int,
) -> tuple[int, float, float]:
    """Give an edge a new weight and new coefficients: a rank-one change of Λ, and new right-hand sides.

    With K = Λ⁻¹β̃, γ = 1 + Δw β̃ᵀK and Δc the change of a coefficient, the solution moves by
    K (Δc − Δw β̃ᵀx) / γ and covariances by −K_u K_v Δw / γ (NOTES, section 4). K is solved locally; what it
    leaves unsolved stays in the residuals, so the solutions' errors do not accumulate. The participants that
    moved are appended to `moved`, each once.

    Returns:
        The new length of `moved`, and by how much rhsᵀx grew for either right-hand side.
    """
    u, v = edges.tail[edge], edges.head[edge]
    beta_u, beta_v = edges.on_tail[edge], edges.on_head[edge]
    x, r, rhs = people.x, people.r, people.rhs
    dw = weight - edges.weight[edge]
    dc = (coefficient_0 - edges.coefficient[0, edge], coefficient_1 - edges.coefficient[1, edge])
    gain_0, gain_1 = 0.0, 0.0
    listed = 0
    if dw != 0.0:
        listed = begin(column, u, beta_u, listed)
        listed = begin(column, v, beta_v, listed)
        listed, _ = relax(system, column.x, column.r, column.r, tolerance_0, column, listed)
        K = column.x
        gamma = 1.0 + dw * (beta_u * K[u] + beta_v * K[v])
        for side in range(RIGHT_HAND_SIDES):
            step = (dc[side] - dw * (beta_u * x[side, u] + beta_v * x[side, v])) / gamma
            along = 0.0
            for i in range(listed):
                t = column.touched[i]
                x[side, t] += step * K[t]
                r[side, t] += step * column.r[t]
                along += K[t] * rhs[side, t]
            if side == 0:
                gain_0 += step * along
            else:
                gain_1 += step * along
        shrink = dw / gamma
        for i in range(listed):
            t = column.touched[i]
            if K[t] == 0.0:
                continue
            people.variance[t] -= shrink * K[t] * K[t]
            add_strain(healing, t, 2.0 * abs(shrink * K[t]) * tolerance_0, STRAIN * tolerance_0)
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
        for side in range(RIGHT_HAND_SIDES):
            r[side, u] += dc[side] * beta_u
            r[side, v] += dc[side] * beta_v
    for side in range(RIGHT_HAND_SIDES):
        edges.coefficient[side, edge] += dc[side]
        rhs[side, u] += dc[side] * beta_u
        rhs[side, v] += dc[side] * beta_v
    gain_0 += dc[0] * (beta_u * x[0, u] + beta_v * x[0, v])
    gain_1 += dc[1] * (beta_u * x[1, u] + beta_v * x[1, v])
    for side in range(RIGHT_HAND_SIDES):
        began = 0
        for i in range(listed):
            began = touch(room, column.touched[i], began)
        began = touch(room, u, began)
        began = touch(room, v, began)
        tolerance = tolerance_0 if side == 0 else tolerance_1
        reached, gain = relax(system, x[side], r[side], rhs[side], tolerance, room, began)
        if side == 0:
            gain_0 += gain
        else:
            gain_1 += gain
        for i in range(reached):
            t = room.touched[i]
            room.flags[t] = 0
            if side == 0:
                moved_count = move(moved, moved_flags, moved_count, t)
    forget(column, listed)
    return moved_count, gain_0, gain_1


@compiled
def settle_moved(
    system: System,
    people: People,
    tolerance: float,
    moved: Ints,
    moved_flags: Flags,
    moved_count: int,
    changed: Ints,
    edge_flags: Flags,
    changed_edges: Ints,
    edge_count: int,
) -> tuple[int, int]:
    """Who of the moved differs from what readers were last told by more than the tolerance, and their edges.

    Comparing with what was last told, not with the last event, keeps many small steps from adding up unseen.
    Returns the lengths of `changed` and of `changed_edges`; clears `moved_flags`.
    """
    count = 0
    for i in range(moved_count):
        u = moved[i]
        moved_flags[u] = 0
        mean = people.prior_mean[u] + people.scale[u] * people.x[0, u]
        variance = people.scale[u] * people.scale[u] * people.variance[u]
        if abs(mean - people.seen_mean[u]) > tolerance or abs(variance - people.seen_variance[u]) > tolerance:
            people.seen_mean[u] = mean
            people.seen_variance[u] = variance
            changed[count] = u
            count += 1
            first = system.start[u]
            for j in range(first, first + system.degree[u]):
                e = system.incident[j]
                if edge_flags[e] == 0:
                    edge_flags[e] = 1
                    changed_edges[edge_count] = e
                    edge_count += 1
    return count, edge_count


@compiled
def edge_posteriors(
    table: Floats,
    edges: Edges,
    people: People,
    which: Ints,
    screened: Floats,
    relevant: Floats,
    discrepancy: float,
    mean: Floats,
    variance: Floats,
) -> None:
    """E[P | Y] and Var[P | Y] of the edges in `which`, from the constrained adjusted moments of their ends."""
    for i in range(len(which)):
        e = which[i]
        u, v = edges.tail[e], edges.head[e]
        m_u = people.prior_mean[u] + people.scale[u] * people.x[0, u]
        m_v = people.prior_mean[v] + people.scale[v] * people.x[0, v]
        c_u, c_v = min(max(m_u, 0.0), 1.0), min(max(m_v, 0.0), 1.0)
        covariance = people.scale[u] * people.scale[v] * edges.covariance[e]
        covariance += (m_u - c_u) * (m_v - c_v) / (1.0 + discrepancy)
        mean[i], variance[i] = edge_posterior(table, c_u, c_v, covariance, screened[e], relevant[e])


@compiled
def collect_shares(
    system: System,
    edges: Edges,
    which: Ints,
    tolerance: float,
    room: Scratch,
    edge_flags: Flags,
    found: Ints,
    shares: Floats,
) -> int:
    """The shares w_f d_f β̃_fᵀ Λ⁻¹ a of the screened edges f, a = mean over `which` of (1 − ρ_e) β̃_e.

    Returns how many there are; `found` and `shares` hold them. `edge_flags` is scratch, zero before and after.
    """
    listed = 0
    for i in range(len(which)):
        e = which[i]
        part = (1.0 - edges.residual[e] * edges.weight[e]) / len(which)
        listed = begin(room, edges.tail[e], part * edges.on_tail[e], listed)
        listed = begin(room, edges.head[e], part * edges.on_head[e], listed)
    listed, _ = relax(system, room.x, room.r, room.r, tolerance, room, listed)
    count = 0
    for i in range(listed):
        t = room.touched[i]
        if room.x[t] == 0.0:
            continue
        first = system.start[t]
        for j in range(first, first + system.degree[t]):
            f = system.incident[j]
            if edges.weight[f] != 0.0 and edge_flags[f] == 0:
                edge_flags[f] = 1
                found[count] = f
                at = edges.on_tail[f] * room.x[edges.tail[f]] + edges.on_head[f] * room.x[edges.head[f]]
                shares[count] = edges.coefficient[0, f] * at
                count += 1
    for i in range(count):
        edge_flags[found[i]] = 0
    forget(room, listed)
    return count
