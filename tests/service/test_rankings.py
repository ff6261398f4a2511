"""From where what is published of a worker's queries is read, to see what else lands on it."""

import asyncio
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError
from prometheus_client import CollectorRegistry

from haystream_service.metrics import Metrics
from haystream_service.settings import Settings
from haystream_service.worker import rankings as module
from haystream_service.worker.rankings import OwnRankings
from haystream_service.worker.retry import Retry

pytestmark = pytest.mark.asyncio

TOPIC = "haystream.next-items"


class Topic:
    """What is published, partition by partition, and what was read of it."""

    def __init__(self) -> None:
        self.records: dict[int, list[Any]] = {0: [], 1: []}
        self.read: list[tuple[int, int]] = []
        self.away = False

    def publish(self, query_id: str, revision: int, *, partition: int = 0) -> int:
        """The offset of a ranking that is there now."""
        records = self.records[partition]
        value, key = orjson.dumps({"revision": revision}), query_id.encode()
        records.append(SimpleNamespace(partition=partition, offset=len(records), key=key, value=value))
        return len(records) - 1


class Consumer:
    """One connection to it."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._next: dict[TopicPartition, int] = {}

    def assignment(self) -> set[TopicPartition]:
        return set(self._next)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._next = dict.fromkeys(partitions, 0)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self._next[tp] = offset

    def highwater(self, tp: TopicPartition) -> int:
        return len(self._topic.records[tp.partition])

    async def getmany(self, *, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        await asyncio.sleep(0)
        if self._topic.away:
            raise KafkaConnectionError
        found = {tp: self._topic.records[tp.partition][offset:] for tp, offset in self._next.items()}
        self._topic.read += [(tp.partition, record.offset) for tp, records in found.items() for record in records]
        self._next = {tp: len(self._topic.records[tp.partition]) for tp in self._next}
        return found

    async def stop(self) -> None: ...


class Worker:
    """Who knows of queries, and owns those that have a revision."""

    def __init__(self, **revisions: int) -> None:
        self.revisions = revisions
        self.known = set(revisions)
        self.again: list[str] = []

    def query_ids(self) -> set[str]:
        return self.known

    def revision(self, query_id: str) -> int | None:
        return self.revisions.get(query_id)

    def publish_again(self, query_id: str) -> None:
        self.again.append(query_id)


class Reader:
    """`OwnRankings` of a worker, with a topic that others write to as well."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, worker: Worker) -> None:
        monkeypatch.setattr(module, "AGAIN_SECONDS", 0.0)
        self.topic, self.worker = Topic(), worker
        retry = Retry(Metrics(CollectorRegistry(), labelled_queries=0))
        self.rankings = OwnRankings(Settings(), worker, retry)  # type: ignore[arg-type]
        monkeypatch.setattr(self.rankings, "_connected", self._connected)

    async def _connected(self) -> Consumer:
        return Consumer(self.topic)

    def publishes(self, query_id: str, *, partition: int = 0) -> int:
        """Where a ranking of the worker's own is."""
        offset = self.topic.publish(query_id, self.worker.revisions[query_id], partition=partition)
        self.rankings.landed(query_id, partition, offset)
        return offset

    async def reads(self) -> list[tuple[int, int]]:
        """What was read since it was asked last, once nothing more comes."""
        for _ in range(50):
            await asyncio.sleep(0)
        read, self.topic.read = self.topic.read, []
        return read


async def _running(reader: Reader, check: Callable[[], Any]) -> None:
    task = asyncio.create_task(reader.rankings.run())
    try:
        async with asyncio.timeout(30):
            await check()
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled()


async def test_after_a_lost_connection_it_reads_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(monkeypatch, Worker(q=1, r=1))

    async def check() -> None:
        reader.topic.publish("others", 5)
        reader.publishes("q")
        reader.publishes("r")
        assert await reader.reads() == [(0, 1), (0, 2)]
        reader.topic.away = True
        await reader.reads()
        reader.topic.publish("q", 0)
        reader.topic.away = False
        assert await reader.reads() == [(0, 3)]
        assert reader.worker.again == ["q"]

    await _running(reader, check)


async def test_what_lands_while_a_query_is_taken_away_is_seen_when_it_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may come back as it is in memory, and then is not published."""
    worker = Worker(q=1, r=1)
    reader = Reader(monkeypatch, worker)

    async def check() -> None:
        reader.publishes("q")
        reader.publishes("r")
        await reader.reads()
        del worker.revisions["q"]
        await reader.reads()
        reader.topic.publish("q", 0)
        assert await reader.reads() == [(0, 2)]
        assert worker.again == []
        worker.revisions["q"] = 1
        assert await reader.reads() == []
        assert worker.again == ["q"]
        del worker.revisions["q"], worker.revisions["r"]  # of the partition nothing is read then
        await reader.reads()
        reader.topic.publish("q", 0)
        assert await reader.reads() == []
        worker.revisions["q"] = 1
        assert await reader.reads() == [(0, 3)]
        assert worker.again == ["q", "q"]

    await _running(reader, check)


async def test_of_a_partition_on_which_it_had_nothing_for_long_it_reads_what_came_after_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = Worker(q=1)
    reader = Reader(monkeypatch, worker)

    async def check() -> None:
        reader.publishes("q")
        await reader.reads()
        worker.revisions, worker.known = {}, set()
        await reader.reads()
        for revision in range(10):
            reader.topic.publish("q", revision)
        worker.revisions, worker.known = {"r": 3}, {"r"}
        offset = reader.publishes("r")
        assert await reader.reads() == [(0, offset)]

    await _running(reader, check)


async def test_a_ranking_on_that_of_a_query_of_which_nobody_said_where_it_is_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a message that was repeated the broker may not say that."""
    worker = Worker(q=1, r=1)
    reader = Reader(monkeypatch, worker)

    async def check() -> None:
        reader.publishes("q")
        reader.topic.publish("r", 1)
        reader.rankings.landed("r", 0, -1)
        await reader.reads()
        assert worker.again == []
        reader.topic.publish("r", 0)
        await reader.reads()
        assert worker.again == ["r"]

    await _running(reader, check)


@pytest.mark.parametrize("others", [0, 1], ids=["nothing is there", "others have written to it"])
async def test_where_its_partition_was_made_anew_what_is_gone_is_published_again(
    monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    worker = Worker(q=1, r=1, s=1)
    reader = Reader(monkeypatch, worker)

    async def check() -> None:
        reader.publishes("s", partition=1)
        reader.publishes("q")
        reader.publishes("r")
        await reader.reads()
        del worker.revisions["r"]
        reader.topic.records[0].clear()
        for _ in range(others):
            reader.topic.publish("others", 5)
        await reader.reads()
        assert worker.again == ["q"]
        assert reader.publishes("q") == others
        assert await reader.reads() == [(0, others)]
        worker.revisions["r"] = 1
        await reader.reads()
        assert worker.again == ["q", "r"]

    await _running(reader, check)


async def test_of_a_partition_that_was_made_anew_while_nobody_had_its_queries_nothing_is_looked_for_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = Worker(q=1, s=1)
    reader = Reader(monkeypatch, worker)

    async def check() -> None:
        reader.publishes("s", partition=1)
        reader.topic.publish("others", 5)
        reader.publishes("q")
        await reader.reads()
        del worker.revisions["q"]
        reader.topic.records[0].clear()
        await reader.reads()
        worker.revisions["q"] = 1
        await reader.reads()
        await reader.reads()
        assert worker.again == ["q"]

    await _running(reader, check)
