"""What several records say of one item: the same whatever their order, and however often they come."""

from dataclasses import replace
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haystream.errors import Code, Rejected
from haystream.events import MOST_LABELS, Item, ItemFact, RecordPlace, Withdrawal
from haystream.facts.merging import merge

ITEM = Item("m", "c", "ann", ("bo", "cy"))
places = st.none() | st.builds(RecordPlace, st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 1))
labels = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["1", "true", '"x"'])).map(
    lambda of: tuple(sorted(of.items()))
)
facts: st.SearchStrategy[ItemFact] = st.just(Withdrawal("m", "c")) | st.builds(
    replace,
    st.just(ITEM),
    sent_at=st.none() | st.integers(0, 2),
    uri=st.none() | st.sampled_from("abc"),
    labels=labels,
    subject_at=places,
    text_at=places,
    withdrawn=st.booleans(),
)


@given(st.lists(facts, min_size=1), st.randoms(use_true_random=False))
def test_any_order_and_any_repetition_say_the_same(said, random):
    again = [*said, *random.choices(said, k=3)]
    random.shuffle(again)
    assert reduce(merge, again) == reduce(merge, said)


@given(facts, facts, facts)
def test_it_does_not_matter_what_was_put_together_first(one, two, three):
    assert merge(one, merge(two, three)) == merge(merge(one, two), three)


def test_what_is_missing_is_filled_and_of_two_the_lesser_holds():
    one = replace(ITEM, sent_at=5, labels=(("a", "2"), ("b", "1")), text_at=RecordPlace("f", 0, 0))
    other = replace(ITEM, sent_at=3, uri="x", labels=(("a", "1"), ("c", "1")), text_at=RecordPlace("e", 1, 7))
    merged = merge(one, other)
    assert merged == replace(
        ITEM, sent_at=3, uri="x", labels=(("a", "1"), ("b", "1"), ("c", "1")), text_at=RecordPlace("e", 1, 7)
    )
    assert merge(merged, Withdrawal("m", "c")) == replace(merged, withdrawn=True)
    assert merge(Withdrawal("m", "c"), merged) == replace(merged, withdrawn=True)
    assert merge(Withdrawal("m", "c"), Withdrawal("m", "c")) == Withdrawal("m", "c")


def test_too_many_labels_are_left_out_in_any_order():
    parts = [replace(ITEM, labels=tuple((f"{n:03}", "1") for n in range(k, 200, 4))) for k in range(4)]
    kept = tuple((f"{n:03}", "1") for n in range(MOST_LABELS))
    assert reduce(merge, parts).labels == reduce(merge, reversed(parts)).labels == kept


@pytest.mark.parametrize(
    "other", [replace(ITEM, sender="bo"), replace(ITEM, participants=("bo",)), replace(ITEM, sender=None)]
)
def test_the_first_people_stand(other):
    with pytest.raises(Rejected) as caught:
        merge(ITEM, other)
    assert caught.value.code == Code.ITEM_CONFLICT
