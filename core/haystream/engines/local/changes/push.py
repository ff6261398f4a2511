"""The right-hand sides' residuals, pushed where they are kept.

A solve of one column works in a scratch (`solve`), since all that it reaches is new to it. A right-hand side has
its solution and its residuals already, so that a push only adds to them: to copy whom it reaches into a scratch,
and back, would take longer than the pushes.
"""

from haystream.engines.local.solves.sides import COMMON, REMAINING
from haystream.engines.local.solves.solve import (
    ALLOWED,
    CONTACTS_AHEAD,
    EXCEEDED,
    MARK,
    QUEUED,
    UNMARKED,
    Scratch,
    diagonal_of,
    fetch_contact,
    fetch_contacts,
    fetch_row,
)
from haystream.engines.local.state.state import People, State
from haystream.memory.arrays import Floats, Marked, bit_of, mark, members_of, unmark_all
from haystream.memory.compiled import compiled, inlined
from haystream.memory.overlay import USED, WHOLE, add_to_cell, entry


@inlined
def add_residual(people: People, unpushed: Marked, participant: int, side: int, value: float) -> None:
    """Add to a residual, and list the participant as unpushed."""
    if value != 0.0:  # memory that is written to is the query's own from then on
        people.residual[participant, side] += value
    mark(unpushed, participant)


@inlined
def exceeds(state: State, participant: int, side: int, limit: float) -> bool:
    """Whether a residual is to be pushed."""
    return bool(abs(state.people.residual[participant, side]) > limit * diagonal_of(state.system, participant))


@inlined
def line_up(room: Scratch, participant: int) -> None:
    """Have `push_line` look at a participant's residual, unless it waits for that already."""
    if room.cells[participant, MARK] == UNMARKED:
        room.cells[participant, MARK] = QUEUED
        room.ring[room.listed[0]] = participant
        room.listed[0] += 1


@compiled
def push_side(state: State, side: int, limit: float) -> None:
    """Push a right-hand side's residuals, down to `limit` from the unpushed on. These stay listed, for another
    side."""
    for u in members_of(state.rooms.unpushed):
        if exceeds(state, u, side, limit):
            line_up(state.rooms.other, u)
    push_line(state, side, limit)


@compiled
def push_unpushed(state: State, limits: Floats) -> None:
    """Push all sides' residuals down to their `limits`, shape (sides,), from the unpushed on, who are listed no
    more then."""
    for side in range(state.people.residual.shape[1]):
        push_side(state, side, limits[side])
    unmark_all(state.rooms.unpushed)


@compiled
def push_everybody(state: State, participants: int) -> None:
    """Push all sides' residuals wherever they are above their tolerances."""
    limits = state.tolerances.sides
    for u in range(participants):
        for side in range(state.people.residual.shape[1]):
            if exceeds(state, u, side, limits[side]):
                mark(state.rooms.unpushed, u)
    push_unpushed(state, limits)


@compiled
def push_line(state: State, side: int, limit: float) -> None:
    """Push the residuals of those who are lined up in `rooms.other`, and of all whose residuals come to exceed the
    limit by that, and keep the sums in step. What takes too many steps is given up (`solve.Scratch`).

    A step s at u moves bᵀx + rᵀx by s r_u, and bᵀx₂ + x_bᵀr₂ by s times the other side's residual at u. Whoever
    takes a step has moved, but for REMAINING, which moves no reading."""
    system, people, sums, room = state.system, state.people, state.sums, state.rooms.other
    ring, cells, residual, off = room.ring, room.cells, people.residual, system.off
    size, head, count, steps, along = len(ring), 0, room.listed[0], room.steps[ALLOWED], 0.0
    mixed = off.counts[USED] != WHOLE
    first_other, last_other = (0, COMMON) if side == COMMON else (COMMON, residual.shape[1])
    while count > 0:
        u = ring[head]
        head = head + 1 if head + 1 < size else 0
        count -= 1
        cells[u, MARK] = UNMARKED
        left = residual[u, side]
        step = left / diagonal_of(system, u)
        if abs(step) <= limit:
            continue
        steps -= 1 + system.degree[u]
        if steps < 0:
            room.steps[EXCEEDED] = 1
            break
        along += step * left
        residual[u, side] = 0.0
        add_to_cell(people.x, u, side, step)
        if side != REMAINING:
            mark(state.news.moved, u)
        for other in range(first_other, last_other):
            sums.border[other if side == COMMON else side] -= step * residual[u, other]
        if count > 0:
            fetch_contacts(system, ring[head], residual)
        first, looked_up = system.start[u], mixed and bit_of(system.laid_over, u) != 0
        last = first + system.degree[u]
        for i in range(first, last):
            if i + CONTACTS_AHEAD < last:
                fetch_contact(system, i + CONTACTS_AHEAD, residual)
            v, e = system.contact[i], system.incident[i]
            value = residual[v, side] - (entry(off, e) if looked_up else off.below[e]) * step
            residual[v, side] = value
            if abs(value) > limit * diagonal_of(system, v) and cells[v, MARK] == UNMARKED:
                cells[v, MARK] = QUEUED
                tail = head + count
                ring[tail if tail < size else tail - size] = v
                count += 1
                fetch_row(system, v)
    for i in range(count):  # where it was given up
        cells[ring[(head + i) % size], MARK] = UNMARKED
    room.listed[0] = 0
    sums.form[side] += along
    if side == COMMON:
        sums.border[COMMON] -= along
