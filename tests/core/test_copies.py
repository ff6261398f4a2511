"""Queries start as copies of one that nobody has judged anything in, and are each as if it were alone."""

import gc
from contextlib import suppress
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dense import TIGHT, assert_agrees
from support.histories import MODELS, facts, item, line, priors, priors_in_range, verdict

from haystream.collection.collection import Collection
from haystream.engines.local.changes.growth import Growth
from haystream.engines.local.inverse.prior_inverse import MOST_UNREAD, shared_precisions
from haystream.engines.local.solves.budget import DEFAULT_TOLERANCE, PROMISE
from haystream.events import Event, ModelName, Outcome, Policy, Prior, Query, Verdict
from haystream.fold import State, step
from haystream.memory.arrays import Ints, Switches
from haystream.memory.copies import Template, held_bytes, zeros_as_needed
from haystream.models import DEFAULT_PRIORS
from haystream.models.common import Common
from haystream.query import originals
from haystream.query.originals import MOST_PRIORS
from haystream.query.state import QueryState
from haystream.ranking import prior_rankings
from haystream.ranking.prior_rankings import PriorRankings
from haystream.ranking.scoring import Scored
from haystream.report import report


@pytest.fixture(params=["memfd", "none", "forbidden"])
def memory(request, monkeypatch):
    """Where the system has no memfd, too, or does not let us have one."""
    if request.param == "none":
        monkeypatch.delattr("os.memfd_create", raising=False)
    if request.param == "forbidden":
        monkeypatch.setattr("os.memfd_create", mock.Mock(side_effect=PermissionError), raising=False)


def test_memory_counts_until_the_last_copy_is_gone() -> None:
    gc.collect()  # of other tests
    before = held_bytes()
    template = Template((np.arange(5000.0),))
    held = held_bytes() - before
    assert held >= 40_000
    (first,), (second,) = template.copy(), template.copy()
    del template, first
    assert held_bytes() - before == held
    part = second[10:20]
    del second
    assert held_bytes() - before == held
    np.testing.assert_array_equal(part, np.arange(10.0, 20.0))
    del part
    assert held_bytes() == before


@pytest.mark.usefixtures("memory")
def test_a_copy_keeps_what_is_written_to_it_to_itself() -> None:
    arrays = [np.arange(5000.0), np.zeros((2, 0, 4)), np.arange(24, dtype=np.int32).reshape(2, 3, 4), np.zeros(0)]
    wanted = [array.copy() for array in arrays]
    template = Template(tuple(arrays))
    arrays[0][:] = -1.0  # the template has its own
    one, other = template.copy(), template.copy()
    one[0][3], one[2][1, 2, 3] = 7.0, 70
    del one
    for copies in (other, template.copy()):
        for got, array in zip(copies, wanted, strict=True):
            np.testing.assert_array_equal(got, array)
            assert got.dtype == array.dtype
            assert got.flags.writeable


def interleaved(histories: list[list[Event]], settings: list[Prior], state: State, data: st.DataObject) -> None:
    """Fold the items of the first history and the verdicts of all, each query's own, in any order."""
    events = [event for event in histories[0] if not isinstance(event, Verdict)]
    for number, (history, prior) in enumerate(zip(histories, settings, strict=True)):
        said = [event for event in history if isinstance(event, Verdict)]
        events += [Query(f"q{number}", prior=prior), *(replace(event, query_id=f"q{number}") for event in said)]
    for number, event in enumerate(data.draw(st.permutations(events))):
        step(state, event)
        for query in state.queries.values():
            query.finish() if number % 4 == 0 else query.ranking()
            query.foresee()
    for query in state.queries.values():
        query.finish()


several = st.lists(facts(most_items=10, most_verdicts=8), min_size=2, max_size=3)


@given(several, priors(), st.data())
def test_any_interleaving_of_queries_on_a_growing_collection_equals_each_alone(
    histories: list[list[Event]], prior: Prior, data: st.DataObject
) -> None:
    """The dense solve knows one query and no other, and neither does a state of its own."""
    watching = replace(prior, participants={"p01": prior.mean * 0.9})
    settings = [prior if number % 2 == 0 else watching for number in range(len(histories))]
    state = State(tolerance=TIGHT)
    interleaved(histories, settings, state, data)
    for query in state.queries.values():
        assert_agrees(query)
        same = alone(query, state, TIGHT)
        got, wanted = query.ranking(), same.ranking()
        assert [item.item_id for item in got.items] == [item.item_id for item in wanted.items]
        np.testing.assert_allclose([i.score for i in got.items], [i.score for i in wanted.items], atol=1e-9)
        assert got.expected_remaining.mean == pytest.approx(wanted.expected_remaining.mean, abs=1e-8)
        assert got.expected_remaining.sd**2 == pytest.approx(wanted.expected_remaining.sd**2, abs=1e-8)


def alone(query: QueryState, of: State, tolerance: float) -> QueryState:
    """A query of the same facts, in a state that knows no other. Items are numbered as they are there."""
    state, known = State(tolerance=tolerance), of.logs[query.collection.name]
    for event in (*map(known.get, query.collection.item_ids), query.settings, *query.verdicts.values()):
        assert event is not None
        step(state, event)
    same = state.queries[query.settings.query_id]
    same.finish()
    return same


@given(
    several,
    st.sampled_from(MODELS).flatmap(priors_in_range),
    st.sampled_from(MODELS).flatmap(priors_in_range),
    st.data(),
)
def test_over_the_whole_of_the_ranges_queries_side_by_side_equal_each_alone(
    histories: list[list[Event]], prior: Prior, other: Prior, data: st.DataObject
) -> None:
    state = State()
    settings = [prior, other, replace(prior, participants=other.participants if prior.model == other.model else {})]
    interleaved(histories, settings[: len(histories)], state, data)
    for query in state.queries.values():
        same = alone(query, state, DEFAULT_TOLERANCE)
        means, wanted = ([mean for mean, _ in report(each).participants.values()] for each in (query, same))
        np.testing.assert_allclose(means, wanted, atol=2 * PROMISE)  # each is so near to the truth


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("most_moved", "most_items"), [(0.0, 0), (np.inf, 10_000)])
def test_a_query_that_opens_late_equals_one_that_was_there(
    model: ModelName, most_moved: float, most_items: int
) -> None:
    """Made of a newer original, or of an old one, having followed what came since."""
    prior = DEFAULT_PRIORS[model]
    state = State(tolerance=TIGHT)
    step(state, Query("first", prior=prior))
    for each in line(40):
        step(state, each)
    state.queries["first"].finish()
    for number in range(30):
        step(state, item(f"new{number}", f"p{number:03d}", f"p{3 * number % 41:03d}" if number % 3 else "hub"))
        step(state, verdict(number, f"i{number}", Outcome.RELEVANT if number % 3 else Outcome.IRRELEVANT))
        state.queries["first"].finish()
    with (
        mock.patch.object(originals, "MOST_MOVED", most_moved),
        mock.patch.object(originals, "MOST_ITEMS", most_items),
    ):
        step(state, Query("late", prior=prior))
        query = state.queries["late"]
        query.finish()
        assert_agrees(query)
        for number in range(10):
            outcome = Outcome.RELEVANT if number % 2 else Outcome.IRRELEVANT
            step(state, replace(verdict(100 + number, f"new{3 * number}", outcome), query_id="late"))
            query.finish()
    for query in state.queries.values():
        assert_agrees(query)


def test_who_was_not_told_of_too_many_changes_starts_afresh() -> None:
    state = State(tolerance=TIGHT)
    for query_id in ("busy", "asleep"):
        step(state, Query(query_id))
    for each in line(30):
        step(state, each)
    step(state, replace(verdict(0, "i3", Outcome.RELEVANT), query_id="asleep"))
    for query in state.queries.values():
        query.finish()
    with (
        mock.patch("haystream.engines.local.inverse.precision.MOST_BEHIND", 3),
        mock.patch.object(Growth, "rebuild", autospec=True, side_effect=Growth.rebuild) as rebuilt,
    ):
        for number in range(6):
            step(state, item(f"new{number}", "p000", f"n{number}"))
            state.queries["busy"].finish()
        rebuilt.assert_not_called()
        state.queries["asleep"].finish()
        rebuilt.assert_called_once()
    for query in state.queries.values():
        assert_agrees(query)


def test_queries_with_the_same_prior_share_what_they_have_not_changed() -> None:
    state = State()
    for each in line(3000):
        step(state, each)
    for number in range(3):
        step(state, Query(f"q{number}"))
        state.queries[f"q{number}"].finish()
    with mock.patch.object(Template, "__init__", side_effect=AssertionError):
        step(state, Query("q3", prior=replace(DEFAULT_PRIORS["rates"], participants={"p000": 0.3})))
        state.queries["q3"].settle()
        step(state, Query("q4", prior=replace(DEFAULT_PRIORS["rates"], edge=4.0)))
        with pytest.raises(AssertionError):
            state.queries["q4"].settle()


@pytest.mark.parametrize("outcome", [Outcome.RELEVANT, Outcome.IRRELEVANT])
def test_what_a_verdict_on_the_best_item_asks_for_is_made_before_it_comes(outcome: Outcome) -> None:
    state = State()
    for each in line(300):
        step(state, each)
    step(state, Query("q"))
    query, steps = state.queries["q"], 0
    for number in range(12):
        best, before = query.ranking().items[0], query.engine.readings.rounded_common()
        query.finish()
        while query.foresee():
            pass
        step(state, verdict(number, best.item_id, outcome))
        with mock.patch.object(PriorRankings, "scored", autospec=True, side_effect=PriorRankings.scored) as scored:
            query.ranking()
        assert not any(isinstance(call.args[3], slice) for call in scored.call_args_list)
        steps += query.engine.readings.rounded_common() != before
    assert steps > 4


@given(st.integers(1, 400), st.integers(1, 50), st.integers(0, 5))
def test_a_ranking_by_the_prior_that_is_made_in_parts_leads_with_the_best(sets: int, part: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rankings = mock.Mock(sets=sets, tie=rng.integers(0, 2**63, sets).astype(np.uint64))
    score, terms = rng.integers(0, 9, sets) / 8.0, rng.random((sets, 3))
    rankings.scored = lambda policy, common, which: Scored(score[which], terms[which])
    rankings.terms = lambda common, which: terms[which]
    best = sorted(range(sets), key=lambda each: (-score[each], rankings.tie[each]))
    owned = rng.random(sets) < 0.5
    with mock.patch.multiple(prior_rankings, LEADERS=7, MADE_AT_ONCE=part):
        ranking = prior_rankings.PriorRanking(rankings, Policy(), Common(0.1))
        while ranking.make():
            pass
        assert ranking.leaders(3, lambda which: np.zeros(len(which), np.bool_)).sets.tolist() == best[:3]
        free = [each for each in best if not owned[each]]
        assert ranking.leaders(20, owned.__getitem__).sets.tolist() == free[:20]
        assert ranking.leaders(sets, owned.__getitem__).sets.tolist() == free
    np.testing.assert_allclose(ranking.totals, terms.sum(axis=0))
    np.testing.assert_allclose(ranking.terms(np.array(best[:2])), terms[best[:2]].sum(axis=0))


@pytest.mark.parametrize("at", ["with_more", "best", "ordered"])
def test_a_ranking_by_the_prior_whose_making_is_broken_off_is_as_good_as_another(at: str) -> None:
    """All queries share it: one that got no memory is made anew, and the others go on with the ranking."""
    sets, rng, asks = 300, np.random.default_rng(0), 0
    rankings = mock.Mock(sets=sets, tie=rng.integers(0, 2**63, sets).astype(np.uint64))
    score, terms = rng.random(sets), rng.random((sets, 3))
    rankings.scored = lambda policy, common, which: Scored(score[which], terms[which])
    best = np.argsort(-score).tolist()
    does = getattr(prior_rankings.Leaders, at)

    def refuses(*asked: Any) -> Any:
        nonlocal asks
        asks += 1
        if asks % 3 == 1:
            raise MemoryError
        return does(*asked)

    def none(which: Ints) -> Switches:
        return np.zeros(len(which), np.bool_)

    with mock.patch.multiple(prior_rankings, LEADERS=7, MADE_AT_ONCE=50):
        ranking = prior_rankings.PriorRanking(rankings, Policy(), Common(0.1))
        with mock.patch.object(prior_rankings.Leaders, at, refuses):
            while not ranking.complete:
                with suppress(MemoryError):
                    ranking.make()
            asks = 0
            with pytest.raises(MemoryError):
                ranking.leaders(20, none)
        assert ranking.complete
        assert ranking.leaders(3, none).sets.tolist() == best[:3]
        assert ranking.leaders(20, none).sets.tolist() == best[:20]
    np.testing.assert_allclose(ranking.totals, terms.sum(axis=0))


def test_of_priors_that_no_query_has_any_more_few_are_kept() -> None:
    collection = Collection("default")
    collection.add_all([item(f"i{n}", f"p{n}", f"p{n + 1}") for n in range(20)])
    stays = QueryState(Query("q"), collection)
    stays.settle()
    (mine,) = shared_precisions(collection).values()
    for number in range(5 * MOST_UNREAD):
        prior = replace(stays.settings.prior, correlation=0.5 + 0.01 * number)
        QueryState(Query("other", prior=prior), collection).settle()
        gc.collect()
    kept = shared_precisions(collection).values()
    assert mine in kept
    assert len(kept) <= 2 + MOST_PRIORS + MOST_UNREAD


def test_memory_that_cannot_be_had_is_a_memory_error() -> None:
    """The system's error says that of a file; whoever asks for memory waits for it (`worker.troubles`)."""
    with pytest.raises(MemoryError, match="mmap of 2,305,843,009,213,693,952 bytes: Cannot allocate memory"):
        zeros_as_needed(1 << 58)
