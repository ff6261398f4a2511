"""Items of many people that are handed out take few columns. What these leave out is less than anybody is told."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dense import TIGHT, Floats
from support.histories import fold, item, verdict

from haystream.engines.local.inverse.low_rank import Columns
from haystream.engines.local.pending.inverse import between_columns
from haystream.engines.local.pending.light import LEAST_PER_COLUMN, Lot, light_of, screenings
from haystream.engines.local.pending.parts import Parts, parts_of
from haystream.engines.local.solves.budget import (
    AMPLIFIED,
    DEFAULT_TOLERANCE,
    LIGHT_FACTOR,
    NEGLECTED_SHARE,
    PROMISE,
)
from haystream.engines.local.state.edge_priors import ON_HEAD, ON_TAIL, numbers
from haystream.engines.local.state.state import Edges
from haystream.events import Item, ModelName, Outcome, Query
from haystream.memory.arrays import Ints
from haystream.memory.overlay import entries
from haystream.models import DEFAULT_PRIORS
from haystream.query.state import QueryState

PEOPLE = [f"p{k:03d}" for k in range(120)]


class Drawn(NamedTuple):
    """Pending screenings of several items, on the edges of a graph."""

    edges: Edges
    system: Floats
    """Λ, shape (people, people)."""
    people: int
    which: Ints
    root: Floats
    lots: list[Lot]

    def added(self) -> Floats:
        """B Δw Bᵀ."""
        B, each = np.zeros((self.people, len(self.which))), np.arange(len(self.which))
        B[self.edges.tail[self.which], each] = numbers(self.edges.prior, self.which, ON_TAIL)
        B[self.edges.head[self.which], each] = numbers(self.edges.prior, self.which, ON_HEAD)
        return np.asarray((B * self.root**2) @ B.T)


@st.composite
def wide_items(draw: st.DrawFn) -> Drawn:
    """Mails, items without roles and pairs, some of them between the same people."""
    among = draw(st.sampled_from([40, 120]))
    sizes = st.lists(st.tuples(st.booleans(), st.sampled_from([2, 5, 9, 16, 30])), min_size=1, max_size=7)
    rng, some = np.random.default_rng(draw(st.integers(0, 1000))), []
    for number, (is_mail, size) in enumerate(draw(sizes)):
        who = [PEOPLE[k] for k in rng.choice(among, size, replace=False)]
        some.append(item(f"i{number}", *who[1:], sender=who[0]) if is_mail else item(f"i{number}", *who))
    query = fold([Query("q"), *some]).queries["q"]
    query.finish()
    state = query.engine._columns.state  # type: ignore[attr-defined]
    collection = query.collection
    sets = [np.sort(collection.sets.edges(collection.set_of(k))) for k in range(len(some))]
    which = np.unique(np.concatenate(sets))
    rows = [np.searchsorted(which, of_item) for of_item in sets]
    weights = [rng.uniform(0.5, 1.0) / len(each) for each in rows]
    total = np.zeros(len(which))
    for each, weight in zip(rows, weights, strict=True):
        total[each] += weight
    lots = [Lot(each, weight / total[each]) for each, weight in zip(rows, weights, strict=True)]
    people, everywhere = len(collection.graph), np.arange(collection.graph.edges, dtype=np.int32)
    system = np.diag(entries(state.system.diagonal, np.arange(people, dtype=np.int32)))
    for one, other in ((state.edges.tail, state.edges.head), (state.edges.head, state.edges.tail)):
        system[one[everywhere], other[everywhere]] = entries(state.system.off, everywhere)
    return Drawn(state.edges, system, people, which.astype(np.int32), np.sqrt(total), lots)


def as_matrix(columns: Columns, people: int, count: int) -> Floats:
    matrix = np.zeros((people, count))
    for j in range(count):
        column = columns.of(j)
        matrix[column.who, j] = column.value
    return matrix


def sum_of(parts: Parts, people: int) -> Floats:
    """E + U G J Gᵀ Uᵀ."""
    UG = parts.from_right(as_matrix(parts.U, people, parts.mixed))
    E = np.zeros(people)
    E[parts.E.people] = parts.E.added
    return np.asarray(np.diag(E) + (UG * np.where(parts.negative, -1.0, 1.0)) @ UG.T)


@given(wide_items(), st.sampled_from([1e-12, 1e-4, 1e-3, 1e-2]))
def test_parts_are_the_sum_over_their_edges_but_for_what_is_neglected(drawn: Drawn, corrected: float) -> None:
    some = screenings(drawn.edges, drawn.which, drawn.root)
    parts = parts_of(drawn.edges, some, drawn.lots, corrected)
    got, wanted = (np.linalg.inv(drawn.system + added) for added in (sum_of(parts, drawn.people), drawn.added()))
    K = np.linalg.inv(drawn.system)
    row = np.abs(K).sum(axis=1).max()
    close = 2.0 * row * np.abs(K).max() + NEGLECTED_SHARE * (row / AMPLIFIED) ** 2
    np.testing.assert_allclose(got, wanted, atol=corrected * close + 1e-12)
    assert parts.E.added.max(initial=0.0) <= np.sqrt(LIGHT_FACTOR * corrected)
    assert len(set(parts.names)) == len(parts.names) == len(parts.U.begin) - 1 == len(parts.tolerances)
    assert parts.mixed <= len(drawn.which) + 2


@given(wide_items())
def test_the_least_tolerance_has_nobody_light(drawn: Drawn) -> None:
    some = screenings(drawn.edges, drawn.which, drawn.root)
    few, E, rest = light_of(some, drawn.lots, 1e-14)
    assert not few
    assert not len(E.people)
    np.testing.assert_array_equal(rest, 1.0)


@given(wide_items(), st.sampled_from([1e-3, 1e-2]))
def test_what_is_between_columns_is_the_inverse(drawn: Drawn, corrected: float) -> None:
    parts = parts_of(drawn.edges, screenings(drawn.edges, drawn.which, drawn.root), drawn.lots, corrected)
    rng = np.random.default_rng(len(drawn.which))
    root = rng.normal(size=(drawn.people, drawn.people)) / drawn.people
    before = np.eye(drawn.people) + root @ root.T
    before[parts.E.people, parts.E.people] += parts.E.added
    U = as_matrix(parts.U, drawn.people, parts.mixed)
    K = np.linalg.solve(before, U)
    after = before + sum_of(parts, drawn.people)
    after[parts.E.people, parts.E.people] -= parts.E.added
    M = between_columns(parts, U.T @ K)
    np.testing.assert_allclose(K @ M @ K.T, np.linalg.inv(before) - np.linalg.inv(after), atol=1e-9)


MAILS: list[Item] = [item(f"to {k}", *PEOPLE[12 * k :][:60], sender=PEOPLE[110 + k]) for k in range(5)]
CHATS: list[Item] = [item(f"among {k}", *PEOPLE[30 * k :][:60]) for k in range(3)]
LINE: list[Item] = [item(f"i{k}", PEOPLE[k], PEOPLE[k + 1]) for k in range(len(PEOPLE) - 1)]


def handed_out(model: ModelName, tolerance: float, some: list[Item]) -> QueryState:
    state = fold([Query("q", prior=DEFAULT_PRIORS[model]), *LINE, *some], tolerance=tolerance)
    query = state.queries["q"]
    for number in range(0, len(LINE), 9):
        query.apply_verdict(verdict(number, f"i{number}", Outcome.RELEVANT if number % 2 else Outcome.IRRELEVANT))
    query.finish()
    for each in some:
        query.hold(each.item_id)
        query.settle()
    query.apply_verdict(verdict(200, "i50", Outcome.RELEVANT))
    query.settle()
    query.finish()
    return query


def variances(query: QueryState) -> Floats:
    """In units of σ²: of R, P and what remains, and of M."""
    readings, graph = query.engine.readings, query.collection.graph
    everyone, edges = np.arange(len(graph), dtype=np.int32), np.arange(graph.edges, dtype=np.int32)
    of_each = readings.unconstrained(everyone)[1], readings.edges(edges)[1]
    common, remaining = readings.common(), readings.remaining_variance()
    return np.concatenate([np.concatenate(of_each) / common.scale, [common.variance, remaining]])


@pytest.mark.parametrize(
    ("model", "some"),
    [("rates", MAILS), ("rates", CHATS), ("rates", MAILS[::4] + CHATS[1:]), ("relevance", MAILS[:1])],
)
def test_few_columns_are_as_good_as_all(model: ModelName, some: list[Item]) -> None:
    query, exact = (handed_out(model, tolerance, some) for tolerance in (DEFAULT_TOLERANCE, TIGHT))
    assert query.engine.readings.pending._taken.parts.mixed <= 4 * len(some)
    assert exact.engine.readings.pending._taken.parts.mixed > 12 * len(some)
    got, wanted = variances(query), variances(exact)
    np.testing.assert_allclose(got[:-1], wanted[:-1], atol=10 * PROMISE)
    assert got[-1] == pytest.approx(wanted[-1], rel=10 * PROMISE)
    for each in some:
        query.release(each.item_id)
    query.settle()
    assert np.abs(variances(query) - got).max() > 50 * PROMISE


def test_what_is_taken_away_otherwise_than_it_was_added_counts_by_edge() -> None:
    """Whoever handles an engine by himself may."""
    queries = [
        fold([Query("q"), *LINE, *MAILS], tolerance=tolerance).queries["q"]
        for tolerance in (DEFAULT_TOLERANCE, TIGHT)
    ]
    for query in queries:
        query.finish()
        edges = np.arange(len(LINE), len(LINE) + 4 * LEAST_PER_COLUMN, dtype=np.int32)
        query.engine.record(edges, pending=0.05)
        query.engine.record(edges[::2].copy(), pending=-0.05)
        query.settle()
    got, wanted = map(variances, queries)
    np.testing.assert_allclose(got[:-1], wanted[:-1], atol=10 * PROMISE)
    np.testing.assert_array_equal(
        queries[0].engine.readings.pending.screenings(edges), [0.0, 0.05] * 2 * LEAST_PER_COLUMN
    )
    for query in queries:  # in floats, 0.1 three times is not 0.3
        for amount in (0.1, 0.1, 0.1, -0.3):
            query.engine.record(edges + len(edges), pending=amount)
        query.engine.record(edges[1::2].copy(), pending=-0.05)
        query.settle()
    got, wanted = map(variances, queries)
    np.testing.assert_allclose(got, wanted, rtol=10 * PROMISE)
