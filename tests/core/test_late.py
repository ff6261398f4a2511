"""Where the learned base rate goes a step on, what is not among the best is scored when nobody waits."""

from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np
import pytest
from support.histories import MODELS, item
from support.late import late_sets

from haystream.engines.local.solves.budget import PROMISE
from haystream.events import Item, ModelName, Outcome, Policy, Query, Verdict, Withdrawal
from haystream.fold import State, step
from haystream.models import DEFAULT_PRIORS
from haystream.query.state import QueryState

ITEMS, PEOPLE, VERDICTS, FIRST = 1200, 150, 60, 5


def begun(query_id: str = "q") -> tuple[State, QueryState]:
    """A query on many items, and its state."""
    rng, state = np.random.default_rng(0), State()
    for number in range(ITEMS):
        sender, recipient = rng.choice(PEOPLE, 2, replace=False)
        step(state, Item(f"i{number}", "default", f"p{sender}", (f"p{recipient}",)))
    step(state, Query(query_id))
    return state, state.queries[query_id]


def verdicts(share: float) -> list[Verdict]:
    """Of which so many are relevant: the base rate rises, or falls."""
    rng = np.random.default_rng(1)
    items = rng.choice(ITEMS, VERDICTS, replace=False)
    outcomes = [Outcome.RELEVANT if rng.random() < share else Outcome.IRRELEVANT for _ in items]
    told = enumerate(zip(items.tolist(), outcomes, strict=True))
    return [Verdict(f"v{number}", "q", f"i{item}", "ann", outcome, number) for number, (item, outcome) in told]


def remaining(query: QueryState) -> tuple[float, float]:
    """How many relevant items are expected to be left, and the standard deviation of that."""
    estimate = query.ranking().expected_remaining
    return estimate.mean, estimate.sd


def close(some: tuple[float, float], others: tuple[float, float], share: float) -> bool:
    """Whether they differ by such a share of themselves at most."""
    return bool(np.allclose(some, others, rtol=share, atol=0.0))


late = partial(late_sets, candidates=200)


@pytest.mark.parametrize("share", [0.0, 0.9])
@pytest.mark.parametrize("rests", [False, True])
def test_a_late_query_offers_the_same_and_knows_about_as_much(share: float, rests: bool) -> None:
    state, query = begun()
    other, at_once = begun()
    waited = 0
    for verdict in verdicts(share):
        step(other, verdict)
        expected = remaining(at_once)
        step(state, verdict)
        with late():
            here = remaining(query)
            assert query.queue.first(FIRST) == at_once.queue.first(FIRST)
            waited += query.queue.late
            assert close(here, expected, 0.002)
            while rests and query.queue.late:
                query.queue.make_up()
        if rests:
            assert close(remaining(query), expected, 1e-6)
    assert waited > 5


def test_when_there_was_time_it_is_as_one_that_never_was_late() -> None:
    state, query = begun()
    other, at_once = begun()
    for verdict in verdicts(0.5):
        step(state, verdict)
        with late():
            query.ranking()
        step(other, verdict)
        at_once.ranking()
        assert not at_once.queue.late
    assert query.queue.late
    while query.tend():
        pass
    at_once.finish()
    scores, expected = ({item: score for item, _, score in each.queue.items()} for each in (query, at_once))
    assert scores.keys() == expected.keys()
    np.testing.assert_allclose(list(map(scores.get, expected)), list(expected.values()), atol=PROMISE)
    assert close(remaining(query), remaining(at_once), 1e-4)


def test_whoever_asks_for_all_items_has_them_scored() -> None:
    state, query = begun()
    with late():
        for verdict in verdicts(0.9):
            step(state, verdict)
            query.ranking()
            if query.queue.late:
                break
        assert len(list(islice(query.queue.items(2), 2))) == 2
        assert query.queue.late
        assert len(list(query.queue.items())) == ITEMS - query.screened
        assert not query.queue.late


def test_a_ranking_that_was_made_with_late_sets_is_to_be_published_again() -> None:
    state, query = begun()
    with late():
        for verdict in verdicts(0.9):
            query.ranking()
            query.finish()
            query.ranking()
            query.drain()
            assert not query.tended
            step(state, verdict)
            query.ranking()
            if query.queue.late:
                break
        assert query.tend()
        assert query.tended


def test_a_policy_whose_scores_move_by_chance_counts_all_that_rested_once() -> None:
    state, query = begun()
    with late():
        for verdict in verdicts(0.3):
            step(state, verdict)
            query.ranking()
            query.finish()
        assert query.queue._ranking._rest.terms.any()
        before, settings = remaining(query), replace(query.settings, policy=Policy("bayes-ucb"))
        assert query.apply_settings(settings)
        assert close(remaining(query), before, 1e-3)


def test_what_outcomes_leave_open_is_never_less_than_nothing_however_far_it_is_moved() -> None:
    state, query = begun()
    step(state, replace(query.settings, prior=replace(query.settings.prior, mean=0.5, weight=0.01)))
    query.ranking()
    query.finish()
    for verdict in verdicts(0.0)[:28]:
        step(state, verdict)
    with late():
        variance = query.ranking().expected_remaining.sd ** 2
        assert query.queue.late
    assert variance >= query.engine.readings.remaining_variance()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", range(20))
def test_of_a_collection_that_is_read_nothing_remains(model: ModelName, seed: int) -> None:
    rng, state = np.random.default_rng(seed), State()
    step(state, Query("q", prior=DEFAULT_PRIORS[model]))
    query, items = state.queries["q"], rng.integers(3, 60)
    for number in range(items):
        step(state, item(f"i{number}", *(f"p{who}" for who in rng.choice(20, 2, replace=False))))
    for number in rng.permutation(items).tolist():
        if seed % 2:
            step(state, Verdict(f"v{number}", "q", f"i{number}", "ann", Outcome.SKIPPED, number))
        else:
            step(state, Withdrawal(f"i{number}", "default"))
        assert np.isfinite(remaining(query)).all()
    query.finish()
    assert remaining(query) == pytest.approx((0.0, 0.0), abs=1e-6)
