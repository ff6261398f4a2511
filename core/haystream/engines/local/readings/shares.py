"""What each screened edge adds to an expectation: its additive share, from one local solve for all of them."""

from haystream.engines.contract import LargestShares
from haystream.engines.local.solves.sides import MEAN
from haystream.engines.local.solves.solve import VALUE, begin, forget, solve, touched_by
from haystream.engines.local.solves.solve_beside import (
    COLUMNS_BESIDE,
    begin_beside,
    forget_beside,
    solve_beside,
    take_solution,
)
from haystream.engines.local.state.edge_priors import edge_prior
from haystream.engines.local.state.state import Edges, State
from haystream.memory.arrays import Floats, Ints, Longs, Marked, flag_of, mark, put_largest, unmark_all
from haystream.memory.compiled import compiled, inlined


@compiled
def collect_largest(
    state: State, screened: Ints, start: Longs, which: Ints, shift: float, most: int, largest: LargestShares
) -> None:
    """Put into `largest` up to `most` shares that are not 0, in the mean of P over the edges of each set.

    The edges of set s are which[start[s] : start[s + 1]]. `screened`: all edges that may have a weight. `shift`: Δ,
    less what side MEAN counts from. Sets one after the other that are near the first of them are solved at once."""
    system, edges, rooms, tolerance = state.system, state.edges, state.rooms, state.tolerances.share
    room, beside, found, shares = rooms.column, rooms.beside, rooms.edges, rooms.shares
    largest.start[0] = done = 0
    while done < len(start) - 1:
        count = count_near(state, start, which, done)
        for k in range(count):
            of = which[start[done + k] : start[done + k + 1]]
            for e in of:
                prior = edge_prior(edges.prior, e)
                part = (1.0 - prior.residual * edges.weight[e]) / len(of)
                for u, value in ((edges.tail[e], part * prior.on_tail), (edges.head[e], part * prior.on_head)):
                    if count == 1:
                        begin(system, room, u, value)
                    else:
                        begin_beside(system, room, beside, k, u, value)
        if count == 1:
            solve(system, tolerance, room)
        else:
            solve_beside(system, tolerance, room, beside)
        for k in range(count):
            if count > 1:
                take_solution(room, beside, k)
            find_shares(state, screened, which[start[done + k] : start[done + k + 1]], shift)
            first = largest.start[done + k]
            rows = largest.edge[first : first + most]
            kept = put_largest(shares, 0, found.size[0], rows)
            for i in range(kept):
                largest.share[first + i] = shares[rows[i]]
                rows[i] = found.members[rows[i]]
            largest.start[done + k + 1] = first + kept
            unmark_all(found)
        if count == 1:
            forget(room)
        else:
            forget_beside(room, beside)
        done += count


@compiled
def count_near(state: State, start: Longs, which: Ints, first: int) -> int:
    """How many sets from the `first` on are to be solved side by side, it included: those one after the other of
    which an end of an edge is an end of its own first edge, or a contact of one."""
    system, edges, near = state.system, state.edges, state.rooms.people
    last = min(first + COLUMNS_BESIDE, len(start) - 1)
    if last == first + 1:
        return 1
    e = which[start[first]]
    for u in (edges.tail[e], edges.head[e]):
        mark(near, u)
        for i in range(system.start[u], system.start[u] + system.degree[u]):
            mark(near, system.contact[i])
    count = 1
    while first + count < last:
        e = which[start[first + count]]
        if flag_of(near, edges.tail[e]) == 0 and flag_of(near, edges.head[e]) == 0:
            break
        count += 1
    unmark_all(near)
    return count


@compiled
def find_shares(state: State, screened: Ints, which: Ints, shift: float) -> None:
    """Put the edges that have a share in the mean over a set into `rooms.edges`, for the caller to empty, and their
    shares into `rooms.shares`. Λ⁻¹a is in `rooms.column`.

    Of a screened edge f it is w_f (d_f − Δ) β̃_fᵀ Λ⁻¹ a, a = mean over `which` of (1 − ρ_e) β̃_e. An edge's own
    data speak of its own η too: ρ_e (d_e − Δ) / len(which) more, with ρ_e = Var(η_e) w_e. `screened` is gone
    through where it is less than the contacts of whom the solve reaches."""
    system, edges, room, found = state.system, state.edges, state.rooms.column, state.rooms.edges
    shares, values, contacts = state.rooms.shares, room.cells[:, VALUE], 0
    for t in touched_by(room):
        contacts += system.degree[t] if values[t] != 0.0 else 0
        if contacts > len(screened):
            break
    if len(screened) < contacts:
        for f in screened:
            if values[edges.tail[f]] != 0.0 or values[edges.head[f]] != 0.0:
                add_share(edges, found, f, values, shift, shares)
    else:
        for t in touched_by(room):
            first = system.start[t]
            for j in range(first, first + system.degree[t] if values[t] != 0.0 else first):
                add_share(edges, found, system.incident[j], values, shift, shares)
    for e in which:
        add_share(edges, found, e, values, shift, shares)
        of_own = (edges.coefficient[MEAN, e] - shift * edges.weight[e]) * edge_prior(edges.prior, e).residual
        for i in range(found.size[0] if of_own != 0.0 else 0):
            if found.members[i] == e:
                shares[i] += of_own / len(which)


@inlined
def add_share(edges: Edges, found: Marked, edge: int, values: Floats, shift: float, shares: Floats) -> None:
    """Put an edge with data into `found`, unless it is there, and what it adds by its ends, where a solve is at
    `values`, into `shares`."""
    weight = edges.weight[edge]
    if weight != 0.0 and flag_of(found, edge) == 0:
        prior = edge_prior(edges.prior, edge)
        at = prior.on_tail * values[edges.tail[edge]] + prior.on_head * values[edges.head[edge]]
        shares[found.size[0]] = (edges.coefficient[MEAN, edge] - shift * weight) * at
        mark(found, edge)
