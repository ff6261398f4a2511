"""What each screened edge adds to an expectation: its additive share, from one local solve."""

from typing import NamedTuple

import numpy as np

from haystream.arrays import Floats, Ints, Longs, Marked, mark, members_of, unmark_all
from haystream.compiled import compiled
from haystream.engines.local.edge_priors import edge_prior
from haystream.engines.local.sides import MEAN
from haystream.engines.local.solve import VALUE, Scratch, System, begin, forget, solve, touched_by
from haystream.engines.local.state import Edges, State


class Largest(NamedTuple):
    """Of each of some sets the screened edges with the largest shares, largest first."""

    edge: Ints
    """Shape (sets, most)."""
    share: Floats
    """The same shape."""
    found: Longs
    """How many there are, shape (sets,)."""


def room_for_largest(sets: int, most: int) -> Largest:
    """Return room for at most so many shares of each of so many sets; none is in it."""
    return Largest(np.empty((sets, most), np.int32), np.empty((sets, most)), np.zeros(sets, np.int64))


@compiled
def collect_largest(
    state: State, screened: Ints, start: Longs, which: Ints, shift: float, largest: Largest
) -> None:
    """Put into `largest` the largest shares that are not 0, in the mean of P over the edges of each set.

    The edges of set s are which[start[s] : start[s + 1]]. `shift`: Δ, less what side MEAN counts from.
    """
    found, shares, most = state.rooms.edges, state.rooms.shares, largest.edge.shape[1]
    for s in range(len(start) - 1):
        of = which[start[s] : start[s + 1]]
        collect_shares(
            state.system,
            state.edges,
            state.rooms.column,
            found,
            screened,
            of,
            shift,
            state.tolerances.share,
            shares,
        )
        edge, share, count = largest.edge[s], largest.share[s], 0
        for i, f in enumerate(members_of(found)):
            if shares[i] == 0.0:
                continue
            at = count
            while at > 0 and abs(share[at - 1]) < abs(shares[i]):
                at -= 1
            if at == most:
                continue
            count = min(count + 1, most)
            for below in range(count - 1, at, -1):
                edge[below], share[below] = edge[below - 1], share[below - 1]
            edge[at], share[at] = f, shares[i]
        largest.found[s] = count
        unmark_all(found)


@compiled
def collect_shares(
    system: System,
    edges: Edges,
    room: Scratch,
    found: Marked,
    screened: Ints,
    which: Ints,
    shift: float,
    tolerance: float,
    shares: Floats,
) -> None:
    """Put the edges that have a share into `found`, for the caller to empty, and their shares into `shares`.

    Of a screened edge f it is w_f (d_f − Δ) β̃_fᵀ Λ⁻¹ a, a = mean over `which` of (1 − ρ_e) β̃_e. An edge's own
    data speak of its own η too: ρ_e (d_e − Δ) / len(which) more, with ρ_e = Var(η_e) w_e. `screened`: all edges
    that may have a weight; gone through where they are fewer than the contacts of whom the solve reaches."""
    for i in range(len(which)):
        e = which[i]
        prior = edge_prior(edges.prior, e)
        part = (1.0 - prior.residual * edges.weight[e]) / len(which)
        begin(system, room, edges.tail[e], part * prior.on_tail)
        begin(system, room, edges.head[e], part * prior.on_head)
    solve(system, tolerance, room)
    values, contacts = room.cells[:, VALUE], 0
    for t in touched_by(room):
        contacts += system.degree[t] if values[t] != 0.0 else 0
    if len(screened) < contacts:
        for i in range(len(screened)):
            f = screened[i]
            reached = values[edges.tail[f]] != 0.0 or values[edges.head[f]] != 0.0
            if reached and edges.weight[f] != 0.0:
                mark(found, f)
    else:
        for t in touched_by(room):
            first = system.start[t]
            for j in range(first, first + system.degree[t] if values[t] != 0.0 else first):
                if edges.weight[system.incident[j]] != 0.0:
                    mark(found, system.incident[j])
    by_ends = found.size[0]
    for i in range(by_ends):
        f = found.members[i]
        of_f = edge_prior(edges.prior, f)
        at = of_f.on_tail * values[edges.tail[f]] + of_f.on_head * values[edges.head[f]]
        shares[i] = (edges.coefficient[MEAN, f] - shift * edges.weight[f]) * at
    for i in range(len(which)):
        if edges.weight[which[i]] != 0.0:
            mark(found, which[i])
    shares[by_ends : found.size[0]] = 0.0
    for i, f in enumerate(members_of(found)):
        for j in range(len(which)):
            if which[j] == f:
                own = edges.coefficient[MEAN, f] - shift * edges.weight[f]
                shares[i] += own * edge_prior(edges.prior, f).residual / len(which)
    forget(room)
