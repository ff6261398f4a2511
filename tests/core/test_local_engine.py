"""`local` against a dense solve of the linear form, on every public quantity, after any history."""

from dataclasses import replace
from unittest import mock

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from support.dense import CLOSE, TIGHT, assert_agrees, dense_of
from support.histories import ASYMMETRIC, MODELS, fold, histories, item, line, verdict

from haystream.engines.local import LocalEngine
from haystream.engines.local.changes.refer import refer
from haystream.engines.local.inverse.prior_inverse import shared_precision, shared_precisions
from haystream.engines.local.solves.budget import COMMON_SHIFT, DEFAULT_TOLERANCE
from haystream.engines.local.solves.sides import COMMON, MEAN
from haystream.engines.local.state.edge_priors import ON_HEAD, ON_TAIL, rows_of
from haystream.engines.local.state.state import SQUARE
from haystream.events import Event, Item, ModelName, Outcome, Policy, Prior, Query
from haystream.fold import State, step
from haystream.memory.arrays import take_all
from haystream.memory.overlay import entries, rows
from haystream.models import DEFAULT_PRIORS
from haystream.query.state import MOST_UNTOLD, QueryState
from haystream.report import report


@given(histories())
def test_agrees_with_a_dense_solve_after_any_history(history: list[Event]) -> None:
    state = State(tolerance=TIGHT)
    for number, event in enumerate(history):
        step(state, event)
        if number % 3 == 0:  # settled now and then, so that increments and growth both happen
            for query in state.queries.values():
                query.finish()
    assert_agrees(state.queries["q"])


def star(rays: int) -> list[Item]:
    return [item(f"i{k}", f"ray{k}", sender="hub") for k in range(rays)]


def clique(size: int) -> list[Item]:
    return [item(f"i{u}-{v}", f"c{u:02d}", f"c{v:02d}") for u in range(size) for v in range(u)]


def preferential(size: int) -> list[Item]:
    graph = nx.barabasi_albert_graph(size, 3, seed=4)
    return [item(f"i{k}", f"n{v}", sender=f"n{u}") for k, (u, v) in enumerate(graph.edges)]


GRAPHS = {
    "star": star(60),
    "clique": clique(12),
    "long path": line(120),
    "one edge": line(1),
    "parts": [*line(4), item("x0", "a", "b"), item("x1", "c", "d")],
    "twenty on one item": [item("all", *(f"t{i}" for i in range(20))), *clique(5)],
    "preferential": preferential(80),
}


@pytest.mark.parametrize(
    "prior",
    [
        pytest.param(DEFAULT_PRIORS["relevance"], id="relevance"),
        pytest.param(Prior("relevance", mean=0.3, correlation=0.7, conditional=ASYMMETRIC), id="asymmetric"),
        pytest.param(DEFAULT_PRIORS["rates"], id="rates"),
    ],
)
@pytest.mark.parametrize("graph", GRAPHS)
def test_agrees_on_adversarial_graphs(graph: str, prior: Prior) -> None:
    state = State(tolerance=TIGHT)
    step(state, Query("q", prior=prior))
    given_items = GRAPHS[graph]
    rng = np.random.default_rng(len(given_items))
    for each in given_items:
        step(state, each)
    query = state.queries["q"]
    for number in range(60):
        chosen = given_items[rng.integers(len(given_items))].item_id
        outcome = (Outcome.RELEVANT, Outcome.IRRELEVANT, Outcome.RETRACTED, Outcome.SKIPPED)[
            rng.choice(4, p=[0.4, 0.4, 0.15, 0.05])
        ]
        step(state, verdict(number, chosen, outcome))
        query.finish()
    assert_agrees(query)


@pytest.mark.parametrize("model", MODELS)
def test_a_hub_that_joins_late(model: ModelName) -> None:
    state = State(tolerance=TIGHT)
    step(state, Query("q", prior=DEFAULT_PRIORS[model]))
    for each in line(40):
        step(state, each)
    step(state, verdict(0, "i7", Outcome.RELEVANT))
    state.queries["q"].finish()
    for k in range(41):
        step(state, item(f"late{k}", f"p{k:03d}", sender="hub"))
        step(state, verdict(k + 1, f"late{k}", Outcome.RELEVANT if k % 3 else Outcome.IRRELEVANT))
        if k % 5 == 0:
            state.queries["q"].finish()
    assert_agrees(state.queries["q"])


@pytest.mark.parametrize("model", MODELS)
def test_means_stay_probabilities_when_everything_is_relevant(model: ModelName) -> None:
    state = State(tolerance=TIGHT)
    step(state, Query("q", prior=DEFAULT_PRIORS[model]))
    items = [item(f"i{k}", f"c{k % 5}", f"d{k % 4}") for k in range(200)]
    for number, each in enumerate(items):
        step(state, each)
        step(state, verdict(number, each.item_id, Outcome.RELEVANT))
    query = state.queries["q"]
    query.finish()
    people = np.arange(len(query.collection.graph), dtype=np.int32)
    if model == "relevance":
        assert query.engine.readings.unconstrained(people)[0].max() > 1  # or this test shows nothing
    assert_agrees(query)


@pytest.mark.parametrize("model", MODELS)
def test_the_default_tolerance_keeps_every_mean_within_1e_4(model: ModelName) -> None:
    state = State()
    step(state, Query("q", prior=DEFAULT_PRIORS[model]))
    given_items = preferential(300)
    for each in given_items:
        step(state, each)
    query = state.queries["q"]
    query.finish()
    rng = np.random.default_rng(8)
    for number in range(300):
        chosen = given_items[rng.integers(len(given_items))].item_id
        step(state, verdict(number, chosen, Outcome.RELEVANT if rng.random() < 0.3 else Outcome.IRRELEVANT))
        query.finish()
    expected, got = dense_of(query), report(query)
    errors = [abs(p[0] - mean) for p, mean in zip(got.participants.values(), expected.mean, strict=True)]
    errors += [abs(e.mean - mean) for e, mean in zip(got.edges, expected.edge_mean, strict=True)]
    assert max(errors) < 1e-4
    assert abs(query.engine.readings.common().base_rate - expected.base_rate) < 1e-5
    assert max(errors) > 0  # it is an approximation; zero would mean that it was compared with itself


@pytest.mark.parametrize("policy", ["bayes-ucb", "thompson", "epsilon-greedy"])
def test_a_moving_policy_scores_as_if_from_scratch(policy: str) -> None:
    query = Query("q", policy=Policy(policy, seed=3))
    step_by_step, at_once = State(tolerance=TIGHT), State(tolerance=TIGHT)
    events = [query, *preferential(40)]
    events += [verdict(k, f"i{3 * k}", Outcome.RELEVANT if k % 2 else Outcome.IRRELEVANT) for k in range(20)]
    for event in events:
        step(step_by_step, event)
        step_by_step.queries["q"].finish()
        step(at_once, event)
    one, other = report(step_by_step.queries["q"]).items, report(at_once.queries["q"]).items
    assert [i.item_id for i in one] == [i.item_id for i in other]
    np.testing.assert_allclose([i.score for i in one], [i.score for i in other], atol=CLOSE)


CORRELATIONS = pytest.mark.parametrize(
    ("model", "correlation"), [("relevance", 0.0), ("relevance", 0.8), ("rates", 0.9)]
)


def line_of_fifty(model: ModelName, correlation: float) -> tuple[State, QueryState]:
    """A finished query: what comes now is growth."""
    prior = replace(DEFAULT_PRIORS[model], correlation=correlation)
    state = State(tolerance=TIGHT)
    step(state, Query("q", prior=prior))
    for each in line(50):
        step(state, each)
    state.queries["q"].finish()
    return state, state.queries["q"]


def grow_and_judge(state: State, number: int, rng: np.random.Generator, *, people: int) -> None:
    """An item between any two of so many people, and a verdict on any item."""
    u, v = rng.choice(people, 2, replace=False)
    step(state, item(f"g{number}", f"p{u:03d}", f"p{v:03d}"))
    collection = state.queries["q"].collection
    judged = collection.item_ids[rng.integers(len(collection))]
    step(state, verdict(number, judged, Outcome.RELEVANT if rng.random() < 0.5 else Outcome.IRRELEVANT))


@CORRELATIONS
def test_every_item_may_bring_a_new_edge(model: ModelName, correlation: float) -> None:
    """Settled after each, so that every edge comes in locally and nothing is solved afresh."""
    state, query = line_of_fifty(model, correlation)
    rng = np.random.default_rng(5)
    for number in range(60):
        grow_and_judge(state, number, rng, people=60)
        query.finish()
    assert shared_precision(query.collection, correlation, TIGHT).builds == 1
    assert_agrees(query)


@CORRELATIONS
def test_many_new_edges_may_come_at_once(model: ModelName, correlation: float) -> None:
    """What they do to the inverses is estimated, and right again when all is finished; nothing is solved afresh."""
    state, query = line_of_fifty(model, correlation)
    rng = np.random.default_rng(6)
    with mock.patch("haystream.engines.local.inverse.prior_inverse.LARGELY_NEW", 0):
        for number in range(80):
            grow_and_judge(state, number, rng, people=70)
            if number % 8 == 7:
                query.settle()
            if number % 20 == 19:
                query.finish()
                assert_agrees(query)
    assert shared_precision(query.collection, correlation, TIGHT).builds == 1


def test_tending_that_is_asked_to_stop_does_so_after_the_solve_in_hand() -> None:
    ring = [item(f"i{n}", f"p{n}", f"p{(n + 1) % 200}") for n in range(200)]
    whole, in_parts = (fold([Query("q")], tolerance=TIGHT) for _ in range(2))
    for state in (whole, in_parts):
        for each in ring:
            step(state, each)
        state.queries["q"].settle()
    asked, turns = np.ones(1, np.int32), 0
    while in_parts.queries["q"].tend(1000, asked):
        turns += 1
    assert turns > 100  # all but the few that were solved at once
    whole.queries["q"].finish()
    got, expected = (report(state.queries["q"]) for state in (in_parts, whole))
    assert (got.participants, got.edges) == (expected.participants, expected.edges)


def judged_on_preferential(*, tolerance: float) -> tuple[State, QueryState]:
    """A query that has something left for idle time."""
    state = State(tolerance=tolerance)
    step(state, Query("q"))
    for each in preferential(600):
        step(state, each)
    query = state.queries["q"]
    query.finish()
    for number in range(30):
        step(state, verdict(number, f"i{20 * number}", Outcome.RELEVANT if number % 4 else Outcome.IRRELEVANT))
        query.settle()
    return state, query


def test_readers_are_told_of_what_tending_moved_when_it_moved_many_or_nothing_is_left() -> None:
    _, query = judged_on_preferential(tolerance=DEFAULT_TOLERANCE)
    query.tend(8)  # and all whom another reference concerns are to be looked at
    query.tend(8)
    engine, settles, untold = query.engine, 0, [query.engine.untold]
    assert untold == [0.0]
    with mock.patch.object(engine, "settle", wraps=engine.settle) as told:
        while query.tend(8):
            if told.call_count > settles:
                settles = told.call_count
                assert untold[-1] >= MOST_UNTOLD
                assert engine.untold == 0.0
            untold.append(engine.untold)
    assert MOST_UNTOLD <= max(untold) <= MOST_UNTOLD + 8
    assert 1 < told.call_count <= settles + 1 < len(untold) / 8
    assert engine.untold == 0.0
    assert not query.drifts


@pytest.mark.parametrize("after", [1, 5])
def test_a_verdict_may_come_before_readers_are_told_of_what_tending_moved(after: int) -> None:
    state, query = judged_on_preferential(tolerance=TIGHT)
    for _ in range(after):
        assert query.tend(4)
    assert query.engine.untold > 0.0
    step(state, verdict(99, "i5", Outcome.RELEVANT))
    query.finish()
    assert_agrees(query)


@pytest.mark.parametrize(("model", "correlation"), [("relevance", 0.3), ("relevance", 0.6), ("rates", 0.3)])
@pytest.mark.parametrize("away", range(5))
def test_a_new_edge_may_come_where_an_estimate_is_not_yet_healed(
    model: ModelName, correlation: float, away: int
) -> None:
    """So many contacts away from the new edges whose effect was estimated: healing still gets past it."""
    state, query = line_of_fifty(model, correlation)
    with mock.patch("haystream.engines.local.inverse.prior_inverse.LARGELY_NEW", 0):
        for k in range(3):
            step(state, item(f"many{k}", f"new{k}", "p010"))
        query.settle()
        step(state, item("one", "other", f"p{10 + away:03d}"))
        query.finish()
    assert shared_precision(query.collection, correlation, TIGHT).builds == 1
    assert_agrees(query)


@pytest.mark.parametrize("model", MODELS)
def test_a_watch_list_is_edited_without_a_new_start(model: ModelName) -> None:
    """Of participants with and without data, of a hub, of someone nobody knows yet, and back again."""
    prior = DEFAULT_PRIORS[model]
    star = [item(f"h{n}", "hub", f"q{n:02d}") for n in range(30)]
    state = State(tolerance=TIGHT)
    step(state, Query("q", prior=prior))
    for each in [*line(40), *star, item("both", "hub", "p020")]:
        step(state, each)
    for number in range(25):
        outcome = Outcome.RELEVANT if number % 4 == 0 else Outcome.IRRELEVANT
        step(state, verdict(number, f"i{number}" if number % 2 else f"h{number}", outcome))
    query = state.queries["q"]
    query.finish()
    engine = query.engine
    near = [factor * prior.mean for factor in (0.9, 1.1, 1.2)]
    lists = [
        {"p003": near[2]},
        {"p003": near[0], "p030": near[1], "hub": near[2]},
        {"hub": near[1], "late": near[2], "nobody": near[0]},
        {"late": near[1]},
        {},
    ]
    for number, participants in enumerate(lists):
        step(state, Query("q", prior=replace(prior, participants=participants)))
        if number == 2:  # before the engine has a row for the newcomer, and after
            step(state, item("new", "late", "p010"))
        query.finish()
        assert_agrees(query)
    assert query.engine is engine


@pytest.mark.parametrize("model", MODELS)
def test_estimates_stay_possible_while_a_graph_grows_and_nobody_tends(model: ModelName) -> None:
    """Dense groups, the first edges at once, then one by one: corrections to what was only estimated."""
    rng = np.random.default_rng(0)
    pairs = [(14 * c + i, 14 * c + j) for c in range(30) for j in range(14) for i in range(j)]
    rng.shuffle(pairs)
    state = State()
    step(state, Query("q", prior=DEFAULT_PRIORS[model]))
    query, begin = state.queries["q"], len(pairs) // 3
    for number, (u, v) in enumerate(pairs):
        step(state, item(f"i{number}", f"p{u}", f"p{v}"))
        if number < begin or number % 5:
            continue
        query.settle()
        (precision,) = shared_precisions(query.collection).values()
        everyone = np.arange(len(query.collection.graph), dtype=np.int32)
        assert precision.inverse_diagonal.min() >= 1.0
        mean, variance = query.engine.readings.unconstrained(everyone)
        assert np.isfinite(mean).all()
        assert variance.min() > 0.0
        judged = f"i{rng.integers(number)}"
        step(state, verdict(number, judged, Outcome.RELEVANT if rng.random() < 0.3 else Outcome.IRRELEVANT))


@pytest.mark.parametrize(("model", "seed"), [("relevance", 1), ("relevance", 2), ("rates", 3)])
def test_errors_do_not_add_up_over_a_long_history(model: ModelName, seed: int) -> None:
    """Growth and verdicts mixed, each settled, at the default tolerance: the promise of 1e-4."""
    rng = np.random.default_rng(seed)
    prior = DEFAULT_PRIORS[model]
    state = State()
    step(state, Query("q", prior=prior))
    query = state.queries["q"]
    for number in range(800):
        if number % 2 == 0:
            u, v = rng.choice(45, 2, replace=False)
            step(state, item(f"i{number // 2}", f"p{u}", f"p{v}"))
        judged = f"i{rng.integers(number // 2 + 1)}"
        outcome = (Outcome.RELEVANT, Outcome.IRRELEVANT, Outcome.RETRACTED)[rng.choice(3, p=[0.4, 0.5, 0.1])]
        step(state, verdict(number, judged, outcome))
        query.finish()
        while query.tend(8):
            pass
    assert shared_precision(query.collection, prior.correlation, DEFAULT_TOLERANCE).builds == 1
    expected, got = dense_of(query), report(query)
    errors = [abs(p[0] - mean) for p, mean in zip(got.participants.values(), expected.mean, strict=True)]
    errors += [abs(e.mean - mean) for e, mean in zip(got.edges, expected.edge_mean, strict=True)]
    assert max(errors) < 1e-4
    assert abs(query.engine.readings.common().base_rate - expected.base_rate) < 1e-5


@given(histories())
def test_sums_that_are_kept_by_difference_are_those_over_the_graph(history: list[Event]) -> None:
    """Whatever is left unsolved: bᵀx + rᵀx of each right-hand side."""
    state = State(tolerance=1e-2)
    for event in history:
        step(state, event)
        for query in state.queries.values():
            query.settle()
    for query in state.queries.values():
        assert_sums(query)


def assert_sums(query: QueryState) -> None:
    """What a local engine sums over the graph is what it would be if it were summed now."""
    engine = query.engine
    if not isinstance(engine, LocalEngine):
        return
    columns, edges, people = engine._columns, engine._columns.state.edges, engine._columns.state.people
    count, m = columns.edge_count, columns.participants
    x, r = rows(people.x, columns.everyone()).T, people.residual[:m].T
    c, beta = edges.coefficient[:, :count], rows_of(edges.prior)
    b = np.zeros((len(x), m))
    for side in range(len(b)):
        np.add.at(b[side], edges.tail, c[side] * beta[:count, ON_TAIL])
        np.add.at(b[side], edges.head, c[side] * beta[:count, ON_HEAD])
    sums = columns.state.sums
    np.testing.assert_allclose(sums.form, ((b + r) * x).sum(axis=1), rtol=1e-9, atol=1e-12)
    if len(b) > COMMON:
        border = c.sum(axis=1) - b @ x[COMMON] - x @ r[COMMON]
        np.testing.assert_allclose(sums.border, border, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(sums.data[SQUARE], columns.state.data.square[:count].sum(), rtol=1e-9, atol=1e-12)


def test_another_reference_of_the_common_mean_says_the_same() -> None:
    """One is taken where the base rate turns out far from the prior's; whatever is left unsolved."""
    state = State(tolerance=1e-2)
    step(state, Query("q"))
    for number, (u, v) in enumerate(nx.random_regular_graph(4, 40, seed=1).edges):
        step(state, item(f"i{number}", f"p{u}", f"p{v}"))
        if number < 30:
            step(state, verdict(number, f"i{number}", Outcome.RELEVANT))
    query = state.queries["q"]
    query.settle()
    engine = query.engine
    assert isinstance(engine, LocalEngine)
    columns, readings, screened = engine._columns, engine.readings, np.arange(30, dtype=np.int32)

    def says() -> list[float]:
        common = readings.known_common()
        of_people = np.concatenate(readings.given_common(columns.everyone()))
        of_all = common.mean_shift, common.variance, readings.discrepancy(), *readings.concentration()
        shares = [share for _, share in readings.shares([35])]
        return [*of_people, *of_all, *readings.deviations(screened), *shares]

    reference, before = columns.state.people.reference, says()
    assert abs(readings.known_common().mean_shift - reference.item()) <= COMMON_SHIFT < reference.item()
    state, everyone, listed = columns.state, columns.everyone(), []

    def above() -> list[int]:
        limits = np.outer(entries(state.system.diagonal, everyone), state.tolerances.sides)
        beyond = np.abs(state.people.residual[everyone]) > limits
        return np.flatnonzero(beyond[:, [MEAN, COMMON]].any(axis=1)).tolist()

    assert not above()
    for another in (-0.3, 0.0, 0.7):
        refer(state, screened, columns.participants, another)
        assert reference.item() == another
        np.testing.assert_allclose(says(), before, rtol=1e-9, atol=1e-12)
        assert_sums(query)
        assert take_all(state.rooms.unpushed).tolist() == above()
        listed.extend(above())
    assert listed
