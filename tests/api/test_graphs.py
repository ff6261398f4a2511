"""Graphs that a replica keeps are of the log that there is: one that was made anew is read anew."""

import httpx
import pytest
from support.pipeline import until
from support.world import World

from haystream.events import Item, Outcome, Query, Status, Verdict, View
from haystream.report import report
from haystream.scope import scope
from haystream_service.api.graphs import Graphs
from haystream_service.kafka.records import NO_OFFSET
from haystream_service.store.base import HISTORY, Quarantine
from haystream_service.store.memory import MemoryStore

pytestmark = pytest.mark.asyncio

ITEMS = [Item(f"m{n}", "default", None, (f"p{n}", f"p{n + 1}")) for n in range(6)]
VERDICTS = [
    Verdict("v0", "q", "m0", "zoe", Outcome.RELEVANT, 1_700_000_000_000_000),
    Verdict("v4", "q", "m4", "zoe", Outcome.IRRELEVANT, 1_700_000_000_000_001),
]
OTHER_ORDERS = {"reversed": ITEMS[::-1], "but for the last": [*ITEMS[4::-1], ITEMS[5]]}


@pytest.mark.parametrize("again", OTHER_ORDERS.values(), ids=OTHER_ORDERS)
async def test_a_replica_that_runs_on_over_a_rebuild_names_who_is_meant(
    lead: httpx.AsyncClient, world: World, again: list[Item]
) -> None:
    world.say(Query("q"), *ITEMS, *VERDICTS)
    await world.processes[0].settled()
    before = await believed(lead)
    await world.processes[0].crash()
    await world.store.wipe()
    await world.store.append_items("default", again)
    world.broker.committed.clear()
    process = await world.process()
    await process.settled()
    assert await world.store.read_items("default", 0, limit=9) == again
    state = process.worker.state("q")
    assert state is not None
    means = {name: mean for name, (mean, _) in report(state).participants.items()}
    assert await believed(lead) == pytest.approx(means, abs=1e-9)
    assert before == pytest.approx(means, abs=1e-6)  # it is the same that was said


@pytest.mark.parametrize("status", [Status.OPEN, Status.CLOSED])
async def test_a_query_of_a_log_that_is_no_more_is_not_shown_and_is_saved_anew_though_nobody_touches_it(
    lead: httpx.AsyncClient, world: World, status: Status
) -> None:
    world.say(Query("q"), *ITEMS, *VERDICTS, Query("q", status=status))
    await world.processes[0].settled()
    before = await believed(lead)
    await world.processes[0].crash()
    world.store._logs.clear()
    await world.store.append_items("default", ITEMS[::-1])
    known = (await world.store.read_up_to([HISTORY]))[HISTORY]
    await world.store.move_up_to({HISTORY: (known, known + 1)})
    answer = await lead.get("/v1/queries/q/participants")
    assert answer.status_code == 503
    assert answer.json()["code"] == "unavailable"
    await world.store.quarantine("q", 0, Quarantine("too_much_work", "a solve was given up", 0.0))
    stopped = await lead.get("/v1/queries/q/participants")
    assert "once it is released" in stopped.text
    assert (stopped.status_code, stopped.json()["code"]) == (409, "quarantined")
    assert "retry-after" not in stopped.headers
    assert "a solve was given up" in stopped.text
    await world.store.release("q")
    process = await world.process(idle_seconds=0.0, refresh_seconds=0.05)

    async def saved_anew() -> bool:
        (head,) = await world.store.read_heads(["q"])
        return head is not None and head.position.history == known + 1

    await process.wait(until(saved_anew, "saved anew"))
    assert await believed(lead) == pytest.approx(before, abs=1e-6)


async def believed(client: httpx.AsyncClient) -> dict[str, float]:
    answer = await client.get("/v1/queries/q/participants")
    assert answer.status_code == 200, answer.text
    return {belief["participant"]: belief["mean"] for belief in answer.json()["participants"]}


@pytest.mark.parametrize(
    ("again", "history"),
    [(OTHER_ORDERS["reversed"], NO_OFFSET), (OTHER_ORDERS["but for the last"], 7)],
    ids=["a copy put in its place while no worker ran", "found out by workers"],
)
async def test_a_log_that_went_back_and_grew_again_is_read_anew(again: list[Item], history: int) -> None:
    store, view = MemoryStore(), View("default", scope(nobody=["zed"]))
    graphs = Graphs(store)
    for log in (ITEMS, again):
        await store.wipe()
        await store.append_items("default", log)
        await store.move_up_to({HISTORY: (NO_OFFSET, history if log is again else NO_OFFSET)})
        collection = await graphs.in_scope(view)
        assert collection is not None
        assert list(collection.item_ids) == [item.item_id for item in log]
    await graphs.close()
