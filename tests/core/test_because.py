"""What a ranking says of why an item stands where it does."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from support.dense import TIGHT, dense_of
from support.histories import MODELS, item, verdict

from haystream.engines.local.solves.budget import PROMISE
from haystream.events import ModelName, Outcome, Query
from haystream.fold import State, step
from haystream.models import DEFAULT_PRIORS
from haystream.ranking.reasons import SHARES_NAMED


@pytest.mark.parametrize("model", MODELS)
def test_an_item_names_the_pairs_that_count_most(model: ModelName) -> None:
    """By a dense solve; with someone on the watch-list, items between several, changes of mind, and late items."""
    rng = np.random.default_rng(4)
    prior = DEFAULT_PRIORS[model]
    watched = replace(prior, participants={"p03": 1.5 * prior.mean})
    state = State(tolerance=TIGHT)
    step(state, Query("q", prior=watched, top=1000))
    for number in range(60):
        people = [f"p{p:02d}" for p in rng.choice(15, rng.choice([2, 2, 3, 4]), replace=False)]
        step(state, item(f"i{number}", *people, sender=people[0]))
        outcome = (Outcome.RELEVANT, Outcome.IRRELEVANT, Outcome.SKIPPED)[rng.choice(3, p=[0.3, 0.6, 0.1])]
        step(state, verdict(number, f"i{rng.integers(40)}", outcome))
    query = state.queries["q"]
    query.finish()
    dense, collection = dense_of(query), query.collection
    row_of = {pair: row for row, pair in enumerate(dense.pairs)}
    ranked = query.ranking().items
    assert len(ranked) > 20
    for each in ranked:
        which = collection.set_of(collection.index(each.item_id) or 0)
        on = [row_of[collection.graph.names(e)] for e in collection.sets.edges(which)]
        shares = dense.share_matrix[on].mean(axis=0)
        named = [(row_of[share.participants], share.share) for share in each.because]
        assert len(named) == SHARES_NAMED
        np.testing.assert_allclose([share for _, share in named], [shares[row] for row, _ in named], atol=1e-9)
        largest = np.sort(np.abs(shares))[::-1][:SHARES_NAMED]
        np.testing.assert_allclose([abs(share) for _, share in named], largest, atol=1e-9)
        adjusted = (dense.linear_mean - dense.prior_mean)[on].mean() - dense.shift
        assert shares.sum() == pytest.approx(adjusted, abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_kept_of_shares_from_one_ranking_to_the_next_is_right(seed: int) -> None:
    """By a dense solve, as verdicts among others move the base rate far and by themselves nobody here."""
    rng = np.random.default_rng(seed)
    state = State()
    step(state, Query("q", top=1000))
    for number in range(120):
        here = "near" if number < 60 else "far"
        step(state, item(f"i{number}", *(f"{here}{p:02d}" for p in rng.choice(12, 2, replace=False))))
    query, verdicts = state.queries["q"], 0
    collection = query.collection
    for rate, items in ((0.5, range(40)), (0.9, range(60, 100)), (0.1, range(60, 100)), (0.6, range(60, 100))):
        for number in items:
            outcome = Outcome.RELEVANT if rng.random() < rate else Outcome.IRRELEVANT
            step(state, verdict(verdicts, f"i{number}", outcome))
            verdicts += 1
            ranked = query.ranking().items
        dense = dense_of(query)
        row_of = {pair: row for row, pair in enumerate(dense.pairs)}
        for each in ranked:
            sets = collection.set_of(collection.index(each.item_id) or 0)
            on = [row_of[collection.graph.names(e)] for e in collection.sets.edges(sets)]
            shares = dense.share_matrix[on].mean(axis=0)
            for share in each.because:
                assert share.share == pytest.approx(shares[row_of[share.participants]], abs=8.0 * PROMISE)


@pytest.mark.parametrize("engine", ["local", "reference"])
def test_reasons_follow_the_learned_base_rate(engine: Literal["local", "reference"]) -> None:
    """A verdict far away moves the base rate, and so the shares, though no edge here by as much as is told."""
    state = State()
    step(state, Query("q", top=1000, engine=engine))
    for k in range(40):
        step(state, item(f"near{k}", "a", "b" if k % 2 else "c"))
        step(state, item(f"far{k}", f"x{k:02d}", f"y{k:02d}"))
    query, stale = state.queries["q"], 0.0
    for k in range(20):
        step(state, verdict(2 * k, f"near{k}", Outcome.RELEVANT if k % 3 == 0 else Outcome.IRRELEVANT))
    first = {each.item_id: each.because for each in query.ranking().items}
    for k in range(20):
        step(state, verdict(100 + k, f"far{k}", Outcome.IRRELEVANT))
        for each in query.ranking().items:
            which = query.collection.set_of(query.collection.index(each.item_id) or 0)
            exact = dict(query.engine.readings.shares(query.collection.sets.edges(which)))
            named = {share.participants: share.share for share in each.because}
            wanted = {query.collection.graph.names(edge): share for edge, share in exact.items()}
            for pair, share in named.items():
                assert share == pytest.approx(wanted[pair], abs=2e-3), (each.item_id, pair)
            stale = max([stale, *(abs(s.share - wanted.get(s.participants, 0.0)) for s in first[each.item_id])])
    assert stale > 0.01  # or nothing moved, and this shows nothing
