"""A query with a scope is a query on a collection of just the items that are in it."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.equality import assert_same
from support.histories import facts, fold, item, names, queries, verdict

from haystream.collection.collection import Collection
from haystream.errors import Code, Rejected
from haystream.events import Event, Item, Outcome, Query, Withdrawal
from haystream.facts.merging import ItemLog
from haystream.fold import step
from haystream.report import report
from haystream.scope import Scope, scope


def made(**asked: Any) -> Scope:
    found = scope(**asked)
    assert found is not None
    return found


def made_of(asked: dict[str, Any]) -> Scope:
    return made(**asked)


SENT = 1_000_000
ANN_TO_BO = replace(item("i", "bo", sender="ann"), sent_at=SENT, labels=(("k", '"v"'), ("n", "1")))


@pytest.mark.parametrize(
    ("asked", "admitted"),
    [
        ({"since": SENT}, True),
        ({"since": SENT + 1}, False),
        ({"before": SENT}, False),
        ({"before": SENT + 1}, True),
        ({"since": SENT - 5, "before": SENT + 5}, True),
        ({"anybody": ["ann"]}, True),
        ({"anybody": ["bo", "cy"]}, True),
        ({"anybody": ["cy"]}, False),
        ({"nobody": ["ann"]}, False),
        ({"nobody": ["bo", "cy"]}, False),
        ({"nobody": ["cy"]}, True),
        ({"anybody": ["ann"], "nobody": ["bo"]}, False),
        ({"labels": [("k", '"v"')]}, True),
        ({"labels": [("k", '"v"'), ("n", "1")]}, True),
        ({"labels": [("k", '"v"'), ("n", "2")]}, False),
        ({"labels": [("m", "1")]}, False),
    ],
)
def test_what_is_asked_for_has_to_hold(asked: dict, admitted: bool) -> None:
    made = scope(**asked)
    assert made is not None
    assert made.admits(ANN_TO_BO) is admitted


def test_an_item_that_says_no_time_is_in_no_stretch_of_time() -> None:
    silent = replace(ANN_TO_BO, sent_at=None)
    for asked in ({"since": 0}, {"before": 2**60}):
        assert not made(**asked).admits(silent)
    assert made(nobody=["cy"]).admits(silent)


def test_without_roles_everybody_is_on_the_item() -> None:
    for name, asked in product(("ann", "bo", "cy"), ("anybody", "nobody")):
        assert made(**{asked: [name]}).admits(item("i", "ann", "bo", "cy")) is (asked == "anybody")


def test_equal_scopes_are_one_and_others_have_other_keys() -> None:
    assert scope() is scope(anybody=[], labels=[]) is None
    one = made(anybody=["b", "a", "a"], labels=[("n", "1"), ("k", "2")])
    other = made(anybody=["a", "b"], labels=[("k", "2"), ("n", "1")])
    assert (one, hash(one), one.key) == (other, hash(other), other.key)
    apart = [
        one,
        made(nobody=["a", "b"], labels=one.labels),
        made(anybody=["a"], labels=one.labels),
        made(anybody=["a", "b"]),
        made(since=1),
        made(before=1),
        made(labels=[("k", "1")]),
        made(labels=[("k", "true")]),
        made(labels=[("k", '"1"')]),
    ]
    assert len(set(apart)) == len({each.key for each in apart}) == len(apart)
    assert made(since=1).key == "3c0c4ad511a008844e53b9dfcccd21ea", "or what is kept under it is not found again"


def test_a_querys_scope_never_changes() -> None:
    state = fold([Query("q", scope=scope(since=1))])
    for other in (None, scope(since=2)):
        with pytest.raises(Rejected) as refused:
            step(state, Query("q", scope=other))
        assert refused.value.code is Code.SCOPE_CHANGED
    assert step(state, Query("q", top=3, scope=scope(since=1)))


def test_queries_of_one_scope_share_their_collection_and_those_of_another_do_not() -> None:
    known: list[Event] = [item("i0", "a", "b"), item("i1", "b", "c")]
    of_a = scope(anybody=["a"])
    state = fold([*known, Query("p", scope=of_a), Query("q", scope=of_a), Query("r"), item("i2", "a", "c")])
    p, q, r = (state.queries[name].collection for name in "pqr")
    assert p is q
    assert p is not r
    assert (p.item_ids, r.item_ids) == (["i0", "i2"], ["i0", "i1", "i2"])


times = st.integers(0, 9)
labels = st.dictionaries(st.sampled_from("kl"), st.sampled_from(["1", "2", '"1"']), min_size=1)
CONDITIONS = {
    "since": st.integers(1, 6),
    "before": st.integers(4, 9),
    "anybody": st.sets(names, min_size=4),
    "nobody": st.sets(names, min_size=1, max_size=2),
    "labels": labels.map(dict.items),
}
scopes = st.sets(st.sampled_from(sorted(CONDITIONS)), min_size=1, max_size=2).flatmap(
    lambda chosen: st.builds(made_of, st.fixed_dictionaries({name: CONDITIONS[name] for name in sorted(chosen)}))
)


@st.composite
def records(draw: st.DrawFn, history: list[Event]) -> list[Event]:
    """The same history, each item in one to three records that say more or less of it, and may contradict."""
    said: list[Event] = []
    for event in history:
        if isinstance(event, Item):
            for _ in range(draw(st.integers(1, 3))):
                sent_at, known = draw(st.none() | times), draw(st.just({}) | labels)
                said.append(replace(event, sent_at=sent_at, labels=tuple(sorted(known.items()))))
            if draw(st.sampled_from([False] * 5 + [True])):
                said.append(Withdrawal(event.item_id, event.collection))
        else:
            said.append(event)
    return draw(st.permutations(said))


def together(history: list[Event]) -> list[Item]:
    """Of each item all that its records say."""
    log = ItemLog()
    for event in history:
        if isinstance(event, Item | Withdrawal):
            log.add(event)
    return [each for each in log if isinstance(each, Item)]


@pytest.mark.parametrize("engine", ["local", "reference"])
@pytest.mark.parametrize("model", ["rates", "relevance"])
@given(data=st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.large_base_example])
def test_a_scope_is_its_sub_collection(engine: str, model: str, data: st.DataObject) -> None:
    """Whatever comes first, and however little of an item its first record says, or however wrong it is."""
    policies = ("greedy", "bayes-ucb", "look-ahead-by-set")
    query = replace(data.draw(queries(models=(model,), policies=policies)), engine=engine)
    asked = data.draw(scopes)
    history = data.draw(records(data.draw(facts(most_items=10))))
    opened = data.draw(st.integers(0, len(history)))
    state = fold([*history[:opened], replace(query, scope=asked)])
    for number, event in enumerate(history[opened:]):
        step(state, event)
        if number % 3 == 0:
            state.queries["q"].finish()
    there = [each for each in together(history) if asked.admits(each)]
    said = [event for event in history if not isinstance(event, Item | Withdrawal)]
    alone = fold([query, *data.draw(st.permutations([*there, *said]))])
    one, other = report(state.queries["q"]), report(alone.queries["q"])
    assert_same(one, other, close=1e-8)
    assert one.expected_remaining.mean == pytest.approx(other.expected_remaining.mean, abs=1e-7)
    assert one.expected_remaining.sd == pytest.approx(other.expected_remaining.sd, abs=1e-7)


def test_a_collection_that_is_stale_is_made_afresh_from_the_whole_log() -> None:
    asked = made(labels=[("k", '"m"')])
    log = [replace(item(f"i{n}", f"p{n}", f"p{n + 1}"), labels=(("k", '"m"'),)) for n in range(4)]
    log += [replace(log[1], labels=(("k", '"a"'),)), item("i9", "p8", "p9")]
    collection = Collection("default", asked)
    for entry in log[:4]:
        assert collection.add(entry)
    assert not collection.outgrown
    assert collection.add(log[4])
    assert (collection.outgrown, collection.changed, collection.left_at) == ({"i1"}, 5, 5)
    fresh = collection.afresh()
    assert (fresh.entries, fresh.left_at) == (0, 5)
    changing = [entry.item_id for entry in log if fresh.add(entry)]
    assert changing == ["i0", "i1", "i2", "i3", "i1"], "what is left out is numbered anew, and so concerns"
    assert (fresh.item_ids, fresh.outgrown) == (["i0", "i2", "i3"], set())
    assert (fresh.entries, fresh.changed, fresh.left_at) == (6, 5, 5)
    assert fresh.participants == ["p0", "p1", "p2", "p3", "p4"]


def test_a_verdict_on_an_item_outside_waits() -> None:
    known: list[Event] = [item(f"i{n}", f"p{n}", f"p{n + 1}") for n in range(4)]
    query = Query("q", scope=scope(nobody=["p0"]))
    state = fold([*known, query, verdict(0, "i0", Outcome.RELEVANT), verdict(1, "i1", Outcome.RELEVANT)])
    there = report(state.queries["q"])
    assert (there.screened, there.found) == (1, 1)
    assert {i.item_id for i in there.items} == {"i2", "i3"}
    assert "p0" not in there.participants
