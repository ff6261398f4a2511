"""Items that are taken back for good: nobody reads them, and no verdict on them counts, whatever came first."""

from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dense import TIGHT, assert_agrees
from support.equality import assert_same
from support.histories import MODELS, facts, fold, item, items, line, more_of, queries, verdict

from haystream.collection.collection import Collection
from haystream.events import Event, Item, ModelName, Outcome, Query, Withdrawal
from haystream.fold import State, step
from haystream.query.originals import KeptOriginal
from haystream.query.state import QueryState
from haystream.ranking.policies import POLICIES
from haystream.report import report

EngineName = Literal["local", "reference"]
ENGINES: tuple[EngineName, ...] = ("local", "reference")
both_engines = pytest.mark.parametrize("engine", ENGINES)
ITEMS = line(12)
GONE = Withdrawal("i5", "default")


@both_engines
@given(data=st.data())
def test_any_order_and_any_repetition_of_what_is_said_of_items_give_the_same_state(
    engine: EngineName, data: st.DataObject
) -> None:
    models: tuple[ModelName, ...] = MODELS if engine == "local" else ("rates",)
    query = replace(data.draw(queries(policies=tuple(POLICIES), models=models)), engine=engine)
    history = data.draw(facts())
    some = [said for said in history if isinstance(said, Item)]
    more = [data.draw(more_of(data.draw(st.sampled_from(some)))) for _ in range(4)]
    events: list[Event] = [query, *history, *more]
    again = data.draw(st.permutations(events + data.draw(st.lists(st.sampled_from(events), max_size=6))))
    state = State(tolerance=TIGHT)
    for number, event in enumerate(again):
        step(state, event)
        if number % 3 == 0 and "q" in state.queries:
            state.queries["q"].finish()
    found, expected = state.queries["q"], fold(events).queries["q"]
    assert_same(report(found), report(expected))
    told = [(each.item_id, each.sent_at, each.uri) for each in found.ranking().items]
    assert told == [(each.item_id, each.sent_at, each.uri) for each in expected.ranking().items]
    assert_agrees(found, 1e-8 if engine == "reference" else 1e-9)


@given(st.data())
def test_withdrawn_is_as_if_nobody_had_said_anything_of_it_nor_had_it(data: st.DataObject) -> None:
    query, history = data.draw(queries()), data.draw(facts())
    on = data.draw(items(99))
    state = fold([query, *history, on])
    state.queries["q"].hold("i99")
    step(state, verdict(100, "i99", data.draw(st.sampled_from(Outcome)), at=10))
    state.queries["q"].finish()
    step(state, Withdrawal("i99", "default"))
    step(state, verdict(101, "i99", data.draw(st.sampled_from(Outcome)), at=11))
    skipped = fold([query, *history, on, verdict(100, "i99", Outcome.SKIPPED, at=10)])
    assert_same(report(state.queries["q"]), report(skipped.queries["q"]))


def test_a_set_that_lost_items_is_the_set_without_them() -> None:
    """How large a set is says how alike its items are (`LARGE_SET`): those that were withdrawn do not count."""
    many: list[Event] = [item(f"m{n}", "b", sender="a") for n in range(20)]
    few, taken = many[:4], [Withdrawal(f"m{n}", "default") for n in range(4, 20)]
    said = [verdict(0, "m1", Outcome.RELEVANT), verdict(1, "m9", Outcome.RELEVANT)]
    expected = report(fold([Query("q"), *few, *said]).queries["q"])
    for order in ([*many, Query("q"), *said, *taken], [Query("q"), *taken, *many, *said], [*taken, *many, *said]):
        state = fold([*order, Query("q")])
        assert_same(report(state.queries["q"]), expected)


def test_what_is_withdrawn_before_it_comes_is_never_offered_and_leaves_its_pairs() -> None:
    state = fold([GONE, Query("q"), ITEMS[0]])
    query = state.queries["q"]
    assert [each.item_id for each in query.ranking().items] == ["i0"]
    step(state, ITEMS[5])
    assert [each.item_id for each in query.ranking().items] == ["i0"]
    assert query.collection.graph.edges == 2
    assert len(query.collection) == 2


def test_a_lease_on_what_is_withdrawn_holds_nothing() -> None:
    state = fold([Query("q"), *ITEMS, GONE])
    before = report(state.queries["q"])
    state.queries["q"].hold("i5")
    assert_same(report(state.queries["q"]), before)
    state.queries["q"].release("i5")
    assert_same(report(state.queries["q"]), before)


@pytest.mark.parametrize("news", [1, 200])
def test_the_original_that_queries_share_takes_in_what_was_withdrawn(
    news: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("haystream.query.originals.MOST_ITEMS", 100)
    monkeypatch.setattr("haystream.query.originals.MOST_FOLLOWED", 1.0)
    collection, settings = Collection("default"), Query("q")
    for each in line(2000):
        collection.add(each)
    first = KeptOriginal(collection, settings.prior, 1e-9).get()
    for number in range(news):
        collection.add(Withdrawal(f"i{3 * number}", "default"))
    second = KeptOriginal(collection, settings.prior, 1e-9).get()
    assert (second is first) == (news == 1)
    assert second.withdrawn == (0 if news == 1 else news)
    query = QueryState(settings, collection, tolerance=1e-9)
    query.apply_verdict(verdict(0, "i1", Outcome.RELEVANT))
    query.apply_verdict(verdict(1, "i3", Outcome.RELEVANT))
    query.finish()
    left = {each.item_id for each in report(query).items}
    assert left == {f"i{n}" for n in range(2000)} - {f"i{3 * n}" for n in range(news)} - {"i1"} - (
        {"i3"} if news == 1 else set()
    )
    assert_agrees(query, 1e-6)
    assert query.screened == (2 if news == 1 else 1)
