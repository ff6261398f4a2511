"""What takes too much work ends with a named failure: of one query, and in bounded time."""

from collections.abc import Iterator
from dataclasses import replace
from unittest import mock

import networkx as nx
import numpy as np
import pytest
from support.dense import TIGHT, assert_agrees
from support.histories import MODELS, item, line, verdict

from haystream.engines.local.solves import solve
from haystream.errors import Code, QueryFailed
from haystream.events import Item, ModelName, Outcome, Query
from haystream.fold import State, step
from haystream.models import DEFAULT_PRIORS
from haystream.models.ranges import Range
from haystream.models.settings import MODEL_SETTINGS
from haystream.query.engine_choice import MOST_FOR_REFERENCE


def regular(people: int) -> list[Item]:
    graph = nx.random_regular_graph(4, people, seed=1)
    return [item(f"i{k}", f"p{u}", sender=f"p{v}") for k, (u, v) in enumerate(graph.edges)]


@pytest.fixture
def any_correlation() -> Iterator[None]:
    """As if the models took correlations up to 1."""
    with mock.patch.dict(MODEL_SETTINGS["rates"].ranges, correlation=Range(-1.0, 1.0)):
        yield


@pytest.mark.usefixtures("any_correlation")
@pytest.mark.parametrize("correlation", [0.99999, 1.0 - 1e-12])
@mock.patch.object(solve, "MOST_STEPS", 1_000_000)
def test_a_correlation_near_1_ends_instead_of_never_returning(correlation: float) -> None:
    prior = replace(DEFAULT_PRIORS["rates"], correlation=correlation)
    state = State()
    step(state, Query("q", prior=prior))
    step(state, Query("other"))
    for each in regular(2000):
        step(state, each)
    with pytest.raises(QueryFailed, match="on 2,000 participants and 4,000 pairs takes too many steps") as failed:
        state.queries["q"].finish()
    assert failed.value.code is Code.TOO_MUCH_WORK
    assert len(state.queries["other"].ranking().items) == 50


@pytest.fixture
def few_steps() -> Iterator[None]:
    with (
        mock.patch.object(solve, "MOST_STEPS", 400),
        mock.patch("haystream.engines.local.changes.rebuild.WHOLE_GRAPH_ROUNDS", 0),
    ):
        yield


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("model", MODELS)
def test_whoever_shares_what_was_given_up_fails_too_and_nobody_else(model: ModelName) -> None:
    heavy, light = (replace(DEFAULT_PRIORS[model], correlation=correlation) for correlation in (0.95, 0.0))
    state = State(tolerance=TIGHT)
    for query_id, prior in (("one", heavy), ("two", heavy), ("light", light)):
        step(state, Query(query_id, prior=prior))
    for each in line(100):
        step(state, each)
    one, two, light_one = (state.queries[query_id] for query_id in ("one", "two", "light"))
    for query in (one, two, one):
        with pytest.raises(QueryFailed, match="too_much_work: a solve on 101 participants and 100 pairs"):
            query.finish()
    step(state, item("more", "p000", "p050"))
    with pytest.raises(QueryFailed):
        two.settle()
    step(state, verdict(1, "i3", Outcome.RELEVANT, query_id="light"))
    light_one.finish()
    assert_agrees(light_one)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("allowed", [0, 50, 500, 50_000])
def test_at_any_step_of_a_history(model: ModelName, allowed: int) -> None:
    """It fails by name, or agrees with a dense solve; nothing between, and nothing else is raised."""
    rng = np.random.default_rng(allowed)
    with mock.patch.object(solve, "MOST_STEPS", allowed):
        state = State(tolerance=TIGHT)
        step(state, Query("q", prior=DEFAULT_PRIORS[model]))
        query = state.queries["q"]
        failed: Code | None = None
        try:
            for number in range(60):
                u, v = rng.choice(20, 2, replace=False)
                step(state, item(f"i{number}", f"p{u}", f"p{v}"))
                if number == 30:
                    query.hold("i7")
                step(state, verdict(number, f"i{rng.integers(number + 1)}", Outcome.RELEVANT))
                query.ranking()
                query.finish()
        except QueryFailed as failure:
            failed = failure.code
    if allowed == 0:
        assert failed is Code.TOO_MUCH_WORK
    elif allowed == 50_000:
        assert failed is None
    if failed is None:
        assert_agrees(query)


@pytest.mark.parametrize("people", [MOST_FOR_REFERENCE, MOST_FOR_REFERENCE + 1, 20_000])
def test_the_dense_engine_says_what_is_too_large_for_it(people: int) -> None:
    state = State()
    step(state, Query("q", engine="reference"))
    for each in line(people - 1):
        step(state, each)
    query = state.queries["q"]
    if people <= MOST_FOR_REFERENCE:
        query.settle()
        return
    with pytest.raises(QueryFailed, match="use the engine local") as failed:
        query.ranking()
    assert failed.value.code is Code.TOO_MUCH_WORK
