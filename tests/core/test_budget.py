"""The budget of the promised accuracy: every factor keeps its inequality, and together they keep the promise."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from support.dense import dense_of
from support.histories import MODELS, fold, item, verdict
from support.told import Stored

from haystream.engines.local import LocalEngine
from haystream.engines.local.solves import budget
from haystream.engines.local.solves.budget import DEFAULT_TOLERANCE, LEAST_SCALE, PROMISE
from haystream.engines.local.state.state import AT_MEAN, AT_REACH
from haystream.events import ModelName, Outcome, Query
from haystream.fold import State, step
from haystream.memory.arrays import Ints
from haystream.memory.overlay import rows
from haystream.models import DEFAULT_PRIORS
from haystream.models.registry import MODELS as KNOWN
from haystream.query.state import QueryState

SLACK = 1.0 + 1e-12


def test_together_they_take_no_more_than_the_promise() -> None:
    taken = budget.taken()
    assert taken["solved"] <= 0.4 * SLACK
    assert taken["told"] <= 0.4 * SLACK
    assert taken["entries"] <= 0.2 * SLACK
    assert taken["common"] <= 0.05 * SLACK
    assert taken["solved"] + taken["told"] + max(taken["entries"], taken["common"]) <= SLACK


def test_each_factor_keeps_its_inequality() -> None:
    entry = DEFAULT_TOLERANCE / LEAST_SCALE  # the loosest that entries of an inverse are solved to
    assert budget.URGENT_FACTOR * budget.TOLD_FACTOR * DEFAULT_TOLERANCE <= 2 * PROMISE * SLACK
    assert 1.0 + budget.COMMON_SHIFT_WAITS / LEAST_SCALE <= budget.URGENT_FACTOR
    owed = budget.COMMON_OWED_FACTOR * budget.COMMON_FACTOR * budget.AMPLIFIED * budget.COMMON_SHIFT
    assert owed * DEFAULT_TOLERANCE <= 0.15 * PROMISE * SLACK
    remaining = budget.REMAINING_FACTOR * DEFAULT_TOLERANCE / budget.REMAINING_COEFFICIENT
    assert remaining <= 0.01 * SLACK
    assert remaining**2 <= 2.0 * DEFAULT_TOLERANCE
    assert (budget.REMAINING_OWED_FACTOR * remaining) ** 2 <= 5e-4
    assert budget.SHARE_FACTOR * budget.AMPLIFIED * DEFAULT_TOLERANCE <= 8 * PROMISE * SLACK
    assert budget.FAR_FACTOR * budget.MOVED_FAR <= 1.0
    assert budget.DRIFTED_FACTOR <= budget.STRAIN_FACTOR
    assert max(budget.COLUMN_FACTOR, budget.PRIOR_COLUMN_FACTOR) <= budget.STRAIN_FACTOR
    assert (budget.NEW_COLUMN_FACTOR * entry) ** 2 <= entry
    assert (budget.FIRST_ORDER_FACTOR * entry) ** 2 <= entry * SLACK
    assert budget.ENTRY_IN_PROBABILITY * budget.TAKEN_FACTOR * DEFAULT_TOLERANCE <= 0.01 * PROMISE
    assert budget.MOST_AMPLIFIED * budget.HEAVY_WEIGHT <= budget.AMPLIFIED * SLACK
    of_prior = 2.0 * budget.PRIOR_COLUMN_FACTOR * budget.MOST_CORRELATION_WEIGHT
    assert of_prior * DEFAULT_TOLERANCE <= 0.8 * PROMISE
    assert 2.0 * budget.LIGHT_SPREAD * budget.LIGHT_FACTOR <= 0.5
    assert 2.0 * budget.AMPLIFIED <= budget.LIGHT_COLUMN_FACTOR
    assert budget.SEEN_FACTOR >= 2.0
    assert budget.SEEN_SHARE <= 2.0
    assert budget.THINNED_FACTOR < budget.NEGLECTED_SHARE < 1.0
    assert budget.NEGLIGIBLE_FACTOR < budget.TAKEN_FACTOR < 1.0 < budget.NEW_COLUMN_FACTOR


@pytest.mark.parametrize("model", MODELS)
def test_a_default_prior_asks_for_no_more_than_the_tolerance(model: ModelName) -> None:
    prior = DEFAULT_PRIORS[model]
    made = KNOWN[model](prior)
    assert budget.closeness(made.largest_scale, prior.correlation, 0.0) == 1.0
    assert budget.closeness(made.largest_scale, prior.correlation, 2.0) < 1.0
    assert budget.prior_closeness(made.correlation_weight) == 1.0


def test_the_variance_of_what_remains_is_right_where_hubs_have_most_items() -> None:
    """To two tolerances of itself, although it is solved as loosely as hubs allow. (In `relevance` D enters it too,
    which is right to a tolerance.)"""

    def remaining(tolerance: float) -> float:
        hubs = [item(f"h{k}-{n}", f"p{k}", sender=f"hub{k % 3}") for k in range(300) for n in range(10)]
        others = [item(f"o{k}", f"p{k}", sender=f"p{(7 * k + 1) % 300}") for k in range(300)]
        state = fold([Query("q"), *hubs, *others], tolerance=tolerance)
        query = state.queries["q"]
        for number in range(40):
            query.apply_verdict(verdict(number, f"h{7 * number}-1", Outcome.RELEVANT))
            query.settle()
        return query.engine.readings.remaining_variance()

    assert remaining(DEFAULT_TOLERANCE) == pytest.approx(remaining(1e-12), rel=2.0 * DEFAULT_TOLERANCE)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("degree", [2, 4])
def test_what_readers_hold_at_rest_keeps_the_promise(model: ModelName, degree: int) -> None:
    """At the default tolerance, on graphs where all have as many contacts: the bound on solves is largest there."""
    rng = np.random.default_rng(degree)
    prior = replace(DEFAULT_PRIORS[model], participants={"p3": 1.5 * DEFAULT_PRIORS[model].mean})
    state = State()
    step(state, Query("q", prior=prior))
    query = state.queries["q"]
    pairs = list(nx.random_regular_graph(degree, 48, seed=degree).edges)
    stored = Stored(query)
    for number in range(120):
        u, v = pairs[number] if number < len(pairs) else pairs[rng.integers(len(pairs))]
        step(state, item(f"i{number}", f"p{u}", f"p{v}"))
        outcome = Outcome.RELEVANT if rng.random() < 0.25 else Outcome.IRRELEVANT
        step(state, verdict(number, f"i{rng.integers(number + 1)}", outcome))
        query.ranking()
        stored.save()
    query.finish()
    stored.save()
    held = stored.read()
    expected, graph = dense_of(query), query.collection.graph
    order = [graph.participant(name) for name in expected.people]
    of_pairs = [graph.edge_between(pair) for pair in expected.pairs]
    solved = query.engine.readings.unconstrained(np.array(order, dtype=np.int32))[0]
    off_solved = np.abs(solved - expected.unconstrained_mean).max()
    off_held = max(
        np.abs(held.participant_mean[order] - expected.mean).max(),
        np.abs(held.edge_mean[of_pairs] - expected.edge_mean).max(),
    )
    scale = (
        0.5 if model == "relevance" else prior.participant**-0.5
    )  # D at most: of a binary variable, or 1/sqrt(κₐ)
    assert off_solved <= scale / (1.0 - prior.correlation) * DEFAULT_TOLERANCE
    assert off_held <= PROMISE


def test_what_a_verdict_owes_is_bounded_and_done_when_there_is_time() -> None:
    """Under load, when nobody tends: how far the means are off by what the common mean does to them."""
    state, exact = State(), State(tolerance=1e-12)
    for each in (state, exact):
        step(each, Query("q"))
        for number, (u, v) in enumerate(nx.random_regular_graph(4, 400, seed=4).edges):
            step(each, item(f"i{number}", f"p{u}", f"p{v}"))
    of, query, everybody = exact.queries["q"], state.queries["q"], np.arange(400, dtype=np.int32)
    query.finish()
    of.finish()
    rng, owed, most = np.random.default_rng(4), [], 0.2 * PROMISE
    for number in range(60):
        said = verdict(number, f"i{number}", Outcome.RELEVANT if rng.random() < 0.25 else Outcome.IRRELEVANT)
        for each, owner in ((state, query), (exact, of)):
            step(each, said)
            owner.settle()
        owed.append(_off_by_reach(query, of, everybody))
    assert most < max(owed) <= PROMISE
    query.finish()
    assert _off_by_reach(query, of, everybody) <= most


def _off_by_reach(query: QueryState, exact: QueryState, everybody: Ints) -> float:
    """|Δ| times the largest error of a reach."""
    shift = exact.engine.readings.known_common().mean_shift
    reaches = (of.engine.readings.given_common(everybody)[1] for of in (query, exact))  # type: ignore[attr-defined]
    return abs(shift) * float(np.abs(np.subtract(*reaches)).max())


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("graph", [nx.star_graph(60), nx.cycle_graph(60), nx.gnm_random_graph(60, 240, seed=1)])
def test_the_variance_of_what_remains_is_near_that_of_a_dense_solve(model: ModelName, graph: nx.Graph) -> None:
    """Its right-hand side is solved loosely; new items come to pairs that are known, and to new ones."""
    rng, state = np.random.default_rng(0), State()
    step(state, Query("q", prior=DEFAULT_PRIORS[model]))
    query, pairs = state.queries["q"], list(graph.edges)
    for number in range(600):
        u, v = pairs[rng.integers(len(pairs) if number > 300 else 20)]
        step(state, item(f"i{number}", f"p{u}", f"p{v}"))
        if number % 4 == 0:
            outcome = Outcome.RELEVANT if rng.random() < 0.25 else Outcome.IRRELEVANT
            step(state, verdict(number, f"i{rng.integers(number + 1)}", outcome))
        if number % 7 == 0:
            query.ranking()
    query.settle()
    expected, got = dense_of(query), query.engine.readings.remaining_variance()
    assert np.sqrt(got) == pytest.approx(np.sqrt(expected.remaining_variance), rel=0.01)


def test_what_readers_were_told_holds_wherever_the_common_mean_goes_until_the_next_reference() -> None:
    """Who was told of by little more than nothing is not looked at again when Δ moves: only when Δ₀ does."""
    state = State()
    step(state, Query("q"))
    for number in range(50):
        step(state, item(f"i{number}", f"p{number}", f"p{(number + 1) % 50}"))
    query, everybody, references = state.queries["q"], np.arange(50, dtype=np.int32), set()
    for number in range(7):
        step(state, verdict(number, f"i{7 * number}", Outcome.RELEVANT))
        query.ranking()
        query.finish()
        engine = query.engine
        assert isinstance(engine, LocalEngine)
        reference = engine._columns.state.people.reference.item()
        references.add(reference)
        known = engine.readings.known_common().mean_shift
        assert abs(known - reference) <= budget.COMMON_SHIFT
        for shift in (reference - budget.COMMON_SHIFT, known, reference + budget.COMMON_SHIFT):
            assert _untold(engine, everybody, shift) <= budget.TOLD_FACTOR * DEFAULT_TOLERANCE
    assert len(references) > 2


@pytest.mark.parametrize("verdicts", [1, 60])
def test_what_pending_screenings_take_is_off_by_little(verdicts: int) -> None:
    """However many of all items are handed out, at the default tolerance: no mean is made of it."""
    off = {}
    for tolerance in (DEFAULT_TOLERANCE, 1e-9):
        state = State(tolerance=tolerance)
        step(state, Query("q"))
        for number, (u, v) in enumerate(nx.random_regular_graph(4, 400, seed=4).edges):
            step(state, item(f"i{number}", f"p{u}", f"p{v}"))
        query = state.queries["q"]
        for number in range(verdicts):
            step(state, verdict(number, f"i{13 * number}", Outcome.RELEVANT if number % 3 else Outcome.IRRELEVANT))
        query.finish()
        for handed_out in range(5, 800, 100):
            for number in range(handed_out - 5, handed_out):
                query.hold(f"i{number}")
            query.finish()
            readings, everybody = query.engine.readings, np.arange(400, dtype=np.int32)
            totals = readings.common().variance, readings.remaining_variance()
            off.setdefault(handed_out, []).append((readings.unconstrained(everybody)[1], *totals))
    for (variances, common, remaining), exact in off.values():
        assert np.abs(variances - exact[0]).max() <= 2 * PROMISE
        assert common == pytest.approx(exact[1], rel=5e-3)
        assert remaining == pytest.approx(exact[2], rel=5e-3)


def _untold(engine: LocalEngine, everybody: Ints, shift: float) -> float:
    """By how much a mean at that shift is off from what readers were told, at most."""
    mean, reach, _ = engine.readings.given_common(everybody)
    told = rows(engine._columns.state.news.told.people, everybody)
    return float(np.abs(mean - told[:, AT_MEAN] + shift * (reach - told[:, AT_REACH])).max())


def test_whom_another_reference_concerns_is_told_when_there_is_time() -> None:
    """Nobody is looked at for that alone by the verdict that moves it, and nobody is off by more than is urgent."""
    state = State(tolerance=1e-3)
    step(state, Query("q"))
    for number, (u, v) in enumerate(nx.random_regular_graph(4, 400, seed=4).edges):
        step(state, item(f"i{number}", f"p{u}", f"p{v}"))
    query, everybody, told = state.queries["q"], np.arange(400, dtype=np.int32), budget.TOLD_FACTOR * 1e-3
    query.finish()
    engine, waited = query.engine, []
    assert isinstance(engine, LocalEngine)
    for number in range(12):
        step(state, verdict(number, f"i{60 * number}", Outcome.RELEVANT))
        before = engine._columns.state.people.reference.item()
        query.ranking()
        shift = engine.readings.known_common().mean_shift
        untold = _untold(engine, everybody, shift)
        assert untold <= budget.URGENT_FACTOR * told
        if before != engine._columns.state.people.reference.item():
            waited.append(engine._referred and untold > told)
        query.finish()
        assert _untold(engine, everybody, shift) <= told
    assert any(waited)
