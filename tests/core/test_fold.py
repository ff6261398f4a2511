"""The state is a function of the set of facts: any order, any duplication, any change of mind."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.equality import assert_same
from support.histories import MODELS, facts, fold, item, items, line, queries, verdict

from haystream.errors import Code, Rejected
from haystream.events import Event, ModelName, Outcome, Policy, Query, Status
from haystream.fold import State, step
from haystream.models import DEFAULT_PRIORS
from haystream.ranking.policies import POLICIES
from haystream.report import report

ITEMS = line(12)


@pytest.mark.parametrize("drawn", [4096, 4])
@given(data=st.data())
def test_any_order_and_any_duplication_give_the_same_state(drawn: int, data: st.DataObject) -> None:
    """`drawn` 4 has scores of chance move in turns, as on large graphs."""
    events = [data.draw(queries(policies=tuple(POLICIES))), *data.draw(facts())]
    with mock.patch("haystream.ranking.policies.DRAWN_AT_ONCE", drawn):
        check_any_order(data, events)


def check_any_order(data: st.DataObject, events: list[Event]) -> None:
    again = data.draw(st.permutations(events + data.draw(st.lists(st.sampled_from(events), max_size=8))))
    state = State(tolerance=1e-12)
    for number, event in enumerate(again):
        step(state, event)
        if number % 4 == 0 and "q" in state.queries:
            state.queries["q"].finish()
    assert_same(report(state.queries["q"]), report(fold(events).queries["q"]))


@given(st.data())
def test_a_retraction_equals_never_having_said(data: st.DataObject) -> None:
    query, history = data.draw(queries()), data.draw(facts())
    said = data.draw(items(99))
    before: list[Event] = [query, *history, said]
    outcome = data.draw(st.sampled_from([Outcome.RELEVANT, Outcome.IRRELEVANT, Outcome.SKIPPED]))
    state = fold([*before, verdict(100, "i99", outcome, at=10)])
    state.queries["q"].finish()
    step(state, verdict(101, "i99", Outcome.RETRACTED, at=11))
    assert_same(report(state.queries["q"]), report(fold(before).queries["q"]))


@given(st.data())
def test_a_change_of_mind_equals_having_said_it_at_once(data: st.DataObject) -> None:
    query, history = data.draw(queries()), data.draw(facts())
    before: list[Event] = [query, *history, data.draw(items(99))]
    first, last = (data.draw(st.sampled_from(list(Outcome))) for _ in range(2))
    state = fold([*before, verdict(100, "i99", first, at=10)])
    state.queries["q"].finish()
    step(state, verdict(101, "i99", last, at=11))
    assert_same(report(state.queries["q"]), report(fold([*before, verdict(101, "i99", last, at=11)]).queries["q"]))


def test_counts_are_given_back_to_the_last_digit() -> None:
    """0.1 + 0.2 - 0.2 is not 0.1 in floating point; an edge's n must be."""
    events: list[Event] = [Query("q")]
    events += [item(f"m{k}", *(f"r{i}" for i in range(k + 1)), sender="s") for k in range(2, 9)]
    kept = fold([*events, verdict(0, "m6", Outcome.RELEVANT)]).queries["q"]
    state = fold([*events, verdict(0, "m6", Outcome.RELEVANT)])
    for k in range(2, 9):
        if k != 6:
            step(state, verdict(k, f"m{k}", Outcome.RELEVANT))
    for k in range(2, 9):
        if k != 6:
            step(state, verdict(100 + k, f"m{k}", Outcome.RETRACTED))
    edges = [(e.screened, e.relevant) for e in report(state.queries["q"]).edges]
    assert edges == [(e.screened, e.relevant) for e in report(kept).edges]


def test_the_latest_verdict_holds_whatever_the_order() -> None:
    early = verdict(1, "i3", Outcome.RELEVANT, at=5)
    late = verdict(2, "i3", Outcome.IRRELEVANT, at=6)
    tie = verdict(3, "i3", Outcome.SKIPPED, at=6)  # same moment: the higher verdict_id
    for order in ([early, late], [late, early]):
        query = report(fold([Query("q"), *ITEMS, *order]).queries["q"])
        assert (query.screened, query.found) == (1, 0)
    for order in ([late, tie], [tie, late]):
        query = report(fold([Query("q"), *ITEMS, *order]).queries["q"])
        assert query.screened == 0
        assert "i3" not in [i.item_id for i in query.items]


def test_skipped_leaves_the_ranking_without_evidence() -> None:
    nothing, skipped = fold([Query("q"), *ITEMS]), fold([Query("q"), *ITEMS, verdict(0, "i5", Outcome.SKIPPED)])
    a, b = report(nothing.queries["q"]), report(skipped.queries["q"])
    assert a.participants == b.participants
    assert {i.item_id for i in a.items} - {i.item_id for i in b.items} == {"i5"}


def test_a_verdict_before_its_item_and_before_its_query() -> None:
    state = fold([verdict(0, "i5", Outcome.RELEVANT)])
    assert list(state.orphans) == ["q"]
    step(state, Query("q"))
    assert state.queries["q"].screened == 0
    for each in ITEMS:
        step(state, each)
    assert report(state.queries["q"]).found == 1
    assert not state.orphans


def test_a_query_opened_later_gets_the_items_that_are_there() -> None:
    state = fold([*ITEMS, Query("q")])
    assert len(state.queries["q"].ranking().items) == len(ITEMS)


def test_items_reach_every_query_of_their_collection_only() -> None:
    other = Query("other", collection="elsewhere")
    state = fold([Query("q"), Query("r"), other, *ITEMS])
    assert [len(state.queries[q].ranking().items) for q in ("q", "r", "other")] == [12, 12, 0]
    assert step(state, item("new", "p000", "p007")) == ("q", "r")


def test_a_known_fact_changes_nothing() -> None:
    state = fold([Query("q"), *ITEMS, verdict(0, "i5", Outcome.RELEVANT)])
    for again in (Query("q"), ITEMS[3], verdict(0, "i5", Outcome.RELEVANT)):
        assert step(state, again) == ()


def test_conflicts_are_rejected_and_change_nothing() -> None:
    state = fold([Query("q"), *ITEMS, verdict(0, "i5", Outcome.RELEVANT)])
    before = report(state.queries["q"])
    bad: list[tuple[Event, Code]] = [
        (item("i5", "p005", "p009"), Code.ITEM_CONFLICT),
        (item("i5", "p005", sender="p006"), Code.ITEM_CONFLICT),  # the same pair, but another sender
        (verdict(0, "i5", Outcome.IRRELEVANT, at=0), Code.VERDICT_CONFLICT),
        (Query("q", collection="elsewhere"), Code.COLLECTION_CHANGED),
        (Query("q", policy=Policy("nobody-knows")), Code.UNSUPPORTED),
        (Query("r", policy=Policy("nobody-knows")), Code.UNSUPPORTED),
    ]
    for event, code in bad:
        with pytest.raises(Rejected) as error:
            step(state, event)
        assert error.value.code == code
    assert report(state.queries["q"]) == before
    assert list(state.queries) == ["q"]


@pytest.mark.parametrize("status", [Status.PAUSED, Status.CLOSED])
def test_nothing_is_offered_while_a_query_is_not_open(status: Status) -> None:
    state = fold([Query("q", status=status), *ITEMS, verdict(0, "i5", Outcome.RELEVANT)])
    ranking = state.queries["q"].ranking()
    assert ranking.items == ()
    assert ranking.found == 1
    step(state, Query("q"))
    assert len(state.queries["q"].ranking().items) == 11


def test_new_settings_equal_having_opened_with_them() -> None:
    events: list[Event] = [*ITEMS, verdict(0, "i5", Outcome.RELEVANT), verdict(1, "i2", Outcome.IRRELEVANT)]
    relevance = Query("q", prior=DEFAULT_PRIORS["relevance"])
    others = Query("q", policy=Policy("bayes-ucb")), Query("q", engine="reference"), Query("q", top=3), relevance
    for settings in others:
        state = fold([Query("q"), *events])
        state.queries["q"].finish()
        step(state, settings)
        fresh = fold([settings, *events])
        assert_same(report(state.queries["q"]), report(fresh.queries["q"]))
        assert len(state.queries["q"].ranking().items) == len(fresh.queries["q"].ranking().items)


def test_drain_names_what_changed_and_only_that() -> None:
    state = fold([Query("q"), *line(120)])
    query = state.queries["q"]
    query.finish()
    first = query.drain()
    assert (len(first.participants.index), len(first.edges.index)) == (0, 0)  # all is as the prior says
    assert first.size == (121, 120)
    step(state, verdict(0, "i0", Outcome.RELEVANT))
    query.finish()
    second = query.drain()
    assert 0 < len(second.edges.index) < 120  # far down the line nothing moved by 1e-12
    assert not len(query.drain().edges.index)


def test_what_tending_moved_may_be_drained_later() -> None:
    """More participants that data reach than are solved at once: the others start from the prior, and tending heals
    them.
    """
    said = [verdict(number, f"i{number}", Outcome.IRRELEVANT) for number in range(1, 300)]
    state = fold([Query("q"), *line(400), *said])
    query = state.queries["q"]
    query.settle()
    assert query.unfinished
    assert query.drain().whole
    while query.unfinished:
        query.tend()
    step(state, verdict(0, "i0", Outcome.RELEVANT))
    query.settle()
    answer = query.drain(tended=False)
    assert 0 < len(answer.edges.index) < 100
    assert len(query.drain().edges.index) > 100
    assert not len(query.drain().edges.index)


def test_what_was_estimated_is_unfinished_until_readers_are_told_what_it_is() -> None:
    said = [verdict(number, f"i{number}", Outcome.IRRELEVANT) for number in range(1, 300)]
    query = fold([Query("q"), *line(400), *said]).queries["q"]
    query.settle()
    assert query.unfinished
    untold = []
    while query.unfinished:
        query.tend()
        untold.append(query.engine.untold)
    assert max(untold) > untold[-1] == 0.0


@pytest.mark.parametrize("model", MODELS)
def test_relabelling_the_participants_changes_no_ranking(model: ModelName) -> None:
    """Reversing the ids swaps every edge's ends; with a symmetric table nothing may move."""
    names = {f"p{i:03d}": f"p{99 - i:03d}" for i in range(13)}
    relabelled = [
        item(each.item_id, *(names[p] for p in each.participants), sender=names[each.sender or ""])
        for each in ITEMS
    ]
    verdicts = [verdict(0, "i5", Outcome.RELEVANT), verdict(1, "i6", Outcome.IRRELEVANT)]
    settings = Query("q", prior=DEFAULT_PRIORS[model])
    one = report(fold([settings, *ITEMS, *verdicts]).queries["q"])
    other = report(fold([settings, *relabelled, *verdicts]).queries["q"])
    assert [i.item_id for i in one.items] == [i.item_id for i in other.items]
    np.testing.assert_allclose([i.score for i in one.items], [i.score for i in other.items], atol=1e-9)


@given(st.data())
def test_nothing_is_left_of_a_query_that_is_deleted_wherever_that_is_said(data: st.DataObject) -> None:
    history = data.draw(
        st.permutations([Query("q"), Query("r"), *data.draw(facts()), Query("q", status=Status.DELETED)])
    )
    state = State()
    for event in history:
        try:
            step(state, event)
        except Rejected as refused:
            assert refused.code == Code.QUERY_DELETED  # noqa: PT017 - it need not be raised
    assert (set(state.queries), state.deleted, state.orphans.get("q")) == ({"r"}, {"q"}, None)
    assert step(state, Query("q", status=Status.DELETED)) == ()
    for later in (Query("q"), verdict(1, "i1", Outcome.RELEVANT, at=1)):
        with pytest.raises(Rejected, match="query_deleted"):
            step(state, later)
