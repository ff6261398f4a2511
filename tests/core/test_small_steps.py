"""What is done in few steps, against the obvious way."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from haystream.collection.item_sets import ItemSets, share_of
from haystream.memory.arrays import Ints, Switches, among
from haystream.ranking.prior_rankings import Leaders


@given(st.lists(st.integers(0, 12), unique=True), st.lists(st.integers(0, 12), max_size=30))
def test_among(of: list[int], some: list[int]) -> None:
    found = among(np.array(of, np.int32), np.array(some, np.int32))
    assert found.tolist() == [number in some for number in of]


@given(st.lists(st.sets(st.integers(0, 6), min_size=1), min_size=1, max_size=20), st.data())
def test_what_items_add_to_their_edges(lie_on: list[set[int]], data: st.DataObject) -> None:
    sets = ItemSets()
    which = sets.intern([edge for on in lie_on for edge in on], map(len, lie_on))
    items = data.draw(st.lists(st.integers(0, len(lie_on) - 1)))
    edges, added = sets.offered(np.array([which[item] for item in items], np.int32))
    wanted: dict[int, float] = {}
    for on in (lie_on[item] for item in items):
        for edge in on:
            wanted[edge] = wanted.get(edge, 0.0) + share_of(len(on))
    assert edges.tolist() == sorted(wanted)
    assert dict(zip(edges.tolist(), added.tolist(), strict=True)) == wanted


@given(st.sets(st.integers(0, 199)), st.integers(1, 20))
def test_leaders_that_are_free(owned: set[int], most: int) -> None:
    """However many before them are owned."""
    sets: Ints = np.arange(200, dtype=np.int32)
    asked: list[int] = []

    def owns(of: Ints) -> Switches:
        asked.extend(of.tolist())
        return np.isin(of, list(owned))

    leaders = Leaders(sets, np.linspace(1.0, 0.0, 200), np.arange(200, dtype=np.uint64))
    free = leaders.free(most, owns)
    assert free.sets.tolist() == [which for which in range(200) if which not in owned][:most]
    assert asked == sorted(set(asked))
