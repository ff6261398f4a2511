"""What changes as the graph grows: rows of Λ, scales, priors of edges."""

from haystream.arrays import Flags, Floats, Ints, Marked, mark, members_of, unmark_all
from haystream.compiled import compiled
from haystream.engines.local.edge_ends import edge_reach
from haystream.engines.local.healing import add_strain
from haystream.engines.local.sides import COMMON, REMAINING
from haystream.engines.local.solve import RESIDUAL, VALUE, touch
from haystream.engines.local.state import OWN, SQUARE, Edges, People, State, Sums
from haystream.engines.local.update_verdict import coefficient_of, push_side, regress
from haystream.models.base import Priors
from haystream.overlay import entry, put


@compiled
def follow_residuals(edges: Edges, people: People, sums: Sums, which: Ints, deltas: Floats) -> None:
    """Bring r = b − Λx in line with the new Λ."""
    sides, border = people.sides, sums.border
    for i in range(len(which)):
        u, v = edges.tail[which[i]], edges.head[which[i]]
        for side in range(len(sides)):
            cells = sides[side]
            cells[u, RESIDUAL] -= deltas[i] * cells[v, VALUE]
            cells[v, RESIDUAL] -= deltas[i] * cells[u, VALUE]
            if len(sides) > COMMON:
                x_2 = sides[COMMON, :, VALUE]
                border[side] += deltas[i] * (x_2[u] * cells[v, VALUE] + x_2[v] * cells[u, VALUE])


@compiled
def push_ends(state: State, which: Ints) -> None:
    """Push the residuals of all sides from the ends of the edges in `which`.

    Whoever is in `rooms.people`, which this empties, has moved first.
    """
    system, edges, sides, moved = state.system, state.edges, state.people.sides, state.news.moved
    room = state.rooms.other
    for u in members_of(state.rooms.people):
        mark(moved, u)
    unmark_all(state.rooms.people)
    for side in range(len(sides)):
        cells, limit = sides[side], state.tolerances.sides[side]
        for e in which:
            for t in (edges.tail[e], edges.head[e]):
                if abs(cells[t, RESIDUAL]) > limit * system.diagonal[t]:
                    touch(system, room, t, cells[t, RESIDUAL])
        push_side(system, state.people, state.sums, side, limit, room, moved)


@compiled
def push_everybody(state: State, side: int, participants: int) -> None:
    """Push the residuals of one side wherever they are above its tolerance."""
    system, cells, limit = state.system, state.people.sides[side], state.tolerances.sides[side]
    room = state.rooms.other
    for u in range(participants):
        if abs(cells[u, RESIDUAL]) > limit * system.diagonal[u]:
            touch(system, room, u, cells[u, RESIDUAL])
    push_side(system, state.people, state.sums, side, limit, room, state.news.moved)


@compiled
def offer_items(state: State, which: Ints) -> None:
    """Bring the edges of `which`, all of which have a prior, in line with how many items are on offer there.

    That changes no reading of theirs, but what is expected of what remains.
    """
    system, edges, data, people, sums = state.system, state.edges, state.data, state.people, state.sums
    cells, room, limit = people.sides[REMAINING], state.rooms.other, state.tolerances.sides[REMAINING]
    for e in which:
        left = data.offered[e] * (1.0 - edges.residual[e] * edges.weight[e])
        change = left - edges.coefficient[REMAINING, e]
        edges.coefficient[REMAINING, e] = left
        own = data.offered[e] * left * edges.residual[e]
        sums.data[OWN] += own - data.own[e]
        data.own[e] = own
        if len(people.sides) > COMMON:
            sums.border[REMAINING] += change * edge_reach(edges, people, e)
        for t, beta in ((edges.tail[e], edges.on_tail[e]), (edges.head[e], edges.on_head[e])):
            people.rhs[t, REMAINING] += change * beta
            cells[t, RESIDUAL] += change * beta
            sums.form[REMAINING] += change * beta * cells[t, VALUE]
        mark(state.news.stale, e)
    for e in which:
        for t in (edges.tail[e], edges.head[e]):
            if abs(cells[t, RESIDUAL]) > limit * system.diagonal[t]:
                touch(system, room, t, cells[t, RESIDUAL])
    push_side(system, people, sums, REMAINING, limit, room, state.news.moved)


@compiled
def rescale(
    state: State, scale: Floats, inverse_edge: Floats, used_edge: Floats, touched: Ints, found: Marked
) -> None:
    """Renew D at `touched` (`scale`, row by row) and find the edges there that have no prior yet, or a stale one.

    Compares with what was used, not with the last change, so that many small changes do not add up unseen.
    `inverse_edge`, `used_edge`: entries of Q⁻¹ as they are, and as priors were made with, shape (edges,).
    """
    unmark_all(found)
    system, people, tolerance = state.system, state.people, state.tolerances.scale
    for i in range(len(touched)):
        u = touched[i]
        rescaled = abs(scale[i] - people.scale[u]) > tolerance * people.scale[u]
        if rescaled:
            people.scale[u] = scale[i]
            mark(state.news.moved, u)
        first = system.start[u]
        for j in range(first, first + system.degree[u]):
            e = system.incident[j]
            new = state.edges.noise[e] == 0.0
            if new or rescaled or abs(inverse_edge[e] - used_edge[e]) > tolerance:
                mark(found, e)
    for e in members_of(found):
        used_edge[e] = inverse_edge[e]


@compiled
def renew(state: State, which: Ints, priors: Priors, rough: Flags) -> None:
    """Give the edges of `which` new priors, row by row, all at once where Λ changes by little.

    Right-hand sides and residuals take the whole of the change, so solutions stay as exact as they were. Entries of
    Λ⁻¹ take it to first order, on the edge and at its ends; what its surroundings miss is strain. Edges for which
    that is too rough are flagged in `rough`, shape (len(which),), and nothing is done to them. What an edge has by
    its data is written only where it changes, which it does not without data: memory that is written to is the
    query's own from then on.
    """
    edges, people, data = state.edges, state.people, state.data
    sides, sums, tolerances = people.sides, state.sums, state.inverse.tolerances
    V, covariance, diagonal = state.inverse.on_participant, state.inverse.on_edge, state.system.diagonal
    square, own = 0.0, 0.0
    for i in range(len(which)):
        e = which[i]
        u, v = edges.tail[e], edges.head[e]
        w = edges.weight[e]
        weight, deviation, left = regress(data, e, priors.prior_mean[i], priors.noise[i], priors.residual[i])
        at_u, at_v, new_u, new_v = edges.on_tail[e], edges.on_head[e], priors.on_tail[i], priors.on_head[i]
        uu, vv = weight * new_u * new_u - w * at_u * at_u, weight * new_v * new_v - w * at_v * at_v
        uv = weight * new_u * new_v - w * at_u * at_v
        if max(abs(uu), abs(vv), abs(uv)) * max(V[u], V[v]) > state.tolerances.first_order:
            rough[i] = 1
            continue
        for side in range(len(sides)):
            cells = sides[side]
            c, new_c = edges.coefficient[side, e], coefficient_of(side, weight, deviation, left)
            if new_c != c:
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
            diagonal[u] += uu
            diagonal[v] += vv
            state.system.off[e] += uv
            shared = entry(covariance, e)
            least_u, least_v = 1.0 / diagonal[u], 1.0 / diagonal[v]
            less = uu * V[u] * shared + uv * (V[u] * V[v] + shared * shared) + vv * shared * V[v]
            less_u = uu * V[u] * V[u] + 2.0 * uv * V[u] * shared + vv * shared * shared
            less_v = uu * shared * shared + 2.0 * uv * shared * V[v] + vv * V[v] * V[v]
            V[u], V[v] = max(V[u] - less_u, least_u), max(V[v] - less_v, least_v)
            put(covariance, e, shared - less)
            strain = (abs(uu) + 2.0 * abs(uv) + abs(vv)) * shared * shared
            for t in (u, v):
                add_strain(state.inverse.healing, t, strain, tolerances.strain)
                mark(state.news.moved, t)
        if weight != w:
            edges.weight[e] = weight
        take_prior(edges, e, priors, i)
        new_square, new_own = weight * deviation * deviation, data.offered[e] * left * priors.residual[i]
        square += new_square - data.square[e]
        own += new_own - data.own[e]
        if new_square != data.square[e] or new_own != data.own[e]:
            data.square[e], data.own[e] = new_square, new_own
        mark(state.news.stale, e)
    push_ends(state, which)
    sums.data[SQUARE] += square
    sums.data[OWN] += own


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
