"""What a reader makes of the stored rows is the posterior, however far the common mean has moved since."""

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from support.dense import TIGHT
from support.histories import MODELS, facts, histories, item, line, verdict

from haystream.engines.local.budget import DEFAULT_TOLERANCE, TOLD_FACTOR
from haystream.engines.local.prior_inverse import shared_precision
from haystream.events import Event, ModelName, Outcome, Query
from haystream.fold import State, step
from haystream.models import DEFAULT_PRIORS
from haystream.posterior_tables import (
    EDGE_COLUMNS,
    PARTICIPANT_COLUMNS,
    Changes,
    Posterior,
    Rows,
    Tables,
    read,
)
from haystream.query_state import QueryState


class Stored:
    """A store of one query: rows as they were last told, and how many were."""

    def __init__(self, query: QueryState) -> None:
        self._query = query
        self._people, self._edges = np.zeros((0, PARTICIPANT_COLUMNS)), np.zeros((0, EDGE_COLUMNS))

    def save(self) -> Changes:
        self._query.settle()
        changes = self._last = self._query.drain()
        self._people, self._edges = patched(self._people, changes.participants), patched(self._edges, changes.edges)
        return changes

    def stale(self) -> float:
        """By how much a variance of R, or a covariance, is off at most in these rows."""
        engine = self._query.engine
        people, edges = (np.arange(len(table), dtype=np.int32) for table in (self._people, self._edges))
        variances = self._people[:, 2] - engine.readings.given_common(people)[2]
        now = np.column_stack([*engine.readings.counts(edges)[:2], engine.readings.covariances(edges)])
        return float(max(abs(variances).max(), abs(self._edges - now).max())) * engine.readings.common().scale

    def read(self) -> Posterior:
        tables = Tables(self._people, self._edges, self._last.common, self._last.discrepancy)
        return read(tables, self._query.settings.prior, self._query.collection.graph)


def patched(table: np.ndarray, rows: Rows) -> np.ndarray:
    least = int(rows.index[-1]) + 1 if len(rows.index) else 0
    grown = np.zeros((max(len(table), least), table.shape[1]))
    grown[: len(table)] = table
    grown[rows.index] = rows.rows
    return grown


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
            stored = stored or Stored(state.queries["q"])
            stored.save()
    query = state.queries["q"]
    stored = stored or Stored(query)
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
    state, _ = step(State(tolerance=tolerance), Query("q", prior=prior))
    ends = [rng.choice(60, 2, replace=False) for _ in range(400)]
    for number, (u, v) in enumerate(ends):
        step(state, item(f"i{number}", f"p{u:02d}", f"p{v:02d}"))
    step(state, item("far", "x", "y"))
    said = [(f"i{k}", Outcome.RELEVANT) for k in range(80)]
    said += [(f"i{k}", Outcome.IRRELEVANT) for k in range(80, 320)]
    said += [(f"i{k}", Outcome.RETRACTED) for k in range(0, 160, 2)]
    return state, state.queries["q"], said


@pytest.mark.parametrize("mean", [1e-6, 1.0 - 1e-6])
def test_rows_are_told_of_as_closely_where_next_to_nothing_varies_a_priori(mean: float) -> None:
    state, query, said = extremes("rates", tolerance=TIGHT, mean=mean)
    stored = Stored(query)
    for number, (item_id, outcome) in enumerate(said):
        step(state, verdict(number, item_id, outcome))
        stored.save()
        assert_reads(stored, query, 1e-9)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("tolerance", "close"), [(TIGHT, 1e-9), (DEFAULT_TOLERANCE, 1e-4)])
def test_a_reader_has_the_posterior_however_far_the_common_mean_moves(
    model: ModelName, tolerance: float, close: float
) -> None:
    state, query, said = extremes(model, tolerance=tolerance)
    stored, rates, far = Stored(query), [], []
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
    state, query, said = extremes(model, tolerance=DEFAULT_TOLERANCE)
    for each in line(2000):
        step(state, replace(each, item_id=f"line-{each.item_id}"))
    query.finish()
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
    state, _ = step(State(tolerance=tolerance), Query("q", prior=prior))
    query, stored = state.queries["q"], Stored(state.queries["q"])
    for each in line(59):
        step(state, each)
    query.finish()
    with mock.patch("haystream.engines.local.prior_inverse.LARGELY_NEW", 0):
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
                assert stored.stale() < 2 * TOLD_FACTOR * tolerance
                assert_reads(stored, query, 2 * TOLD_FACTOR * tolerance)
    assert shared_precision(query.collection, correlation, tolerance).builds == 1


@given(history=facts())
def test_without_a_common_mean_nothing_is_shared(history: list[Event]) -> None:
    state = State(tolerance=TIGHT)
    for event in [Query("q", prior=DEFAULT_PRIORS["relevance"]), *history]:
        step(state, event)
    changes = Stored(state.queries["q"]).save()
    common = changes.common
    assert (common.mean_shift, common.variance, common.scale) == (0.0, 0.0, 1.0)
    assert not changes.participants.rows[:, 1].any()


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
