"""What changes as the graph grows: rows of Λ, scales, priors of edges."""

from typing import NamedTuple

from haystream.arrays import Flags, Floats, Ints, Marked, mark, members_of, unmark_all
from haystream.compiled import compiled
from haystream.engines.local.budget import MOVED_FAR
from haystream.engines.local.edge_ends import edge_reach
from haystream.engines.local.edge_priors import (
    NOISE,
    ON_HEAD,
    ON_TAIL,
    OWN_VARIANCE,
    PRIOR_MEAN,
    USED_ENTRY,
    edge_prior,
    number,
    put_number,
)
from haystream.engines.local.healing import add_strain
from haystream.engines.local.sides import COMMON, MEAN, REMAINING
from haystream.engines.local.solve import RESIDUAL, VALUE, System, add_off_diagonal, touch
from haystream.engines.local.state import OWN, SQUARE, Edges, People, State, Sums
from haystream.engines.local.update_verdict import coefficient_of, push_side, regress
from haystream.models.base import Priors
from haystream.overlay import Overlay, entry, put


class Rescaling(NamedTuple):
    """What priors of edges are to be made with."""

    scale: Floats
    """D of some participants, row by row."""
    inverse_edge: Floats
    """The entries of Q⁻¹ as they are, shape (edges,)."""
    unit: float
    """σ², or more (`announce.At`)."""


@compiled
def follow_residuals(edges: Edges, people: People, sums: Sums, which: Ints, deltas: Floats) -> None:
    """Bring r = b − Λx in line with the new Λ."""
    sides, border = people.sides, sums.border
    for i in range(len(which)):
        u, v = edges.tail[which[i]], edges.head[which[i]]
        for side in range(len(sides)):
            cells = sides[side]
            x_u, x_v = cells[u, VALUE], cells[v, VALUE]
            if x_v != 0.0:  # memory that is written to is the query's own from then on
                cells[u, RESIDUAL] -= deltas[i] * x_v
            if x_u != 0.0:
                cells[v, RESIDUAL] -= deltas[i] * x_u
            sums.form[side] -= 2.0 * deltas[i] * x_u * x_v
            if len(sides) > COMMON:
                x_2 = sides[COMMON, :, VALUE]
                border[side] += deltas[i] * (x_2[u] * x_v + x_2[v] * x_u)


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
        prior = edge_prior(edges.prior, e)
        left = data.offered[e] * (1.0 - prior.residual * edges.weight[e])
        change = left - edges.coefficient[REMAINING, e]
        edges.coefficient[REMAINING, e] = left
        own = data.offered[e] * left * prior.residual
        sums.data[OWN] += own - data.own[e]
        data.own[e] = own
        if len(people.sides) > COMMON:
            sums.border[REMAINING] += change * edge_reach(edges, people, e)
        for t, beta in ((edges.tail[e], prior.on_tail), (edges.head[e], prior.on_head)):
            cells[t, RESIDUAL] += change * beta
            sums.form[REMAINING] += 2.0 * change * beta * cells[t, VALUE]
        mark(state.news.stale, e)
    for e in which:
        for t in (edges.tail[e], edges.head[e]):
            if abs(cells[t, RESIDUAL]) > limit * system.diagonal[t]:
                touch(system, room, t, cells[t, RESIDUAL])
    push_side(system, people, sums, REMAINING, limit, room, state.news.moved)


@compiled
def near_data(system: System, people: People, participant: int) -> bool:
    """Whether a participant has a screened edge, or data have moved its mean or its reach by much (`MOVED_FAR`)."""
    scale, sides = people.scale[participant], people.sides
    if system.diagonal[participant] != 1.0:  # as it is in Q: it was screened, or is no graph prior's
        return True
    moved = abs(sides[MEAN, participant, VALUE])
    if len(sides) > COMMON:
        moved = max(moved, abs(sides[COMMON, participant, VALUE]))
    return bool(scale * moved > MOVED_FAR)


@compiled
def find_lagging(system: System, people: People, moved: Marked, found: Marked) -> None:
    """Find those of the moved who have come near data while their D lags."""
    for u in members_of(moved):
        if people.lagging[u] != 0 and near_data(system, people, u):
            mark(found, u)


@compiled
def rescale(state: State, prior: Rescaling, touched: Ints, found: Marked) -> bool:
    """Renew D at `touched`, and find the edges there that have no prior yet, or a stale one; whether a D lags.

    Compares with what was used, not with the last change, so that many small changes do not add up unseen. D counts
    in a mean times how far data have moved that, and in a variance V as 2 V times its relative change.
    """
    unmark_all(found)
    system, people, tolerances = state.system, state.people, state.tolerances
    scale, rows, lags = people.scale, state.edges.prior, False
    for i in range(len(touched)):
        u = touched[i]
        was, now = scale[u], prior.scale[i]
        off, allowed = abs(now - was), tolerances.scale * was
        rescaled = off > allowed
        if rescaled and not near_data(system, people, u):
            variance = prior.unit * was * was * state.inverse.on_participant[u]
            allowed = was * min(tolerances.far, max(tolerances.scale / (2.0 * variance), tolerances.scale))
            rescaled = off > allowed
            if not rescaled:
                people.lagging[u], lags = 1, True
        if rescaled:
            scale[u] = now
            mark(state.news.moved, u)
            if people.lagging[u] != 0:
                people.lagging[u] = 0
        first = system.start[u]
        for j in range(first, first + system.degree[u]):
            e = system.incident[j]
            if rescaled or number(rows, e, NOISE) == 0.0:
                mark(found, e)
                continue
            off = abs(prior.inverse_edge[e] - number(rows, e, USED_ENTRY))
            if off > tolerances.entry or off * prior.unit * scale[u] * scale[system.contact[j]] > tolerances.scale:
                mark(found, e)
    for e in members_of(found):
        put_number(rows, e, USED_ENTRY, prior.inverse_edge[e])
    return lags


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
        before = edge_prior(edges.prior, e)
        at_u, at_v, new_u, new_v = before.on_tail, before.on_head, priors.on_tail[i], priors.on_head[i]
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
            left_u = to_u - uu * cells[u, VALUE] - uv * cells[v, VALUE]
            left_v = to_v - vv * cells[v, VALUE] - uv * cells[u, VALUE]
            cells[u, RESIDUAL] += left_u
            cells[v, RESIDUAL] += left_v
            sums.form[side] += (to_u + left_u) * cells[u, VALUE] + (to_v + left_v) * cells[v, VALUE]
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
            add_off_diagonal(state.system, e, uv)
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
        take_prior(edges.prior, e, priors, i)
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
def take_prior(rows: Overlay, edge: int, priors: Priors, row: int) -> None:
    """Copy a row of priors to an edge's."""
    put_number(rows, edge, PRIOR_MEAN, priors.prior_mean[row])
    put_number(rows, edge, NOISE, priors.noise[row])
    put_number(rows, edge, ON_TAIL, priors.on_tail[row])
    put_number(rows, edge, ON_HEAD, priors.on_head[row])
    put_number(rows, edge, OWN_VARIANCE, priors.residual[row])
