"""Residuals that are given up while nobody needs them, and computed again when somebody does.

What pushes leave below their tolerance falls on nearly everybody, so residuals differ from the original's nearly
everywhere, and are the largest part of what a query has in memory. They follow from what else differs: with x₀, Λ₀,
b₀ and r₀ the original's, r = b − Λx is

    r₀ + (b − b₀) − Λ₀ (x − x₀) − (Λ − Λ₀) x,

and what differs in x and in Λ is laid over the original's by the line. Where b differs, at the ends of edges with
data of their own, b − b₀ is kept.
"""

from typing import NamedTuple

import numpy as np

from haystream.engines.local.solves.solve import CONTACTS_AHEAD, System, fetch_contact, fetch_contacts, fetch_slabs
from haystream.engines.local.state.state import People, State
from haystream.memory.arrays import Floats, Ints
from haystream.memory.compiled import compiled
from haystream.memory.copies import give_back
from haystream.memory.overlay import cell, entry, is_whole, lines, place_of

ROUNDING_SHARE = 1e-9
"""A part of its tolerance by which a residual that was kept up by difference may be off from b − Λx."""

LEAST_ROUNDING = 1e-14
"""The same where tolerances are of the size of rounding errors: of numbers of about 1, some tens of these."""


class Remains(NamedTuple):
    """What is left of residuals that were given up."""

    participants: Ints
    """Where b − b₀ is not zero, ascending."""
    sides: Floats
    """b − b₀ there, shape (k, sides)."""


def give_up(state: State, participants: int, edges: int) -> Remains | None:
    """What `take_up` needs to have the residuals again; they are the original's from now on.

    None, and nothing is done, where they could not be had again: the arrays are no copies of an original's, or are
    not laid over them any more.
    """
    system, people, residual = state.system, state.people, state.people.residual
    if any(map(is_whole, (people.x, system.off, system.diagonal))):
        return None
    was = residual[:participants].copy()
    if not give_back(residual):
        return None
    take_up(state, edges, Remains(np.zeros(0, np.int32), np.zeros((0, residual.shape[1]))))
    more = was - residual[:participants]
    rounding = np.maximum(ROUNDING_SHARE * state.tolerances.sides, LEAST_ROUNDING)
    where = np.flatnonzero((np.abs(more) > rounding).any(axis=1))
    if not give_back(residual):
        residual[:participants] = was
        return None
    return Remains(where.astype(np.int32), more[where])


def take_up(state: State, edges: int, remains: Remains) -> None:
    """Have the residuals again, at the cost of the contacts of all whose solution differs from the original's.

    Λ has entries for the first `edges` of the graph, or for fewer of them.
    """
    system, people = state.system, state.people
    _follow_solution(system, people, lines(people.x), edges)
    _follow_matrix(system, people, lines(system.off), lines(system.diagonal))
    people.residual[remains.participants] += remains.sides


@compiled
def _follow_solution(system: System, people: People, which: Ints, edges: int) -> None:
    """Take Λ₀ (x − x₀) from the residuals, of these participants' x."""
    x, residual, off, diagonal = people.x, people.residual, system.off.below, system.diagonal.below
    sides = residual.shape[1]
    for row in range(len(which)):
        u = which[row]
        at, below, first = place_of(x, u), u * sides, system.start[u]
        fetch_slabs(system, which, row)
        if row + 1 < len(which):
            fetch_contacts(system, which[row + 1], residual)
        for side in range(sides):
            residual[u, side] -= diagonal[u] * (x.own[at, side] - x.below[below + side])
        last = first + system.degree[u]
        for i in range(first, last):
            if i + CONTACTS_AHEAD < last:
                fetch_contact(system, i + CONTACTS_AHEAD, residual)
            e = system.incident[i]
            if e >= edges:  # nor are those after it in Λ: contacts are in the order of edges
                break
            v = system.contact[i]
            for side in range(sides):
                residual[v, side] -= off[e] * (x.own[at, side] - x.below[below + side])


@compiled
def _follow_matrix(system: System, people: People, of_edges: Ints, participants: Ints) -> None:
    """Take (Λ − Λ₀) x from the residuals, of these lines of entries off the diagonal, and of those on it."""
    x, residual, off, diagonal = people.x, people.residual, system.off, system.diagonal
    width = off.own.shape[1]
    for line in of_edges:
        for e in range(line * width, min((line + 1) * width, len(off.below))):
            change = entry(off, e) - off.below[e]
            if change == 0.0:  # nor need there be such an edge
                continue
            u, v = system.tail[e], system.head[e]
            for side in range(residual.shape[1]):
                residual[u, side] -= change * cell(x, v, side)
                residual[v, side] -= change * cell(x, u, side)
    for u in participants:
        change = entry(diagonal, u) - diagonal.below[u]
        for side in range(residual.shape[1]):
            residual[u, side] -= change * cell(x, u, side)
