"""How many items are read at once, while verdicts come and while none do; and from where."""

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from prometheus_client import CollectorRegistry

from haystream_service.kafka.records import Kind, Record
from haystream_service.metrics import Metrics
from haystream_service.settings import Settings
from haystream_service.worker.items import AT_ONCE_AMONG_VERDICTS, RECENT_SECONDS, ItemsReader
from haystream_service.worker.partitions import Partitions

pytestmark = pytest.mark.asyncio

MAX_BATCH = 3 * AT_ONCE_AMONG_VERDICTS
ITEMS = TopicPartition("items", 0)


def message(topic: str, offset: int) -> Any:
    return SimpleNamespace(topic=topic, partition=0, offset=offset, timestamp=0, key=b"k", value=b"v", headers=())


class Clock:
    time = 1000.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time


class Consumer:
    """A partition of items that has no end."""

    offset = 0
    committed_offset = 0

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return {0}

    async def getmany(self, *, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Any]]:
        begin, self.offset = self.offset, self.offset + max_records
        return {ITEMS: [message("items", o) for o in range(begin, self.offset)]}

    async def commit(self) -> None:
        self.committed_offset = self.offset

    async def committed(self, partition: TopicPartition) -> int:
        return self.committed_offset

    def assignment(self) -> set[TopicPartition]:
        return {ITEMS}

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.offset = offset


async def test_among_verdicts_items_are_read_by_small_lots() -> None:
    clock, lots = Clock(), list[int]()
    partitions = Partitions(Settings(), Metrics(CollectorRegistry(), labelled_queries=0), clock, SimpleNamespace())
    reader: ItemsReader

    async def on_items(records: Sequence[Record]) -> None:
        lots.append(len(records))
        if len(lots) == 1:
            partitions.record(Kind.VERDICT, message("verdicts", 0), 0.0)
        elif len(lots) == 2:
            clock.time += RECENT_SECONDS
        else:
            reader.stop()

    worker: Any = SimpleNamespace(on_items=on_items)
    reader = ItemsReader(Settings(max_batch=MAX_BATCH), worker, partitions, SimpleNamespace(), SimpleNamespace())
    consumer = Consumer()
    async with asyncio.timeout(10.0):
        await reader._take_in(consumer)  # type: ignore[arg-type]
    assert lots == [MAX_BATCH, AT_ONCE_AMONG_VERDICTS, MAX_BATCH]
    assert consumer.committed_offset == sum(lots)


async def test_what_came_before_it_was_known_from_where_to_read_is_read_in_its_turn() -> None:
    """A partition is assigned while records are waited for, and some of it are fetched at once."""
    partitions = Partitions(
        Settings(), Metrics(CollectorRegistry(), labelled_queries=0), Clock(), SimpleNamespace()
    )
    reader: ItemsReader
    begun: list[Mapping[TopicPartition, int | None]] = []
    read: list[int] = []

    async def on_items(records: Sequence[Record]) -> None:
        read.extend(record.offset for record in records)
        if read:
            reader.stop()

    async def begin(committed: Mapping[TopicPartition, int | None]) -> Mapping[TopicPartition, int]:
        begun.append(committed)
        return {ITEMS: 5}

    class Assigned(Consumer):
        offset = committed_offset = 8
        assigned = False

        async def getmany(self, *, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Any]]:
            if not self.assigned:
                self.assigned = True
                reader._fresh.add(ITEMS)
            return await super().getmany(timeout_ms=timeout_ms, max_records=3)

    worker: Any = SimpleNamespace(on_items=on_items)
    reader = ItemsReader(Settings(), worker, partitions, SimpleNamespace(), begin)  # type: ignore[arg-type]
    async with asyncio.timeout(10.0):
        await reader._take_in(Assigned())  # type: ignore[arg-type]
    assert begun == [{ITEMS: 8}]
    assert read == [5, 6, 7]
