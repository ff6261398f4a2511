"""The columns (Λ + E)⁻¹U of pending screenings, kept for as long as they solve what they are to solve.

A verdict changes few rows of Λ. A column's residual u − (Λ + E) k is what it was at all others, so that whoever
looks at these few knows whether it still is as small as it has to be. Of most columns it is, if the verdict is not
near.
"""

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from haystream.engines.local.inverse.low_rank import (
    NO_COLUMNS,
    NOWHERE,
    Columns,
    OnDiagonal,
    Rows,
    by_rows,
    joined,
    solve_columns,
)
from haystream.engines.local.pending.parts import Parts
from haystream.engines.local.solves.solve import System, diagonal_of
from haystream.engines.local.state.state import State
from haystream.memory.arrays import Floats, Ints, Longs, Switches, union
from haystream.memory.compiled import allocating, inlined
from haystream.memory.overlay import entry

LOOSER_FACTOR = 2.0
"""A column that was solved by less than so many times more loosely than it should be stays: as a part grows by an
edge, its tolerances shrink a little."""


class PendingColumns:
    """Those that were last asked for."""

    def __init__(self) -> None:
        self._names: list[Hashable] = []
        self._columns, self._tolerances, self._E = NO_COLUMNS, np.zeros(0), NOWHERE
        """As they were solved."""

    def solve(self, state: State, parts: Parts, stale: Ints | None) -> Columns:
        """(Λ + E)⁻¹U of the parts. `stale`: where Λ or U may have changed since the last call (`Pending.settle`).
        Returns the very same that it did then, where all is as it was."""
        E_before, self._E = self._E, parts.E
        before = self._places(parts.names)
        kept = np.flatnonzero(before >= 0) if stale is not None else np.zeros(0, np.int64)
        if stale is not None and len(kept):
            U, K, known_to = parts.U.some(kept), self._columns.some(before[kept]), self._tolerances[before[kept]]
            where = union(ends_of(state, stale), differing(E_before, self._E))
            left = left_of(state, U, K, self._E, known_to, where)
            kept = kept[~(left | (LOOSER_FACTOR * parts.tolerances[kept] < known_to))]
        if len(kept) == len(before) and parts.names == self._names:
            return self._columns
        known, tolerances = self._columns.some(before[kept]), parts.tolerances.copy()
        tolerances[kept] = self._tolerances[before[kept]]
        is_new = np.ones(len(before), np.bool_)
        is_new[kept] = False
        (new,) = np.nonzero(is_new)
        if len(new):
            sources, begins = parts.U.some(new), self._columns.some(before[new])
            solved = solve_columns(state.system, sources, tolerances[new], self._E, begins, state.rooms.column)
            known = joined([known, solved]).some(np.argsort(np.concatenate([kept, new])))
        self._names, self._columns, self._tolerances = parts.names, known, tolerances
        return known

    def _places(self, names: list[Hashable]) -> Longs:
        """Which of the known columns have these names, or −1."""
        if names == self._names:
            return np.arange(len(names))
        place = {name: number for number, name in enumerate(self._names)}
        return np.array([place.get(name, -1) for name in names], np.int64)


def ends_of(state: State, edges: Ints) -> Ints:
    """Of some edges, ascending."""
    return union(state.edges.tail[edges], state.edges.head[edges])


def left_of(state: State, U: Columns, K: Columns, E: OnDiagonal, tolerances: Floats, where: Ints) -> Switches:
    """Which columns K leave more of U than they may, shape (q,), as looked for at some people (`left_at`)."""
    rooms, row_of_U, row = state.rooms, state.rooms.row, state.rooms.other_row
    at_U, at_K = by_rows(U, row_of_U), by_rows(K, row)
    rooms.added[E.people] = E.added
    left = left_at(state.system, where, Located(at_K, row), Located(at_U, row_of_U), rooms.added, tolerances)
    row_of_U[at_U.people] = row[at_K.people] = 0
    rooms.added[E.people] = 0.0
    return left


def differing(before: OnDiagonal, after: OnDiagonal) -> Ints:
    """At whom something else is added, ascending."""
    people = union(before.people, after.people)
    values = np.zeros((2, len(people)))
    for row, each in zip(values, (before, after), strict=True):
        row[np.searchsorted(people, each.people)] = each.added
    return np.asarray(people[values[0] != values[1]], np.int32)


class Located(NamedTuple):
    """Rows, and where that of each participant is."""

    rows: Rows
    row: Ints


@inlined
def add_row(some: Located, participant: int, factor: float, to: Floats) -> None:
    """Add a participant's row, times a factor, to an array of shape (q,)."""
    rows, row = some.rows, some.row[participant]
    for i in range(rows.begin[row], rows.begin[row + 1]):
        to[rows.column[i]] += factor * rows.value[i]


@allocating
def left_at(system: System, where: Ints, K: Located, U: Located, added: Floats, tolerances: Floats) -> Switches:
    """For which columns the residual of (Λ + E) K = U is above `tolerances` at any of some people, shape (q,).
    `added`: E, by participant."""
    left, residual = np.zeros(len(tolerances), np.bool_), np.empty(len(tolerances))
    for t in where:
        diagonal, first = diagonal_of(system, t) + added[t], system.start[t]
        residual[:] = 0.0
        add_row(U, t, 1.0, residual)
        add_row(K, t, -diagonal, residual)
        for i in range(first, first + system.degree[t]):
            if K.row[system.contact[i]] != 0:
                add_row(K, system.contact[i], -entry(system.off, system.incident[i]), residual)
        for j in range(len(left)):
            left[j] |= abs(residual[j]) > tolerances[j] * diagonal
    return left


@allocating
def at_sources(U: Columns, K: Located, count: int, columns: int) -> Floats:
    """Uᵀ K of the first `count` columns of U, shape (count, columns)."""
    products = np.zeros((count, columns))
    for j in range(count):
        for i in range(U.begin[j], U.begin[j + 1]):
            add_row(K, U.who[i], U.value[i], products[j])
    return products
