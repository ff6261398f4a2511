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

COLUMN_TOLERANCE = 0.2
"""Columns of the inverse that correct its entries are solved so much more closely than x. A solve never reaches
quite far enough, always to the same side, so what it leaves out adds up from one correction to the next, until
the entry is solved afresh (`heal`); errors of x do not, they stay in its residual."""


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


@compiled
def inverse_entries(
    system: System, which: Ints, tolerance: float, on_participant: Floats, on_edge: Floats, room: Scratch
) -> None:
    """(Λ⁻¹)_uu into on_participant[u] and (Λ⁻¹)_uv into on_edge, for every u in `which` and its contacts v.

    One local column solve per participant; an edge's entry is the one of the last of its ends in `which` (the
    two agree to the tolerance).
    """
    for j in range(len(which)):
        u = which[j]
        listed = begin(room, u, 1.0, 0)
        listed, _ = relax(system, room.x, room.r, room.r, tolerance, room, listed)
        read_column(system, u, room.x, on_participant, on_edge)
        forget(room, listed)


@compiled
def read_column(system: System, u: int, column: Floats, on_participant: Floats, on_edge: Floats) -> None:
    """Take what a column of the inverse says of a participant and its contacts."""
    on_participant[u] = column[u]
    first = system.start[u]
    for i in range(first, first + system.degree[u]):
        on_edge[system.incident[i]] = column[system.contact[i]]


@compiled
def other_end(tail: Ints, head: Ints, edge: int, participant: int) -> int:
    """Whom the edge joins the participant to."""
    return int(head[edge]) if tail[edge] == participant else int(tail[edge])


@compiled
def change_row(
    system: System,
    tail: Ints,
    head: Ints,
    participant: int,
    edges: Ints,
    deltas: Floats,
    on_participant: Floats,
    on_edge: Floats,
    tolerance: float,
    column: Scratch,
    other: Scratch,
    touched: Ints,
) -> int:
    """Add `deltas` to the off-diagonal entries of `edges`, all of them at `participant`; correct the inverse.

    With u the participant and a the deltas at the edges' other ends, Λ' = Λ + e_u aᵀ + a e_uᵀ. Two local solves,
    k = Λ⁻¹e_u and l = Λ⁻¹a, give Λ'⁻¹ = Λ⁻¹ − [k l] S⁻¹ [k l]ᵀ with S = [[k_u, 1 + aᵀk], [1 + aᵀk, aᵀl]]
    (Woodbury). `on_participant` and `on_edge` hold the entries of Λ⁻¹ on the graph. The participants whose
    entry changed by more than a thousandth of the tolerance go to `touched`; returns how many.

    The solves are COLUMN_TOLERANCE close, or less for small deltas, which multiply what they leave out. Where the
    one edge is new, its ends' entries are read off their columns, which are solved anyway.
    """
    first_edge = edges[0]
    new = len(edges) == 1 and system.off[first_edge] == 0.0
    unit = deltas[0] if new else 0.0
    if not new:
        for i in range(len(edges)):
            unit = max(unit, abs(deltas[i]))
    close = COLUMN_TOLERANCE * tolerance
    loose = close if new else min(close / max(unit, close), 0.1)
    listed = begin(column, participant, 1.0, 0)
    listed, _ = relax(system, column.x, column.r, column.r, loose, column, listed)
    reached = 0
    for i in range(len(edges)):
        v = other_end(tail, head, edges[i], participant)
        reached = begin(other, v, 1.0 if new else deltas[i] / unit, reached)
    reached, _ = relax(system, other.x, other.r, other.r, loose, other, reached)
    at_u, at_a = column.x, other.x
    if new:
        read_column(system, participant, at_u, on_participant, on_edge)
        read_column(system, other_end(tail, head, first_edge, participant), at_a, on_participant, on_edge)
    s11, s12, s22 = at_u[participant], 1.0, 0.0
    for i in range(len(edges)):
        v = other_end(tail, head, edges[i], participant)
        s12 += deltas[i] * at_u[v]
        s22 += deltas[i] * unit * at_a[v]
    determinant = s11 * s22 - s12 * s12
    kk, kl, ll = s22 / determinant, -s12 * unit / determinant, s11 * unit * unit / determinant
    for i in range(listed):
        reached = touch(other, column.touched[i], reached)
    count = 0
    for i in range(reached):
        t = other.touched[i]
        if at_u[t] == 0.0 and at_a[t] == 0.0:
            continue
        change = kk * at_u[t] * at_u[t] + 2.0 * kl * at_u[t] * at_a[t] + ll * at_a[t] * at_a[t]
        on_participant[t] -= change
        first = system.start[t]
        for j in range(first, first + system.degree[t]):
            v = system.contact[j]
            if v > t and (at_u[v] != 0.0 or at_a[v] != 0.0):
                on_edge[system.incident[j]] -= (
                    kk * at_u[t] * at_u[v] + kl * (at_u[t] * at_a[v] + at_a[t] * at_u[v]) + ll * at_a[t] * at_a[v]
                )
        if abs(change) > 1e-3 * tolerance or t == participant:
            touched[count] = t
            count += 1
    for i in range(len(edges)):
        system.off[edges[i]] += deltas[i]
    forget(column, listed)
    forget(other, reached)
    return count


class Healing(NamedTuple):
    """Participants whose entries of the inverse were corrected, waiting to be solved afresh: a ring, first in first
    out, each at most once. Every member but `state` is (participants,)."""

    ring: Ints
    waiting: Flags
    state: Longs
    """Shape (2,): where the ring begins, and how many wait."""


def healing(participants: int) -> Healing:
    """Nobody waits."""
    return Healing(np.zeros(participants, np.int32), np.zeros(participants, np.uint8), np.zeros(2, np.int64))


def regrown(queue: Healing, participants: int) -> Healing:
    """The same queue with more room."""
    larger = healing(participants)
    begin, count = queue.state
    if count:
        let_wait(larger, queue.ring[(begin + np.arange(count)) % len(queue.ring)])
    return larger


@compiled
def let_wait(queue: Healing, participants: Ints) -> None:
    """Add participants to those waiting."""
    for u in participants:
        if queue.waiting[u] == 0:
            queue.waiting[u] = 1
            queue.ring[(queue.state[0] + queue.state[1]) % len(queue.ring)] = u
            queue.state[1] += 1


@compiled
def heal(
    system: System,
    queue: Healing,
    most: int,
    tolerance: float,
    on_participant: Floats,
    on_edge: Floats,
    room: Scratch,
    healed: Ints,
) -> tuple[int, float]:
    """Solve the entries of up to `most` of those waiting afresh.

    Returns how many of them (they are in `healed`) had drifted by more than a tenth of the tolerance, and by how
    much the worst had.
    """
    count, drift = 0, 0.0
    for _ in range(min(most, queue.state[1])):
        u = queue.ring[queue.state[0]]
        queue.state[0] = (queue.state[0] + 1) % len(queue.ring)
        queue.state[1] -= 1
        queue.waiting[u] = 0
        listed = begin(room, u, 1.0, 0)
        listed, _ = relax(system, room.x, room.r, room.r, COLUMN_TOLERANCE * tolerance, room, listed)
        off = abs(room.x[u] - on_participant[u])
        first = system.start[u]
        for i in range(first, first + system.degree[u]):
            off = max(off, abs(room.x[system.contact[i]] - on_edge[system.incident[i]]))
        read_column(system, u, room.x, on_participant, on_edge)
        forget(room, listed)
        drift = max(drift, off)
        if off > 0.1 * tolerance:
            healed[count] = u
            count += 1
    return count, drift
