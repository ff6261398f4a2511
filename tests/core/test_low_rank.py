"""A verdict on an item of many edges: solved in as few columns as it has edges, or people, and exact."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dense import TIGHT, assert_agrees
from support.histories import MODELS, fold, item, line, verdict
from support.solves import Solves

from haystream.engines.local.changes import update_item
from haystream.engines.local.inverse.low_rank import LowRank, at_people, low_rank
from haystream.engines.local.pending import columns as pending_columns
from haystream.engines.local.pending.light import screenings
from haystream.engines.local.pending.parts import Parts, parts_of
from haystream.engines.local.solves.budget import DEFAULT_TOLERANCE, PROMISE
from haystream.engines.local.solves.solve import ALLOWED
from haystream.engines.local.state.state import Edges
from haystream.errors import QueryFailed
from haystream.events import Event, Item, ModelName, Outcome, Query
from haystream.memory.arrays import Floats
from haystream.models import DEFAULT_PRIORS
from haystream.query.state import QueryState

both_models = pytest.mark.parametrize("model", MODELS)

ALL_OF = [f"a{i:02d}" for i in range(16)]
MANY = [f"m{i:03d}" for i in range(update_item.MOST_COLUMNS + 6)]
ITEMS: list[Event] = [
    *line(8),
    item("among", *ALL_OF),
    item("again", *ALL_OF[:9], "p001", "p003"),
    item("to many", *MANY, sender="p002"),
    item("to some", *MANY[:5], sender="a01"),
    *(item(f"pair {i}", MANY[i], sender=MANY[i + 1]) for i in range(0, 40, 3)),
]


def said(model: ModelName) -> QueryState:
    verdicts = [
        verdict(1, "among", Outcome.RELEVANT),
        verdict(2, "i3", Outcome.IRRELEVANT),
        verdict(3, "to many", Outcome.RELEVANT),
        verdict(4, "again", Outcome.IRRELEVANT),
        verdict(5, "to some", Outcome.RELEVANT),
        verdict(6, "among", Outcome.IRRELEVANT),
        verdict(7, "to many", Outcome.RETRACTED),
        verdict(8, "to many", Outcome.IRRELEVANT),
    ]
    state = fold([Query("q", prior=DEFAULT_PRIORS[model]), *ITEMS])
    query = state.queries["q"]
    query.finish()
    for each in verdicts:
        query.apply_verdict(each)
        query.settle()
    return query


@both_models
def test_verdicts_on_items_of_many_people_agree_with_a_dense_solve(model: ModelName) -> None:
    query = said(model)
    query.finish()
    assert_agrees(query)


PEOPLE_OR_EDGES = {"among": 16, "to some": 5, "to many": 70}


@both_models
@pytest.mark.parametrize(("item_id", "columns"), PEOPLE_OR_EDGES.items())
def test_a_verdict_solves_no_more_columns_than_an_item_has_people_or_edges(
    model: ModelName, item_id: str, columns: int
) -> None:
    query = fold([Query("q", prior=DEFAULT_PRIORS[model]), *ITEMS]).queries["q"]
    query.finish()
    solves = Solves(update_item)
    with solves.patched:
        query.apply_verdict(verdict(1, item_id, Outcome.RELEVANT))
        query.settle()
        assert sum(solves.counts) == columns
        query.apply_verdict(verdict(2, item_id, Outcome.IRRELEVANT))
        query.settle()
        assert sum(solves.counts) == columns  # weights do not depend on what is said


@both_models
def test_a_claim_solves_no_more_either_and_only_once(model: ModelName) -> None:
    query = fold([Query("q", prior=DEFAULT_PRIORS[model]), *ITEMS]).queries["q"]
    query.finish()
    solves = Solves(pending_columns)
    with solves.patched:
        query.hold("among")
        query.settle()
        query.hold("pair 0")
        query.settle()
    assert solves.counts == [16, 1]
    assert_agrees(query)


def with_a_mail_out(tolerance: float) -> tuple[Floats, Floats]:
    """Variances after a mail to a thousand people was handed out, and before."""
    people = [f"x{i:03d}" for i in range(1000)]
    mail: list[Item] = [item("mail", *people, sender="p001")]
    query = fold([Query("q"), *line(8), *mail], tolerance=tolerance).queries["q"]
    query.apply_verdict(verdict(1, "i3", Outcome.RELEVANT))
    query.finish()
    everyone = np.arange(len(query.collection.graph), dtype=np.int32)
    before = query.engine.readings.unconstrained(everyone)[1]
    query.hold("mail")
    query.finish()
    remaining = query.engine.readings.remaining_variance(), query.engine.readings.common().variance
    return np.append(query.engine.readings.unconstrained(everyone)[1], remaining), before


def test_a_mail_to_a_thousand_takes_one_column_that_is_as_good_as_all() -> None:
    solves = Solves(pending_columns)
    with solves.patched:
        after, before = with_a_mail_out(DEFAULT_TOLERANCE)
    assert solves.counts == [1]
    exact, _ = with_a_mail_out(TIGHT)
    np.testing.assert_allclose(after, exact, atol=PROMISE, rtol=PROMISE)
    assert np.abs(after[: len(before)] - before).max() > 10 * PROMISE


@st.composite
def some_edges(draw: st.DrawFn) -> tuple[Edges, Floats]:
    """Edges between few people, each with a prior and a weight of its own."""
    pairs = st.tuples(st.integers(0, 8), st.integers(0, 8)).filter(lambda pair: pair[0] < pair[1])
    ends = np.array(draw(st.lists(pairs, min_size=1, max_size=20, unique=True)), dtype=np.int32).T
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    query = fold([Query("q"), *(item(f"i{k}", f"p{u}", f"p{v}") for k, (u, v) in enumerate(ends.T))]).queries["q"]
    query.finish()
    edges: Edges = query.engine._columns.state.edges  # type: ignore[attr-defined]
    return edges, rng.uniform(0.01, 1.0, ends.shape[1])


def dense(change: LowRank) -> Floats:
    return change.U @ change.M @ change.U.T


@given(some_edges())
def test_a_low_rank_is_the_sum_over_its_edges_with_few_columns(drawn: tuple[Edges, Floats]) -> None:
    edges, weights = drawn
    which = np.arange(len(weights), dtype=np.int32)
    change = low_rank(edges, which, weights)
    people, B = at_people(edges, which)
    np.testing.assert_array_equal(change.people, people)
    np.testing.assert_allclose(dense(change), (B * weights) @ B.T, atol=1e-14)
    assert len(change.M) == min(len(which), len(people))


def as_matrix(parts: Parts, people: int) -> Floats:
    U = np.zeros((people, len(parts.names)))
    for j in range(len(parts.names)):
        column = parts.U.of(j)
        U[column.who, j] = column.value
    return U


@given(some_edges())
def test_parts_are_the_sum_over_their_edges_too(drawn: tuple[Edges, Floats]) -> None:
    edges, weights = drawn
    which, root = np.arange(len(weights), dtype=np.int32), np.sqrt(weights)
    people, B = at_people(edges, which)
    parts = parts_of(edges, screenings(edges, which, root), [], TIGHT)
    UG = parts.from_right(as_matrix(parts, len(people)))
    np.testing.assert_allclose(UG @ UG.T, (B * weights) @ B.T, atol=1e-13)
    np.testing.assert_allclose(parts.from_left(np.eye(UG.shape[1])), parts.from_right(np.eye(len(parts.names))))
    assert not parts.negative.any()
    assert not len(parts.E.people)
    assert len(set(parts.names)) == len(parts.names) <= len(which)


@both_models
def test_verdicts_that_come_together_are_followed_together(model: ModelName) -> None:
    query = fold([Query("q", prior=DEFAULT_PRIORS[model]), *ITEMS]).queries["q"]
    query.finish()
    solves = Solves(update_item)
    with solves.patched:
        for number, item_id in enumerate(("i1", "pair 0", "i5", "pair 3", "i1")):
            query.apply_verdict(verdict(number, item_id, Outcome.RELEVANT))
        query.settle()
    assert solves.counts == [4]
    assert_agrees(query)


def test_too_many_steps_end_the_query_after_the_first_column_and_harm_nobody_else() -> None:
    query_ids = ("q", "other")
    state = fold([*(Query(query_id) for query_id in query_ids), *ITEMS])
    query, other = (state.queries[query_id] for query_id in query_ids)
    for each in (query, other):
        each.finish()
        each.apply_verdict(verdict(1, "among", Outcome.RELEVANT))
    query.engine._columns.state.rooms.column.steps[ALLOWED] = 5  # type: ignore[attr-defined]
    solved = Solves(update_item)
    with solved.patched, pytest.raises(QueryFailed, match="too_much_work"):
        query.settle()
    assert (np.diff(solved.columns[0].begin)[1:] == 0).all()
    other.finish()
    assert_agrees(other)


@both_models
@pytest.mark.parametrize("outcome", [Outcome.RELEVANT, Outcome.RETRACTED])
def test_a_watch_list_or_items_may_come_before_a_verdict_is_followed(model: ModelName, outcome: Outcome) -> None:
    settings = Query("q", prior=DEFAULT_PRIORS[model])
    query = fold([settings, *ITEMS, verdict(1, "i3", Outcome.RELEVANT)]).queries["q"]
    query.finish()
    for number, item_id in enumerate(("i3", "among", "pair 0"), start=2):
        query.apply_verdict(verdict(number, item_id, outcome))
    watched = {"p003": 0.4, "a05": 0.1, "m000": 0.3}
    query.apply_settings(replace(settings, prior=replace(settings.prior, participants=watched)))
    query.apply_verdict(verdict(9, "to some", outcome))
    query.collection.add(item("more", "p003", "a05", "x"))
    query.finish()
    assert_agrees(query)
