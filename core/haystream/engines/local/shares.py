"""What each screened edge adds to an expectation: its additive share, from one local solve."""

from haystream.arrays import Floats, Ints, Longs, Marked, flag_of, mark, put_largest, unmark_all
from haystream.compiled import compiled, inlined
from haystream.engines.contract import LargestShares
from haystream.engines.local.edge_priors import edge_prior
from haystream.engines.local.sides import MEAN
from haystream.engines.local.solve import VALUE, begin, forget, solve, touched_by
from haystream.engines.local.state import Edges, State


@compiled
def collect_largest(
    state: State, screened: Ints, start: Longs, which: Ints, shift: float, most: int, largest: LargestShares
) -> None:
    """Put into `largest` up to `most` shares that are not 0, in the mean of P over the edges of each set.

    The edges of set s are which[start[s] : start[s + 1]]. `shift`: Δ, less what side MEAN counts from.
    """
    found, shares = state.rooms.edges, state.rooms.shares
    largest.start[0] = 0
    for s in range(len(start) - 1):
        collect_shares(state, screened, which[start[s] : start[s + 1]], shift)
        first = largest.start[s]
        rows = largest.edge[first : first + most]
        count = put_largest(shares, 0, found.size[0], rows)
        for i in range(count):
            largest.share[first + i] = shares[rows[i]]
            rows[i] = found.members[rows[i]]
        largest.start[s + 1] = first + count
        unmark_all(found)


@compiled
def collect_shares(state: State, screened: Ints, which: Ints, shift: float) -> None:
    """Put the edges that have a share into `rooms.edges`, for the caller to empty, and these into `rooms.shares`.

    Of a screened edge f it is w_f (d_f − Δ) β̃_fᵀ Λ⁻¹ a, a = mean over `which` of (1 − ρ_e) β̃_e. An edge's own
    data speak of its own η too: ρ_e (d_e − Δ) / len(which) more, with ρ_e = Var(η_e) w_e. `screened`: all edges
    that may have a weight; gone through where they are fewer than the contacts of whom the solve reaches."""
    system, edges, room = state.system, state.edges, state.rooms.column
    found, shares = state.rooms.edges, state.rooms.shares
    for i in range(len(which)):
        e = which[i]
        prior = edge_prior(edges.prior, e)
        part = (1.0 - prior.residual * edges.weight[e]) / len(which)
        begin(system, room, edges.tail[e], part * prior.on_tail)
        begin(system, room, edges.head[e], part * prior.on_head)
    solve(system, state.tolerances.share, room)
    values, contacts = room.cells[:, VALUE], 0
    for t in touched_by(room):
        contacts += system.degree[t] if values[t] != 0.0 else 0
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
    forget(room)


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
