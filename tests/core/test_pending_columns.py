"""Columns of pending screenings are solved again where a verdict is near, and nowhere else."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dense import assert_agrees
from support.histories import MODELS, Handed, fold, histories_with_pending, item, line, play, verdict
from support.solves import Solves

from haystream.engines.local.inverse.low_rank import Columns
from haystream.engines.local.pending import columns as pending_columns
from haystream.engines.local.pending.columns import LOOSER_FACTOR, PendingColumns
from haystream.engines.local.pending.parts import Parts
from haystream.engines.local.solves.solve import System
from haystream.engines.local.state.state import State as EngineState
from haystream.events import Event, ModelName, Outcome, Query
from haystream.fold import State
from haystream.memory.arrays import Floats, Ints
from haystream.memory.overlay import entries
from haystream.models import DEFAULT_PRIORS
from haystream.query.state import QueryState

both_models = pytest.mark.parametrize("model", MODELS)
LONG = 80
TOLERANCE = 1e-4
AMONG = [f"a{i}" for i in range(6)]


def with_three_out(model: ModelName) -> QueryState:
    """A long line of people; its first and its last item, and one among others at its beginning, are handed out."""
    items = [*line(LONG), item("among", "p000", *AMONG)]
    query = fold([Query("q", prior=DEFAULT_PRIORS[model]), *items], tolerance=TOLERANCE).queries["q"]
    query.apply_verdict(verdict(1, f"i{LONG // 2}", Outcome.RELEVANT))  # the first one makes a new reference
    query.finish()
    for item_id in ("i0", "among", f"i{LONG - 1}"):
        query.hold(item_id)
    query.settle()
    return query


@both_models
def test_only_columns_that_a_verdict_is_near_are_solved_again(model: ModelName) -> None:
    query = with_three_out(model)
    solves = Solves(pending_columns)
    with solves.patched:
        query.apply_verdict(verdict(2, f"i{LONG // 2 + 5}", Outcome.IRRELEVANT))
        query.finish()
        assert solves.counts == []
        query.apply_verdict(verdict(3, "i1", Outcome.RELEVANT))
        query.settle()
        (count,) = solves.counts
        assert 1 <= count <= 2 + len(AMONG)  # but not that of the last item


@both_models
@pytest.mark.parametrize("grown", [False, True])
def test_what_is_kept_is_as_exact_as_what_is_solved_anew(model: ModelName, *, grown: bool) -> None:
    items = [*line(8), item("among", "p000", *AMONG), item("wide", *AMONG, sender="p001")]
    state = fold([Query("q", prior=DEFAULT_PRIORS[model]), *items])
    query = state.queries["q"]
    query.finish()
    for number, (held, judged) in enumerate((("i0", "i3"), ("among", "i1"), ("wide", "i6"), ("i7", "i1"))):
        query.hold(held)
        query.apply_verdict(verdict(number, judged, Outcome.RELEVANT))
        if grown:
            play(state, item(f"new{number}", f"p00{number}", f"p00{7 - number}"))
        query.settle()
        query.release("i0")
    query.finish()
    assert_agrees(query)


@both_models
def test_a_column_is_not_taken_up_again_after_nothing_was_pending(model: ModelName) -> None:
    """Nobody looks at what verdicts change near it then."""
    query = fold([Query("q", prior=DEFAULT_PRIORS[model]), *line(12)]).queries["q"]
    query.hold("i5")
    query.settle()
    query.release("i5")
    for number, judged in enumerate(("i3", "i7")):
        query.settle()
        query.apply_verdict(verdict(number, judged, Outcome.RELEVANT))
    query.settle()
    query.hold("i5")
    query.settle()
    assert_agrees(query)


class Watched:
    """What `PendingColumns.solve` was last asked for, and returned."""

    def __init__(self) -> None:
        self.parts: Parts | None = None
        self.system: System
        self.columns: Columns
        solve = PendingColumns.solve

        def watched(known: PendingColumns, state: EngineState, parts: Parts, stale: Ints | None) -> Columns:
            self.parts, self.system = parts, state.system
            self.columns = solve(known, state, parts, stale)
            return self.columns

        self.patched = mock.patch.object(PendingColumns, "solve", watched)

    def residuals(self) -> Floats:
        """Of each column the largest |u − (Λ + E) k| over the diagonal of that, in units of what it may be."""
        assert self.parts is not None
        system, count = self.system, len(self.parts.names)
        people, edges = len(system.start), len(system.tail)
        tail, head = system.tail[:edges], system.head[:edges]
        off = entries(system.off, np.arange(edges, dtype=np.int32))
        diagonal = entries(system.diagonal, np.arange(people, dtype=np.int32))
        diagonal[self.parts.E.people] += self.parts.E.added
        matrix = np.diag(diagonal)
        matrix[tail, head] += off
        matrix[head, tail] += off
        U, K = (dense(columns, people, count) for columns in (self.parts.U, self.columns))
        return np.asarray(np.abs((U - matrix @ K) / diagonal[:, None]).max(axis=0) / self.parts.tolerances)


def dense(columns: Columns, people: int, count: int) -> Floats:
    matrix = np.zeros((people, count))
    for j in range(count):
        column = columns.of(j)
        np.add.at(matrix[:, j], column.who, column.value)
    return matrix


@given(histories_with_pending(), st.sampled_from([1e-2, 1e-4]))
def test_no_column_is_left_behind_in_any_history(history: list[Event | Handed], tolerance: float) -> None:
    state, watched = State(tolerance=tolerance), Watched()
    with watched.patched:
        for happening in history:
            play(state, happening)
            query = state.queries.get("q")
            if query is not None:
                query.settle()
                if watched.parts is not None:
                    assert (watched.residuals() <= LOOSER_FACTOR * (1.0 + 1e-9)).all()
                    watched.parts = None
