"""The compiled steps of the local engine: one edge's data change, and reading what it moved.

x, r and rhs hold two right-hand sides on one matrix, shape (2, participants). Row 0 is b = Σ w_e d_e β̃_e, whose
solution is the adjusted mean; row 1 is h = Σ L_e (1 − ρ_e) β̃_e, whose quadratic form is the part of the
variance of what remains that the participants carry. Both are sums over edges of a coefficient times β̃_e,
and both change with an edge's data in the same way.
"""

from typing import NamedTuple

from haystream.compiled import compiled
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


@compiled
def edge_priors(
    table: Floats,
    tail: Ints,
    head: Ints,
    mean: Floats,
    scale: Floats,
    inverse_edge: Floats,
    out: Floats,
) -> int:
    """Rows of `out` (5, edges): E[P], s, β̃ at the tail, β̃ at the head, Var(η). Returns the infeasible edges."""
    infeasible = 0
    for e in range(len(tail)):
        u, v = tail[e], head[e]
        covariance = scale[u] * scale[v] * inverse_edge[e]
        p, noise, beta_u, beta_v, residual, bound = edge_prior(table, mean[u], mean[v], covariance)
        out[0, e] = p
        out[1, e] = noise
        out[2, e] = scale[u] * beta_u
        out[3, e] = scale[v] * beta_v
        out[4, e] = residual
        infeasible += bound
    return infeasible


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
    gains = [0.0, 0.0]
    listed = 0
    if dw != 0.0:
        listed = begin(column, u, beta_u, listed)
        listed = begin(column, v, beta_v, listed)
        listed, _ = relax(system, column.x, column.r, column.r, tolerance_0, column, listed)
        K = column.x
        gamma = 1.0 + dw * (beta_u * K[u] + beta_v * K[v])
        for side in range(RIGHT_HAND_SIDES):
            step = (dc[side] - dw * (beta_u * x[side, u] + beta_v * x[side, v])) / gamma
            for i in range(listed):
                t = column.touched[i]
                x[side, t] += step * K[t]
                r[side, t] += step * column.r[t]
                gains[side] += step * K[t] * rhs[side, t]
        shrink = dw / gamma
        for i in range(listed):
            t = column.touched[i]
            if K[t] == 0.0:
                continue
            people.variance[t] -= shrink * K[t] * K[t]
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
        gains[side] += dc[side] * (beta_u * x[side, u] + beta_v * x[side, v])
    for side in range(RIGHT_HAND_SIDES):
        began = 0
        for i in range(listed):
            began = touch(room, column.touched[i], began)
        began = touch(room, u, began)
        began = touch(room, v, began)
        tolerance = tolerance_0 if side == 0 else tolerance_1
        reached, gain = relax(system, x[side], r[side], rhs[side], tolerance, room, began)
        gains[side] += gain
        for i in range(reached):
            t = room.touched[i]
            room.flags[t] = 0
            if side == 0 and moved_flags[t] == 0:
                moved_flags[t] = 1
                moved[moved_count] = t
                moved_count += 1
    forget(column, listed)
    return moved_count, gains[0], gains[1]


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
