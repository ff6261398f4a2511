"""Numbers most of which are somebody else's, with what differs laid over them, a line at a time: an entry of a
column or two neighbours, or a row of a table.

The system makes memory one's own by pages of 512 numbers (`copies`). Where what is written to lies scattered, as
the edges near some verdicts do, that is most pages; of lines it is little more than what is written. To find them
costs two bits a line: of 32 neighbours a number says by its bits which ones are laid over, and these lie together
in a **chunk**, in their order, with room for a few more.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from haystream.memory.arrays import Floats, Ints, Longs
from haystream.memory.compiled import allocating, compiled, inlined
from haystream.memory.copies import zeros_as_needed
from haystream.memory.prefetch import prefetch

LINE_ENTRIES = 2
"""Entries of a column where few differ: with one it takes more to find them. Where many do, lines of one hold less
that does not differ. With no more than two, a shift by their number less one finds the line, and a division would
take longer than all else that a look-up does."""

GROUP_POWER = 5
"""A power of two, likewise."""

GROUP_LINES = 1 << GROUP_POWER
"""Lines that share a chunk: as many as a number has bits."""

BITS, FIRST = 0, 1
"""Columns of `Overlay.chunks`."""

CHUNK_LINES = np.array([1, 2, 4, 8, 12, 16, 24, GROUP_LINES])
"""For how many lines there are chunks."""

USED, TIGHT = len(CHUNK_LINES), len(CHUNK_LINES) + 1
"""Places in `Overlay.counts`."""

WHOLE = -1
"""In place of a number of lines: nothing is laid over, `below` is the column's own."""

MOST_SPARE = 0.25
"""What lines take that say nothing is given up when it is a larger share of all (`packed`): chunks have room to
spare, and groups of lines grow alike, so that a chunk which is too small for one is too small for the next, too."""


class Overlay(NamedTuple):
    """A column, read by `entry` and written by `put`; or a table, by `cell` and `put_cell`."""

    below: Floats
    """One line after the other, shape (n,); only read, unless the overlay is WHOLE."""
    chunks: NDArray[np.uint32]
    """By group: which of its lines are laid over, the first by the least bit, and where their chunk begins in
    `own`; shape (groups, 2)."""
    own: Floats
    """Shape (lines, LINE_ENTRIES or the table's columns), of which as many take memory as have been in use. A chunk
    that was too small is free again, and begins with where the next free one of its size does."""
    counts: Longs
    """By size of chunks (`CHUNK_LINES`), where the first free one begins, or 0; then how many lines of `own` have
    been in use, or WHOLE; and how many of these, from the first, were packed, into chunks without room to
    spare, which are of no use to others once they are too small. Shape (len(CHUNK_LINES) + 2,)."""


def whole(column: Floats, line: int = LINE_ENTRIES) -> Overlay:
    """A column with nothing over it, of lines of one entry or two."""
    return _whole(column, line)


def whole_table(table: Floats) -> Overlay:
    """A table with nothing over it, shape (rows, columns)."""
    return _whole(table.reshape(-1), table.shape[1])


def _whole(numbers: Floats, width: int) -> Overlay:
    counts = np.array([0] * len(CHUNK_LINES) + [WHOLE, 0])
    return Overlay(numbers, np.zeros((0, 2), np.uint32), np.zeros((0, width)), counts)


def over(below: Overlay) -> Overlay:
    """One that is as that whole one where it is not written to, and leaves it as it is."""
    width = below.own.shape[1]
    groups = -(-len(below.below) // (width * GROUP_LINES))
    # Each group may once have had a chunk of every size, and one that was packed. No chunk begins at 0.
    own = zeros_as_needed(1 + groups * (int(CHUNK_LINES.sum()) + GROUP_LINES), width)
    counts = np.array([0] * len(CHUNK_LINES) + [1, 1])
    return Overlay(below.below, np.zeros((groups, 2), np.uint32), own, counts)


def is_whole(overlay: Overlay) -> bool:
    """Whether nothing can lie over it."""
    return int(overlay.counts[USED]) == WHOLE


def flat(overlay: Overlay) -> Floats:
    """All numbers, one line after the other, shape (n,): of a whole one without a copy."""
    if is_whole(overlay):
        return overlay.below
    width, count = overlay.own.shape[1], len(overlay.below)
    lines = count // width
    rest = [item(overlay, lines, column) for column in range(count % width)]
    return np.append(rows(overlay, np.arange(lines, dtype=np.int32)), rest)


@allocating
def lines(overlay: Overlay) -> Ints:
    """Which lines are laid over, ascending, shape (k,); none of a whole one."""
    found, count = np.empty(count_lines(overlay), np.int32), 0
    for group in range(len(overlay.chunks)):
        bits: int = overlay.chunks[group, BITS] + 0
        for line in range(GROUP_LINES):
            if bits >> line & 1:
                found[count] = group * GROUP_LINES + line
                count += 1
    return found


def flattened(overlay: Overlay) -> Overlay:
    """A copy that is whole."""
    return _whole(flat(overlay), overlay.own.shape[1])


def packed(overlay: Overlay, most_spare: float = MOST_SPARE) -> Overlay:
    """The same in less memory, where more than that share of what it has had in use says nothing; else itself."""
    if is_whole(overlay) or 1 + count_lines(overlay) >= (1.0 - most_spare) * overlay.counts[USED]:
        return overlay
    closer = over(_whole(overlay.below, overlay.own.shape[1]))
    _copy_lines(overlay, closer)
    return closer


def lay_like(overlay: Overlay, other: Overlay) -> None:
    """Lay over one that nothing lies over yet what lies over another, which is as long."""
    used = int(other.counts[USED])
    overlay.own[:used], overlay.chunks[:], overlay.counts[:] = other.own[:used], other.chunks, other.counts


@compiled
def count_lines(overlay: Overlay) -> int:
    """How many lines are laid over."""
    count = 0
    for group in range(len(overlay.chunks)):
        count += ones(overlay.chunks[group, BITS] + 0)
    return count


@compiled
def _copy_lines(here: Overlay, there: Overlay) -> None:
    used = there.counts[USED]
    for group in range(len(here.chunks)):
        begin, count = here.chunks[group, FIRST] + 0, ones(here.chunks[group, BITS] + 0)
        for i in range(count):
            copy_line(here.own, begin + i, there.own, used + i)
        if count > 0:
            there.chunks[group, BITS], there.chunks[group, FIRST] = here.chunks[group, BITS], used
            used += count
    there.counts[USED] = there.counts[TIGHT] = used


@inlined
def ones(bits: int) -> int:
    """How many bits are 1: compilers know this loop, and make one instruction of it."""
    count = 0
    while bits != 0:
        bits &= bits - 1
        count += 1
    return count


@inlined
def place_of(overlay: Overlay, line: int) -> int:
    """Where a line lies in `own`, or 0 where it is as below."""
    group, bit = line >> GROUP_POWER, 1 << (line & (GROUP_LINES - 1))
    bits: int = overlay.chunks[group, BITS] + 0  # of 64 bits, as everything else
    return overlay.chunks[group, FIRST] + ones(bits & (bit - 1)) if bits & bit else 0


@inlined
def fetch_line(overlay: Overlay, line: int) -> None:
    """Have a line fetched as it is below, and what says whether it is laid over, and where (`prefetch`)."""
    prefetch(overlay.chunks, line >> GROUP_POWER)
    prefetch(overlay.below, line * overlay.own.shape[1])


@inlined
def fetch_own_line(overlay: Overlay, line: int) -> None:
    """Have a line fetched if it is laid over; `fetch_line` had better have come `SOON` before."""
    if overlay.counts[USED] != WHOLE:
        prefetch(overlay.own, place_of(overlay, line))


@inlined
def fetch_entry(column: Overlay, number: int) -> None:
    """Have an entry's line fetched (`fetch_line`)."""
    fetch_line(column, number >> (column.own.shape[1] - 1))


@inlined
def fetch_own_entry(column: Overlay, number: int) -> None:
    """The same if it is laid over (`fetch_own_line`)."""
    fetch_own_line(column, number >> (column.own.shape[1] - 1))


@inlined
def cell(table: Overlay, row: int, column: int) -> float:
    """The number in one cell of a table."""
    if table.counts[USED] != WHOLE:
        at = place_of(table, row)
        if at > 0:
            return float(table.own[at, column])
    return float(table.below[row * table.own.shape[1] + column])


@inlined
def put_cell(table: Overlay, row: int, column: int, value: float) -> None:
    """Write one cell."""
    below = row * table.own.shape[1] + column
    if table.counts[USED] == WHOLE:
        table.below[below] = value
        return
    at = place_of(table, row)
    if at == 0:
        if table.below[below] == value:
            return
        at = lay_over(table, row)
    table.own[at, column] = value


@inlined
def add_to_cell(table: Overlay, row: int, column: int, change: float) -> float:
    """Add to one cell; return what it is then. Where it lies is looked up once, and not twice."""
    below, is_whole = row * table.own.shape[1] + column, table.counts[USED] == WHOLE
    at = 0 if is_whole else place_of(table, row)
    if at > 0:
        value = table.own[at, column] + change
        table.own[at, column] = value
        return float(value)
    value = table.below[below] + change
    if is_whole:
        table.below[below] = value
    elif value != table.below[below]:
        table.own[lay_over(table, row), column] = value
    return float(value)


@compiled
def lay_over(overlay: Overlay, line: int) -> int:
    """Lay a line over that is as below until now; return where it lies in `own`."""
    own, width = overlay.own, overlay.own.shape[1]
    group, bit = line >> GROUP_POWER, 1 << (line & (GROUP_LINES - 1))
    bits: int = overlay.chunks[group, BITS] + 0  # of 64 bits, as everything else
    begin: int = overlay.chunks[group, FIRST] + 0
    count, before, first = ones(bits), ones(bits & (bit - 1)), begin
    had, size, tight = size_of(count), size_of(count + 1), begin < overlay.counts[TIGHT]
    if count == 0 or size != had or tight:
        first = take_chunk(overlay, size)
        for i in range(before):
            copy_line(own, begin + i, own, first + i)
    for i in range(count - 1, before - 1, -1):
        copy_line(own, begin + i, own, first + i + 1)
    if count > 0 and first != begin and not tight:
        give_chunk_back(overlay, had, begin)
    at, below = first + before, line * width
    for i in range(min(width, len(overlay.below) - below)):
        own[at, i] = overlay.below[below + i]
    overlay.chunks[group, BITS], overlay.chunks[group, FIRST] = bits | bit, first
    return at


@inlined
def copy_line(here: Floats, line: int, there: Floats, to: int) -> None:
    """Copy a line."""
    for i in range(here.shape[1]):
        there[to, i] = here[line, i]


@inlined
def size_of(count: int) -> int:
    """The size of chunks for so many lines, as a place in `CHUNK_LINES`."""
    size = 0
    while CHUNK_LINES[size] < count:
        size += 1
    return size


@compiled
def take_chunk(overlay: Overlay, size: int) -> int:
    """Where a free chunk of that size begins: one that was given back, or a new one."""
    counts = overlay.counts
    begin = counts[size]
    if begin != 0:
        counts[size] = overlay.own[begin, 0]
    else:
        begin = counts[USED]
        counts[USED] += CHUNK_LINES[size]
    return int(begin)


@compiled
def give_chunk_back(overlay: Overlay, size: int, begin: int) -> None:
    """Have the chunk of that size that begins there be free."""
    counts = overlay.counts
    overlay.own[begin, 0] = counts[size]
    counts[size] = begin


def item(table: Overlay, row: int, column: int) -> float:
    """One cell, for callers that are not compiled."""
    if len(table.chunks):
        bits, begin = table.chunks[row // GROUP_LINES].tolist()
        bit = 1 << row % GROUP_LINES
        if bits & bit:
            return table.own.item(begin + (bits & (bit - 1)).bit_count(), column)
    return table.below.item(row * table.own.shape[1] + column)


@inlined
def entry(column: Overlay, number: int) -> float:
    """The number in one entry of a column."""
    last = column.own.shape[1] - 1
    return cell(column, number >> last, number & last)


@inlined
def put(column: Overlay, number: int, value: float) -> None:
    """Write one entry."""
    last = column.own.shape[1] - 1
    put_cell(column, number >> last, number & last, value)


@inlined
def add_to(column: Overlay, number: int, change: float) -> float:
    """Add to one entry; return what it is then."""
    last = column.own.shape[1] - 1
    return add_to_cell(column, number >> last, number & last, change)


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
