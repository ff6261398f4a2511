"""The columns Λ⁻¹U of pending screenings, kept for as long as they solve what they are to solve.

A verdict changes few rows of Λ. A column's residual u − Λk is what it was at all others, so that whoever looks at
these few knows whether it still is as small as it has to be. Of most columns it is, if the verdict is not near.
"""

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from haystream.arrays import Floats, Ints, Switches
from haystream.compiled import allocating, inlined
from haystream.engines.local.low_rank import Columns, Rows, by_rows, joined, solve_columns
from haystream.engines.local.pending_parts import Parts
from haystream.engines.local.solve import System, diagonal_of
from haystream.engines.local.state import State
from haystream.overlay import entry

LOOSER = 2.0
"""A column that was solved by less than so many times more loosely than it should be stays: as a part grows by an
edge, its tolerances shrink a little."""


class Column(NamedTuple):
    """One of them, as it was solved."""

    values: Columns
    tolerance: float


class PendingColumns:
    """Those that were last asked for, by name."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Column] = {}

    def solve(self, state: State, parts: Parts, stale: Ints | None, row: Ints) -> Rows:
        """Λ⁻¹U of the parts. `stale`: where Λ or U may have changed since the last call (`Pending.settle`); `row`,
        shape (participants,), is zero before, and then each one's row."""
        names, before = parts.names, self._known
        self._known = {name: before[name] for name in names if stale is not None and name in before}
        K = by_rows(self._joined(), row)
        if self._known and stale is not None:
            for name in self._left(state, parts, stale, K, row):
                del self._known[name]
        new = [j for j, name in enumerate(names) if name not in self._known]
        if not new:
            return K
        row[K.people] = 0
        sources, tolerances = joined(map(parts.U.of, new)), parts.tolerances[new]
        solved = solve_columns(state.system, sources, tolerances, state.rooms.column)
        self._known |= {names[j]: Column(solved.of(i), tolerances.item(i)) for i, j in enumerate(new)}
        self._known = {name: self._known[name] for name in names}
        return by_rows(self._joined(), row)

    def _joined(self) -> Columns:
        return joined(column.values for column in self._known.values())

    def _left(self, state: State, parts: Parts, stale: Ints, K: Rows, row: Ints) -> list[Hashable]:
        """The names of those columns in K that are to be solved again."""
        edges, row_of_U = state.edges, state.rooms.row
        kept = [j for j, name in enumerate(parts.names) if name in self._known]
        tolerances = np.array([column.tolerance for column in self._known.values()])
        of_kept = joined(map(parts.U.of, kept))
        where = np.unique(np.concatenate([edges.tail[stale], edges.head[stale], of_kept.who]))
        U = by_rows(of_kept, row_of_U)
        left = left_at(state.system, where, Located(K, row), Located(U, row_of_U), tolerances)
        row_of_U[U.people] = 0
        left |= LOOSER * parts.tolerances[kept] < tolerances
        return [parts.names[kept[i]] for i in np.flatnonzero(left).tolist()]


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
def left_at(system: System, where: Ints, K: Located, U: Located, tolerances: Floats) -> Switches:
    """For which columns the residual of Λ K = U is above `tolerances` at any of some people, shape (q,)."""
    left, residual = np.zeros(len(tolerances), np.bool_), np.empty(len(tolerances))
    for t in where:
        diagonal, first = diagonal_of(system, t), system.start[t]
        residual[:] = 0.0
        add_row(U, t, 1.0, residual)
        add_row(K, t, -diagonal, residual)
        for i in range(first, first + system.degree[t]):
            if K.row[system.contact[i]] != 0:
                add_row(K, system.contact[i], -entry(system.off, system.incident[i]), residual)
        for j in range(len(left)):
            left[j] |= abs(residual[j]) > tolerances[j] * diagonal
    return left
