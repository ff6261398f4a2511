"""Where rows lie, against a dictionary."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from haystream.memory.places import FEWEST_SLOTS, Places

numbers = st.one_of(
    st.integers(0, 300), st.integers(0, 2**31 - 1), st.integers(0, 2**20 - 1).map(lambda n: n << 11)
)
some = st.lists(numbers, unique=True, max_size=2 * FEWEST_SLOTS)


@given(st.lists(st.tuples(some, some), max_size=6))
def test_each_row_has_a_place_of_its_own_until_it_is_given_back(steps: list[tuple[list[int], list[int]]]) -> None:
    places, known, most = Places(), dict[int, int](), 0
    for wanted, unwanted in steps:
        found = dict(zip(wanted, places.of(np.array(wanted, np.int32)).tolist(), strict=True))
        assert {number: found[number] for number in wanted if number in known} == {
            number: known[number] for number in wanted if number in known
        }
        known |= found
        most = max(most, len(known))
        assert sorted(known.values()) == sorted(set(known.values()) & set(range(most)))
        gone = [number for number in unwanted if number in known]
        assert places.give_back(np.array(unwanted, np.int32)).tolist() == [known.pop(number) for number in gone]
    assert len(places) == most
