"""Items whose scores are equal, as all are before the first verdict: each is told of as itself."""

from itertools import combinations

from haystream.events import Item, Policy, Query
from haystream.fold import State, step

PEOPLE = ("ann", "bo", "cy", "dee")


def test_tied_items_name_their_own_people_and_moments() -> None:
    state = State()
    step(state, Query("q", policy=Policy("greedy")))
    items = {f"i{n}": Item(f"i{n}", "default", None, pair) for n, pair in enumerate(combinations(PEOPLE, 2))}
    for item in items.values():
        step(state, item)
    ranked = state.queries["q"].ranking().items
    assert len({item.score for item in ranked}) == 1
    assert {item.item_id: item.participants for item in ranked} == {i: item.people() for i, item in items.items()}
