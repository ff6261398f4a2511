"""Rows as bytes for whoever writes them to their places, against one row at a time."""

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from haystream.posterior.rows import Rows
from haystream_service.store.tables import packed, runs, table


@given(st.lists(st.integers(0, 60), unique=True), st.integers(1, 3), st.randoms(use_true_random=False))
def test_neighbours_are_written_together(place: list[int], columns: int, chance: Random) -> None:
    index = np.array([chance.randrange(2**32 - 1) for _ in place], np.uint32)
    values = np.array([chance.random() for _ in range(columns * len(place))]).reshape(len(place), columns)
    found = list(runs(packed(Rows(index, values, np.array(place, np.int32)))))
    width = 4 + 8 * columns
    written = {
        offset + at: table(run[at : at + width], columns)
        for offset, run in found
        for at in range(0, len(run), width)
    }
    assert {at: (*rows.index, *rows.rows[0]) for at, rows in written.items()} == {
        width * at: (number, *row) for at, number, row in zip(place, index, values, strict=True)
    }
    begins = [at for at in sorted(place) if at - 1 not in place]
    assert [offset for offset, _ in found] == [width * at for at in begins]
