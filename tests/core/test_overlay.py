"""Columns that are laid over others against copies of these."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from haystream.overlay import LINE, Overlay, entries, entry, flat, over, put, put_all, whole


@given(st.integers(1, 5 * LINE), st.data())
def test_an_overlay_reads_as_a_copy_and_leaves_what_lies_below(size: int, data: st.DataObject) -> None:
    below = np.arange(1.0, size + 1)
    column, copy = over(below), below.copy()
    written = st.tuples(st.integers(0, size - 1), st.sampled_from([0.0, -1.0, 3.0]))
    for number, value in data.draw(st.lists(written)):
        put(column, number, value)
        copy[number] = value
        assert entry(column, number) == value
    which = np.arange(size, dtype=np.int32)
    np.testing.assert_array_equal(flat(column), copy)
    np.testing.assert_array_equal(entries(column, which), copy)
    np.testing.assert_array_equal(below, np.arange(1.0, size + 1))
    assert column.used[0] <= len(column.place)


def test_it_takes_the_lines_that_differ() -> None:
    column = over(np.arange(100.0 * LINE))
    put_all(column, np.array([3, 5, 70 * LINE, 9], np.int32), np.array([-1.0, -1.0, -1.0, 9.0]))
    assert column.used[0] == 2  # what is as below takes none


def test_a_whole_column_is_written_to_itself() -> None:
    values = np.arange(20.0)
    column: Overlay = whole(values)
    put(column, 7, -1.0)
    assert values[7] == entry(column, 7) == -1.0
    assert flat(column) is values
