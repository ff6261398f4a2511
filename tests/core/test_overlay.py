"""Columns that are laid over others against copies of these."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.compiled import callable_here

from haystream.memory import overlay
from haystream.memory.overlay import (
    BITS,
    GROUP_LINES,
    LINE_ENTRIES,
    MOST_SPARE,
    TIGHT,
    USED,
    Overlay,
    count_lines,
    entries,
    flat,
    flattened,
    item,
    over,
    packed,
    put_all,
    put_rows,
    rows,
    whole,
    whole_table,
)

entry, put, cell, put_cell = map(callable_here, (overlay.entry, overlay.put, overlay.cell, overlay.put_cell))


@given(st.integers(1, 3 * GROUP_LINES * LINE_ENTRIES), st.sampled_from([1, LINE_ENTRIES]), st.data())
def test_an_overlay_reads_as_a_copy_and_leaves_what_lies_below(size: int, line: int, data: st.DataObject) -> None:
    below = np.arange(1.0, size + 1)
    column, copy = over(whole(below, line)), below.copy()
    written = st.tuples(st.integers(0, size - 1), st.sampled_from([0.0, -1.0, 3.0]))
    for number, value in data.draw(st.lists(written)):
        put(column, number, value)
        copy[number] = value
        assert entry(column, number) == value
    which = np.arange(size, dtype=np.int32)
    np.testing.assert_array_equal(flat(column), copy)
    np.testing.assert_array_equal(entries(column, which), copy)
    np.testing.assert_array_equal(below, np.arange(1.0, size + 1))
    assert column.counts[USED] <= len(column.own)


@given(st.integers(1, 2 * GROUP_LINES + 3), st.integers(1, 5), st.data())
def test_so_does_a_table(size: int, columns: int, data: st.DataObject) -> None:
    below = np.arange(1.0, size * columns + 1).reshape(size, columns)
    table, copy, which = over(whole_table(below.copy())), below.copy(), np.arange(size, dtype=np.int32)
    at = st.tuples(st.integers(0, size - 1), st.integers(0, columns - 1))
    for (row, column), value in data.draw(st.lists(st.tuples(at, st.sampled_from([0.0, -1.0, 3.0])))):
        put_cell(table, row, column, value)
        copy[row, column] = value
        assert cell(table, row, column) == value
    put_rows(table, which[: size // 2], -copy[: size // 2])
    copy[: size // 2] *= -1.0
    np.testing.assert_array_equal(rows(table, which), copy)
    np.testing.assert_array_equal(flat(table).reshape(size, columns), copy)
    np.testing.assert_array_equal(rows(flattened(table), which), copy)
    np.testing.assert_array_equal(table.below.reshape(size, columns), below)
    assert table.counts[USED] <= len(table.own)


def test_it_takes_the_lines_that_differ() -> None:
    column = over(whole(np.arange(100.0 * LINE_ENTRIES)))
    put_all(column, np.array([3, 5, 70 * LINE_ENTRIES, 9], np.int32), np.array([-1.0, -1.0, -1.0, 9.0]))
    assert int(np.bitwise_count(column.chunks[:, BITS]).sum()) == 3  # what is as below takes none
    # The chunk for one that was too small for two is another group's.
    assert column.counts[USED] == 1 + 3


@pytest.mark.parametrize("size", [1, GROUP_LINES - 1, GROUP_LINES, 1000])
def test_lines_in_any_order(size: int) -> None:
    rng, below = np.random.default_rng(size), np.arange(3.0 * size).reshape(size, 3)
    table, copy = over(whole_table(below.copy())), below.copy()
    for row in rng.permutation(size).tolist():
        put_cell(table, row, 1, -1.0)
        copy[row, 1] = -1.0
        read = [[item(table, near, column) for column in range(3)] for near in (row, (row + 1) % size)]
        np.testing.assert_array_equal(read, copy[[row, (row + 1) % size]])
    np.testing.assert_array_equal(rows(table, np.arange(size, dtype=np.int32)), copy)
    np.testing.assert_array_equal(flat(table).reshape(size, 3), copy)
    assert table.counts[USED] <= len(table.own)


@pytest.mark.parametrize("most_spare", [0.0, MOST_SPARE])
@pytest.mark.parametrize("size", [1, 40, 1000])
def test_a_packed_one_says_the_same_in_less_and_goes_on(size: int, most_spare: float) -> None:
    rng, below = np.random.default_rng(size), np.arange(3.0 * size).reshape(size, 3)
    table, copy = over(whole_table(below.copy())), below.copy()
    for count, row in enumerate(rng.permutation(size).tolist(), 1):
        put_cell(table, row, 1, -1.0)
        copy[row, 1] = -1.0
        closer = packed(table, most_spare)
        assert count_lines(closer) == count
        assert (1.0 - most_spare) * closer.counts[USED] <= 1 + count
        assert closer is table or closer.counts[USED] == closer.counts[TIGHT] == 1 + count < table.counts[USED]
        table = closer
        np.testing.assert_array_equal(rows(table, np.arange(size, dtype=np.int32)), copy)
    own = whole_table(below)
    assert packed(own) is own


def test_a_packed_one_that_grows_again_has_room_for_every_chunk() -> None:
    below = np.arange(64.0 * GROUP_LINES)
    column, copy = over(whole(below, 1)), below.copy()
    written = np.arange(0, len(below), 2, dtype=np.int32)
    for which in (written, written + 1):
        for number in which.tolist():
            put(column, number, -1.0)
            copy[number] = -1.0
        np.testing.assert_array_equal(flat(column), copy)
        assert column.counts[USED] <= len(column.own)
        column = packed(column, 0.0)
    assert column.counts[USED] == 1 + len(below)


def test_a_whole_column_is_written_to_itself() -> None:
    values = np.arange(20.0)
    column: Overlay = whole(values)
    put(column, 7, -1.0)
    assert values[7] == entry(column, 7) == -1.0
    assert flat(column) is values
