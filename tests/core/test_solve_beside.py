"""Right-hand sides that are solved side by side have the solutions that they have alone."""

import numpy as np
import pytest
from support.dense import TIGHT
from support.histories import MODELS, fold, item, line, verdict

from haystream.engines.local import LocalEngine
from haystream.engines.local.readings.shares import count_near
from haystream.engines.local.solves.solve import ALLOWED, EXCEEDED, MARK, RESIDUAL, VALUE, Scratch, System, scratch
from haystream.engines.local.solves.solve_beside import (
    COLUMNS_BESIDE,
    begin_beside,
    forget_beside,
    solve_beside,
    take_solution,
)
from haystream.events import Event, ModelName, Outcome, Query
from haystream.memory.arrays import Floats
from haystream.memory.overlay import flat, is_whole
from haystream.models import DEFAULT_PRIORS
from haystream.query.state import QueryState

COUNT = 120
PAIRS: list[Event] = [*line(COUNT), *(item(f"h{n}", "hub", f"p{n:03d}") for n in range(0, COUNT, 3))]


def judged(model: ModelName, tolerance: float = TIGHT) -> QueryState:
    """A query with verdicts on every fourth pair, one of two on its collection, so that its entries are laid over
    those of the prior."""
    prior = DEFAULT_PRIORS[model]
    state = fold([Query("first", prior=prior), *PAIRS], tolerance=tolerance)
    state.queries["first"].finish()
    query = QueryState(Query("q", prior=prior), state.queries["first"].collection, tolerance=tolerance)
    query.finish()
    for number in range(0, COUNT - 2, 4):
        outcome = Outcome.RELEVANT if number % 3 else Outcome.IRRELEVANT
        query.apply_verdict(verdict(number, f"i{number}", outcome))
        query.settle()
    query.finish()
    return query


def local(query: QueryState) -> LocalEngine:
    assert isinstance(query.engine, LocalEngine)
    return query.engine


def dense(system: System, people: int, edges: int) -> Floats:
    matrix = np.diag(flat(system.diagonal)[:people])
    tail, head = system.tail[:edges], system.head[:edges]
    matrix[tail, head] = matrix[head, tail] = flat(system.off)[:edges]
    return matrix


def assert_is_forgotten(room: Scratch, rows: Floats) -> None:
    forget_beside(room, rows)
    assert not rows.any()
    assert not room.cells[:, [VALUE, RESIDUAL, MARK]].any()
    assert room.listed[0] == 0


@pytest.mark.parametrize("model", MODELS)
def test_solutions_are_those_of_the_dense_system(model: ModelName) -> None:
    query = judged(model)
    system, graph = local(query)._columns.state.system, query.collection.graph
    assert not is_whole(system.off)
    people = len(graph)
    room, rows = scratch(people), np.zeros((people, 2 * COLUMNS_BESIDE))
    sources, rng = np.zeros((people, COLUMNS_BESIDE)), np.random.default_rng(1)
    for number in range(COLUMNS_BESIDE - 1):  # and one that has none
        for u in rng.choice(people, 2, replace=False).tolist():
            sources[u, number] += rng.uniform(-1.0, 1.0)
            begin_beside.py_func(system, room, rows, number, u, sources[u, number])
    solve_beside(system, 1e-10, room, rows)
    exact = np.linalg.solve(dense(system, people, graph.edges), sources)
    for number in range(COLUMNS_BESIDE):
        take_solution(room, rows, number)
        np.testing.assert_allclose(room.cells[:, VALUE], exact[:, number], atol=1e-8)
    assert_is_forgotten(room, rows)


def test_what_takes_too_many_steps_is_given_up() -> None:
    system = local(judged("relevance"))._columns.state.system
    room, rows = scratch(COUNT + 1), np.zeros((COUNT + 1, 2 * COLUMNS_BESIDE))
    room.steps[ALLOWED] = 7
    begin_beside.py_func(system, room, rows, 0, 5, 1.0)
    solve_beside(system, 1e-10, room, rows)
    assert room.steps[EXCEEDED] == 1
    assert_is_forgotten(room, rows)


@pytest.mark.parametrize("model", MODELS)
def test_shares_of_sets_that_are_asked_for_at_once_are_those_of_each(model: ModelName) -> None:
    """Of more neighbours than are solved side by side, of some far from one another, and of one twice."""
    query = judged(model)
    readings = local(query).readings
    wanted = [*range(3, 3 + COLUMNS_BESIDE + 3), 40, 90, 91, 40, 60]
    start = np.arange(len(wanted) + 1)
    most = len(query.verdicts)
    found = readings.largest_shares(start, np.array(wanted, np.int32), most)
    for row, edge in enumerate(wanted):
        some = slice(found.start[row], found.start[row + 1])
        together = dict(zip(found.edge[some].tolist(), found.share[some].tolist(), strict=True))
        alone = dict(readings.shares([edge]))
        assert together.keys() | alone.keys()
        for screened in together.keys() | alone.keys():
            assert together.get(screened, 0.0) == pytest.approx(alone.get(screened, 0.0), abs=100.0 * TIGHT)


def test_sets_one_after_the_other_are_solved_at_once_where_they_are_near_the_first() -> None:
    state = local(judged("relevance"))._columns.state
    near, far = [10, 11, 9, 11], [30, 50, 53, 70]

    def count(edges: list[int], first: int = 0) -> int:
        return count_near(state, np.arange(len(edges) + 1), np.array(edges, np.int32), first)

    assert count(near) == len(near)
    assert count(near, 2) == 2
    assert count([*near, 80, *near]) == len(near)
    assert [count(far, row) for row in range(len(far))] == [1] * len(far)
    assert count(near * COLUMNS_BESIDE) == COLUMNS_BESIDE
    assert state.rooms.people.size[0] == 0
