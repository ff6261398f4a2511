"""What a ranking says of why an item stands where it does."""

from dataclasses import replace

import numpy as np
import pytest
from support.dense import TIGHT, dense_of
from support.histories import MODELS, item, verdict

from haystream.events import ModelName, Outcome, Query
from haystream.fold import State, step
from haystream.models import DEFAULT_PRIORS
from haystream.ranking import BECAUSE


@pytest.mark.parametrize("model", MODELS)
def test_an_item_names_the_pairs_that_count_most(model: ModelName) -> None:
    """By a dense solve; with someone on the watch-list, items between several, changes of mind, and late items."""
    rng = np.random.default_rng(4)
    prior = DEFAULT_PRIORS[model]
    watched = replace(prior, participants={"p03": 1.5 * prior.mean})
    state, _ = step(State(tolerance=TIGHT), Query("q", prior=watched, top=1000))
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
        assert len(named) == BECAUSE
        np.testing.assert_allclose([share for _, share in named], [shares[row] for row, _ in named], atol=1e-9)
        largest = np.sort(np.abs(shares))[::-1][:BECAUSE]
        np.testing.assert_allclose([abs(share) for _, share in named], largest, atol=1e-9)
        adjusted = (dense.linear_mean - dense.prior_mean)[on].mean() - dense.shift
        assert shares.sum() == pytest.approx(adjusted, abs=1e-9)
