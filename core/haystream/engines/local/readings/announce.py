"""What readers are told: whose reading has moved since they were last told of it, and which edges that concerns.

Whose reading has moved by little waits (`News.later`) until there is time: then `look_closely` has readers told of
that, too.
"""

from typing import NamedTuple

from haystream.engines.local.solves.budget import HUB_CONTACTS
from haystream.engines.local.solves.healing import Inverse
from haystream.engines.local.state.edge_ends import adjusted
from haystream.engines.local.state.state import (
    AT_MEAN,
    AT_REACH,
    AT_VARIANCE,
    CLOSELY,
    COUNTED,
    Edges,
    News,
    People,
    State,
    Told,
)
from haystream.memory.arrays import Ints, flag_of, mark, mark_as, members_of, unmark_all
from haystream.memory.compiled import compiled, inlined
from haystream.memory.overlay import (
    cell,
    entry,
    fetch_entry,
    fetch_line,
    fetch_own_entry,
    fetch_own_line,
    put,
    put_cell,
)
from haystream.memory.prefetch import SOON, prefetch


class At(NamedTuple):
    """The common quantities at which it counts by how much readings are off."""

    least_shift: float
    """Δ at the least until there is another reference, when all are looked at again: the exact one, at which tables
    are read, and the rounded one, at which scores are made."""
    most_shift: float
    """Δ at the most. In between a difference is no larger than at either."""
    variance: float
    """v_M, or the rounded one where it is more."""
    scale: float
    """σ², rounded, or more where it is so small that the variance of a P, which is not, says more."""


@compiled
def look_closely(news: News, participants: Ints) -> None:
    """Have `tell_people` look at these and at all their edges, and let none of them wait."""
    for u in participants:
        mark_as(news.moved, u, CLOSELY)


@compiled
def mark_edges_of(state: State, participants: Ints, edges: int) -> None:
    """Have the scores made again of all edges of these participants, of the first so many that there are."""
    system = state.system
    for u in participants:
        for j in range(system.start[u], system.start[u] + system.degree[u]):
            if system.incident[j] < edges:
                mark(state.news.stale, system.incident[j])


@compiled
def tell_people(state: State, at: At) -> None:
    """Find who of the moved differs from what readers were last told by more than the tolerance.

    Their edges are stale. Comparing with what was last told, not with the last event, keeps many small steps from
    adding up unseen; both at the same common quantities, and so that it holds at another shift too: a reach counts
    by what a shift of σ², about m itself, would make of it. Who differs by too little to be urgent, of a hub by
    more still, waits in `later`, unless to be looked at closely: then the edges whose covariance alone differs are
    stale, too. Whom readers are told of is in `rooms.people` then, and in `rooms.rows_before`, row by row, what
    they were told until now.
    """
    system, edges, people, inverse = state.system, state.edges, state.people, state.inverse
    news, tolerances, told, before = state.news, state.tolerances, state.rooms.people, state.rooms.rows_before
    unmark_all(told)
    last, of_people = news.told, news.told.people
    moved, last_one = members_of(news.moved), news.moved.size[0] - 1
    for i, u in enumerate(moved):
        fetch_reading(state, moved[min(i + 2 * SOON, last_one)])
        fetch_own_reading(state, moved[min(i + SOON, last_one)])
        closely = flag_of(news.moved, u) == CLOSELY
        mean, reach = adjusted(people, u, 0.0)
        D = entry(people.scale, u)
        spread = D * D * entry(inverse.on_participant, u)
        was = cell(of_people, u, AT_REACH)
        off_mean, off_reach = mean - cell(of_people, u, AT_MEAN), reach - was
        off_mean = max(abs(off_mean + at.least_shift * off_reach), abs(off_mean + at.most_shift * off_reach))
        off_spread = spread - cell(of_people, u, AT_VARIANCE) + at.variance * (reach * reach - was * was)
        difference = max(off_mean, at.scale * max(abs(off_spread), abs(off_reach)))
        differs = difference > tolerances.told
        if differs and not closely and difference <= tolerances.urgent * patience(system.degree[u]):
            mark(news.later, u)
            continue
        if differs:
            for column in range(before.shape[1]):
                before[told.size[0], column] = cell(of_people, u, column)
            put_cell(of_people, u, AT_MEAN, mean)
            put_cell(of_people, u, AT_REACH, reach)
            put_cell(of_people, u, AT_VARIANCE, spread)
            mark(told, u)
        first = system.start[u]
        for j in range(first, first + system.degree[u] if differs or closely else first):
            e = system.incident[j]
            if differs or at.scale * untold(edges, people, inverse, last, e) > tolerances.told:
                mark(news.stale, e)
    unmark_all(news.moved)


@compiled
def tell_edges(state: State, scale: float) -> None:
    """Find those of the stale edges whose rows in the tables differ, by a count or in the covariance.

    Most have not: an end's mean has moved. `scale`: σ², or more (`At`). Those that differ are in `rooms.edges`
    then, and in `rooms.covariances_before`, row by row, what readers were told of their covariances until now.
    """
    edges, people, inverse, news, rooms = state.edges, state.people, state.inverse, state.news, state.rooms
    told, before, last, tolerance = rooms.edges, rooms.covariances_before, news.told, state.tolerances.told
    unmark_all(told)
    stale, last_one = members_of(news.stale), news.stale.size[0] - 1
    for i, e in enumerate(stale):
        fetch_covariance(state, stale[min(i + 2 * SOON, last_one)])
        fetch_own_covariance(state, stale[min(i + SOON, last_one)])
        if flag_of(news.stale, e) == COUNTED or scale * untold(edges, people, inverse, last, e) > tolerance:
            before[told.size[0]] = entry(last.covariance, e)
            put(last.covariance, e, covariance(edges, people, inverse, e))
            mark(told, e)


@inlined
def fetch_reading(state: State, participant: int) -> None:
    """Have fetched what `tell_people` compares of a participant; and then, `SOON` later, what of that is laid over
    (`fetch_own_reading`)."""
    people = state.people
    prefetch(people.prior_mean, participant)
    prefetch(state.system.start, participant)
    prefetch(state.system.degree, participant)
    fetch_line(people.x, participant)
    fetch_line(state.news.told.people, participant)
    fetch_entry(people.scale, participant)
    fetch_entry(state.inverse.on_participant, participant)


@inlined
def fetch_own_reading(state: State, participant: int) -> None:
    """Have fetched what `tell_people` compares of a participant and is laid over (`fetch_reading`)."""
    people = state.people
    fetch_own_line(people.x, participant)
    fetch_own_line(state.news.told.people, participant)
    fetch_own_entry(people.scale, participant)
    fetch_own_entry(state.inverse.on_participant, participant)


@inlined
def fetch_covariance(state: State, edge: int) -> None:
    """Have fetched what `tell_edges` compares of an edge; and then, `SOON` later, what of that is laid over, and of
    its ends (`fetch_own_covariance`)."""
    told, on_edge = state.news.told.covariance, state.inverse.on_edge
    prefetch(state.edges.tail, edge)
    prefetch(state.edges.head, edge)
    fetch_entry(told, edge)
    fetch_entry(on_edge, edge)


@inlined
def fetch_own_covariance(state: State, edge: int) -> None:
    """Have fetched what `tell_edges` compares of an edge and is laid over (`fetch_covariance`)."""
    told, on_edge, scale = state.news.told.covariance, state.inverse.on_edge, state.people.scale
    fetch_own_entry(told, edge)
    fetch_own_entry(on_edge, edge)
    fetch_entry(scale, state.edges.tail[edge])
    fetch_entry(scale, state.edges.head[edge])


@compiled
def patience(contacts: int) -> float:
    """How much longer than others a participant with so many contacts may wait to be told of: 1, or more of a
    hub."""
    return max(1.0, contacts / HUB_CONTACTS)


@compiled
def covariance(edges: Edges, people: People, inverse: Inverse, edge: int) -> float:
    """D_u D_v (Λ⁻¹)_uv of an edge's ends."""
    D_u, D_v = entry(people.scale, edges.tail[edge]), entry(people.scale, edges.head[edge])
    both: float = D_u * D_v * entry(inverse.on_edge, edge)
    return both


@compiled
def untold(edges: Edges, people: People, inverse: Inverse, told: Told, edge: int) -> float:
    """By how much an edge's covariance differs from what readers were last told of it, in units of σ²."""
    difference: float = covariance(edges, people, inverse, edge) - entry(told.covariance, edge)
    return abs(difference)
