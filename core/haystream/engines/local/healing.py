"""Entries of the inverse on the graph: read off its columns, corrected as the matrix changes, solved afresh.

A correction is as good as the columns that it is made of, which are solved up to a tolerance. What they leave
out adds up in the entries that it is added to: that is the strain of a participant, and who has too much of it
waits to be healed: solved afresh, when there is time.
"""

from typing import NamedTuple

import numpy as np

from haystream.arrays import Flags, Floats, Ints, Longs
from haystream.compiled import compiled
from haystream.engines.local.solve import (
    DIAGONAL,
    RESIDUAL,
    VALUE,
    Scratch,
    System,
    begin,
    forget,
    solve,
)

AT_ONCE = 64
"""Where much is new, so many participants' entries are solved at once (some milliseconds); the others start
from an estimate, and wait for healing."""

COLUMN_TOLERANCE = 2.0
"""Columns that entries are read off are solved so much less closely than x: a diagonal entry's error is of second
order, and another entry matters to a probability by a tenth or less: D_u D_v times 0.6."""

PRIOR_COLUMN_TOLERANCE = 5.0
"""The same of Q⁻¹, whose tolerance is the closer one: scales come from its diagonal; off it `rates` needs no more
than the entries of Λ⁻¹ do."""


STRAIN = 5.0
"""A participant waits for healing when its strain, about what corrections may have left out of its entries of the
inverse, is this many tolerances."""


DRIFTED = 5.0
"""Whose diagonal entry is found to have drifted by more tolerances than this has its contacts healed too."""


class Healing(NamedTuple):
    """Participants whose entries of the inverse wait to be solved afresh: a ring, first in first out, each at most
    once. Every member but `state` is (participants,)."""

    strain: Floats
    ring: Ints
    waiting: Flags
    fresh: Flags
    """Solved afresh since much was new in the matrix: what a contact is found to have drifted does not matter."""
    state: Longs
    """Shape (2,): where the ring begins, and how many wait."""


def healing(participants: int) -> Healing:
    """Nobody waits."""
    return Healing(
        np.zeros(participants),
        np.zeros(participants, np.int32),
        np.zeros(participants, np.uint8),
        np.zeros(participants, np.uint8),
        np.zeros(2, np.int64),
    )


def regrown(queue: Healing, participants: int) -> Healing:
    """The same queue with more room."""
    larger = healing(participants)
    known = len(queue.ring)
    begins, count = queue.state
    larger.strain[:known] = queue.strain
    larger.waiting[:known] = queue.waiting
    larger.fresh[:known] = queue.fresh
    if count:
        larger.ring[:count] = queue.ring[(begins + np.arange(count)) % known]
    larger.state[1] = count
    return larger


@compiled
def add_strain(queue: Healing, u: int, strain: float, most: float) -> None:
    """Add to a participant's strain; it waits for healing from `most` on."""
    queue.strain[u] += strain
    if queue.strain[u] >= most and queue.waiting[u] == 0:
        queue.waiting[u] = 1
        queue.ring[(queue.state[0] + queue.state[1]) % len(queue.ring)] = u
        queue.state[1] += 1


@compiled
def let_wait(queue: Healing, participants: Ints) -> None:
    """Have all of these wait for healing, in this order."""
    for u in participants:
        add_strain(queue, u, np.inf, 0.0)


@compiled
def left_out(column: Scratch, listed: int, other: Floats) -> float:
    """ρᵀl, what a column k solved up to a residual ρ leaves out of its product with the source of another column l.

    e_vᵀΛ⁻¹e_u = k_v + ρᵀΛ⁻¹e_v, and l is Λ⁻¹e_v but for what it leaves out itself: the error is of second order.
    """
    rest = 0.0
    for i in range(listed):
        t = column.touched[i]
        rest += column.cells[t, RESIDUAL] * other[t]
    return rest


@compiled
def read_column(
    system: System, u: int, column: Scratch, listed: int, on_participant: Floats, on_edge: Floats
) -> float:
    """Take what a column k of the inverse, solved up to a residual ρ, says of a participant and its contacts.

    (Λ⁻¹)_uu = k_u + ρᵀk + ρᵀΛ⁻¹ρ: without its last term, which is left out, its error is of second order. A
    contact's entry gets one more step, k_v + ρ_v / Λ_vv. Returns by how much the contacts' entries had been off at
    most.
    """
    cells, drift = column.cells, 0.0
    on_participant[u] = cells[u, VALUE] + left_out(column, listed, cells[:, VALUE])
    first = system.start[u]
    for i in range(first, first + system.degree[u]):
        v, e = system.contact[i], system.incident[i]
        entry = cells[v, VALUE] + cells[v, RESIDUAL] / cells[v, DIAGONAL]
        drift = max(drift, abs(entry - on_edge[e]))
        on_edge[e] = entry
    return drift


@compiled
def heal(
    system: System,
    queue: Healing,
    most: int,
    tolerance: float,
    closeness: float,
    on_participant: Floats,
    on_edge: Floats,
    room: Scratch,
    healed: Ints,
    stop: Ints,
) -> tuple[int, float]:
    """Solve the entries of up to `most` of those waiting afresh, off columns as close as `closeness` tolerances.

    Where much had drifted, contacts that are not fresh wait too: what moved it moved them. Another thread may set
    `stop`, shape (1,): after the participant that is in hand nobody is solved then. Returns how many were solved
    (they are in `healed`), and by how much the worst of them had drifted.
    """
    count, worst = 0, 0.0
    most = min(most, len(healed))
    while count < most and queue.state[1] > 0:
        u = queue.ring[queue.state[0]]
        queue.state[0] = (queue.state[0] + 1) % len(queue.ring)
        queue.state[1] -= 1
        queue.waiting[u] = 0
        queue.strain[u] = 0.0
        queue.fresh[u] = 1
        was = on_participant[u]
        listed = begin(room, u, 1.0, 0)
        listed = solve(system, closeness * tolerance, room, listed)
        drift = read_column(system, u, room, listed, on_participant, on_edge)
        moved = abs(on_participant[u] - was)
        forget(room, listed)
        # An edge's entry is read off the columns of both its ends, which differ: it cannot tell.
        if moved > DRIFTED * tolerance:
            first = system.start[u]
            for i in range(first, first + system.degree[u]):
                if queue.fresh[system.contact[i]] == 0:
                    add_strain(queue, system.contact[i], STRAIN * tolerance, STRAIN * tolerance)
        worst = max(worst, drift, moved)
        healed[count] = u
        count += 1
        if stop[0] != 0:
            break
    return count, worst
