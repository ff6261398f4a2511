"""Local solves of sparse symmetric positive definite systems Λx = b, by pushing residuals.

Λ has the sparsity of the graph itself (NOTES, section 3): a diagonal entry per participant and one off-diagonal
entry per edge. A participant whose residual r = b − Λx exceeds tolerance × its diagonal takes the whole of it
into x and hands the consequence to its contacts: Gauss-Seidel steps in the order in which they are needed,
which converges for every such matrix and touches only a neighbourhood (NOTES, section 4).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from haystream.compiled import compiled
from haystream.graph import Graph

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Flags = NDArray[np.uint8]

QUEUED, TOUCHED = 1, 2
"""Bits of `Scratch.flags`: waiting in the ring; already listed in `touched`."""


class System(NamedTuple):
    """A matrix on the graph: the contacts of u are contact[start[u] … start[u] + degree[u] − 1]."""

    start: Longs
    degree: Longs
    contact: Ints
    incident: Ints
    diagonal: Floats
    """Shape (participants,)."""
    off: Floats
    """Shape (edges,)."""


class Scratch(NamedTuple):
    """Room for one local solve; x, r and flags are zero between solves. Every member is (participants,)."""

    x: Floats
    r: Floats
    ring: Ints
    flags: Flags
    touched: Ints


def system(graph: Graph, diagonal: Floats, off: Floats) -> System:
    """The matrix with these entries on the graph as it is now."""
    return System(graph.start, graph.degree, graph.contact, graph.incident, diagonal, off)


def scratch(participants: int) -> Scratch:
    """Fresh scratch."""
    return Scratch(
        np.zeros(participants),
        np.zeros(participants),
        np.zeros(participants, np.int32),
        np.zeros(participants, np.uint8),
        np.zeros(participants, np.int32),
    )


@compiled
def relax(
    system: System, x: Floats, r: Floats, rhs: Floats, tolerance: float, room: Scratch, listed: int
) -> tuple[int, float]:
    """Push until |r| ≤ tolerance × diagonal among `room.touched[:listed]` and all that they reach.

    x and r, shape (participants,), change in place. Every participant whose x or r changes is appended to
    `room.touched`; `room.flags` holds TOUCHED for exactly the listed ones, before and after. `rhs` is only
    read, for the second result.

    Returns:
        The new length of the list, and by how much rhsᵀx grew.
    """
    ring, flags, touched = room.ring, room.flags, room.touched
    diagonal, off = system.diagonal, system.off
    size = len(ring)
    head, count = 0, 0
    for i in range(listed):
        u = touched[i]
        if abs(r[u]) > tolerance * diagonal[u]:
            flags[u] |= QUEUED
            ring[count] = u
            count += 1
    gain = 0.0
    while count > 0:
        u = ring[head]
        head += 1
        if head == size:
            head = 0
        count -= 1
        flags[u] &= TOUCHED
        step = r[u] / diagonal[u]
        if abs(step) <= tolerance:
            continue
        x[u] += step
        r[u] = 0.0
        gain += rhs[u] * step
        first = system.start[u]
        for i in range(first, first + system.degree[u]):
            v = system.contact[i]
            r[v] -= off[system.incident[i]] * step
            if flags[v] == 0:
                touched[listed] = v
                listed += 1
                flags[v] = TOUCHED
            if flags[v] == TOUCHED and abs(r[v]) > tolerance * diagonal[v]:
                flags[v] = QUEUED | TOUCHED
                tail = head + count
                if tail >= size:
                    tail -= size
                ring[tail] = v
                count += 1
    return listed, gain


@compiled
def begin(room: Scratch, u: int, value: float, listed: int) -> int:
    """Add `value` to the right-hand side of a solve in the scratch; the new length of the list."""
    room.r[u] += value
    return touch(room, u, listed)


@compiled
def touch(room: Scratch, u: int, listed: int) -> int:
    """List u among the touched; the new length of the list."""
    if room.flags[u] == 0:
        room.flags[u] = TOUCHED
        room.touched[listed] = u
        listed += 1
    return listed


@compiled
def forget(room: Scratch, listed: int) -> None:
    """Put the scratch back to zero, at the cost of what was touched."""
    for i in range(listed):
        u = room.touched[i]
        room.x[u] = 0.0
        room.r[u] = 0.0
        room.flags[u] = 0
