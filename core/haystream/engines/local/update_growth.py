"""The compiled updates of the local engine when the graph grows: rows of Λ, scales, priors of edges."""

from haystream.arrays import Flags, Floats, Ints
from haystream.compiled import compiled
from haystream.engines.local.announce import NOTED, STALE
from haystream.engines.local.healing import STRAIN, add_strain
from haystream.engines.local.inverse_entries import change_entries, change_row
from haystream.engines.local.solve import DIAGONAL, RESIDUAL, VALUE, System, touch
from haystream.engines.local.state import COMMON, ENTRIES, MEAN, REMAINING, Data, Edges, People, Sums, Work
from haystream.engines.local.update_verdict import add_diagonal, move, regress, settle_side
from haystream.models.base import Priors

LITTLE = 50.0
"""A change of Λ by at most so many tolerances, 1 % at the defaults, is taken into its inverse to first order: what
the second order would add is half a tolerance."""


@compiled
def follow(
    system: System,
    edges: Edges,
    people: People,
    participant: int | None,
    which: Ints,
    deltas: Floats,
    tolerances: Floats,
    work: Work,
    moved_count: int,
) -> int:
    """Add to Λ what was added to Q: entries `deltas` of the edges in `which`, all of them at one participant
    (`change_row`); or, without one, anywhere, and its inverse is estimated (`change_entries`).

    Returns the new length of `moved`.
    """
    tail, head, tolerance = edges.tail, edges.head, tolerances[ENTRIES]
    variance, covariance, healing, touched = people.variance, edges.covariance, work.healing, work.changed
    follow_residuals(edges, people, which, deltas, work.sums)
    if participant is None:
        ends_wait = False  # Q⁻¹ is healed there, and Λ⁻¹ follows (`take_entries`)
        count = change_entries(
            system,
            tail,
            head,
            which,
            deltas,
            variance,
            covariance,
            tolerance,
            work.room,
            healing,
            ends_wait,
            touched,
        )
    else:
        count = change_row(
            system,
            tail,
            head,
            participant,
            which,
            deltas,
            variance,
            covariance,
            tolerance,
            work.column,
            work.room,
            healing,
            touched,
        )
    for i in range(count):
        moved_count = move(work.moved, work.moved_flags, moved_count, touched[i])
    return settle_ends(system, edges, people, which, tolerances, work, moved_count)


@compiled
def follow_residuals(edges: Edges, people: People, which: Ints, deltas: Floats, sums: Sums) -> None:
    """r = b − Λx of the new Λ."""
    for i in range(len(which)):
        u, v = edges.tail[which[i]], edges.head[which[i]]
        for side in range(len(people.sides)):
            cells = people.sides[side]
            cells[u, RESIDUAL] -= deltas[i] * cells[v, VALUE]
            cells[v, RESIDUAL] -= deltas[i] * cells[u, VALUE]
            if len(people.sides) > COMMON:
                x_2 = people.sides[COMMON, :, VALUE]
                sums.border[side] += deltas[i] * (x_2[u] * cells[v, VALUE] + x_2[v] * cells[u, VALUE])


@compiled
def settle_ends(
    system: System,
    edges: Edges,
    people: People,
    which: Ints,
    tolerances: Floats,
    work: Work,
    moved_count: int,
) -> int:
    """Push the residuals of all sides from the ends of the edges in `which`; the new length of `moved`."""
    room = work.room
    for side in range(len(people.sides)):
        cells, limit, began = people.sides[side], tolerances[side], 0
        for e in which:
            for t in (edges.tail[e], edges.head[e]):
                if abs(cells[t, RESIDUAL]) > limit * cells[t, DIAGONAL]:
                    began = touch(cells, room, t, began)
        moved_count = settle_side(system, people, side, limit, began, work, moved_count)
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
    work: Work,
    moved_count: int,
) -> tuple[int, int]:
    """Renew D at `touched` (`scale`, row by row) and find the edges there that have no prior yet, or a stale one.

    Compares with what was used, not with the last change, so that many small changes do not add up unseen.
    Returns how many edges there are, and the new length of `moved`.
    """
    count, moved, moved_flags = 0, work.moved, work.moved_flags
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
            if stale and edge_flags[e] & NOTED == 0:
                edge_flags[e] |= NOTED
                stale_edges[count] = e
                count += 1
    for i in range(count):
        e = stale_edges[i]
        used_edge[e] = inverse_edge[e]
        edge_flags[e] ^= NOTED
    return count, moved_count


@compiled
def renew(
    system: System,
    edges: Edges,
    people: People,
    data: Data,
    which: Ints,
    priors: Priors,
    tolerances: Floats,
    work: Work,
    edge_flags: Flags,
    stale: Ints,
    stale_count: int,
    much: Ints,
    moved_count: int,
) -> tuple[int, int, int, float, float]:
    """Give the edges of `which` new priors, row by row, all at once where Λ changes by little.

    Right-hand sides and residuals take the whole of the change, so solutions stay as exact as they were. Entries of
    Λ⁻¹ take it to first order, on the edge and at its ends; what its surroundings miss is strain. The rows of edges
    for which that is too rough are put into `much`, and nothing is done to them.

    Returns the lengths of `much`, of `stale` and of `moved`, and by how much Σ data.square and Σ data.own grew.
    """
    sides, V = people.sides, people.variance
    sums, healing, column = work.sums, work.healing, work.column
    moved, moved_flags = work.moved, work.moved_flags
    left_over, square, own = 0, 0.0, 0.0
    for i in range(len(which)):
        e = which[i]
        u, v = edges.tail[e], edges.head[e]
        w = edges.weight[e]
        weight, deviation, left = regress(data, e, priors.prior_mean[i], priors.noise[i], priors.residual[i])
        at_u, at_v, new_u, new_v = edges.on_tail[e], edges.on_head[e], priors.on_tail[i], priors.on_head[i]
        uu, vv = weight * new_u * new_u - w * at_u * at_u, weight * new_v * new_v - w * at_v * at_v
        uv = weight * new_u * new_v - w * at_u * at_v
        if max(abs(uu), abs(vv), abs(uv)) * max(V[u], V[v]) > LITTLE * tolerances[ENTRIES]:
            much[left_over] = i
            left_over += 1
            continue
        for side in range(len(sides)):
            cells = sides[side]
            c, new_c = edges.coefficient[side, e], left
            if side != REMAINING:
                new_c = weight * deviation if side == MEAN else weight
            edges.coefficient[side, e] = new_c
            to_u, to_v = new_c * new_u - c * at_u, new_c * new_v - c * at_v
            people.rhs[u, side] += to_u
            people.rhs[v, side] += to_v
            cells[u, RESIDUAL] += to_u - uu * cells[u, VALUE] - uv * cells[v, VALUE]
            cells[v, RESIDUAL] += to_v - vv * cells[v, VALUE] - uv * cells[u, VALUE]
            sums.form[side] += to_u * cells[u, VALUE] + to_v * cells[v, VALUE]
            sums.change[side] = new_c - c - at_common(people, u, to_u) - at_common(people, v, to_v)
        if len(sides) > COMMON:
            x_2 = sides[COMMON, :, VALUE]
            moved_u = edges.coefficient[COMMON, e] * new_u - w * at_u - uu * x_2[u] - uv * x_2[v]
            moved_v = edges.coefficient[COMMON, e] * new_v - w * at_v - vv * x_2[v] - uv * x_2[u]
            for side in range(len(sides)):
                sums.border[side] += sums.change[side]
                sums.border[side] -= sides[side, u, VALUE] * moved_u + sides[side, v, VALUE] * moved_v
        if weight != 0.0:
            add_diagonal(sides, work, u, uu)
            add_diagonal(sides, work, v, vv)
            system.off[e] += uv
            shared = edges.covariance[e]
            least_u, least_v = 1.0 / column.cells[u, DIAGONAL], 1.0 / column.cells[v, DIAGONAL]
            less = uu * V[u] * shared + uv * (V[u] * V[v] + shared * shared) + vv * shared * V[v]
            less_u = uu * V[u] * V[u] + 2.0 * uv * V[u] * shared + vv * shared * shared
            less_v = uu * shared * shared + 2.0 * uv * shared * V[v] + vv * V[v] * V[v]
            V[u], V[v] = max(V[u] - less_u, least_u), max(V[v] - less_v, least_v)
            edges.covariance[e] -= less
            strain = (abs(uu) + 2.0 * abs(uv) + abs(vv)) * shared * shared
            for t in (u, v):
                add_strain(healing, t, strain, STRAIN * tolerances[ENTRIES])
                moved_count = move(moved, moved_flags, moved_count, t)
        edges.weight[e] = weight
        take_prior(edges, e, priors, i)
        new_square, new_own = weight * deviation * deviation, data.offered[e] * left * priors.residual[i]
        square += new_square - data.square[e]
        own += new_own - data.own[e]
        data.square[e], data.own[e] = new_square, new_own
        if edge_flags[e] == 0:
            edge_flags[e] = STALE
            stale[stale_count] = e
            stale_count += 1
    moved_count = settle_ends(system, edges, people, which, tolerances, work, moved_count)
    return left_over, stale_count, moved_count, square, own


@compiled
def at_common(people: People, participant: int, value: float) -> float:
    """`value` times the solution of side COMMON at a participant; 0 without one."""
    return value * people.sides[COMMON, participant, VALUE] if len(people.sides) > COMMON else 0.0


@compiled
def take_prior(edges: Edges, edge: int, priors: Priors, row: int) -> None:
    """Copy a row of priors to an edge."""
    edges.prior_mean[edge] = priors.prior_mean[row]
    edges.noise[edge] = priors.noise[row]
    edges.on_tail[edge] = priors.on_tail[row]
    edges.on_head[edge] = priors.on_head[row]
    edges.residual[edge] = priors.residual[row]
