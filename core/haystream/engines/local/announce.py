"""Who has moved since readers were last told, and so which rows are written and which edges scored again."""

from haystream.arrays import Flags, Ints
from haystream.compiled import compiled
from haystream.engines.local.edge_ends import adjusted
from haystream.engines.local.solve import System
from haystream.engines.local.state import Edges, People
from haystream.engines.local.update_verdict import CLOSELY, WAITING

STALE, COUNTED, NOTED = 1, 2, 4
"""Bits of `edge_flags`: listed in `stale`; screened or relevant items have been counted; scratch (`rescale`)."""

URGENT = 5.0
"""Whose reading moved by at most so many times what readers are told of anyway may wait until there is time: a
verdict then has a tenth of the edges to score again near hubs, and an item's score lags by 2e-4 at most."""

HUB = 1024
"""A participant with more contacts than this may wait for longer, in proportion: its edges are as many."""


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
