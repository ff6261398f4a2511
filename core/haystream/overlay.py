"""A column most of which is somebody else's, with what differs laid over it, a line of a few entries at a time.

The system makes memory one's own by pages of 512 numbers (`copies`). Where what is written to lies scattered, as
the edges near some verdicts do, that is most pages; of lines of 8 it is a few.
"""

from typing import NamedTuple

import numpy as np

from haystream.arrays import Floats, Ints, Longs
from haystream.compiled import allocating, compiled, inlined
from haystream.copies import zeros_as_needed

LINE = 8
"""Entries: a line of the cache."""

WHOLE = -1
"""In place of a number of lines: nothing is laid over, `below` is the column's own."""


class Overlay(NamedTuple):
    """The column, read by `entry` and written by `put`."""

    below: Floats
    """Shape (n,); only read, unless the column is WHOLE."""
    place: Ints
    """By line: 0, or where it lies in `own`, shape (lines,)."""
    own: Floats
    """Shape (lines + 1, LINE), of which as many take memory as are in use; the first never is."""
    used: Longs
    """How many lines are in use, or WHOLE, shape (1,)."""


def whole(column: Floats) -> Overlay:
    """A column with nothing over it."""
    return Overlay(column, np.zeros(0, np.int32), np.zeros((0, LINE)), np.array([WHOLE]))


def over(below: Floats) -> Overlay:
    """A column that is as the one below where it is not written to, and leaves that as it is."""
    lines = -(-len(below) // LINE)
    return Overlay(below, np.zeros(lines, np.int32), zeros_as_needed(lines + 1, LINE), np.zeros(1, np.int64))


def flat(column: Overlay) -> Floats:
    """All entries, shape (n,): of a whole column without a copy."""
    if column.used[0] == WHOLE:
        return column.below
    return entries(column, np.arange(len(column.below), dtype=np.int32))


@inlined
def entry(column: Overlay, number: int) -> float:
    """One entry."""
    if column.used[0] != WHOLE:
        at = column.place[number // LINE]
        if at > 0:
            return float(column.own[at, number % LINE])
    return float(column.below[number])


@inlined
def put(column: Overlay, number: int, value: float) -> None:
    """Write one entry."""
    if column.used[0] == WHOLE:
        column.below[number] = value
        return
    line = number // LINE
    at = column.place[line]
    if at == 0:
        if column.below[number] == value:
            return
        column.used[0] += 1
        at = column.place[line] = column.used[0]
        for i in range(min(LINE, len(column.below) - line * LINE)):
            column.own[at, i] = column.below[line * LINE + i]
    column.own[at, number % LINE] = value


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
