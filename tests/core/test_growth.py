"""A query follows growth as closely as its own data ask for: near them at once, elsewhere when it counts."""

from contextlib import suppress
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from support.dense import dense_of
from support.histories import MODELS, item, verdict

from haystream.collection.collection import Collection
from haystream.engines.local import LocalEngine
from haystream.engines.local.inverse.precision import ONE_BY_ONE
from haystream.engines.local.inverse.prior_inverse import GraphPrecision
from haystream.engines.local.solves.budget import DEFAULT_TOLERANCE, FAR_FACTOR, MOVED_FAR, PROMISE
from haystream.engines.local.state.edge_priors import edge_prior
from haystream.events import Conditional, ModelName, Outcome, Query
from haystream.memory.arrays import Floats
from haystream.memory.overlay import count_lines, flat
from haystream.models import DEFAULT_PRIORS
from haystream.query import originals
from haystream.query.state import QueryState
from haystream.report import report

PEOPLE = 300


def collection_of(pairs: int, rng: np.random.Generator) -> Collection:
    collection = Collection("default")
    for _ in range(pairs):
        grow(collection, rng)
    return collection


def grow(collection: Collection, rng: np.random.Generator, people: int = PEOPLE) -> None:
    u, v = rng.choice(people, 2, replace=False)
    collection.add(item(f"i{len(collection)}", f"p{u}", f"p{v}"))


def settled(collection: Collection, model: ModelName, name: str = "q") -> QueryState:
    query = QueryState(Query(name, prior=DEFAULT_PRIORS[model]), collection)
    query.finish()
    return query


def local(query: QueryState) -> LocalEngine:
    assert isinstance(query.engine, LocalEngine)
    return query.engine


def lag(query: QueryState) -> Floats:
    """By how much D of each participant is from what it would be made of now, relative to that."""
    engine = local(query)
    people, now = engine._columns.state.people, engine._precision.inverse_diagonal
    D = engine._data.model.scale(people.prior_mean[: len(now)], now)
    return np.asarray(np.abs(flat(people.scale)[: len(now)] / D - 1.0))


def near_data(query: QueryState) -> Floats:
    """How far data have moved each participant's mean, or reach."""
    X, reach, _ = local(query).readings.given_common(np.arange(len(query.collection.graph), dtype=np.int32))
    return np.maximum(np.abs(X - query.settings.prior.mean), 1.0 - reach if reach.any() else 0.0)


@pytest.mark.parametrize("people", [12, 16])
def test_means_of_two_whose_contacts_all_meet_others_are_as_good_as_promised(people: int) -> None:
    """All know one another, and all but two meet somebody new, many at once, again and again: what these two have
    in common moves, and nothing else of theirs."""
    collection = Collection("default")
    for u in range(people):
        for v in range(u):
            collection.add(item(f"i{len(collection)}", f"p{u}", f"p{v}"))
    for n in range(120):  # so that what comes is not most of the graph
        collection.add(item(f"i{len(collection)}", f"x{n % 60}", f"x{(7 + 4 * (n // 60)) * n % 60 + 60}"))
    alike = Conditional(a=(1.0, 9.0, 9.0, 1.0), b=(9.0, 1.0, 1.0, 9.0))
    prior = replace(DEFAULT_PRIORS["relevance"], mean=0.5, correlation=0.2, conditional=alike)
    query = QueryState(Query("q", prior=prior), collection)
    query.finish()
    for _ in range(6):
        for u in range(2, people):
            collection.add(item(f"i{len(collection)}", f"p{u}", f"y{len(collection)}"))
        query.finish()
    got = np.array([edge.mean for edge in report(query).edges])
    np.testing.assert_allclose(got, dense_of(query).edge_mean, atol=PROMISE)


@pytest.mark.parametrize(("correlation", "grown", "seed"), [(0.05, 30, 2), (0.05, 15, 3), (0.1, 15, 1)])
def test_means_near_pairs_screened_often_are_as_good_as_promised(correlation: float, grown: int, seed: int) -> None:
    """Five pairs were screened often. Contacts of who is in one meet others, many at once, or meet who is in
    another: that moves what they have in common with the other in the pair, by data alone."""
    people, rng, collection = 60, np.random.default_rng(seed), Collection("default")
    for _ in range(4 * people):
        grow(collection, rng, people)
    prior = replace(DEFAULT_PRIORS["relevance"], mean=0.5, correlation=correlation)
    query = QueryState(Query("q", prior=prior), collection)
    query.finish()
    for n in range(150):
        if n % 30 == 0:
            u, v = rng.choice(people, 2, replace=False)
        collection.add(item(f"s{n}", f"p{u}", f"p{v}"))
        query.apply_verdict(verdict(n, f"s{n}", Outcome.RELEVANT if n % 3 else Outcome.IRRELEVANT))
    query.finish()
    for _ in range(grown):
        grow(collection, rng, people)
    query.finish()
    got = np.array([edge.mean for edge in report(query).edges])
    np.testing.assert_allclose(got, dense_of(query).edge_mean, atol=PROMISE)


@pytest.mark.parametrize("new", [1, 20, 200])
@pytest.mark.parametrize("at", ["union", "effective_degree", "take_all"])
def test_growth_that_was_broken_off_is_taken_in_by_whoever_comes_next(new: int, at: str) -> None:
    """A query that got no memory is made anew, and what it shares with others it leaves half done."""
    rng = np.random.default_rng(new)
    collection = collection_of(400, rng)
    one, other = (settled(collection, "relevance", name) for name in ("one", "other"))
    for _ in range(new):
        grow(collection, rng)
    with (
        mock.patch(f"haystream.engines.local.inverse.prior_inverse.{at}", side_effect=MemoryError) as wanted,
        suppress(MemoryError),
    ):
        one.finish()
    precision = local(other)._precision
    assert isinstance(precision, GraphPrecision)
    assert precision.amiss == wanted.called == ((new, at) != (1, "union"))  # which one pair does without
    other.finish()
    for query in (other, settled(collection, "relevance", "one")):
        got = np.array([edge.mean for edge in report(query).edges])
        np.testing.assert_allclose(got, dense_of(query).edge_mean, atol=PROMISE)
    assert not precision.amiss


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("at_once", [1, 7])
def test_after_much_growth_means_are_as_good_as_promised(model: ModelName, at_once: int) -> None:
    """Of a query that has seen more and more data, far from some of which the graph had grown before."""
    rng = np.random.default_rng(at_once)
    collection = collection_of(600, rng)
    query, lagged = settled(collection, model), False
    for number in range(60):
        for _ in range(at_once):
            grow(collection, rng)
        query.finish()
        lagged |= bool(lag(query).max() > 1.5 * DEFAULT_TOLERANCE)
        if number % 3 == 0:
            outcome = Outcome.RELEVANT if rng.random() < 0.4 else Outcome.IRRELEVANT
            query.apply_verdict(verdict(number, f"i{rng.integers(len(collection))}", outcome))
            query.finish()
        assert lag(query).max() <= 1.01 * FAR_FACTOR * DEFAULT_TOLERANCE
        assert (lag(query) * np.maximum(near_data(query), MOVED_FAR)).max() <= 1.5 * DEFAULT_TOLERANCE
    assert lagged
    got, expected = report(query), dense_of(query)
    means = np.array([mean for mean, _ in got.participants.values()])
    assert np.abs(means - expected.mean).max() <= PROMISE
    assert np.abs(np.array([edge.mean for edge in got.edges]) - expected.edge_mean).max() <= PROMISE


@pytest.mark.parametrize("model", MODELS)
def test_what_new_edges_at_a_hub_owe_is_bounded_and_solved_when_there_is_time(model: ModelName) -> None:
    collection = Collection("default")
    for number in range(200):
        collection.add(item(f"i{number}", "hub", f"p{number}"))
    query, owes, numbers = settled(collection, model), False, iter(range(200, 400))
    query.apply_verdict(verdict(0, "i0", Outcome.RELEVANT))
    query.finish()
    for number in numbers:
        collection.add(item(f"i{number}", "hub", f"p{number}"))
        query.settle()
        owed = local(query)._columns.state.tolerances.owed
        assert (unsolved(query) <= owed * (1.0 + 1e-9)).all()
        owes |= (unsolved(query) > local(query)._columns.state.tolerances.sides * (1.0 + 1e-9)).any()
    assert owes
    query.finish()
    assert (unsolved(query) <= local(query)._columns.state.tolerances.sides * (1.0 + 1e-9)).all()


def unsolved(query: QueryState) -> Floats:
    """The largest residual of each side, over the diagonal, shape (sides,)."""
    state, people = local(query)._columns.state, len(query.collection.graph)
    residual, diagonal = state.people.residual[:people], flat(state.system.diagonal)[:people]
    return np.asarray(np.abs(residual / diagonal[:, None]).max(axis=0))


@pytest.mark.parametrize("model", MODELS)
def test_a_query_without_data_takes_what_another_has_solved(model: ModelName) -> None:
    rng = np.random.default_rng(2)
    collection = collection_of(900, rng)
    first, second = settled(collection, model, "a"), settled(collection, model, "b")
    late = settled(collection, model, "c")
    for _ in range(ONE_BY_ONE + 1):  # so that it is estimated
        grow(collection, rng)
    second.settle()
    assert second.engine.waiting
    first.finish()
    for query in (second, late):
        query.settle()
        assert not query.engine.waiting
        inverse, precision = local(query)._columns.state.inverse, local(query)._precision
        people = len(collection.graph)
        np.testing.assert_array_equal(flat(inverse.on_participant)[:people], precision.inverse_diagonal)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("at_once", [1, 2 * ONE_BY_ONE])
def test_without_data_the_inverse_is_the_priors_and_little_of_it_a_querys_own(
    model: ModelName, at_once: int
) -> None:
    rng, many = np.random.default_rng(5), 10 * PEOPLE
    collection = Collection("default")
    for _ in range(2 * many):
        grow(collection, rng, many)
    settled(collection, model)
    query = settled(collection, model, "another")
    engine = local(query)
    before = engine._precision.inverse_edge.copy()
    for _ in range(4):
        for _ in range(at_once):
            grow(collection, rng, many)
        query.finish()
    inverse, precision = engine._columns.state.inverse, engine._precision
    of_people, of_edges = flat(inverse.on_participant), flat(inverse.on_edge)
    assert np.abs(of_people[: len(collection.graph)] - precision.inverse_diagonal).max() <= DEFAULT_TOLERANCE / 100
    assert np.abs(of_edges[: collection.graph.edges] - precision.inverse_edge).max() <= inverse.tolerances.taken
    assert not inverse.healing.state[1]
    moved = np.abs(precision.inverse_edge[: len(before)] - before)
    new = 4 * at_once
    assert count_lines(inverse.on_edge) <= 1.1 * np.count_nonzero(moved > inverse.tolerances.taken) + new


def test_who_is_far_from_data_is_followed_when_data_come_near() -> None:
    """What lagged there is as close then as anywhere near data, on every edge of theirs."""
    rng = np.random.default_rng(3)
    collection = collection_of(900, rng)
    query = settled(collection, "rates")
    for _ in range(40):
        grow(collection, rng)
        query.finish()
    before = lag(query)
    who = int(before.argmax())
    assert before[who] > 2.0 * DEFAULT_TOLERANCE
    name, graph = collection.graph.participants[who], collection.graph
    mine = [i for i in range(len(collection)) if who in graph.ends(collection.sets.edges(collection.set_of(i))[0])]
    for number, index in enumerate(mine[:3]):
        query.apply_verdict(verdict(number, collection.item_ids[index], Outcome.RELEVANT))
    query.settle()
    assert near_data(query)[who] > MOVED_FAR, name
    assert lag(query)[who] <= DEFAULT_TOLERANCE
    edges, people = local(query)._columns.state.edges, local(query)._columns.state.people
    for edge in graph.edges_of(who).tolist():
        prior = edge_prior(edges.prior, edge)
        beta = prior.on_tail if edges.tail[edge] == who else prior.on_head
        assert beta == pytest.approx(0.5 * flat(people.scale)[who], rel=1e-12)


def test_a_wide_prior_is_followed_more_closely() -> None:
    """Where variances are large, D enters them by more."""
    rng = np.random.default_rng(4)
    collection = collection_of(600, rng)
    prior = replace(DEFAULT_PRIORS["rates"], participant=0.5, mean=0.5)
    query = QueryState(Query("q", prior=prior), collection)
    query.finish()
    for _ in range(40):
        grow(collection, rng)
        query.finish()
    precision, people = local(query)._precision, local(query)._columns.state.people
    count = len(precision.inverse_diagonal)
    variance = 0.25 * flat(people.scale)[:count] ** 2 * precision.inverse_diagonal
    assert np.abs(variance - 0.25 / 0.5).max() <= 2.0 * DEFAULT_TOLERANCE


def test_what_lags_in_an_original_is_made_exact_once_and_is_no_copys_own() -> None:
    rng = np.random.default_rng(3)
    collection = collection_of(600, rng)
    with mock.patch.multiple(originals, MOST_MOVED=0.0, MOST_ITEMS=0, EDGES_PER_ITEM=10**9):
        first = settled(collection, "rates")
        for _ in range(10):
            grow(collection, rng)
            first.finish()
        assert lag(first).max() > 2 * DEFAULT_TOLERANCE
        query = QueryState(Query("another", prior=DEFAULT_PRIORS["rates"]), collection)
        query.settle()
    assert lag(query).max() <= DEFAULT_TOLERANCE
    assert not query.queue.owned


def test_an_edge_to_somebody_whom_data_reach_follows_though_only_the_other_end_was_solved() -> None:
    """New edges join two of its contacts, or one to another's: the estimate of what that does is of themselves."""
    rng, collection = np.random.default_rng(1), Collection("default")
    pairs = [(u, v) for u in range(60) for v in range(u)]
    rng.shuffle(pairs)
    for u, v in pairs[:170] + 60 * pairs[:1]:
        collection.add(item(f"i{len(collection)}", f"p{u}", f"p{v}"))
    prior = replace(DEFAULT_PRIORS["relevance"], mean=0.5, correlation=0.2)
    query = QueryState(Query("q", prior=prior), collection)
    query.finish()
    for number in range(50):  # on one pair
        outcome = Outcome.IRRELEVANT if number % 3 else Outcome.RELEVANT
        query.apply_verdict(verdict(number, f"i{170 + number}", outcome))
    query.finish()
    for first in range(170, 242, 12):
        for u, v in pairs[first : first + 12]:
            collection.add(item(f"i{len(collection)}", f"p{u}", f"p{v}"))
        query.finish()
    got = np.array([edge.mean for edge in report(query).edges])
    assert np.abs(got - dense_of(query).edge_mean).max() <= PROMISE
