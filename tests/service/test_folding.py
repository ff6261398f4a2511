"""What of a query's work a thread does, so that nobody else waits for it."""

from dataclasses import replace

import pytest
from support.histories import fold, item, line
from support.world import lease

from haystream.events import Query
from haystream_service.worker.batch import Batch, Delivery
from haystream_service.worker.folding import LIGHT_SOLVES, Loaded
from haystream_service.worker.records import Kind, Record


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
