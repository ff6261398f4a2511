"""The compiled readings of the local engine: who moved, the moments of edges' ends, shares."""

from haystream.compiled import compiled
from haystream.engines.kernels import CLOSELY, WAITING
from haystream.engines.relax import VALUE, Flags, Floats, Ints, Scratch, System, begin, forget, solve
from haystream.engines.state import COMMON, MEAN, Edges, People
from haystream.models.base import Ends

STALE, COUNTED, NOTED = 1, 2, 4
"""Bits of `edge_flags`: listed in `stale`; screened or relevant items have been counted; scratch (`rescale`)."""

URGENT = 5.0
"""Whose reading moved by at most so many times what readers are told of anyway may wait until there is time: a
verdict then has a tenth of the edges to score again near hubs, and an item's score lags by 2e-4 at most."""

HUB = 1024
"""A participant with more contacts than this may wait for longer, in proportion: its edges are as many."""


@compiled
def adjusted(people: People, participant: int, shift: float) -> tuple[float, float]:
    """The adjusted mean of R at a shift of the common mean, and its reach (`models.base.Ends`)."""
    scale = people.scale[participant]
    mean = people.prior_mean[participant] + scale * people.sides[MEAN, participant, VALUE]
    if len(people.sides) <= COMMON:
        return mean, 0.0
    reach = 1.0 - scale * people.sides[COMMON, participant, VALUE]
    return mean + shift * reach, reach


@compiled
def settle_moved(
    system: System,
    edges: Edges,
    people: People,
    shift: float,
    variance: float,
    scale: float,
    tolerance: float,
    moved: Ints,
    moved_flags: Flags,
    moved_count: int,
    later: Ints,
    later_count: int,
    changed: Ints,
    edge_flags: Flags,
    stale: Ints,
    stale_count: int,
) -> tuple[int, int, int]:
    """Who of the moved differs from what readers were last told by more than the tolerance; their edges are stale.

    Comparing with what was last told, not with the last event, keeps many small steps from adding up unseen; both
    at the same `shift`, `variance` and `scale` of what all share, and so that it holds at another shift too: a
    reach counts by what a shift of σ², about m itself, would make of it. `scale` is σ², or more where σ² is so
    small that the variance of a P, which is not, says more. Who differs by less than URGENT tolerances, of a hub by
    more still, waits in `later`, unless to be looked at closely: then the edges whose covariance alone differs are
    stale, too. Returns the lengths of `changed`, of `stale` and of `later`; clears
    `moved_flags` but for the mark of those who wait.
    """
    count = 0
    for i in range(moved_count):
        u = moved[i]
        closely = moved_flags[u] & CLOSELY != 0
        moved_flags[u] &= WAITING
        mean, reach = adjusted(people, u, 0.0)
        spread = people.scale[u] * people.scale[u] * people.variance[u]
        seen = people.seen_reach[u]
        off_mean = mean - people.seen_mean[u] + shift * (reach - seen)
        off_spread = spread - people.seen_variance[u] + variance * (reach * reach - seen * seen)
        difference = max(abs(off_mean), scale * max(abs(off_spread), abs(reach - seen)))
        differs = difference > tolerance
        if differs and not closely and difference <= URGENT * tolerance * max(1.0, system.degree[u] / HUB):
            if moved_flags[u] == 0:
                moved_flags[u] = WAITING
                later[later_count] = u
                later_count += 1
            continue
        if differs:
            people.seen_mean[u] = mean
            people.seen_reach[u] = reach
            people.seen_variance[u] = spread
            changed[count] = u
            count += 1
        first = system.start[u]
        for j in range(first, first + system.degree[u] if differs or closely else first):
            e = system.incident[j]
            if edge_flags[e] == 0 and (differs or scale * unseen(edges, people, e) > tolerance):
                edge_flags[e] = STALE
                stale[stale_count] = e
                stale_count += 1
    return count, stale_count, later_count


@compiled
def unseen(edges: Edges, people: People, edge: int) -> float:
    """By how much an edge's covariance differs from what readers were last told of it, in units of σ²."""
    scale = people.scale[edges.tail[edge]] * people.scale[edges.head[edge]]
    off: float = scale * edges.covariance[edge] - edges.seen_covariance[edge]
    return abs(off)


@compiled
def settle_rows(
    edges: Edges, people: People, scale: float, tolerance: float, edge_flags: Flags, stale: Ints, rows: Ints
) -> int:
    """Which of the stale edges have rows in the tables that differ, by a count or by more than the tolerance in the
    covariance. Most have not: an end's mean has moved. Returns the length of `rows`; clears `edge_flags`.
    """
    count = 0
    for e in stale:
        if edge_flags[e] & COUNTED != 0 or scale * unseen(edges, people, e) > tolerance:
            D_u, D_v = people.scale[edges.tail[e]], people.scale[edges.head[e]]
            edges.seen_covariance[e] = D_u * D_v * edges.covariance[e]
            rows[count] = e
            count += 1
        edge_flags[e] = 0
    return count


@compiled
def edge_ends(
    edges: Edges,
    people: People,
    which: Ints,
    shift: float,
    variance: float,
    scale: float,
    discrepancy: float,
    out: Ends,
) -> None:
    """The adjusted moments of the ends of the edges in `which`, row i of `out` for which[i] (NOTES, section 2).

    Cov(R_u, R_v) = σ² [D_u D_v (Λ⁻¹)_uv + reach_u reach_v v_M] + v_u v_v / (1 + q), v what the constraint takes off
    a mean.
    """
    for i in range(len(which)):
        e = which[i]
        u, v = edges.tail[e], edges.head[e]
        mean_u, reach_u = adjusted(people, u, shift)
        mean_v, reach_v = adjusted(people, v, shift)
        D_u, D_v = people.scale[u], people.scale[v]
        off_u = mean_u - min(max(mean_u, 0.0), 1.0)
        off_v = mean_v - min(max(mean_v, 0.0), 1.0)
        inflation = 1.0 / (1.0 + discrepancy)
        out.mean_tail[i] = mean_u
        out.mean_head[i] = mean_v
        out.variance_tail[i] = scale * (D_u * D_u * people.variance[u] + reach_u * reach_u * variance)
        out.variance_head[i] = scale * (D_v * D_v * people.variance[v] + reach_v * reach_v * variance)
        out.covariance[i] = scale * (D_u * D_v * edges.covariance[e] + reach_u * reach_v * variance)
        out.variance_tail[i] += off_u * off_u * inflation
        out.variance_head[i] += off_v * off_v * inflation
        out.covariance[i] += off_u * off_v * inflation
        out.reach_tail[i] = reach_u
        out.reach_head[i] = reach_v


@compiled
def collect_shares(
    system: System,
    edges: Edges,
    screened: Ints,
    which: Ints,
    shift: float,
    tolerance: float,
    room: Scratch,
    edge_flags: Flags,
    found: Ints,
    shares: Floats,
) -> int:
    """The shares w_f (d_f − Δ) β̃_fᵀ Λ⁻¹ a of the screened edges f, a = mean over `which` of (1 − ρ_e) β̃_e.

    An edge's own data speak of its own η too: ρ_e (d_e − Δ) / len(which) more, with ρ_e = Var(η_e) w_e.
    `screened`: all edges that may have a weight; gone through where they are fewer than the contacts of whom the
    solve reaches. Returns how many shares there are; `found` and `shares` hold them. `edge_flags` is scratch, zero
    before and after.
    """
    listed = 0
    for i in range(len(which)):
        e = which[i]
        part = (1.0 - edges.residual[e] * edges.weight[e]) / len(which)
        listed = begin(room, edges.tail[e], part * edges.on_tail[e], listed)
        listed = begin(room, edges.head[e], part * edges.on_head[e], listed)
    listed = solve(system, tolerance, room, listed)
    values, contacts = room.cells[:, VALUE], 0
    for i in range(listed):
        t = room.touched[i]
        contacts += system.degree[t] if values[t] != 0.0 else 0
    count = 0
    if len(screened) < contacts:
        for i in range(len(screened)):
            f = screened[i]
            reached = values[edges.tail[f]] != 0.0 or values[edges.head[f]] != 0.0
            if reached and edges.weight[f] != 0.0:
                edge_flags[f] = 1
                found[count] = f
                count += 1
    else:
        for i in range(listed):
            t = room.touched[i]
            first = system.start[t]
            for j in range(first, first + system.degree[t] if values[t] != 0.0 else first):
                f = system.incident[j]
                if edges.weight[f] != 0.0 and edge_flags[f] == 0:
                    edge_flags[f] = 1
                    found[count] = f
                    count += 1
    for i in range(count):
        f = found[i]
        at = edges.on_tail[f] * values[edges.tail[f]] + edges.on_head[f] * values[edges.head[f]]
        shares[i] = (edges.coefficient[MEAN, f] - shift * edges.weight[f]) * at
    for i in range(len(which)):
        e = which[i]
        if edges.weight[e] != 0.0 and edge_flags[e] == 0:
            edge_flags[e] = 1
            found[count] = e
            shares[count] = 0.0
            count += 1
    for i in range(count):
        f = found[i]
        edge_flags[f] = 0
        for j in range(len(which)):
            if which[j] == f:
                own = edges.coefficient[MEAN, f] - shift * edges.weight[f]
                shares[i] += own * edges.residual[f] / len(which)
    forget(room, listed)
    return count
