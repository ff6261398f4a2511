"""Local solves of sparse symmetric positive definite systems Λx = b, by pushing residuals.

Λ has the sparsity of the graph itself (docs/method.md, "Why the linear form"): a diagonal entry per participant and
one off-diagonal entry per edge. A participant whose residual r = b − Λx exceeds tolerance × its diagonal takes the
whole of it into x and hands the consequence to its contacts: Gauss-Seidel steps in the order in which they are
needed, which converges for every such matrix and touches only a neighbourhood.

A solve is done in a scratch, of whom it reaches: what was there before is only read."""

from typing import NamedTuple

import numpy as np

from haystream.collection.graph import Graph
from haystream.memory.arrays import Bits, Floats, Ints, Longs, bit_of, put_bit
from haystream.memory.compiled import compiled, inlined, viewing
from haystream.memory.overlay import USED, WHOLE, Overlay, add_to, entry
from haystream.memory.prefetch import prefetch

VALUE, RESIDUAL, DIAGONAL, MARK = 0, 1, 2, 3
"""Columns of a participant's cell: x, r, Λ_uu, and whether the participant waits in the ring or is listed. They lie
side by side because a push reads and writes all of them at once, of participants anywhere in memory."""

UNMARKED, LISTED, QUEUED = 0.0, 1.0, 2.0
"""Marks. LISTED: in the list of the touched; QUEUED: there and in the ring."""


MOST_STEPS = 50_000_000
"""So many steps, a push and each contact that it reaches being one, are a few tenths of a second. Inside of the
models' ranges local solves took up to a tenth of them, on random graphs of 20,000 participants with four contacts
each."""

WHOLE_GRAPH_ROUNDS = 1000
"""A solve on the whole graph may take so many steps more for each participant and contact: several times what
a correlation at the end of its range needs."""

CONTACTS_AHEAD = 32
"""So many contacts ahead of a push what it reads of them is fetched."""

ALLOWED, EXCEEDED = 0, 1
"""Places in `Scratch.steps`."""


class System(NamedTuple):
    """A matrix on the graph.

    The contacts of u are contact[start[u] … start[u] + degree[u] − 1], over the edges incident[…]
    (`collection.graph.Graph`).
    """

    start: Longs
    degree: Longs
    contact: Ints
    incident: Ints
    tail: Ints
    head: Ints
    off: Overlay
    """The off-diagonal entries, shape (edges,)."""
    laid_over: Bits
    """1 where any of the entries at a participant may be laid over others, a bit each. Not read where these are
    WHOLE."""
    diagonal: Overlay
    """Shape (participants,)."""


class Scratch(NamedTuple):
    """Room for one local solve; values and marks are zero between solves.

    A solve that takes more steps than are allowed is given up, and `steps` says so from then on: whatever was made
    with it is good for nothing.
    """

    cells: Floats
    """Shape (participants, 4)."""
    ring: Ints
    """Shape (participants,)."""
    touched: Ints
    """Whom the solve has reached, shape (participants,)."""
    listed: Longs
    """How many are in `touched`, shape (1,)."""
    steps: Longs
    """Shape (2,): how many a solve is ALLOWED, and 1 once one has EXCEEDED that."""


def system(graph: Graph, off: Overlay, laid_over: Bits, diagonal: Overlay) -> System:
    """The matrix with these entries on the graph as it is now."""
    ends = graph.tail, graph.head
    return System(graph.start, graph.degree, graph.contact, graph.incident, *ends, off, laid_over, diagonal)


@inlined
def add_off_diagonal(system: System, edge: int, change: float) -> None:
    """Add to the entry of an edge."""
    if change == 0.0:
        return
    add_to(system.off, edge, change)
    if system.off.counts[USED] != WHOLE:
        put_bit(system.laid_over, system.tail[edge], 1)
        put_bit(system.laid_over, system.head[edge], 1)


@inlined
def add_on_diagonal(system: System, u: int, change: float) -> None:
    """Add to the entry of a participant."""
    add_to(system.diagonal, u, change)
    if system.diagonal.counts[USED] != WHOLE:
        put_bit(system.laid_over, u, 1)


@inlined
def diagonal_of(system: System, u: int) -> float:
    """The entry of a participant. Where none is laid over, a flag says so sooner than a look-up would."""
    diagonal = system.diagonal
    if diagonal.counts[USED] == WHOLE or bit_of(system.laid_over, u) == 0:
        return float(diagonal.below[u])
    return entry(diagonal, u)


def fresh_steps() -> Longs:
    """`Scratch.steps` before any solve."""
    return np.array([MOST_STEPS, 0])


def scratch(participants: int) -> Scratch:
    """Fresh scratch, none of its cells across two cache lines."""
    line = 64
    room = np.zeros(4 * participants + line // 8)
    begin = -room.ctypes.data % line // 8
    cells = room[begin : begin + 4 * participants].reshape(participants, 4)
    ring, touched = np.zeros((2, participants), np.int32)
    return Scratch(cells, ring, touched, np.zeros(1, np.int64), fresh_steps())


@inlined
def fetch_row(system: System, u: int) -> None:
    """Have the begin of a participant's contacts fetched: whoever is put into a ring comes to be pushed."""
    prefetch(system.contact, system.start[u])
    prefetch(system.incident, system.start[u])


@inlined
def fetch_slabs(system: System, which: Ints, row: int) -> None:
    """Have fetched what says who the contacts of the next participants but one in `which` are, after that `row`."""
    last = len(which) - 1
    later, soon = which[min(row + 3, last)], which[min(row + 2, last)]
    prefetch(system.start, later)
    prefetch(system.degree, later)
    prefetch(system.contact, system.start[soon])
    prefetch(system.incident, system.start[soon])


@inlined
def fetch_contacts(system: System, u: int, rows: Floats) -> None:
    """Have what a push of a participant reads of the first contacts fetched: their `rows`, and the entries."""
    for i in range(system.start[u], system.start[u] + min(system.degree[u], CONTACTS_AHEAD)):
        fetch_contact(system, i, rows)


@inlined
def fetch_contact(system: System, place: int, rows: Floats) -> None:
    """Have the same of the contact at that place fetched."""
    prefetch(rows, system.contact[place])
    prefetch(system.off.below, system.incident[place])


@compiled
def solve(system: System, tolerance: float, room: Scratch) -> None:
    """Solve in the scratch what `begin` put there: push until |r| ≤ tolerance × diagonal of all whom that reaches,
    or give up."""
    ring, touched, cells = room.ring, room.touched, room.cells
    size, listed = len(ring), room.listed[0]
    head, count, steps = 0, 0, room.steps[ALLOWED]
    off, mixed = system.off, system.off.counts[USED] != WHOLE
    for i in range(listed):
        u = touched[i]
        if abs(cells[u, RESIDUAL]) > tolerance * cells[u, DIAGONAL]:
            cells[u, MARK] = QUEUED
            ring[count] = u
            count += 1
    while count > 0:
        u = ring[head]
        head += 1
        if head == size:
            head = 0
        count -= 1
        cells[u, MARK] = LISTED
        step = cells[u, RESIDUAL] / cells[u, DIAGONAL]
        if abs(step) <= tolerance:
            continue
        cells[u, VALUE] += step
        cells[u, RESIDUAL] = 0.0
        if count > 0:
            fetch_contacts(system, ring[head], cells)
        first, looked_up = system.start[u], mixed and bit_of(system.laid_over, u) != 0
        steps -= 1 + system.degree[u]
        if steps < 0:
            room.steps[EXCEEDED] = 1
            break
        last = first + system.degree[u]
        for i in range(first, last):
            if i + CONTACTS_AHEAD < last:
                fetch_contact(system, i + CONTACTS_AHEAD, cells)
            v = system.contact[i]
            mark = cells[v, MARK]
            if mark == UNMARKED:
                touched[listed] = v
                listed += 1
                mark = LISTED
                cells[v, RESIDUAL] = 0.0
                cells[v, DIAGONAL] = diagonal_of(system, v)
                cells[v, MARK] = LISTED
            e = system.incident[i]
            residual = cells[v, RESIDUAL] - (entry(off, e) if looked_up else off.below[e]) * step
            cells[v, RESIDUAL] = residual
            if mark == LISTED and abs(residual) > tolerance * cells[v, DIAGONAL]:
                cells[v, MARK] = QUEUED
                tail = head + count
                if tail >= size:
                    tail -= size
                ring[tail] = v
                count += 1
                fetch_row(system, v)
    for i in range(count):  # where it was given up
        cells[ring[(head + i) % size], MARK] = LISTED
    room.listed[0] = listed


@compiled
def begin(system: System, room: Scratch, u: int, value: float) -> None:
    """Add `value` to the right-hand side of a solve in the scratch."""
    touch(system, room, u, 0.0)
    room.cells[u, RESIDUAL] += value


@compiled
def touch(system: System, room: Scratch, u: int, residual: float) -> None:
    """Put u among the touched of a solve with this residual, unless it is there."""
    cells = room.cells
    if cells[u, MARK] == UNMARKED:
        cells[u, RESIDUAL] = residual
        cells[u, DIAGONAL] = diagonal_of(system, u)
        cells[u, MARK] = LISTED
        room.touched[room.listed[0]] = u
        room.listed[0] += 1


@compiled
def put_solution(system: System, room: Scratch, u: int, value: float) -> None:
    """Have a solve begin with so much of u in its solution."""
    touch(system, room, u, 0.0)
    cells = room.cells
    cells[u, VALUE] += value
    cells[u, RESIDUAL] -= cells[u, DIAGONAL] * value
    for i in range(system.start[u], system.start[u] + system.degree[u]):
        v = system.contact[i]
        touch(system, room, v, 0.0)
        cells[v, RESIDUAL] -= entry(system.off, system.incident[i]) * value


@viewing
def touched_by(room: Scratch) -> Ints:
    """Whom the solve has reached, shape (k,): a view."""
    return room.touched[: room.listed[0]]


@compiled
def left_in(room: Scratch) -> float:
    """‖r‖₁ of a solve in the scratch, as it is."""
    left = 0.0
    for u in touched_by(room):
        left += abs(room.cells[u, RESIDUAL])
    return left


@compiled
def forget(room: Scratch) -> None:
    """Put the scratch back to zero, at the cost of what was touched."""
    for u in touched_by(room):
        room.cells[u, VALUE] = 0.0
        room.cells[u, RESIDUAL] = 0.0
        room.cells[u, MARK] = UNMARKED
    room.listed[0] = 0
