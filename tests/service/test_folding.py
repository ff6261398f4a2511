"""What of a query's work a thread does, so that nobody else waits for it."""

from dataclasses import replace

import pytest
from support.histories import fold, item, line
from support.world import lease, verdict

from haystream.events import Query
from haystream.query.state import QueryState
from haystream_service.kafka.records import Kind, Record
from haystream_service.worker import folding
from haystream_service.worker.batch import Batch, Delivery
from haystream_service.worker.folding import Pace
from haystream_service.worker.holding import LIGHT_SOLVES, Loaded


@pytest.mark.parametrize(("item_id", "heavy"), [("i0", False), ("among many", True), ("to many", True)])
def test_a_claim_of_an_item_of_many_people_is_taken_in_by_a_thread(item_id: str, heavy: bool) -> None:
    people = [f"a{i}" for i in range(LIGHT_SOLVES + 2)]
    items = [*line(4), item("among many", *people), item("to many", *people, sender="p000")]
    state = fold([Query("q"), *items]).queries["q"]
    state.finish()
    loaded = Loaded(state, revision=1, published=True, pairs=state.collection.graph.edges)
    record = Record(Kind.LEASE, "leases", 0, 0, 0.0, b"q", b"", lambda: None)
    batch = Batch([Delivery(record, replace(lease(1, item=0), item_id=item_id))])
    assert loaded.heavy(batch) is heavy
    assert not loaded.may_kill(batch)


class Clock:
    """One that stands still."""

    def now(self) -> float:
        return 1_700_000_000.0

    def monotonic(self) -> float:
        return 1000.0


def test_what_is_saved_by_estimate_is_noted_until_what_was_made_exact_since_is_saved_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a verdict that comes soon after another, what tending moved is left for later."""
    state = fold([Query("q"), *line(6)]).queries["q"]
    state.finish()
    loaded, pace = Loaded(state), Pace(items=0.0, totals=5.0)

    def saved(number: int | None, *, unfinished: bool = False) -> bool:
        monkeypatch.setattr(QueryState, "unfinished", unfinished)
        record = Record(Kind.VERDICT, "verdicts", 0, number or 0, 0.0, b"q", b"", lambda: None)
        given = [] if number is None else [Delivery(record, replace(verdict(number), item_id=f"i{number}"))]
        loaded.finished = not given
        folded = folding.fold(loaded, Batch(given), partition=0, clock=Clock(), pace=pace)
        assert folded is not None
        assert folded.change is not None
        loaded.revision = folded.change.revision
        return folded.change.unfinished

    assert [saved(None), saved(0), saved(1)] == [False] * 3
    assert [saved(2, unfinished=True), saved(3)] == [True] * 2
    loaded.saved_at = float("-inf")
    assert [saved(None), saved(4)] == [False] * 2
