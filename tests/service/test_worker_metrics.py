"""What a worker shows of its work, on the in-memory transport and store."""

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry
from support.world import World, item, verdict

from haystream.events import Query, Withdrawal
from haystream.scope import scope
from haystream_service.worker.memory_broker import MemoryBroker

pytestmark = pytest.mark.asyncio


class Late(MemoryBroker):
    """Every record came ten seconds ago."""

    def append(self, where, key, value, *, restates=None):  # type: ignore[no-untyped-def]
        offset = super().append(where, key, value, restates=restates)
        message = self._logs[where][offset]
        self._logs[where][offset] = type(message)(
            message.key, message.value, message.timestamp - 10.0, message.restates
        )
        return offset


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> CollectorRegistry:
    """Of the next worker that is made."""
    registry = CollectorRegistry()
    monkeypatch.setattr("support.world.CollectorRegistry", lambda: registry)
    return registry


def shown(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"haystream_{name}", labels)


async def test_each_stage_of_a_verdicts_way_is_timed(world: World, registry: CollectorRegistry) -> None:
    world.broker = Late(partitions=2)
    process = await world.process()
    world.say(Query("q"), *(item(n) for n in range(6)))
    await process.settled()
    for number in range(3):
        world.say(verdict(number))
        await process.settled()
    assert shown(registry, "stage_seconds_count", stage="queue") == 3
    assert shown(registry, "stage_seconds_sum", stage="queue") >= 30
    for stage in ("settle", "save", "publish"):
        assert shown(registry, "stage_seconds_count", stage=stage) >= 4
    assert shown(registry, "verdict_to_ranking_seconds_bucket", le="10.0") == 0
    assert shown(registry, "item_to_log_seconds_sum") >= 10


async def test_new_items_are_timed_from_their_log_to_a_ranking(world: World, registry: CollectorRegistry) -> None:
    process = await world.process()
    world.say(Query("q"), item(1))
    await process.settled()
    before = shown(registry, "log_to_ranking_seconds_count")
    world.say(item(2), item(3))
    await process.settled()
    assert shown(registry, "log_to_ranking_seconds_count") > before
    assert shown(registry, "growth_backlog_items") == 0
    assert shown(registry, "tending_backlog_queries") == 0


async def test_what_is_in_memory_and_what_was_loaded(
    world: World, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await world.process()
    scoped = Query("s", scope=scope(since=0))
    world.say(Query("q"), Query("r", collection="other"), scoped, item(1), item(2), item(3, "other"))
    await first.settled()
    assert shown(registry, "load_seconds_count") == 0
    await first.crash()
    second = CollectorRegistry()
    monkeypatch.setattr("support.world.CollectorRegistry", lambda: second)
    process = await world.process()
    await process.settled()
    assert shown(second, "load_seconds_count") == 3
    assert shown(second, "queries_in_memory") == 3
    assert [shown(second, "collections", items=items) for items in ("all", "scope")] == [2, 1]
    collections = [process.worker.state(query).collection for query in ("q", "r", "s")]
    assert shown(second, "collection_items") == sum(map(len, collections)) == 3
    assert shown(second, "collection_edges") == sum(len(collection.pairs) for collection in collections)
    await process.worker.revoke({0, 1})
    await process.worker.assign(set())
    assert shown(second, "queries_in_memory") == 0


async def test_a_withdrawal_is_counted_once(world: World, registry: CollectorRegistry) -> None:
    process = await world.process()
    assert shown(registry, "items_withdrawn_total") == 0
    gone = replace(item(1), withdrawn=True)
    world.say(item(1), item(2), Withdrawal("unseen", "default"))
    await process.settled()
    world.say(gone, gone)
    await process.settled()
    assert shown(registry, "items_withdrawn_total") == 2
    assert shown(registry, "events_total", kind="item", outcome="applied") == 4
