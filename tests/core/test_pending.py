"""Items that an analyst has been handed: screened for variances, and for nothing else."""

from dataclasses import replace
from itertools import combinations
from typing import Literal
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dense import CLOSE, TIGHT, Floats, assert_agrees, dense_of
from support.histories import (
    MODELS,
    Handed,
    facts,
    fold,
    histories_with_pending,
    item,
    line,
    play,
    queries,
    verdict,
)
from support.told import Stored

from haystream.engines.local.pending import seen
from haystream.engines.local.pending.inverse import inverse_of
from haystream.engines.local.solves.budget import DEFAULT_TOLERANCE
from haystream.events import Event, Item, ModelName, Outcome, Policy, Prior, Query
from haystream.fold import State, step
from haystream.models import DEFAULT_PRIORS
from haystream.query.state import QueryState
from haystream.report import Report, report

EngineName = Literal["local", "reference"]
ENGINES: tuple[EngineName, ...] = ("local", "reference")
both_engines = pytest.mark.parametrize("engine", ENGINES)
NOT_TOLD = 1e-10
"""What totals may differ by: of sets that are not a query's own they take what the prior says, as long as that is
nearer than what readers are told of (twice TIGHT, of each)."""
both_models = pytest.mark.parametrize("model", MODELS)


def played(history: list[Event | Handed], engine: EngineName = "local") -> QueryState:
    state = State(tolerance=TIGHT)
    for number, happening in enumerate(history):
        play(state, replace(happening, engine=engine) if isinstance(happening, Query) else happening)
        if number % 3 == 0 and "q" in state.queries:
            state.queries["q"].finish()
    return state.queries["q"]


@given(histories_with_pending())
def test_local_agrees_with_a_dense_solve_of_the_definition(history: list[Event | Handed]) -> None:
    assert_agrees(played(history))


@given(histories_with_pending(models=("rates",)))
def test_reference_agrees_with_a_dense_solve_of_the_definition(history: list[Event | Handed]) -> None:
    assert_agrees(played(history, "reference"), 1e-8)


def everything(query: QueryState) -> dict[str, Floats]:
    """All that is read off an engine, by the ids."""
    query.finish()
    engine, graph = query.engine, query.collection.graph
    people = np.array(sorted(range(len(graph)), key=graph.participants.__getitem__), dtype=np.int32)
    edges = np.array(sorted(range(graph.edges), key=graph.names), dtype=np.int32)
    mean, variance = engine.readings.unconstrained(people)
    constrained, covariance = engine.readings.participants(people)
    p_mean, p_variance = engine.readings.edges(edges)
    score_mean, score_variance, slope = engine.readings.scoring(edges)
    common, known = engine.readings.common(), engine.readings.known_common()
    by_edge = [dict(engine.readings.shares([e])) for e in edges.tolist()]
    shares = [shares.get(e, 0.0) for shares in by_edge for e in edges.tolist()]
    remaining = query.queue.remaining(engine)
    return {
        "means": np.concatenate([mean, constrained, p_mean, score_mean, slope, shares]),
        "learnt": np.array([common.base_rate, common.mean_shift, common.scale, engine.readings.discrepancy()]),
        "concentrations": np.array([*engine.readings.concentration(), engine.readings.concentration_slope()]),
        "remaining": np.array([remaining.mean]),
        "tables": np.concatenate(
            [*engine.readings.given_common(people), engine.readings.covariances(edges), [known.variance]]
        ),
        "variances": np.concatenate([variance, covariance, p_variance, score_variance, [common.variance]]),
        "remaining variance": np.array([engine.readings.remaining_variance()]),
    }


MOVED = {"variances", "remaining variance"}


def settings(model: ModelName, engine: EngineName, policy: str = "greedy") -> Query:
    return Query("q", prior=DEFAULT_PRIORS[model], engine=engine, policy=Policy(policy))


PEOPLE = [item("b", "p002", "p004", "p006"), item("c", "p003", "p004", sender="p001"), item("d", "x", "y")]
SAID: list[Event] = [*line(9), *PEOPLE, *(verdict(k, f"i{k}", Outcome.RELEVANT) for k in (0, 3, 4))]
SAID += [verdict(8, "i8", Outcome.IRRELEVANT), verdict(9, "c", Outcome.IRRELEVANT)]


@both_models
def test_totals_are_right_to_second_order_in_what_their_solves_leave(model: ModelName) -> None:
    def totals(tolerance: float) -> Floats:
        """v_M and the variance of what remains."""
        with mock.patch.object(seen, "seen_tolerances", return_value=tolerance * np.array([1.0, 10.0])):
            query = fold([settings(model, "local"), *SAID]).queries["q"]
            for item_id in ("i5", "b", "i1", "i2", "d"):
                query.hold(item_id)
            query.settle()
            readings = query.engine.readings
            return np.array([readings.common().variance, readings.remaining_variance()])

    exact = totals(1e-9)
    near, far = abs(totals(1e-4) - exact), abs(totals(1e-3) - exact)
    assert near[1] > 0.0
    assert np.all(near <= far / 50)  # to first order it would be a tenth


def test_what_was_pending_before_is_no_worse_a_beginning_than_nothing() -> None:
    """An item among people of whom next to nothing is to be learned follows items among others."""
    items = [item(f"i{k}-{step}", f"p{k:02d}", f"p{(k + step) % 20:02d}") for k in range(20) for step in (1, 2)]
    listed = {f"p{number:02d}": 0.5 for number in range(10)}
    prior = replace(DEFAULT_PRIORS["relevance"], mean=1e-4, participants=listed)
    query = fold([*items, Query("q", prior=prior)], tolerance=DEFAULT_TOLERANCE).queries["q"]
    for each in items[:3]:
        query.hold(each.item_id)
    query.finish()
    for each in items[:3]:
        query.release(each.item_id)
    query.hold("i14-2")
    query.finish()
    assert query.engine.readings.remaining_variance() == pytest.approx(dense_of(query).remaining_variance, rel=5e-4)


@both_models
def test_what_many_pending_screenings_leave_open_is_as_exact_as_the_whole(model: ModelName) -> None:
    """It is a small part of what there is without them."""
    rng, pairs = np.random.default_rng(0), list(combinations(range(6), 2))
    items = [item(f"i{k}", *(f"p{u}" for u in pairs[rng.integers(len(pairs))])) for k in range(900)]
    query = fold([*items, Query("q", prior=DEFAULT_PRIORS[model])], tolerance=DEFAULT_TOLERANCE).queries["q"]
    query.finish()
    without = query.engine.readings.remaining_variance()
    for number in rng.choice(len(items), 300, replace=False).tolist():
        query.hold(f"i{number}")
    query.finish()
    got, exact = query.engine.readings.remaining_variance(), dense_of(query).remaining_variance
    assert exact < 0.05 * without
    assert got == pytest.approx(exact, abs=2.0 * DEFAULT_TOLERANCE * without)


@both_engines
@both_models
def test_only_variances_move_and_they_shrink(model: ModelName, engine: EngineName) -> None:
    query = fold([settings(model, engine), *SAID]).queries["q"]
    before = everything(query)
    for item_id in ("i5", "b", "i1"):
        query.hold(item_id)
    after = everything(query)
    for name in before.keys() - MOVED:
        np.testing.assert_allclose(after[name], before[name], atol=1e-12, err_msg=name)
    people = len(query.collection.graph)
    assert np.all(after["variances"][:people] < before["variances"][:people] + 1e-12)  # unconstrained
    assert (after["variances"][:people] < 0.99 * before["variances"][:people]).sum() > 5
    assert after["remaining variance"][0] < 0.9 * before["remaining variance"][0]


@both_engines
@both_models
@pytest.mark.parametrize("outcome", [Outcome.RELEVANT, Outcome.IRRELEVANT])
def test_variances_are_those_that_a_verdict_leaves_whatever_it_says(
    model: ModelName, engine: EngineName, outcome: Outcome
) -> None:
    """In units of σ², which the verdict moves, and before the constraint."""
    held, told = (fold([settings(model, engine), *SAID]).queries["q"] for _ in range(2))
    for number, item_id in enumerate(("i5", "b", "i1", "d")):
        held.hold(item_id)
        told.apply_verdict(verdict(100 + number, item_id, outcome))
    variances = []
    for query in (held, told):
        query.finish()
        people = np.arange(len(query.collection.graph), dtype=np.int32)
        common = query.engine.readings.common()
        variances.append([*query.engine.readings.unconstrained(people)[1] / common.scale, common.variance])
    np.testing.assert_allclose(*variances, atol=1e-10)


@both_engines
@pytest.mark.parametrize("happens", ["released", "judged", "skipped"])
@both_models
def test_what_is_over_leaves_no_trace(model: ModelName, engine: EngineName, happens: str) -> None:
    last = {"judged": [verdict(50, "i5", Outcome.RELEVANT)], "skipped": [verdict(50, "i5", Outcome.SKIPPED)]}
    events: list[Event] = [settings(model, engine), *SAID]
    never, query = (fold(events).queries["q"] for _ in range(2))
    query.hold("i5")
    for settled in (query, never):
        settled.finish()
    if happens == "released":
        query.release("i5")
    for told in (query, never):
        for each in last.get(happens, []):
            told.apply_verdict(each)
    one, other = everything(query), everything(never)
    remaining = np.array([one.pop("remaining"), other.pop("remaining")])
    np.testing.assert_allclose(remaining[0], remaining[1], atol=NOT_TOLD)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])
    assert [item for item, _, _ in query.queue.items()] == [item for item, _, _ in never.queue.items()]


@both_engines
def test_one_edge_by_hand(engine: EngineName) -> None:
    """κₐ = 2, κ = k = 4, δ = 0, in units of σ² = 0.1·0.9, one pending screening of P = M + (x_u + x_v)/2 + η.

    Var(P) = ¼ + (½ + ½)/4 + ¼ = ¾, so Var(Y) = 1.75. Cov(R_u, P) = ¼ + ½/2 = ½: Var(R_u) = ¾ − ¼/1.75 = 17/28.
    Cov(M, P) = ¼: v_M = ¼ − 0.0625/1.75 = 3/14. Var(P | Y) = ¾ − 0.5625/1.75 = 3/7. m_e = (R_u + R_v)/2:
    ½ − ¼/1.75 = 5/14, so 1/K = 1/5 + (4/5)²·5/14 = 3/7 too, and the beta's variance is σ² (3/7)/(10/7) = 0.3 σ².
    """
    prior = Prior(mean=0.1, correlation=0.0, weight=4.0, participant=2.0, edge=4.0)
    query = fold([Query("q", prior=prior, engine=engine), item("i", "u", "v")]).queries["q"]
    query.hold("i")
    query.finish()
    of, both, one = query.engine.readings, np.arange(2, dtype=np.int32), np.arange(1, dtype=np.int32)
    np.testing.assert_allclose(of.participants(both), [[0.1, 0.1], [0.09 * 17 / 28] * 2], atol=1e-12)
    np.testing.assert_allclose(np.ravel(of.edges(one)), [0.1, 0.3 * 0.09], atol=1e-12)
    assert of.common().variance == pytest.approx(3 / 14, abs=1e-12)
    assert of.known_common().variance == 1 / 4
    assert of.remaining_variance() == pytest.approx(0.09 * 3 / 7, abs=1e-12)
    assert query.queue.remaining(query.engine).mean == pytest.approx(0.1, abs=1e-12)


@given(st.data())
def test_any_order_gives_the_same_state(data: st.DataObject) -> None:
    handed = [Handed(f"i{k}") for k in data.draw(st.sets(st.integers(0, 13), min_size=1))]
    happenings: list[Event | Handed] = [*data.draw(facts()), *handed]
    query = data.draw(queries(policies=("look-ahead", "bayes-ucb")))
    one = played([query, *happenings])
    other = played([query, *data.draw(st.permutations([*happenings, *handed]))])
    assert one.pending == other.pending
    for name, values in everything(one).items():
        np.testing.assert_allclose(values, everything(other)[name], atol=CLOSE, rtol=1e-7, err_msg=name)
    items, others = report(one).items, report(other).items
    assert [i.item_id for i in items] == [i.item_id for i in others]
    np.testing.assert_allclose([i.score for i in items], [i.score for i in others], atol=CLOSE)


def ids(got: Report) -> set[str]:
    return {each.item_id for each in got.items}


@both_engines
@both_models
def test_a_held_item_is_not_offered_and_is_still_among_what_remains(model: ModelName, engine: EngineName) -> None:
    query = fold([settings(model, engine, "look-ahead"), *SAID]).queries["q"]
    before = report(query)
    assert query.hold("i5")
    assert not query.hold("i5")
    held = report(query)
    assert ids(before) - ids(held) == {"i5"}
    assert (held.screened, held.found) == (before.screened, before.found)
    assert held.expected_remaining.mean == pytest.approx(before.expected_remaining.mean, abs=NOT_TOLD)
    assert held.expected_remaining.sd < before.expected_remaining.sd
    query.apply_verdict(verdict(60, "i5", Outcome.RELEVANT))
    assert query.screened == before.screened + 1
    query.apply_verdict(verdict(61, "i5", Outcome.RETRACTED, at=99))  # as if it had not been said: still held
    assert ids(report(query)) == ids(held)
    assert query.release("i5")
    assert not query.release("i5")
    assert [i.item_id for i in report(query).items] == [i.item_id for i in before.items]


@both_models
def test_held_items_stay_held_when_a_query_starts_anew(model: ModelName) -> None:
    state = fold([settings(model, "local"), *SAID])
    query = state.queries["q"]
    query.hold("i5")
    query.hold("not yet")
    other = DEFAULT_PRIORS["rates" if model == "relevance" else "relevance"]
    step(state, Query("q", prior=other))
    step(state, item("not yet", "p001", "p005"))
    assert ids(report(query)).isdisjoint({"i5", "not yet"})
    assert_agrees(query)


def test_the_next_analyst_is_sent_elsewhere() -> None:
    """Two pairs of strangers, alike: what one may turn out to be is being found out by somebody already."""
    events: list[Event] = [Query("q"), *(item(f"{u}{k}", u, u + u) for u in "ab" for k in range(9))]
    query = fold(events).queries["q"]
    first = query.ranking().items[0]
    query.hold(first.item_id)
    second = query.ranking().items[0]
    assert first.item_id[0] != second.item_id[0]
    assert first.mean == second.mean


@both_models
def test_tables_do_not_know_of_it(model: ModelName) -> None:
    query = fold([settings(model, "local"), *SAID]).queries["q"]
    query.finish()
    graph = query.collection.graph
    stored = Stored(query, tolerance=TIGHT)
    stored.save()
    people, edges = np.arange(len(graph), dtype=np.int32), np.arange(graph.edges, dtype=np.int32)
    wanted = *query.engine.readings.participants(people), *query.engine.readings.edges(edges)
    for item_id in ("i5", "b"):
        query.hold(item_id)
    query.finish()
    changes = stored.save()
    assert not len(changes.participants.index)
    assert not len(changes.edges.index)
    got = stored.read()
    for column, values in zip(
        (got.participant_mean, got.participant_variance, got.edge_mean, got.edge_variance), wanted, strict=True
    ):
        np.testing.assert_allclose(column, values, atol=1e-9)


@both_models
def test_no_variance_is_negative_while_a_graph_grows_and_nobody_tends(model: ModelName) -> None:
    """Dense groups at the default tolerance, entries of the inverse only estimated, dozens of items handed out."""
    rng = np.random.default_rng(2)
    pairs = [(12 * c + i, 12 * c + j) for c in range(12) for j in range(12) for i in range(j)]
    rng.shuffle(pairs)
    state = State()
    step(state, Query("q", prior=DEFAULT_PRIORS[model]))
    query = state.queries["q"]
    for number, (u, v) in enumerate(pairs):
        step(state, item(f"i{number}", f"p{u}", f"p{v}"))
        if number < len(pairs) // 3:
            continue
        query.hold(f"i{rng.integers(number)}")
        if len(query.pending) > 40:
            query.release(sorted(query.pending)[rng.integers(40)])
        if number % 7:
            continue
        step(state, verdict(number, f"i{rng.integers(number)}", Outcome.RELEVANT))
        query.settle()
        everyone, everywhere = (
            np.arange(k, dtype=np.int32) for k in (len(query.collection.graph), query.collection.graph.edges)
        )
        engine = query.engine
        for variance in (
            engine.readings.unconstrained(everyone)[1],
            engine.readings.participants(everyone)[1],
            engine.readings.edges(everywhere)[1],
            engine.readings.scoring(everywhere)[1],
        ):
            assert np.isfinite(variance).all()
            assert variance.min() >= 0.0
        assert engine.readings.remaining_variance() >= 0.0


@both_models
def test_the_default_tolerance_keeps_variances_near_those_of_a_dense_solve(model: ModelName) -> None:
    rng = np.random.default_rng(6)
    state = State()
    step(state, Query("q", prior=DEFAULT_PRIORS[model]))
    query = state.queries["q"]
    for number in range(300):
        u, v = rng.choice(90, 2, replace=False)
        step(state, item(f"i{number}", f"p{u}", f"p{v}"))
    for number in range(150):
        step(
            state, verdict(number, f"i{rng.integers(200)}", Outcome.RELEVANT if number % 3 else Outcome.IRRELEVANT)
        )
        query.hold(f"i{rng.integers(300)}")
        if number % 5:
            query.release(sorted(query.pending)[0])
        query.settle()
    expected, got = dense_of(query), report(query)
    assert len(query.pending) > 20
    errors = [abs(p[1] - v) for p, v in zip(got.participants.values(), np.diag(expected.covariance), strict=True)]
    errors += [abs(e.variance - v) for e, v in zip(got.edges, expected.edge_variance, strict=True)]
    assert max(errors) < 1e-4
    assert query.engine.readings.remaining_variance() == pytest.approx(expected.remaining_variance, rel=0.02)


def test_the_inverse_of_a_matrix_of_nothing_is_one(capfd: pytest.CaptureFixture[str]) -> None:
    assert inverse_of(np.zeros((0, 0))).shape == (0, 0)
    assert capfd.readouterr() == ("", "")  # as LAPACK would write there


@pytest.mark.parametrize("least", [1.0, 1e-9, -1e-3])
def test_an_inverse_is_one_also_where_solves_left_too_much(least: float) -> None:
    Q, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))
    got = inverse_of(Q @ np.diag([least, 1.0, 2.0, 3.0, 1e4]) @ Q.T)
    inverse = Q @ np.diag([1.0, 1.0, 0.5, 1.0 / 3.0, 1e-4]) @ Q.T  # none is taken for less than it can be
    np.testing.assert_allclose(got, inverse, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("participant", [3.0, 100.0, 1e4])
@pytest.mark.parametrize("people", [4, 8, 64])
def test_one_of_two_is_given_back_also_where_the_other_is_in_no_column(participant: float, people: int) -> None:
    prior = replace(DEFAULT_PRIORS["rates"], participant=participant)
    among = Item("many", "default", None, tuple(f"p{k:03d}" for k in range(people)))
    others = [item(f"x{k}", f"p{k % people:03d}", f"z{k}") for k in range(50)]
    events = [Query("q", prior=prior), item("pair", "a", "b"), among, *others]
    query, alone = (fold(events, tolerance=DEFAULT_TOLERANCE).queries["q"] for _ in range(2))
    query.finish()
    for hold in ("pair", "many"):
        query.hold(hold)
        query.ranking()
    query.release("pair")
    query.finish()
    alone.hold("many")
    alone.finish()
    ours, theirs = (each.ranking().expected_remaining for each in (query, alone))
    assert (ours.mean, ours.sd) == pytest.approx((theirs.mean, theirs.sd), rel=1e-4)
