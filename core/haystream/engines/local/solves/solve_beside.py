"""Local solves of a few right-hand sides at once, side by side.

Solves of sources that are near one another push the same participants, by the same entries of Λ. Here a push takes
the residuals of all of them, which lie in a row of memory: to find the contacts is most of what it costs.
"""

from haystream.engines.local.solves.solve import (
    ALLOWED,
    CONTACTS_AHEAD,
    DIAGONAL,
    EXCEEDED,
    LISTED,
    MARK,
    QUEUED,
    RESIDUAL,
    UNMARKED,
    VALUE,
    Scratch,
    System,
    diagonal_of,
    fetch_contact,
    fetch_contacts,
    fetch_row,
    forget,
    touch,
    touched_by,
)
from haystream.memory.arrays import Floats, bit_of
from haystream.memory.compiled import compiled, inlined
from haystream.memory.overlay import USED, WHOLE, entry

COLUMNS_BESIDE = 8
"""So many right-hand sides lie side by side: their residuals are a line of the cache."""

PLACE = RESIDUAL
"""Where a participant's cell in the scratch has the number of its row: how many were reached before it."""


@inlined
def begin_beside(system: System, room: Scratch, rows: Floats, number: int, u: int, value: float) -> None:
    """Add `value` to right-hand side `number` at a participant."""
    touch(system, room, u, float(room.listed[0]))
    rows[int(room.cells[u, PLACE]), number] += value


@compiled
def solve_beside(system: System, tolerance: float, room: Scratch, rows: Floats) -> None:
    """Solve in the scratch what `begin_beside` put there: push until all residuals of all whom that reaches are
    |r| ≤ tolerance × diagonal, or give up.

    `rows`, shape (participants, 2 × COLUMNS_BESIDE), is zero between solves: first the residuals, then the
    solutions. The first rows are in use, one for each whom the solve has reached: so they lie close together."""
    ring, touched, cells = room.ring, room.touched, room.cells
    size, listed = len(ring), room.listed[0]
    head, count, steps = 0, 0, room.steps[ALLOWED]
    off, mixed = system.off, system.off.counts[USED] != WHOLE
    for i in range(listed):
        u = touched[i]
        if any_exceeds(rows, i, tolerance * cells[u, DIAGONAL]):
            cells[u, MARK] = QUEUED
            ring[count] = u
            count += 1
    while count > 0:
        u = ring[head]
        head = head + 1 if head + 1 < size else 0
        count -= 1
        cells[u, MARK] = LISTED
        own = int(cells[u, PLACE])
        if not any_exceeds(rows, own, tolerance * cells[u, DIAGONAL]):
            continue
        over_diagonal = 1.0 / cells[u, DIAGONAL]
        for k in range(COLUMNS_BESIDE):
            rows[own, COLUMNS_BESIDE + k] += rows[own, k] * over_diagonal
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
            v, e = system.contact[i], system.incident[i]
            mark = cells[v, MARK]
            if mark == UNMARKED:
                touched[listed] = v
                mark = LISTED
                cells[v, PLACE] = listed
                cells[v, DIAGONAL] = diagonal_of(system, v)
                cells[v, MARK] = LISTED
                listed += 1
            other = int(cells[v, PLACE])
            factor = (entry(off, e) if looked_up else off.below[e]) * over_diagonal
            for k in range(COLUMNS_BESIDE):
                rows[other, k] -= factor * rows[own, k]
            if mark == LISTED and any_exceeds(rows, other, tolerance * cells[v, DIAGONAL]):
                cells[v, MARK] = QUEUED
                tail = head + count
                ring[tail if tail < size else tail - size] = v
                count += 1
                fetch_row(system, v)
        for k in range(COLUMNS_BESIDE):
            rows[own, k] = 0.0
    for i in range(count):  # where it was given up
        cells[ring[(head + i) % size], MARK] = LISTED
    room.listed[0] = listed


@inlined
def any_exceeds(rows: Floats, row: int, limit: float) -> bool:
    """Whether any residual of a row is above it. All are compared: to stop at the first would take longer."""
    exceeds = 0
    for k in range(COLUMNS_BESIDE):
        exceeds |= abs(rows[row, k]) > limit
    return exceeds != 0


@compiled
def take_solution(room: Scratch, rows: Floats, number: int) -> None:
    """Put a right-hand side's solution where a solve of it alone leaves it, in the scratch."""
    for i, u in enumerate(touched_by(room)):
        room.cells[u, VALUE] = rows[i, COLUMNS_BESIDE + number]


@compiled
def forget_beside(room: Scratch, rows: Floats) -> None:
    """Put the scratch and the rows back to zero, at the cost of what was touched."""
    rows[: room.listed[0]] = 0.0
    forget(room)
