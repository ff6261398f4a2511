"""What a reader makes of the stored rows is the posterior, however far the common mean has moved since."""

from dataclasses import astuple, replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from support.dense import TIGHT
from support.histories import MODELS, facts, histories, item, line, verdict
from support.seeds import alike
from support.told import Stored

from haystream.engines.local.inverse.prior_inverse import prior_tolerance, shared_precision
from haystream.engines.local.solves.budget import DEFAULT_TOLERANCE, TOLD_FACTOR
from haystream.events import Covariance, Event, ModelName, Outcome, Query
from haystream.fold import State, step
from haystream.models import DEFAULT_PRIORS
from haystream.posterior.unsaved_rows import MOST_OCCASIONS
from haystream.query.state import QueryState


def stale(stored: Stored) -> float:
    """By how much a variance of R, a count or a covariance is off at most in these rows."""
    (people, edges), engine = stored.whole(), stored.query.engine
    everyone, everywhere = (np.arange(len(table), dtype=np.int32) for table in (people, edges))
    variances = people[:, 2] - engine.readings.given_common(everyone)[2]
    now = np.column_stack([*engine.readings.counts(everywhere)[:2], engine.readings.covariances(everywhere)])
    return float(max(abs(variances).max(), abs(edges - now).max())) * engine.readings.common().scale


def assert_reads(stored: Stored, query: QueryState, close: float) -> None:
    got, engine, graph = stored.read(), query.engine, query.collection.graph
    people, edges = (np.arange(k, dtype=np.int32) for k in (len(graph), graph.edges))
    for column, wanted in zip(
        (got.participant_mean, got.participant_variance, got.edge_mean, got.edge_variance),
        (*engine.readings.participants(people), *engine.readings.edges(edges)),
        strict=True,
    ):
        np.testing.assert_allclose(column, wanted, rtol=0, atol=close)


@pytest.mark.parametrize("engine", ["local", "reference"])
@given(history=histories())
def test_a_reader_has_the_posterior_after_any_history(engine: str, history: list[Event]) -> None:
    state, stored = State(tolerance=TIGHT), None
    for number, event in enumerate(history):
        if isinstance(event, Query):
            event = replace(event, engine=engine)
        step(state, event)
        if "q" in state.queries and number % 3 == 0:
            stored = stored or Stored(state.queries["q"], tolerance=TIGHT)
            stored.save()
    query = state.queries["q"]
    stored = stored or Stored(query, tolerance=TIGHT)
    query.finish()
    stored.save()
    assert_reads(stored, query, 1e-9)


@pytest.mark.parametrize("most_unasked", [0, 10**9])
@given(history=histories())
def test_a_reader_has_it_whatever_was_left_for_later(most_unasked: int, history: list[Event]) -> None:
    """Beside growth every row is asked whether it is as the prior says, or none is."""
    state, stored = State(tolerance=TIGHT), None
    with mock.patch("haystream.posterior.unsaved_rows.MOST_UNASKED", most_unasked):
        for event in history:
            step(state, event)
            if "q" in state.queries:
                stored = stored or Stored(state.queries["q"], tolerance=TIGHT)
                stored.save(tended=False)
                stored.query.tend()
    query = state.queries["q"]
    stored = stored or Stored(query, tolerance=TIGHT)
    query.finish()
    stored.save()
    assert_reads(stored, query, 1e-9)


def extremes(
    model: ModelName, *, tolerance: float, mean: float | None = None
) -> tuple[State, QueryState, list[tuple[str, Outcome]]]:
    """400 items between 60 people and a pair that nothing links to them; all that is read is relevant, then nothing
    is, then half of it is taken back."""
    rng = np.random.default_rng(11)
    prior = DEFAULT_PRIORS[model]
    prior = prior if mean is None else replace(prior, mean=mean)
    state = State(tolerance=tolerance)
    step(state, Query("q", prior=prior))
    ends = [rng.choice(60, 2, replace=False) for _ in range(400)]
    for number, (u, v) in enumerate(ends):
        step(state, item(f"i{number}", f"p{u:02d}", f"p{v:02d}"))
    step(state, item("far", "x", "y"))
    said = [(f"i{k}", Outcome.RELEVANT) for k in range(80)]
    said += [(f"i{k}", Outcome.IRRELEVANT) for k in range(80, 320)]
    said += [(f"i{k}", Outcome.RETRACTED) for k in range(0, 160, 2)]
    return state, state.queries["q"], said


def beside_a_line(model: ModelName) -> tuple[State, QueryState, list[tuple[str, Outcome]]]:
    """The same beside a line of 2,000 items, tended."""
    state, query, said = extremes(model, tolerance=DEFAULT_TOLERANCE)
    for each in line(2000):
        step(state, replace(each, item_id=f"line-{each.item_id}"))
    query.finish()
    return state, query, said


@pytest.mark.parametrize("mean", alike([1e-6, 1.0 - 1e-6], 1e-6))
def test_rows_are_told_of_as_closely_where_next_to_nothing_varies_a_priori(mean: float) -> None:
    state, query, said = extremes("rates", tolerance=TIGHT, mean=mean)
    stored = Stored(query, tolerance=TIGHT)
    for number, (item_id, outcome) in enumerate(said):
        step(state, verdict(number, item_id, outcome))
        stored.save()
        assert_reads(stored, query, 1e-9)


EXACT, CLOSE = (TIGHT, 1e-9), (DEFAULT_TOLERANCE, 1e-4)


@pytest.mark.parametrize(
    ("model", "tolerance", "close"),
    alike(
        [(model, *kept) for model in MODELS for kept in (EXACT, CLOSE)],
        *[("rates", *EXACT), ("rates", *CLOSE), ("relevance", *CLOSE)],
    ),
)
def test_a_reader_has_the_posterior_however_far_the_common_mean_moves(
    model: ModelName, tolerance: float, close: float
) -> None:
    state, query, said = extremes(model, tolerance=tolerance)
    stored, rates, far = Stored(query, tolerance=tolerance), [], []
    query.finish()
    stored.save()
    for number, (item_id, outcome) in enumerate(said):
        step(state, verdict(number, item_id, outcome))
        stored.save()
        rates.append(query.engine.readings.common().base_rate)
        far.append(stored.read().edge_mean[-1])
        if number % 40 == 39:
            query.finish()
            stored.save()
            assert_reads(stored, query, close)
    if model == "rates":
        assert max(rates) > 4 * min(rates)
        assert max(far) > 4 * min(far)  # though its row was never told again


@pytest.mark.parametrize("model", MODELS)
def test_a_verdict_writes_the_rows_near_it(model: ModelName) -> None:
    """Even where the common mean takes a step, and every edge is scored again."""
    state, query, said = beside_a_line(model)
    stored, graph, steps, rows, contacts = Stored(query), query.collection.graph, 0, 0, 0
    stored.save()
    for number, (item_id, outcome) in enumerate(said):
        before = query.engine.readings.rounded_common()
        step(state, verdict(number, item_id, outcome))
        changes = stored.save()
        steps += query.engine.readings.rounded_common() != before
        assert len(changes.edges.index) < 500
        assert len(changes.participants.index) < 100
        rows += len(changes.edges.index)
        contacts += len(np.unique(np.concatenate([graph.edges_of(u) for u in changes.participants.index.tolist()])))
    assert (steps > 10) == (model == "rates")
    assert rows < contacts / 4  # an edge's covariance does not move whenever the mean of an end does


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("correlation", [0.1, 0.8])
def test_rows_are_fresh_when_estimated_growth_is_healed(model: ModelName, correlation: float) -> None:
    """A covariance's too that is healed where neither end's variance moves."""
    rng, tolerance = np.random.default_rng(1), 1e-7
    prior = replace(DEFAULT_PRIORS[model], correlation=correlation)
    state = State(tolerance=tolerance)
    step(state, Query("q", prior=prior))
    query, stored = state.queries["q"], Stored(state.queries["q"], tolerance=tolerance)
    for each in line(59):
        step(state, each)
    query.finish()
    with mock.patch("haystream.engines.local.inverse.prior_inverse.LARGELY_NEW", 0):
        for number in range(150):
            step(state, item(f"c{number}", *(f"p{end:03d}" for end in rng.choice(60, 2, replace=False))))
            outcome = Outcome.RELEVANT if rng.random() < 0.4 else Outcome.IRRELEVANT
            step(state, verdict(number, f"i{rng.integers(59)}", outcome))
            if number % 5 == 4:
                stored.save()
                query.tend(int(rng.integers(60)))
                stored.save()
                query.finish()
                stored.save()
                assert stale(stored) < 2 * TOLD_FACTOR * tolerance
                assert_reads(stored, query, 2 * TOLD_FACTOR * tolerance)
    assert shared_precision(query.collection, correlation, prior_tolerance(prior, tolerance)).builds == 1


@given(history=facts())
def test_without_a_common_mean_nothing_is_shared(history: list[Event]) -> None:
    state = State(tolerance=TIGHT)
    for event in [Query("q", prior=DEFAULT_PRIORS["relevance"]), *history]:
        step(state, event)
    changes = Stored(state.queries["q"]).save()
    common = changes.common
    assert (common.mean_shift, common.variance, common.scale) == (0.0, 0.0, 1.0)
    assert not changes.participants.rows[:, 1].any()


@pytest.mark.parametrize("saves", [False, True])
def test_rows_that_nobody_asks_for_take_no_more_memory_with_each_verdict(saves: bool) -> None:
    """As where a query is never saved, or never with all that there is to save."""
    state, query, said = extremes("rates", tolerance=TIGHT)
    query.finish()
    stored = Stored(query, tolerance=TIGHT)
    stored.save()
    for number in range(3 * MOST_OCCASIONS):
        outcome = Outcome.RELEVANT if number % 3 else Outcome.RETRACTED
        step(state, verdict(number, said[number % 7][0], outcome))
        query.settle()
        if saves:
            stored.save(tended=False)
        query.tend(10)
    kept = query._unsaved.settled, query._unsaved.tended, query._unsaved._not_asked
    assert max(len(part._moved) for part in kept) <= MOST_OCCASIONS
    query.finish()
    stored.save()
    assert_reads(stored, query, 1e-9)


def test_rows_hold_what_later_moves_are_compared_with() -> None:
    """Who moves by little between being told of and being saved, and then back, is not told of again."""
    state, pairs = State(), [(u, (u + step_) % 600) for u in range(600) for step_ in (1, 7)]
    for number, (u, v) in enumerate(pairs):
        step(state, item(f"i{number}", f"p{u:03d}", f"p{v:03d}"))
    rng = np.random.default_rng(1)
    for name in map("q{}".format, range(8)):
        step(state, Query(name))
        query = state.queries[name]
        query.finish()
        stored = Stored(query)
        stored.save()
        one = int(rng.integers(1100))
        other = one + int(rng.integers(4, 30))
        step(state, verdict(1, f"i{one}", Outcome.RELEVANT, query_id=name))
        query.settle()
        step(state, verdict(2, f"i{other}", Outcome.IRRELEVANT, query_id=name))
        stored.save()
        step(state, verdict(3, f"i{other}", Outcome.RETRACTED, at=10_000, query_id=name))
        query.finish()
        stored.save()
        people = np.arange(len(query.collection.graph), dtype=np.int32)
        off = stored.read().participant_mean - query.engine.readings.participants(people)[0]
        assert np.abs(off).max() <= TOLD_FACTOR * DEFAULT_TOLERANCE, name


@pytest.mark.parametrize("model", MODELS)
def test_there_are_rows_where_data_reach_and_nowhere_else(model: ModelName) -> None:
    """Also after a graph grew elsewhere, and near the data."""
    state, query, said = beside_a_line(model)
    stored = Stored(query)
    first = stored.save()
    assert first.whole
    assert (len(first.participants.index), len(first.edges.index)) == (0, 0)
    for number, (item_id, outcome) in enumerate(said[:100]):
        step(state, verdict(number, item_id, outcome))
        assert not stored.save().whole
    for number in range(100):
        step(state, item(f"new{number}", f"n{number}", f"n{number + 1}"))
    step(state, item("near", "p00", "n0"))
    query.finish()
    stored.save()
    graph = query.collection.graph
    reached = {graph.participants[u] for u in stored.people.index}
    assert {"p00", "n0"} < reached < {f"p{u:02d}" for u in range(60)} | {f"n{u}" for u in range(50)}
    # Of the new ones' covariances some are solved afresh, and come out apart from the prior's by a solve's error.
    assert {name for e in stored.edges.index for name in graph.names(e)} < reached | {f"n{u}" for u in range(101)}
    assert_reads(stored, query, 1e-4)


def stored_verdicts(model: ModelName) -> tuple[State, Stored, list[tuple[str, Outcome]]]:
    """A query with forty verdicts, saved after each, and what was said."""
    state, query, said = extremes(model, tolerance=DEFAULT_TOLERANCE)
    query.finish()
    stored = Stored(query)
    stored.save()
    for number, (item_id, outcome) in enumerate(said[:40]):
        step(state, verdict(number, item_id, outcome))
        stored.save()
    return state, stored, said[:40]


@pytest.mark.parametrize("model", MODELS)
def test_rows_that_are_as_the_prior_again_are_given_back(model: ModelName) -> None:
    state, stored, said = stored_verdicts(model)
    query = stored.query
    most = len(stored.people.index), len(stored.edges.index)
    assert min(most) > 20
    for number, (item_id, _) in enumerate(said):
        step(state, verdict(40 + number, item_id, Outcome.RETRACTED))
        query.finish()
        stored.save()
        assert_reads(stored, query, 1e-4)
    assert len(stored.people.index) < most[0] / 2
    assert len(stored.edges.index) < most[1] / 2
    for number, (item_id, outcome) in enumerate(said):
        step(state, verdict(80 + number, item_id, outcome))
        stored.save()
    query.finish()
    stored.save()
    assert_reads(stored, query, 1e-4)
    assert stored.people.place.max() < most[0] + 10  # in the places of those that were given back


@pytest.mark.parametrize("model", MODELS)
def test_rows_are_given_back_by_the_next_drain_of_everything(model: ModelName) -> None:
    """A drain beside a verdict does not ask which are as the prior again: that one does."""
    state, stored, said = stored_verdicts(model)
    query = stored.query
    query.finish()
    stored.save()
    most = len(stored.people.index)
    for number, (item_id, _) in enumerate(said):
        step(state, verdict(40 + number, item_id, Outcome.RETRACTED))
        query.settle()
        stored.save(tended=False)
    assert len(stored.people.index) >= most
    while query.tend(1000):
        pass
    stored.save()
    assert len(stored.people.index) < most / 2
    assert_reads(stored, query, 1e-4)


@pytest.mark.parametrize("model", MODELS)
def test_a_verdict_does_not_write_what_growth_moved_with_the_prior(
    model: ModelName, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written_with_a_verdict(new_pairs: int) -> int:
        state, query = beside_a_line(model)[:2]
        stored = Stored(query)
        stored.save()
        for number in range(new_pairs):  # where no data have reached
            step(state, item(f"new{number}", f"p{1000 + 10 * number:03d}", f"n{number}"))
        step(state, verdict(0, "i0", Outcome.RELEVANT))
        written = len(stored.save(tended=False).edges.index)
        query.finish()
        stored.save()
        assert_reads(stored, query, 1e-4)
        return written

    alone, beside_growth = written_with_a_verdict(0), written_with_a_verdict(60)
    monkeypatch.setattr("haystream.posterior.unsaved_rows.MOST_UNASKED", 10**9)
    assert beside_growth <= alone < written_with_a_verdict(60) - 60


@pytest.mark.parametrize("model", MODELS)
def test_new_items_on_old_edges_write_nothing(model: ModelName) -> None:
    state, query, said = extremes(model, tolerance=DEFAULT_TOLERANCE)
    stored = Stored(query)
    for number, (item_id, outcome) in enumerate(said[:20]):
        step(state, verdict(number, item_id, outcome))
    query.finish()
    stored.save()
    graph = query.collection.graph
    for e in range(graph.edges):
        step(state, item(f"again{e}", *graph.names(e)))
    query.finish()
    changes = stored.save()
    assert (len(changes.participants.index), len(changes.edges.index)) == (0, 0)


@pytest.mark.parametrize("model", MODELS)
def test_who_has_no_row_is_looked_at_again_where_a_new_edge_moves_the_prior(model: ModelName) -> None:
    """Also where it does not move the posterior, since data that came meanwhile move it back."""
    tolerance = 1e-3
    state, query, said = extremes(model, tolerance=tolerance)
    stored, graph, rng = Stored(query, tolerance=tolerance), query.collection.graph, np.random.default_rng(1)
    for number in range(60):
        for k in range(3 * number, 3 * number + 3):
            step(state, verdict(k, *said[k]))
        u, v = (graph.participants[int(w)] for w in rng.choice(60, 2, replace=False))
        step(state, item(f"grown{number}", u, v))
        query.finish()
        stored.save()
        # What is told, and less than half as much by which a prior may have moved before edges follow it.
        assert stale(stored) < 1.35 * TOLD_FACTOR * tolerance


@pytest.mark.parametrize("model", MODELS)
def test_a_reader_whose_graph_is_ahead_has_what_was_saved(model: ModelName) -> None:
    state, query, said = extremes(model, tolerance=TIGHT)
    for number, (item_id, outcome) in enumerate(said[:20]):
        step(state, verdict(number, item_id, outcome))
    query.finish()
    stored, graph = Stored(query, tolerance=TIGHT), query.collection.graph
    stored.save()
    people, edges = (np.arange(k, dtype=np.int32) for k in (len(graph), graph.edges))
    wanted = *query.engine.readings.participants(people), *query.engine.readings.edges(edges)
    for number in range(40):
        step(state, item(f"new{number}", f"p{number:02d}", f"n{number}"))
    assert graph.edges > len(edges)
    got = astuple(stored.read())[:4]
    for column, values in zip(got, wanted, strict=True):
        np.testing.assert_allclose(column, values, rtol=0, atol=1e-9)
    query.finish()
    stored.save()
    assert_reads(stored, query, 1e-9)


@pytest.mark.parametrize("model", MODELS)
def test_a_reader_takes_the_watch_list_from_the_settings(model: ModelName) -> None:
    state, query, said = extremes(model, tolerance=TIGHT)
    for number, (item_id, outcome) in enumerate(said[:20]):
        step(state, verdict(number, item_id, outcome))
    query.finish()
    stored = Stored(query, tolerance=TIGHT)
    stored.save()
    prior = replace(query.settings.prior, participants={"p03": 0.6, "x": 0.5, "nobody": 0.7})
    step(state, replace(query.settings, prior=prior))
    query.finish()
    assert not stored.save().whole
    assert_reads(stored, query, 1e-9)
    step(state, replace(query.settings, prior=replace(prior, mean=0.3)))
    query.finish()
    assert stored.save().whole  # everything was computed anew
    assert_reads(stored, query, 1e-9)


def test_a_reader_takes_an_explicit_covariance_as_it_is() -> None:
    pairs = line(30)
    names = [f"p{i:03d}" for i in range(31)]
    sigma = 0.15 * np.linalg.inv(np.eye(31) - 0.3 * (np.eye(31, k=1) + np.eye(31, k=-1)))
    covariance = Covariance(tuple(names), tuple(map(tuple, sigma.tolist())))
    state = State()
    for event in [*pairs, Query("q", prior=replace(DEFAULT_PRIORS["relevance"], covariance=covariance))]:
        step(state, event)
    query = state.queries["q"]
    stored = Stored(query)
    stored.save()
    assert len(stored.people.index) == 0
    step(state, verdict(0, "i0", Outcome.RELEVANT))
    query.finish()
    stored.save()
    assert 0 < len(stored.people.index) < 20
    assert_reads(stored, query, 1e-4)
