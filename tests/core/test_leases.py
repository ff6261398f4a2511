"""Who has what is a function of the set of facts about leases, and of verdicts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.equality import assert_same
from support.histories import facts, fold, line, queries, verdict

from haystream.errors import Code, Rejected
from haystream.events import Action, Event, LeaseFact, Outcome, Query, Verdict
from haystream.fold import State, step
from haystream.report import report

ITEMS = line(6)
ANALYSTS = "ann", "bo"


def fact(
    lease: str, item_id: str, action: Action, *, at: int = 0, until: int = 10, analyst: str = "ann"
) -> LeaseFact:
    return LeaseFact(lease, "q", item_id, analyst, action, at, until)


CLAIMED, EXTENDED, RELEASED, EXPIRED = Action


@st.composite
def lease_facts(draw: st.DrawFn) -> list[LeaseFact]:
    """Of leases 0, 1, …: lease n is on one item and of one analyst, whatever happens to it."""
    happenings = draw(
        st.lists(st.tuples(st.integers(0, 7), st.sampled_from(Action), st.integers(0, 20), st.integers(0, 40)))
    )
    return [
        fact(f"l{n}", f"i{n % 3}", action, at=at, until=until, analyst=ANALYSTS[n % 2])
        for n, action, at, until in happenings
    ]


@st.composite
def said(draw: st.DrawFn) -> list[Verdict]:
    words = st.tuples(st.integers(0, 2), st.sampled_from(ANALYSTS), st.sampled_from(Outcome), st.integers(0, 20))
    return [
        Verdict(f"w{n}", "q", f"i{item}", analyst, outcome, at)
        for n, (item, analyst, outcome, at) in enumerate(draw(st.lists(words, max_size=6)))
    ]


def held(leases: list[LeaseFact], verdicts: list[Verdict]) -> set[str]:
    """By the definition: the items on which some lease is not over."""
    items = set()
    for lease_id in {each.lease_id for each in leases}:
        mine = [each for each in leases if each.lease_id == lease_id]
        item_id, analyst, begin = mine[0].item_id, mine[0].analyst, min(each.at for each in mine)
        ended = any(each.action in (RELEASED, EXPIRED) for each in mine)
        spoke = any((v.item_id, v.analyst) == (item_id, analyst) and v.decided_at >= begin for v in verdicts)
        if not (ended or spoke):
            items.add(item_id)
    return items


@given(leases=lease_facts(), verdicts=said(), data=st.data())
def test_who_has_what_is_a_function_of_the_set(
    leases: list[LeaseFact], verdicts: list[Verdict], data: st.DataObject
) -> None:
    events: list[Event] = [Query("q"), *ITEMS, *leases, *verdicts]
    order = data.draw(st.permutations(events + data.draw(st.lists(st.sampled_from(events), max_size=8))))
    query = fold(order).queries["q"]
    assert query.pending == held(leases, verdicts)
    for lease_id, until in query.leases.until():
        assert until == max(each.until for each in leases if each.lease_id == lease_id)
    assert query.leases.live == len(list(query.leases.until()))


@given(data=st.data())
def test_any_order_and_any_duplication_give_the_same_posterior(data: st.DataObject) -> None:
    events = [data.draw(queries()), *data.draw(facts()), *data.draw(lease_facts()), *data.draw(said())]
    again = data.draw(st.permutations(events + data.draw(st.lists(st.sampled_from(events), max_size=8))))
    state = State(tolerance=1e-12)
    for number, event in enumerate(again):
        step(state, event)
        if number % 4 == 0 and "q" in state.queries:
            state.queries["q"].finish()
    assert not state.early
    assert_same(report(state.queries["q"]), report(fold(events).queries["q"]))


def test_a_leased_item_leaves_the_ranking_and_comes_back_when_the_lease_is_over() -> None:
    state = fold([Query("q"), *ITEMS])
    before = [each.item_id for each in report(state.queries["q"]).items]
    step(state, fact("l", "i2", CLAIMED))
    assert "i2" not in [each.item_id for each in report(state.queries["q"]).items]
    step(state, fact("l", "i2", EXPIRED, at=11))
    assert [each.item_id for each in report(state.queries["q"]).items] == before


def test_of_two_leases_on_an_item_one_is_enough() -> None:
    query = fold([Query("q"), *ITEMS, fact("l", "i2", CLAIMED), fact("k", "i2", CLAIMED, analyst="bo")]).queries[
        "q"
    ]
    query.apply_lease(fact("l", "i2", RELEASED))
    assert query.pending == {"i2"}
    query.apply_lease(fact("k", "i2", RELEASED, analyst="bo"))
    assert not query.pending


def test_a_verdict_ends_its_analysts_lease_and_nobody_elses() -> None:
    facts = [fact("l", "i2", CLAIMED, at=5), fact("k", "i2", CLAIMED, at=5, analyst="bo")]
    query = fold([Query("q"), *ITEMS, *facts, verdict(1, "i2", Outcome.RELEVANT, at=5)]).queries["q"]
    assert query.leases.ended == ["l"]
    assert [lease for lease, _ in query.leases.until()] == ["k"]


def test_an_item_whose_verdict_is_retracted_is_offered_again_at_once() -> None:
    told = [verdict(1, "i2", Outcome.RELEVANT, at=5), verdict(2, "i2", Outcome.RETRACTED, at=6)]
    query = fold([Query("q"), *ITEMS, fact("l", "i2", CLAIMED, at=4), *told]).queries["q"]
    assert "i2" in [each.item_id for each in report(query).items]
    query.apply_lease(fact("m", "i2", CLAIMED, at=7))
    assert query.pending == {"i2"}


def test_a_verdict_from_before_the_lease_ends_nothing() -> None:
    query = fold([Query("q"), *ITEMS, verdict(1, "i2", Outcome.RETRACTED, at=3), fact("l", "i2", CLAIMED, at=4)])
    assert query.queries["q"].pending == {"i2"}


@pytest.mark.parametrize("opened", [True, False], ids=["opened", "not opened yet"])
@pytest.mark.parametrize("other", [{"analyst": "bo"}, {"item_id": "i3"}], ids=str)
def test_a_lease_is_on_one_item_and_of_one_analyst(other: dict[str, str], opened: bool) -> None:
    state = fold([*([Query("q")] if opened else []), *ITEMS, fact("l", "i2", CLAIMED)])
    changed = {"item_id": "i2", "action": EXTENDED} | other
    with pytest.raises(Rejected) as refused:
        step(state, fact("l", **changed))
    assert refused.value.code == Code.LEASE_CONFLICT


def test_facts_that_say_nothing_new_change_nothing() -> None:
    state = fold([Query("q"), *ITEMS, fact("l", "i2", CLAIMED, at=3, until=20)])
    assert step(state, fact("l", "i2", EXTENDED, at=4, until=19)) == ()
    assert step(state, fact("l", "i2", EXTENDED, at=4, until=21)) != ()
    assert step(state, fact("l", "i2", RELEASED, at=5)) != ()
    assert step(state, fact("l", "i2", EXTENDED, at=6, until=99)) == ()
    assert step(state, fact("l", "i2", EXPIRED, at=7)) == ()
