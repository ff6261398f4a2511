"""`local` against a dense solve of the linear form, on every public quantity, after any history."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from support.dense import Dense, solve
from support.histories import ASYMMETRIC, histories, item, line, verdict

from haystream.engines.local import DEFAULT_TOLERANCE
from haystream.events import Event, Item, Outcome, Policy, Prior, Query
from haystream.fold import State, step
from haystream.query import QueryState
from haystream.report import report

TIGHT = 1e-12
"""The tolerance that the engine is run with here; agreement is asked to 1e-9 (error of the mean ≤ tolerance/(1-δ),
times the handful of steps between a mean and the quantity read)."""
CLOSE = 1e-9


def dense_of(query: QueryState) -> Dense:
    """From the facts alone: counts recomputed, edges and participants named, nothing read off the engine."""
    collection = query.collection
    latest: dict[str, tuple[int, str, Outcome]] = {}
    for v in query.verdicts.values():
        latest[v.item_id] = max(latest.get(v.item_id, (-1, "", v.outcome)), (v.decided_at, v.verdict_id, v.outcome))
    pairs = sorted(collection.graph.names(e) for e in range(collection.graph.edges))
    place = {pair: i for i, pair in enumerate(pairs)}
    n, y, left = np.zeros((3, len(pairs)))
    for number, item_id in enumerate(collection.item_ids):
        edges = [place[collection.graph.names(e)] for e in collection.sets.edges(collection.set_of(number))]
        outcome = latest.get(item_id, (0, "", Outcome.RETRACTED))[2]
        n[edges] += (outcome in (Outcome.RELEVANT, Outcome.IRRELEVANT)) / len(edges)
        y[edges] += (outcome == Outcome.RELEVANT) / len(edges)
        left[edges] += (outcome == Outcome.RETRACTED) / len(edges)
    return solve(query.settings, pairs, n, y, left)


def assert_agrees(query: QueryState, close: float = CLOSE) -> None:
    expected, got = dense_of(query), report(query)
    engine, graph = query.engine, query.collection.graph
    people = np.array([graph.participant(name) for name in expected.people], dtype=np.int32)
    edges = np.array([graph.edge_between(pair) for pair in expected.pairs], dtype=np.int32)

    def same(value: object, reference: object) -> None:
        np.testing.assert_allclose(np.asarray(value), np.asarray(reference), rtol=close, atol=close)

    assert list(got.participants) == expected.people
    same([p[0] for p in got.participants.values()], expected.mean)
    same([p[1] for p in got.participants.values()], np.diag(expected.covariance))
    same(engine.unconstrained(people)[0], expected.unconstrained_mean)
    same(engine.unconstrained(people)[1], expected.unconstrained_variance)
    same([e.mean for e in got.edges], expected.edge_mean)
    same([e.variance for e in got.edges], expected.edge_variance)
    same(got.discrepancy, expected.discrepancy)
    same(engine.remaining_variance(), expected.remaining_variance)
    for e, row in zip(edges.tolist(), expected.share_matrix, strict=True):
        shares = dict(engine.shares([e]))
        same([shares.get(f, 0.0) for f in edges.tolist()], row)
        same(sum(shares.values()), (expected.linear_mean - expected.prior_mean)[edges.tolist().index(e)])

    means = [p[0] for p in got.participants.values()] + [e.mean for e in got.edges]
    assert all(0 <= mean <= 1 for mean in means)
    assert all(p[1] >= -1e-15 for p in got.participants.values())
    assert all(e.variance >= 0 for e in got.edges)
    score = dict(zip(expected.pairs, expected.edge_mean, strict=True))
    for ranked in got.items:
        which = query.collection.set_of(query.collection.index(ranked.item_id) or 0)
        own = np.mean([score[graph.names(e)] for e in query.collection.sets.edges(which)])
        same(ranked.mean, own)
    same(got.expected_remaining.mean, sum(i.mean for i in got.items))
    assert [i.score for i in got.items] == sorted((i.score for i in got.items), reverse=True) or np.all(
        np.diff([i.score for i in got.items]) < 1e-8
    )


@given(histories())
def test_agrees_with_a_dense_solve_after_any_history(history: list[Event]) -> None:
    state = State(tolerance=TIGHT)
    for number, event in enumerate(history):
        state, _ = step(state, event)
        if number % 3 == 0:  # settled now and then, so that increments and growth both happen
            for query in state.queries.values():
                query.settle()
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


@pytest.mark.parametrize("conditional", ["default", "asymmetric"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_agrees_on_adversarial_graphs(graph: str, conditional: str) -> None:
    prior = Prior() if conditional == "default" else Prior(mean=0.3, correlation=0.7, conditional=ASYMMETRIC)
    state, _ = step(State(tolerance=TIGHT), Query("q", prior=prior))
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
        query.settle()
    assert_agrees(query)


def test_a_hub_that_joins_late() -> None:
    state, _ = step(State(tolerance=TIGHT), Query("q"))
    for each in line(40):
        step(state, each)
    step(state, verdict(0, "i7", Outcome.RELEVANT))
    state.queries["q"].settle()
    for k in range(41):
        step(state, item(f"late{k}", f"p{k:03d}", sender="hub"))
        step(state, verdict(k + 1, f"late{k}", Outcome.RELEVANT if k % 3 else Outcome.IRRELEVANT))
        if k % 5 == 0:
            state.queries["q"].settle()
    assert_agrees(state.queries["q"])


def test_means_stay_probabilities_when_everything_is_relevant() -> None:
    state, _ = step(State(tolerance=TIGHT), Query("q"))
    items = [item(f"i{k}", f"c{k % 5}", f"d{k % 4}") for k in range(200)]
    for number, each in enumerate(items):
        step(state, each)
        step(state, verdict(number, each.item_id, Outcome.RELEVANT))
    query = state.queries["q"]
    query.settle()
    people = np.arange(len(query.collection.graph), dtype=np.int32)
    assert query.engine.unconstrained(people)[0].max() > 1  # or this test shows nothing
    assert_agrees(query)


def test_the_default_tolerance_keeps_every_mean_within_1e_4() -> None:
    state, _ = step(State(), Query("q"))
    given_items = preferential(300)
    for each in given_items:
        step(state, each)
    query = state.queries["q"]
    query.settle()
    rng = np.random.default_rng(8)
    for number in range(300):
        chosen = given_items[rng.integers(len(given_items))].item_id
        step(state, verdict(number, chosen, Outcome.RELEVANT if rng.random() < 0.3 else Outcome.IRRELEVANT))
        query.settle()
    expected, got = dense_of(query), report(query)
    errors = [abs(p[0] - mean) for p, mean in zip(got.participants.values(), expected.mean, strict=True)]
    errors += [abs(e.mean - mean) for e, mean in zip(got.edges, expected.edge_mean, strict=True)]
    assert max(errors) < 1e-4
    assert max(errors) > 0  # it is an approximation; zero would mean that it was compared with itself


@pytest.mark.parametrize("policy", ["bayes-ucb", "thompson", "epsilon-greedy"])
def test_a_moving_policy_scores_as_if_from_scratch(policy: str) -> None:
    query = Query("q", policy=Policy(policy, seed=3))
    step_by_step, at_once = State(tolerance=TIGHT), State(tolerance=TIGHT)
    events = [query, *preferential(40)]
    events += [verdict(k, f"i{3 * k}", Outcome.RELEVANT if k % 2 else Outcome.IRRELEVANT) for k in range(20)]
    for event in events:
        step(step_by_step, event)
        step_by_step.queries["q"].settle()
        step(at_once, event)
    one, other = report(step_by_step.queries["q"]).items, report(at_once.queries["q"]).items
    assert [i.item_id for i in one] == [i.item_id for i in other]
    np.testing.assert_allclose([i.score for i in one], [i.score for i in other], atol=CLOSE)


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_every_item_may_bring_a_new_edge(correlation: float) -> None:
    """Settled after each, so that every edge comes in locally and nothing is solved afresh."""
    state, _ = step(State(tolerance=TIGHT), Query("q", prior=Prior(correlation=correlation)))
    for each in line(50):
        step(state, each)
    query = state.queries["q"]
    query.settle()
    rng = np.random.default_rng(5)
    for number in range(60):
        u, v = rng.choice(60, 2, replace=False)
        step(state, item(f"g{number}", f"p{u:03d}", f"p{v:03d}"))
        judged = query.collection.item_ids[rng.integers(len(query.collection))]
        step(state, verdict(number, judged, Outcome.RELEVANT if rng.random() < 0.5 else Outcome.IRRELEVANT))
        query.settle()
    assert query.collection.precisions[correlation, TIGHT].builds == 1
    assert_agrees(query)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_errors_do_not_add_up_over_a_long_history(seed: int) -> None:
    """Growth and verdicts mixed, each settled, at the default tolerance: the promise of 1e-4."""
    rng = np.random.default_rng(seed)
    state, _ = step(State(), Query("q"))
    query = state.queries["q"]
    for number in range(800):
        if number % 2 == 0:
            u, v = rng.choice(45, 2, replace=False)
            step(state, item(f"i{number // 2}", f"p{u}", f"p{v}"))
        judged = f"i{rng.integers(number // 2 + 1)}"
        outcome = (Outcome.RELEVANT, Outcome.IRRELEVANT, Outcome.RETRACTED)[rng.choice(3, p=[0.4, 0.5, 0.1])]
        step(state, verdict(number, judged, outcome))
        query.settle()
        while query.tend(8):
            pass
    assert query.collection.precisions[0.8, DEFAULT_TOLERANCE].builds == 1
    expected, got = dense_of(query), report(query)
    errors = [abs(p[0] - mean) for p, mean in zip(got.participants.values(), expected.mean, strict=True)]
    errors += [abs(e.mean - mean) for e, mean in zip(got.edges, expected.edge_mean, strict=True)]
    assert max(errors) < 1e-4
