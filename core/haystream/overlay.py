"""Numbers most of which are somebody else's, with what differs laid over them, a line of a few at a time: eight
neighbours of a column, or a row of a table.

The system makes memory one's own by pages of 512 numbers (`copies`). Where what is written to lies scattered, as
the edges near some verdicts do, that is most pages; of lines of 8 it is a few.
"""

from typing import NamedTuple

import numpy as np

from haystream.arrays import Floats, Ints, Longs
from haystream.compiled import allocating, compiled, inlined
from haystream.copies import zeros_as_needed

LINE = 8
"""Entries of a column: a line of the cache."""

WHOLE = -1
"""In place of a number of lines: nothing is laid over, `below` is the column's own."""


class Overlay(NamedTuple):
    """A column, read by `entry` and written by `put`; or a table, by `cell` and `put_cell`."""

    below: Floats
    """One line after the other, shape (n,); only read, unless the overlay is WHOLE."""
    place: Ints
    """By line: 0, or where it lies in `own`, shape (lines,)."""
    own: Floats
    """Shape (lines + 1, LINE or the table's columns), of which as many take memory as are in use; the first never
    is."""
    used: Longs
    """How many lines are in use, or WHOLE, shape (1,)."""


def whole(column: Floats) -> Overlay:
    """A column with nothing over it."""
    return Overlay(column, np.zeros(0, np.int32), np.zeros((0, LINE)), np.array([WHOLE]))


def whole_table(table: Floats) -> Overlay:
    """A table with nothing over it, shape (rows, columns)."""
    return whole(table.reshape(-1))._replace(own=np.zeros((0, table.shape[1])))


def over(below: Overlay) -> Overlay:
    """One that is as that whole one where it is not written to, and leaves it as it is."""
    width = below.own.shape[1]
    lines = -(-len(below.below) // width)
    own = zeros_as_needed(lines + 1, width)
    return Overlay(below.below, np.zeros(lines, np.int32), own, np.zeros(1, np.int64))


def flat(overlay: Overlay) -> Floats:
    """All numbers, one line after the other, shape (n,): of a whole one without a copy."""
    numbers, width = overlay.below, overlay.own.shape[1]
    if overlay.used[0] == WHOLE:
        return numbers
    lines = np.append(numbers, np.zeros(-len(numbers) % width)).reshape(-1, width)
    own = np.flatnonzero(overlay.place)
    lines[own] = overlay.own[overlay.place[own]]
    return lines.reshape(-1)[: len(numbers)]


def flattened(overlay: Overlay) -> Overlay:
    """The same as a whole one."""
    return whole(flat(overlay))._replace(own=np.zeros((0, overlay.own.shape[1])))


@inlined
def cell(table: Overlay, row: int, column: int) -> float:
    """One cell."""
    if table.used[0] != WHOLE:
        at = table.place[row]
        if at > 0:
            return float(table.own[at, column])
    return float(table.below[row * table.own.shape[1] + column])


@inlined
def put_cell(table: Overlay, row: int, column: int, value: float) -> None:
    """Write one cell."""
    width = table.own.shape[1]
    first = row * width
    if table.used[0] == WHOLE:
        table.below[first + column] = value
        return
    at = table.place[row]
    if at == 0:
        if table.below[first + column] == value:
            return
        table.used[0] += 1
        at = table.place[row] = table.used[0]
        for i in range(min(width, len(table.below) - first)):
            table.own[at, i] = table.below[first + i]
    table.own[at, column] = value


def item(table: Overlay, row: int, column: int) -> float:
    """One cell, for callers that are not compiled."""
    at = table.place.item(row) if len(table.place) else 0
    return table.own.item(at, column) if at else table.below.item(row * table.own.shape[1] + column)


@inlined
def entry(column: Overlay, number: int) -> float:
    """One entry."""
    return cell(column, number // LINE, number % LINE)


@inlined
def put(column: Overlay, number: int, value: float) -> None:
    """Write one entry."""
    put_cell(column, number // LINE, number % LINE, value)


@allocating
def entries(column: Overlay, which: Ints) -> Floats:
    """Those entries, shape (len(which),)."""
    values = np.empty(len(which))
    for i in range(len(which)):
        values[i] = entry(column, which[i])
    return values


@compiled
def put_all(column: Overlay, which: Ints, values: Floats) -> None:
    """Write those entries."""
    for i in range(len(which)):
        put(column, which[i], values[i])


@allocating
def rows(table: Overlay, which: Ints) -> Floats:
    """Those rows, shape (len(which), columns)."""
    values = np.empty((len(which), table.own.shape[1]))
    for i in range(len(which)):
        for column in range(values.shape[1]):
            values[i, column] = cell(table, which[i], column)
    return values


@compiled
def put_rows(table: Overlay, which: Ints, values: Floats) -> None:
    """Write those rows."""
    for i in range(len(which)):
        for column in range(values.shape[1]):
            put_cell(table, which[i], column, values[i, column])
