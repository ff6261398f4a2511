"""What changes as the graph grows: rows of Λ, scales, priors of edges."""

from typing import NamedTuple

from haystream.engines.local.changes.push import add_residual, push_unpushed
from haystream.engines.local.changes.update_verdict import coefficient_of, regress
from haystream.engines.local.solves.budget import MOVED_FAR
from haystream.engines.local.solves.healing import add_strain, lower
from haystream.engines.local.solves.sides import COMMON, MEAN
from haystream.engines.local.solves.solve import (
    CONTACTS_AHEAD,
    System,
    add_off_diagonal,
    add_on_diagonal,
    diagonal_of,
    fetch_slabs,
)
from haystream.engines.local.state.edge_priors import (
    NOISE,
    ON_HEAD,
    ON_TAIL,
    OWN_VARIANCE,
    PRIOR_MEAN,
    USED_ENTRY,
    edge_prior,
    fetch_number,
    number,
    put_number,
)
from haystream.engines.local.state.state import OWN, SQUARE, People, State
from haystream.memory.arrays import Flags, Floats, Ints, Marked, bit_of, mark, members_of, put_bit, unmark_all
from haystream.memory.compiled import compiled, inlined
from haystream.memory.overlay import Overlay, add_to, cell, entry, fetch_entry, fetch_line, put
from haystream.memory.prefetch import SOON, prefetch
from haystream.models.base import Priors


class Rescaling(NamedTuple):
    """What priors of edges are to be made with."""

    scale: Floats
    """D of some participants, row by row."""
    inverse_edge: Floats
    """The entries of Q⁻¹ as they are, shape (edges,)."""
    unit: float
    """σ², or more (`announce.At`)."""


@compiled
def follow_residuals(state: State, which: Ints, deltas: Floats) -> None:
    """Bring r = b − Λx in line with what is added to off-diagonal entries of Λ, for `push_ends` to push."""
    edges, people, sums, unpushed = state.edges, state.people, state.sums, state.rooms.unpushed
    for i in range(len(which)):
        u, v = edges.tail[which[i]], edges.head[which[i]]
        for side in range(people.residual.shape[1]):
            x_u, x_v = cell(people.x, u, side), cell(people.x, v, side)
            add_residual(people, unpushed, u, side, -deltas[i] * x_v)
            add_residual(people, unpushed, v, side, -deltas[i] * x_u)
            sums.form[side] -= 2.0 * deltas[i] * x_u * x_v
            sums.border[side] += deltas[i] * (at_common(people, u, x_v) + at_common(people, v, x_u))


@compiled
def push_ends(state: State, which: Ints) -> None:
    """Push the residuals of all sides from the ends of the edges in `which`; of two a part is owed.

    Whoever is in `rooms.people`, which this empties, has moved first.
    """
    edges, unpushed = state.edges, state.rooms.unpushed
    for u in members_of(state.rooms.people):
        mark(state.news.moved, u)
    unmark_all(state.rooms.people)
    for e in which:
        mark(unpushed, edges.tail[e])
        mark(unpushed, edges.head[e])
    push_unpushed(state, state.tolerances.owed)


@compiled
def near_data(system: System, people: People, participant: int) -> bool:
    """Whether a participant has a screened edge, or data have moved its mean or its reach by much (`MOVED_FAR`)."""
    if diagonal_of(system, participant) != 1.0:  # as it is in Q: it was screened, or is no graph prior's
        return True
    by_common = at_common(people, participant, 1.0)
    moved = max(abs(cell(people.x, participant, MEAN) + people.reference[0] * by_common), abs(by_common))
    return bool(entry(people.scale, participant) * moved > MOVED_FAR)


@inlined
def fetch_near_data(system: System, people: People, participant: int) -> None:
    """Have fetched what `near_data` looks at, as far as it is not laid over."""
    fetch_entry(system.diagonal, participant)
    fetch_line(people.x, participant)
    fetch_entry(people.scale, participant)


@compiled
def find_lagging(state: State) -> None:
    """Put those of the moved into `rooms.people` who have come near data while their D lags."""
    people, moved, last = state.people, members_of(state.news.moved), state.news.moved.size[0] - 1
    for i, u in enumerate(moved):
        fetch_near_data(state.system, people, moved[min(i + SOON, last)])
        if bit_of(people.lagging, u) != 0 and near_data(state.system, people, u):
            mark(state.rooms.people, u)


@inlined
def fetch_edge(state: State, prior: Rescaling, place: int) -> None:
    """Have fetched what `rescale` reads of the contact at that place, as far as it is not laid over."""
    edge = state.system.incident[place]
    fetch_number(state.edges.prior, edge, NOISE)
    fetch_number(state.edges.prior, edge, USED_ENTRY)
    prefetch(prior.inverse_edge, edge)
    fetch_entry(state.people.scale, state.system.contact[place])


@compiled
def rescale(state: State, prior: Rescaling, touched: Ints, found: Marked) -> bool:
    """Renew D at `touched`, and find the edges there that have no prior yet, or a stale one; whether a D lags.

    Compares with what was used, not with the last change, so that many small changes do not add up unseen. D counts
    in a mean times how far data have moved that, and in a variance V as 2 V times its relative change.
    """
    unmark_all(found)
    system, people, tolerances = state.system, state.people, state.tolerances
    scale, rows, lags = people.scale, state.edges.prior, False
    last_row = len(touched) - 1
    for i in range(len(touched)):
        u, following = touched[i], touched[min(i + 1, last_row)]
        fetch_slabs(system, touched, i)
        next_first = system.start[following]
        for j in range(next_first, next_first + min(system.degree[following], CONTACTS_AHEAD)):
            fetch_edge(state, prior, j)
        was, now = entry(scale, u), prior.scale[i]
        off, allowed = abs(now - was), tolerances.scale * was
        rescaled = off > allowed
        if rescaled and not near_data(system, people, u):
            variance = prior.unit * was * was * entry(state.inverse.on_participant, u)
            allowed = was * min(tolerances.far, max(tolerances.scale / (2.0 * variance), tolerances.scale))
            rescaled = off > allowed
            if not rescaled:
                put_bit(people.lagging, u, 1)
                lags = True
        if rescaled:
            put(scale, u, now)
            was = now
            mark(state.news.moved, u)
            put_bit(people.lagging, u, 0)
        first = system.start[u]
        last = first + system.degree[u]
        for j in range(first, last):
            if j + CONTACTS_AHEAD < last:
                fetch_edge(state, prior, j + CONTACTS_AHEAD)
            e = system.incident[j]
            if rescaled or number(rows, e, NOISE) == 0.0:
                mark(found, e)
                continue
            off = abs(prior.inverse_edge[e] - number(rows, e, USED_ENTRY))
            if (
                off > tolerances.entry
                or off * prior.unit * was * entry(scale, system.contact[j]) > tolerances.scale
            ):
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
    x, sums, tolerances, unpushed = people.x, state.sums, state.inverse.tolerances, state.rooms.unpushed
    V, covariance = state.inverse.on_participant, state.inverse.on_edge
    square, own = 0.0, 0.0
    for i in range(len(which)):
        e = which[i]
        u, v = edges.tail[e], edges.head[e]
        w = edges.weight[e]
        level = priors.prior_mean[i] + people.reference[0]
        weight, deviation, left = regress(data, e, level, priors.noise[i], priors.residual[i])
        before = edge_prior(edges.prior, e)
        at_u, at_v, new_u, new_v = before.on_tail, before.on_head, priors.on_tail[i], priors.on_head[i]
        uu, vv = weight * new_u * new_u - w * at_u * at_u, weight * new_v * new_v - w * at_v * at_v
        uv = weight * new_u * new_v - w * at_u * at_v
        V_u, V_v = entry(V, u), entry(V, v)
        if max(abs(uu), abs(vv), abs(uv)) * max(V_u, V_v) > state.tolerances.first_order:
            rough[i] = 1
            continue
        for side in range(len(sums.form)):
            x_u, x_v = cell(x, u, side), cell(x, v, side)
            c, new_c = edges.coefficient[side, e], coefficient_of(side, weight, deviation, left)
            if new_c != c:
                edges.coefficient[side, e] = new_c
            to_u, to_v = new_c * new_u - c * at_u, new_c * new_v - c * at_v
            left_u = to_u - uu * x_u - uv * x_v
            left_v = to_v - vv * x_v - uv * x_u
            add_residual(people, unpushed, u, side, left_u)
            add_residual(people, unpushed, v, side, left_v)
            sums.form[side] += (to_u + left_u) * x_u + (to_v + left_v) * x_v
            sums.change[side] = new_c - c - at_common(people, u, to_u) - at_common(people, v, to_v)
        if len(sums.form) > COMMON:
            u_2, v_2 = cell(x, u, COMMON), cell(x, v, COMMON)
            moved_u = edges.coefficient[COMMON, e] * new_u - w * at_u - uu * u_2 - uv * v_2
            moved_v = edges.coefficient[COMMON, e] * new_v - w * at_v - vv * v_2 - uv * u_2
            for side in range(len(sums.form)):
                sums.border[side] += sums.change[side]
                sums.border[side] -= cell(x, u, side) * moved_u + cell(x, v, side) * moved_v
        if weight != 0.0:
            add_on_diagonal(state.system, u, uu)
            add_on_diagonal(state.system, v, vv)
            add_off_diagonal(state.system, e, uv)
            shared = entry(covariance, e)
            least_u, least_v = 1.0 / diagonal_of(state.system, u), 1.0 / diagonal_of(state.system, v)
            less = uu * V_u * shared + uv * (V_u * V_v + shared * shared) + vv * shared * V_v
            less_u = uu * V_u * V_u + 2.0 * uv * V_u * shared + vv * shared * shared
            less_v = uu * shared * shared + 2.0 * uv * shared * V_v + vv * V_v * V_v
            lower(V, u, less_u, least_u)
            lower(V, v, less_v, least_v)
            add_to(covariance, e, -less)
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
    return value * cell(people.x, participant, COMMON) if people.residual.shape[1] > COMMON else 0.0


@compiled
def take_prior(rows: Overlay, edge: int, priors: Priors, row: int) -> None:
    """Copy a row of priors to an edge's."""
    put_number(rows, edge, PRIOR_MEAN, priors.prior_mean[row])
    put_number(rows, edge, NOISE, priors.noise[row])
    put_number(rows, edge, ON_TAIL, priors.on_tail[row])
    put_number(rows, edge, ON_HEAD, priors.on_head[row])
    put_number(rows, edge, OWN_VARIANCE, priors.residual[row])
