"""A change of a matrix at several edges at once, and what it does to the entries of its inverse.

The weights of a few edges add U M Uᵀ to Λ. U has a column for each of these edges, its β̃, and M is diagonal; or,
where they are fewer, a unit vector for each of the people at their ends: an item between k people lies on up to
k (k − 1)/2 edges, and k columns do. With C = Λ⁻¹U, solved locally column by column (Woodbury),

    Λ'⁻¹ = Λ⁻¹ − C T Cᵀ        T = M (I + UᵀC M)⁻¹
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from haystream.engines.local.solves.budget import LOOSEST_COLUMN
from haystream.engines.local.solves.healing import add_strain, lower
from haystream.engines.local.solves.solve import (
    DIAGONAL,
    EXCEEDED,
    VALUE,
    Scratch,
    System,
    begin,
    diagonal_of,
    forget,
    left_in,
    put_solution,
    solve,
    touch,
    touched_by,
)
from haystream.engines.local.state.edge_priors import ON_HEAD, ON_TAIL, numbers
from haystream.engines.local.state.state import Edges, State
from haystream.memory.arrays import Floats, Ints, Longs, mark
from haystream.memory.compiled import allocating, compiled
from haystream.memory.overlay import add_to

ENTRIES_AT_FIRST = 1024
"""So many entries new columns have room for before they need more."""


class LowRank(NamedTuple):
    """A matrix that is U M Uᵀ, with q columns that are zero but at k people."""

    people: Ints
    """Ascending, shape (k,)."""
    U: Floats
    """At these, shape (k, q)."""
    M: Floats
    """Symmetric, shape (q, q)."""


class Columns(NamedTuple):
    """Columns one after the other: the entries of column j are number begin[j] … begin[j + 1] − 1."""

    begin: Longs
    """Shape (q + 1,)."""
    who: Ints
    value: Floats

    def of(self, j: int) -> "Columns":
        """Column j alone."""
        begin, end = self.begin[j : j + 2].tolist()
        return Columns(self.begin[j : j + 2] - begin, self.who[begin:end], self.value[begin:end])

    def some(self, which: Longs) -> "Columns":
        """The columns of these numbers, in that order; of −1 one without entries."""
        first, size = np.append(self.begin[:-1], 0)[which], np.append(np.diff(self.begin), 0)[which]
        begin = np.concatenate([[0], np.cumsum(size)])
        where = np.arange(begin[-1]) + np.repeat(first - begin[:-1], size)
        return Columns(begin, self.who[where], self.value[where])


class OnDiagonal(NamedTuple):
    """What is added to the diagonal of a matrix."""

    people: Ints
    """At whom, ascending, shape (k,)."""
    added: Floats
    """How much, shape (k,)."""


NOWHERE = OnDiagonal(np.zeros(0, np.int32), np.zeros(0))


class Rows(NamedTuple):
    """The same by participant: the entries of row i are number begin[i] … begin[i + 1] − 1. Row 0 has none: it is
    everybody's who is in no column."""

    begin: Longs
    """Shape (rows + 1,)."""
    people: Ints
    """Of rows 1, 2, …"""
    column: Ints
    value: Floats


def low_rank(edges: Edges, which: Ints, weights: Floats) -> LowRank:
    """Σ w β̃β̃ᵀ over some edges, `weights` of shape (m,)."""
    people, B = at_people(edges, which)
    if len(which) <= len(people):
        return LowRank(people, B, np.diag(weights))
    return LowRank(people, np.eye(len(people)), (B * weights) @ B.T)


def at_people(edges: Edges, which: Ints) -> tuple[Ints, Floats]:
    """The ends of m edges, ascending, shape (k,), and the β̃ of each edge there, shape (k, m)."""
    people, place = np.unique(np.concatenate([edges.tail[which], edges.head[which]]), return_inverse=True)
    B, columns = np.zeros((len(people), len(which))), np.arange(len(which))
    B[place[: len(which)], columns] = numbers(edges.prior, which, ON_TAIL)
    B[place[len(which) :], columns] = numbers(edges.prior, which, ON_HEAD)
    return people, B


def loosened(size: Floats, corrected: float) -> Floats:
    """Down to what residuals columns are solved, shape (q,): as closely as the inverse is `corrected`, or less
    where their `size` is below 1, the sum of a row of |M| times q. So what they leave out of the inverse together
    is no more than what one column does that is multiplied by 1."""
    return np.asarray(np.clip(corrected / np.maximum(size, corrected), corrected, LOOSEST_COLUMN))


def woodbury(change: LowRank, C: Floats) -> Floats:
    """T, shape (q, q). C: the columns at `LowRank.people`, shape (k, q)."""
    M = change.M
    T = np.linalg.solve(np.eye(len(M)) + M @ (change.U.T @ C), M)
    return np.asarray(0.5 * (T + T.T))


@allocating
def solve_columns(
    system: System, sources: Columns, tolerances: Floats, E: OnDiagonal, begins: Columns, room: Scratch
) -> Columns:
    """(Λ + E)⁻¹ times some columns, each solved down to a tolerance of its own, shape (q,), from where it `begins`:
    from zero where no column is there. None is solved any more once one has taken too many steps (`Scratch`)."""
    solutions = new_columns(len(tolerances))
    for j in range(len(tolerances)):
        solve_column(system, sources, j, tolerances[j], E, begins, room)
        solutions = with_column(solutions, j, room, VALUE)
        forget(room)
        if room.steps[EXCEEDED] != 0:
            break
    return in_use(solutions)


@compiled
def solve_column(
    system: System, sources: Columns, j: int, tolerance: float, E: OnDiagonal, begins: Columns, room: Scratch
) -> None:
    """Solve column j in the scratch, from where it begins, or from zero where that leaves less."""
    begin_column(system, sources, j, E, room)
    if len(begins.begin) > 1:
        most = left_in(room)
        for i in range(begins.begin[j], begins.begin[j + 1]):
            if abs(begins.value[i]) > tolerance:  # what is less is as well solved without
                put_solution(system, room, begins.who[i], begins.value[i])
        if left_in(room) > most:  # a loose solve would leave much of that
            forget(room)
            begin_column(system, sources, j, E, room)
    solve(system, tolerance, room)


@compiled
def begin_column(system: System, sources: Columns, j: int, E: OnDiagonal, room: Scratch) -> None:
    """Put the right-hand side and the matrix of column j into the scratch."""
    for i in range(sources.begin[j], sources.begin[j + 1]):
        begin(system, room, sources.who[i], sources.value[i])
    for i in range(len(E.people)):
        touch(system, room, E.people[i], 0.0)
        room.cells[E.people[i], DIAGONAL] += E.added[i]


@allocating
def new_columns(count: int) -> Columns:
    """So many columns without entries, and room for some."""
    return Columns(np.zeros(count + 1, np.int64), np.empty(ENTRIES_AT_FIRST, np.int32), np.empty(ENTRIES_AT_FIRST))


@allocating
def with_column(columns: Columns, j: int, room: Scratch, number: int) -> Columns:
    """The columns with column j, the last one so far, as a solve has left that number of those it has touched."""
    begins, who, value = columns
    used, touched = begins[j], touched_by(room)
    if used + len(touched) > len(who):
        who, value = np.empty(2 * used + len(touched), np.int32), np.empty(2 * used + len(touched))
        who[:used], value[:used] = columns.who[:used], columns.value[:used]
    for t in touched:
        if room.cells[t, number] != 0.0:
            who[used], value[used] = t, room.cells[t, number]
            used += 1
    begins[j + 1 :] = used
    return Columns(begins, who, value)


@allocating
def in_use(columns: Columns) -> Columns:
    """The columns without the room behind them."""
    used = columns.begin[-1]
    return Columns(columns.begin, columns.who[:used].copy(), columns.value[:used].copy())


def columns_of(people: Ints, matrix: Floats) -> Columns:
    """A matrix whose rows, shape (k, q), are these people's."""
    column, row = np.nonzero(matrix.T)
    begins = np.searchsorted(column, np.arange(matrix.shape[1] + 1))
    return Columns(begins, people[row], matrix[row, column])


NO_COLUMNS = Columns(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0))


def joined(some: Iterable[Columns]) -> Columns:
    """Columns after other columns."""
    begins, who, values = ([array] for array in NO_COLUMNS)
    end = 0
    for each in some:
        begins.append(end + each.begin[1:])
        who.append(each.who)
        values.append(each.value)
        end += len(each.who)
    return Columns(np.concatenate(begins), np.concatenate(who), np.concatenate(values))


@allocating
def by_rows(columns: Columns, row: Ints) -> Rows:
    """Columns by participant. `row`, shape (participants,), is zero before, and then each one's row."""
    count, who = 0, columns.who
    for t in who:
        if row[t] == 0:
            count += 1
            row[t] = count
    begins, people = np.zeros(count + 2, np.int64), np.empty(count, np.int32)
    for t in who:
        begins[row[t] + 1] += 1
        people[row[t] - 1] = t
    begins = np.cumsum(begins)
    column, value, following = np.empty(len(who), np.int32), np.empty(len(who)), begins.copy()
    for j in range(len(columns.begin) - 1):
        for i in range(columns.begin[j], columns.begin[j + 1]):
            place = following[row[who[i]]]
            column[place], value[place] = j, columns.value[i]
            following[row[who[i]]] += 1
    return Rows(begins, people, column, value)


@allocating
def some_rows(rows: Rows, which: Ints, columns: int) -> Floats:
    """The entries of these rows, shape (len(which), columns)."""
    entries = np.zeros((len(which), columns))
    for i in range(len(which)):
        for k in range(rows.begin[which[i]], rows.begin[which[i] + 1]):
            entries[i, rows.column[k]] = rows.value[k]
    return entries


@allocating
def some_columns(rows: Rows, first: int, last: int) -> Rows:
    """The rows with the columns number `first` … `last` − 1 alone."""
    begin, used, count = np.zeros(len(rows.begin), np.int64), 0, len(rows.column)
    column, value = np.empty(count, np.int32), np.empty(count)
    for row in range(len(rows.begin) - 1):
        for i in range(rows.begin[row], rows.begin[row + 1]):
            if first <= rows.column[i] < last:
                column[used], value[used] = rows.column[i] - first, rows.value[i]
                used += 1
        begin[row + 1] = used
    return Rows(begin, rows.people, column[:used].copy(), value[:used].copy())


@compiled
def times(rows: Rows, which: int, matrix: Floats, out: Floats) -> None:
    """Write a row, of q entries, times a matrix with as many rows."""
    out[:] = 0.0
    for i in range(rows.begin[which], rows.begin[which + 1]):
        for j in range(len(out)):
            out[j] += rows.value[i] * matrix[rows.column[i], j]


@compiled
def dot(rows: Rows, which: int, vector: Floats) -> float:
    """A row times a vector."""
    total = 0.0
    for i in range(rows.begin[which], rows.begin[which + 1]):
        total += rows.value[i] * vector[rows.column[i]]
    return total


@compiled
def correct_inverse(state: State, rows: Rows, T: Floats, tolerances: Floats, at: Floats) -> None:
    """Take C T Cᵀ from the entries of Λ⁻¹; C is `rows`, and whose is which says `rooms.row`. Λ's diagonal is the
    new one already. `at`, shape (q,), is room."""
    system, inverse, row = state.system, state.inverse, state.rooms.row
    for number, t in enumerate(rows.people):
        times(rows, number + 1, T, at)
        left_out = 0.0
        for j in range(len(at)):
            left_out += abs(at[j]) * tolerances[j]
        mark(state.news.moved, t)
        lower(inverse.on_participant, t, dot(rows, number + 1, at), 1.0 / diagonal_of(system, t))
        add_strain(inverse.healing, t, 2.0 * left_out, inverse.tolerances.strain)
        first = system.start[t]
        for k in range(first, first + system.degree[t]):
            other = system.contact[k]
            if other > t and row[other] != 0:
                add_to(inverse.on_edge, system.incident[k], -dot(rows, row[other], at))
