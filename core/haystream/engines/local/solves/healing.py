"""Who waits to have its entries of an inverse solved afresh, and how that is done.

A correction of the inverse (`inverse_entries`) is as good as the columns that it is made of, which are solved up to
a tolerance. What they leave out adds up in the entries that it is added to: that is the **strain** of a
participant, and who has too much of it waits to be **healed**: solved afresh, when there is time."""

from typing import NamedTuple

import numpy as np

from haystream.engines.local.solves.budget import EntryTolerances
from haystream.engines.local.solves.solve import (
    DIAGONAL,
    RESIDUAL,
    VALUE,
    Scratch,
    System,
    begin,
    forget,
    solve,
    touched_by,
)
from haystream.memory.arrays import Flags, Floats, Ints, Longs, Marked, mark, unmark_all
from haystream.memory.compiled import compiled, inlined
from haystream.memory.overlay import Overlay, add_to, entry, flat, put, whole

HEALED_AT_ONCE = 64
"""Where much is new, so many participants' entries are solved at once (some milliseconds); the others start
from an estimate, and wait for healing."""


class Healing(NamedTuple):
    """Participants whose entries of the inverse wait to be solved afresh: a ring, first in first out, each at most
    once. Every member but `state` is (participants,)."""

    strain: Overlay
    ring: Ints
    waiting: Flags
    fresh: Flags
    """Solved afresh since much was new in the matrix: what a contact is found to have drifted does not matter."""
    state: Longs
    """Shape (2,): where the ring begins, and how many wait."""


class Inverse(NamedTuple):
    """The entries of the inverse of a matrix that lie on the graph."""

    on_participant: Overlay
    """(Λ⁻¹)_uu, shape (participants,)."""
    on_edge: Overlay
    """(Λ⁻¹)_uv, shape (edges,)."""
    tolerances: EntryTolerances
    healing: Healing


def healing(participants: int, queue: Healing | None = None) -> Healing:
    """Nobody waits; or whoever waits in another queue, which may have had less room."""
    strain, flags = np.zeros(participants), np.zeros((2, participants), np.uint8)
    made = Healing(whole(strain, 1), np.zeros(participants, np.int32), flags[0], flags[1], np.zeros(2, np.int64))
    if queue is not None:
        known = len(queue.ring)
        begins, count = queue.state
        strain[:known] = flat(queue.strain)
        for new, old in ((made.waiting, queue.waiting), (made.fresh, queue.fresh)):
            new[:known] = old
        if count:
            made.ring[:count] = queue.ring[(begins + np.arange(count)) % known]
        made.state[1] = count
    return made


@compiled
def add_strain(queue: Healing, u: int, strain: float, most: float) -> None:
    """Add to a participant's strain; it waits for healing from `most` on."""
    total = add_to(queue.strain, u, strain)
    if total >= most and queue.waiting[u] == 0:
        queue.waiting[u] = 1
        queue.ring[(queue.state[0] + queue.state[1]) % len(queue.ring)] = u
        queue.state[1] += 1


@inlined
def lower(column: Overlay, u: int, change: float, least: float) -> None:
    """Take from a participant's entry, down to the `least` that it may be."""
    if add_to(column, u, -change) < least:
        put(column, u, least)


@compiled
def let_wait(queue: Healing, participants: Ints) -> None:
    """Have all of these wait for healing, in this order."""
    for u in participants:
        add_strain(queue, u, np.inf, 0.0)


def forget_fresh(queue: Healing) -> None:
    """Say that much is new: nobody was solved afresh since."""
    queue.fresh[np.flatnonzero(queue.fresh)] = 0  # memory that is written to is one's own from then on


@compiled
def let_go(queue: Healing, participants: Ints) -> None:
    """Have these wait no more, unless they are to be solved anyway (strain inf): their entries are known."""
    for u in participants:
        if entry(queue.strain, u) < np.inf:
            put(queue.strain, u, 0.0)
            queue.waiting[u] = 0
    begin, kept, size = queue.state[0], 0, len(queue.ring)
    for i in range(queue.state[1]):
        u = queue.ring[(begin + i) % size]
        if queue.waiting[u] != 0:
            queue.ring[(begin + kept) % size] = u
            kept += 1
    queue.state[1] = kept


def last_to_wait(queue: Healing, since: int) -> list[int]:
    """Who began to wait when so many did already."""
    begin, count = queue.state.tolist()
    return [queue.ring.item((begin + place) % len(queue.ring)) for place in range(since, count)]


@compiled
def left_out(column: Scratch, other: Floats) -> float:
    """ρᵀl, what a column k solved up to a residual ρ leaves out of its product with the source of another column l.

    e_vᵀΛ⁻¹e_u = k_v + ρᵀΛ⁻¹e_v, and l is Λ⁻¹e_v but for what it leaves out itself: the error is of second order.
    """
    rest = 0.0
    for t in touched_by(column):
        rest += column.cells[t, RESIDUAL] * other[t]
    return rest


@compiled
def read_entry(inverse: Inverse, u: int, column: Scratch) -> float:
    """Take what a column k of the inverse, solved up to a residual ρ, says of a participant, and return by how much
    its entry had been off.

    (Λ⁻¹)_uu = k_u + ρᵀk + ρᵀΛ⁻¹ρ: without its last term, which is left out, its error is of second order.
    """
    was, cells = entry(inverse.on_participant, u), column.cells
    afresh: float = cells[u, VALUE] + left_out(column, cells[:, VALUE])
    put(inverse.on_participant, u, afresh)
    return abs(afresh - was)


@inlined
def at_contact(column: Scratch, v: int) -> float:
    """What a column of the inverse says of a contact: one more step, k_v + ρ_v / Λ_vv."""
    return float(column.cells[v, VALUE] + column.cells[v, RESIDUAL] / column.cells[v, DIAGONAL])


@compiled
def read_contacts(system: System, inverse: Inverse, u: int, column: Scratch) -> float:
    """Take what a column of the inverse says of a participant's contacts, and return by how much their entries had
    been off at most."""
    drift, first = 0.0, system.start[u]
    for i in range(first, first + system.degree[u]):
        e, afresh = system.incident[i], at_contact(column, system.contact[i])
        drift = max(drift, abs(afresh - entry(inverse.on_edge, e)))
        put(inverse.on_edge, e, afresh)
    return drift


@compiled
def doubt_contacts(system: System, inverse: Inverse, u: int, column: Scratch, moved: float) -> None:
    """Strain contacts of a participant whose entry had drifted by so much, unless they are fresh.

    Of what one contact v has, (Λ⁻¹)_uv² / (Λ⁻¹)_vv at most is in u's entry. What moved that was at u, or at least a
    contact's part of it was in some v: who may be that one waits. Of the others, which are contacts of a hub, v has
    moved with u by (Λ⁻¹)_uv² / (Λ⁻¹)_uu² of what u did, which is negligible for most.

    What has moved neither of them alone, such as data on an edge, which are of a sum, has moved v by c² over what u
    did. c, by which it has moved what they have in common, is what (Λ⁻¹)_uv is off by, not read off the column yet:
    as far as that is more than columns are.
    """
    queue, on_participant, tolerances = inverse.healing, inverse.on_participant, inverse.tolerances
    first, count = system.start[u], system.degree[u]
    here, part = entry(on_participant, u), moved / max(count, 1)
    for i in range(first, first + count):
        v, was = system.contact[i], entry(inverse.on_edge, system.incident[i])
        if queue.fresh[v] == 0:
            afresh = at_contact(column, v)
            in_common = max(abs(afresh - was) - tolerances.healed, 0.0)
            behind_it = afresh * afresh >= part * entry(on_participant, v)
            strain = np.inf if behind_it else max(moved * (afresh / here) ** 2, in_common * in_common / moved)
            if strain > tolerances.negligible:  # memory that is written to is the query's own from then on
                add_strain(queue, v, strain, tolerances.strain)


@compiled
def heal(system: System, inverse: Inverse, most: int, room: Scratch, healed: Marked, stop: Ints) -> float:
    """Solve the entries of up to `most` of those waiting afresh; return by how much the worst had drifted.

    Where much had drifted, contacts that are not fresh may have, too (`doubt_contacts`). Another thread may set
    `stop`, shape (1,): after the participant that is in hand nobody is solved then. `healed` are those solved.
    """
    unmark_all(healed)
    queue, tolerances, worst = inverse.healing, inverse.tolerances, 0.0
    for _ in range(min(most, len(healed.members))):
        if queue.state[1] == 0:
            break
        u = queue.ring[queue.state[0]]
        queue.state[0] = (queue.state[0] + 1) % len(queue.ring)
        queue.state[1] -= 1
        queue.waiting[u] = 0
        put(queue.strain, u, 0.0)
        queue.fresh[u] = 1
        begin(system, room, u, 1.0)
        solve(system, tolerances.healed, room)
        moved = read_entry(inverse, u, room)
        # An edge's entry is read off the columns of both its ends, which differ: alone it cannot tell.
        if moved > tolerances.drifted:
            doubt_contacts(system, inverse, u, room, moved)
        drift = read_contacts(system, inverse, u, room)
        forget(room)
        worst = max(worst, drift, moved)
        mark(healed, u)
        if stop[0] != 0:
            break
    return worst
