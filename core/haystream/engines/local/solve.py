"""Local solves of sparse symmetric positive definite systems Λx = b, by pushing residuals.

Λ has the sparsity of the graph itself (docs/method.md, "Why the linear form"): a diagonal entry per participant and
one off-diagonal entry per edge. A participant whose residual r = b − Λx exceeds tolerance × its diagonal takes the
whole of it into x and hands the consequence to its contacts: Gauss-Seidel steps in the order in which they are
needed, which converges for every such matrix and touches only a neighbourhood."""

from math import prod
from typing import NamedTuple

import numpy as np

from haystream.arrays import Floats, Ints, Longs
from haystream.compiled import compiled
from haystream.graph import Graph

VALUE, RESIDUAL, DIAGONAL, MARK = 0, 1, 2, 3
"""Columns of a participant's cell in a solve: x, r, Λ_uu, and whether it waits in the ring or is listed. They lie
side by side because a push reads and writes all of them at once, of participants anywhere in memory."""

UNMARKED, LISTED, QUEUED = 0.0, 1.0, 2.0
"""Marks. LISTED: in the list of the touched; QUEUED: there and in the ring."""


MOST_STEPS = 50_000_000
"""So many steps, a push and each contact that it reaches being one, are a few tenths of a second. Inside of the
models' ranges local solves took up to a tenth of them, on random graphs of 20,000 participants with four contacts
each."""

ROUNDS = 1000
"""A solve on the whole graph may take so many steps more for each participant and contact: several times what
a correlation at the end of its range needs."""

ALLOWED, EXCEEDED = 0, 1
"""Places in `Scratch.steps`."""


class System(NamedTuple):
    """A matrix on the graph, but for its diagonal, which is in the cells of every solve.

    The contacts of u are contact[start[u] … start[u] + degree[u] − 1], over the edges incident[…] (`graph.Graph`).
    """

    start: Longs
    degree: Longs
    contact: Ints
    incident: Ints
    tail: Ints
    head: Ints
    off: Floats
    """The off-diagonal entries, shape (edges,)."""


class Scratch(NamedTuple):
    """Room for one local solve; values, residuals and marks are zero between solves.

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


def system(graph: Graph, off: Floats) -> System:
    """The matrix with these off-diagonal entries on the graph as it is now."""
    return System(graph.start, graph.degree, graph.contact, graph.incident, graph.tail, graph.head, off)


def fresh_cells(*shape: int) -> Floats:
    """Cells of solves of x = 0 with a unit diagonal, shape (*shape, 4), none of them across two cache lines."""
    line = 64
    room = np.zeros(4 * prod(shape) + line // 8)
    begin = -room.ctypes.data % line // 8
    cells = room[begin : begin + 4 * prod(shape)].reshape(*shape, 4)
    cells[..., DIAGONAL] = 1.0
    return cells


def scratch(participants: int) -> Scratch:
    """Fresh scratch for a matrix of unit diagonal."""
    ring, touched = np.zeros((2, participants), np.int32)
    steps = np.array([MOST_STEPS, 0])
    return Scratch(fresh_cells(participants), ring, touched, np.zeros(1, np.int64), steps)


def resized(room: Scratch, participants: int) -> Scratch:
    """Fresh scratch of another size, in which what was exceeded still is."""
    return scratch(participants)._replace(steps=room.steps)


@compiled
def relax(
    system: System, cells: Floats, tolerance: float, room: Scratch, rhs: Floats, others: Floats, along: Floats
) -> float:
    """Push until |r| ≤ tolerance × diagonal among the touched and all that they reach, or give up; return rhsᵀΔx.

    `cells`, shape (participants, 4), change in place; they may be those of `room`. Every participant whose x or r
    changes is put into `room.touched`; exactly those there are marked in `cells`, before and after. What is only
    read, for sums: `rhs`, shape (participants,), and `others`, the cells of k solves on the same matrix, shape
    (k, participants, 4). To `along`, shape (k,), is added the sum over all steps of the step times the residual of
    each of `others` at that place and time.
    """
    ring, touched = room.ring, room.touched
    size, listed = len(ring), room.listed[0]
    head, count, steps = 0, 0, room.steps[ALLOWED]
    for i in range(listed):
        u = touched[i]
        if abs(cells[u, RESIDUAL]) > tolerance * cells[u, DIAGONAL]:
            cells[u, MARK] = QUEUED
            ring[count] = u
            count += 1
    gain = 0.0
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
        for other in range(len(along)):
            along[other] += step * others[other, u, RESIDUAL]
        cells[u, VALUE] += step
        cells[u, RESIDUAL] = 0.0
        gain += rhs[u] * step
        first = system.start[u]
        steps -= 1 + system.degree[u]
        if steps < 0:
            room.steps[EXCEEDED] = 1
            break
        for i in range(first, first + system.degree[u]):
            v = system.contact[i]
            residual = cells[v, RESIDUAL] - system.off[system.incident[i]] * step
            cells[v, RESIDUAL] = residual
            mark = cells[v, MARK]
            if mark == UNMARKED:
                touched[listed] = v
                listed += 1
                mark = LISTED
                cells[v, MARK] = LISTED
            if mark == LISTED and abs(residual) > tolerance * cells[v, DIAGONAL]:
                cells[v, MARK] = QUEUED
                tail = head + count
                if tail >= size:
                    tail -= size
                ring[tail] = v
                count += 1
    for i in range(count):  # where it was given up
        cells[ring[(head + i) % size], MARK] = LISTED
    room.listed[0] = listed
    return gain


@compiled
def solve(system: System, tolerance: float, room: Scratch) -> None:
    """Solve in the scratch what `begin` put there."""
    cells = room.cells
    relax(system, cells, tolerance, room, cells[:, VALUE], cells[np.newaxis], np.empty(0))


@compiled
def begin(room: Scratch, u: int, value: float) -> None:
    """Add `value` to the right-hand side of a solve in the scratch."""
    room.cells[u, RESIDUAL] += value
    touch(room.cells, room, u)


@compiled
def touch(cells: Floats, room: Scratch, u: int) -> None:
    """Put u among the touched of a solve, once."""
    if cells[u, MARK] == UNMARKED:
        cells[u, MARK] = LISTED
        room.touched[room.listed[0]] = u
        room.listed[0] += 1


@compiled
def touched_by(room: Scratch) -> Ints:
    """Whom the solve has reached, shape (k,): a view."""
    return room.touched[: room.listed[0]]


@compiled
def unmark(cells: Floats, room: Scratch) -> None:
    """Take everybody out of the touched; values and residuals stay."""
    for u in touched_by(room):
        cells[u, MARK] = UNMARKED
    room.listed[0] = 0


@compiled
def forget(room: Scratch) -> None:
    """Put the scratch back to zero, at the cost of what was touched."""
    for u in touched_by(room):
        room.cells[u, VALUE] = 0.0
        room.cells[u, RESIDUAL] = 0.0
    unmark(room.cells, room)
