"""`look-ahead-by-set`: what a ranking says is what its definition gives, after any history."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.histories import facts, fold, item, queries, verdict
from support.set_scores import Edge, Record, by_set

from haystream.events import Outcome, Policy, Query
from haystream.query.state import QueryState
from haystream.report import report

COUNTS = (Outcome.RELEVANT, Outcome.IRRELEVANT)


def expected_scores(query: QueryState) -> dict[str, float]:
    """Of every item that is to be ranked, by id."""
    collection, engine = query.collection, query.engine
    every = np.arange(collection.graph.edges, dtype=np.int32)
    mean, variance, slope = engine.readings.scoring(every)
    latest = {}
    for each in sorted(query.verdicts.values(), key=lambda v: (v.decided_at, v.verdict_id)):
        latest[each.item_id] = each.outcome
    scores = {}
    for which in range(len(collection.sets)):
        members = collection.members.ordered(which)
        ids = [collection.item_ids[i] for i in members if i not in collection.withdrawals]
        said = {i: latest.get(i, Outcome.RETRACTED) for i in ids}
        open_ids = [i for i in ids if said[i] == Outcome.RETRACTED and i not in query.pending]
        if not open_ids:
            continue
        pending = sum(said[i] == Outcome.RETRACTED and i in query.pending for i in ids)
        record = Record(
            left=len(open_ids),
            items=len(ids),
            screened=sum(said[i] in COUNTS for i in ids),
            relevant=sum(said[i] == Outcome.RELEVANT for i in ids),
            pending=pending,
        )
        on = collection.sets.edges(which)
        n = engine.readings.counts(np.array(on, dtype=np.int32))[0]
        edges = [
            Edge(mean[e], variance[e], slope[e], screened + pending / len(on))
            for e, screened in zip(on, n, strict=True)
        ]
        score = by_set(edges, record, engine.readings.rounded_common().base_rate, query.settings.policy.horizon)
        scores |= dict.fromkeys(open_ids, score)
    return scores


@given(st.data())
def test_every_item_has_the_score_of_its_set(data: st.DataObject) -> None:
    query = fold([data.draw(queries(policies=("look-ahead-by-set",))), *data.draw(facts())]).queries["q"]
    for held in data.draw(st.sets(st.integers(0, 13), max_size=4)):
        query.hold(f"i{held}")
    for released in data.draw(st.sets(st.integers(0, 13), max_size=4)):
        query.release(f"i{released}")
    query.finish()
    expected = expected_scores(query)
    ranked = {each.item_id: each.score for each in report(query).items}
    assert ranked.keys() == expected.keys()
    for item_id, score in ranked.items():
        assert score == pytest.approx(expected[item_id], abs=1e-6), item_id


def scores_after(*said: Outcome, recipients: tuple[str, ...], items: int = 12) -> dict[str, float]:
    """Scores of what is left of mail from a to all of them, after verdicts on the first of it."""
    mail = [item(f"i{k}", *recipients, sender="a") for k in range(items)]
    judged = [verdict(k, f"i{k}", outcome) for k, outcome in enumerate(said)]
    query = fold([Query("q", policy=Policy("look-ahead-by-set")), *mail, *judged]).queries["q"]
    return {each.item_id: each.score for each in report(query).items}


def test_what_a_set_showed_counts_whole_however_many_are_on_it() -> None:
    """An edge of nine gets a ninth of each verdict; the set gets all of them."""
    wide = scores_after(*[Outcome.RELEVANT] * 5, recipients=tuple("bcdefghij"))
    assert min(wide.values()) > 0.5
    barren = scores_after(*[Outcome.IRRELEVANT] * 5, recipients=tuple("bcdefghij"))
    untried = scores_after(recipients=tuple("bcdefghij"))
    assert max(barren.values()) < 0.6 * min(untried.values())


def test_a_large_set_that_disappoints_is_worth_less_than_a_small_one() -> None:
    miss = Outcome.IRRELEVANT
    small, large = (scores_after(miss, recipients=("b",), items=items) for items in (20, 200))
    assert max(large.values()) < min(small.values())


def test_a_very_large_set_is_worth_one_try() -> None:
    """It may be of one matter, as what is sent to a list is."""
    small, large = scores_after(recipients=("b",), items=20), scores_after(recipients=("b",), items=2000)
    assert min(large.values()) > 1.5 * max(small.values())
    tried = scores_after(Outcome.IRRELEVANT, recipients=("b",), items=2000)
    assert max(tried.values()) < min(small.values())
    hit = scores_after(Outcome.RELEVANT, recipients=("b",), items=2000)
    assert min(hit.values()) > 0.8


def test_several_analysts_are_not_all_sent_to_try_the_same_set() -> None:
    """No more of a set is handed out on the hope that it is of one matter than was found relevant in it."""

    def score(pending: int, *said: Outcome) -> float:
        mail = [item(f"i{k}", "b", sender="a") for k in range(2000)]
        judged = [verdict(k, f"i{k}", outcome) for k, outcome in enumerate(said)]
        query = fold([Query("q", policy=Policy("look-ahead-by-set")), *mail, *judged]).queries["q"]
        for held in range(pending):
            query.hold(f"i{1000 + held}")
        query.finish()
        return report(query).items[0].score

    assert score(1) < 0.5 * score(0)
    both = Outcome.RELEVANT, Outcome.RELEVANT
    assert score(2, *both) == pytest.approx(score(0, *both), rel=0.2)
    assert score(3, *both) < score(2, *both)


def test_a_policy_can_be_changed_to_it_and_back() -> None:
    mail = [item(f"i{k}", *("bcd"[: 1 + k % 3]), sender="a") for k in range(12)]
    judged = [verdict(k, f"i{k}", COUNTS[k % 2]) for k in range(6)]
    one, other = Query("q", policy=Policy("greedy")), Query("q", policy=Policy("look-ahead-by-set"))
    for first, last in ((one, other), (other, one)):
        changed, straight = fold([first, *mail, *judged]).queries["q"], fold([last, *mail, *judged]).queries["q"]
        report(changed)
        changed.apply_settings(last)
        got, wanted = report(changed).items, report(straight).items
        assert [i.item_id for i in got] == [i.item_id for i in wanted]
        np.testing.assert_allclose([i.score for i in got], [i.score for i in wanted], atol=1e-9)
