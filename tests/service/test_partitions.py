"""What a worker knows of its partitions: how far they are read, what stands still, and why."""

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP
from prometheus_client import CollectorRegistry

from haystream_service.metrics import Metrics
from haystream_service.settings import Settings
from haystream_service.worker import partitions as module
from haystream_service.worker.partitions import Partitions
from haystream_service.worker.records import BrokerUnavailable, Kind

pytestmark = pytest.mark.asyncio

QUERIES = TP("haystream.queries", 0)
VERDICTS = TP("haystream.verdicts", 0)


@dataclass
class Consumer:
    """What is asked of Faust's consumer."""

    ends: dict[TP, int]
    positions: dict[TP, int] = field(default_factory=dict)

    async def highwaters(self, *partitions: TP) -> dict[TP, int]:
        return {tp: self.ends[tp] for tp in partitions}

    async def position(self, tp: TP) -> int | None:
        return self.positions.get(tp)


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time


def event(tp: TP, offset: int, acked: list[int]) -> Any:
    message = SimpleNamespace(
        tp=tp, topic=tp.topic, partition=tp.partition, offset=offset, timestamp=1.0, key=b"k", value=b"v"
    )
    return SimpleNamespace(message=message, ack=lambda: acked.append(offset))


def partitions(consumer: Consumer, clock: Clock) -> Partitions:
    made = Partitions(Settings(), Metrics(CollectorRegistry(), labelled_queries=0), clock)
    made.consumer = consumer
    made.assign({QUERIES, VERDICTS})
    return made


async def test_queries_are_caught_up_once_the_last_of_them_is_handed_over() -> None:
    mine = partitions(Consumer({QUERIES: 2, VERDICTS: 0}, {QUERIES: 2}), Clock())
    waiting = asyncio.create_task(mine.caught_up(0))
    mine.handed(mine.record(Kind.QUERY, event(QUERIES, 0, [])))
    await asyncio.sleep(0)
    assert not waiting.done()
    mine.handed(mine.record(Kind.QUERY, event(QUERIES, 1, [])))
    await waiting


async def test_the_ends_of_queries_and_verdicts_are_told_or_it_is_said_that_kafka_does_not() -> None:
    mine = partitions(Consumer({QUERIES: 3, VERDICTS: 8}), Clock())
    assert await mine.ends(0) == (3, 8)
    with pytest.raises(BrokerUnavailable, match=r"how far haystream\.queries, haystream\.verdicts goes"):
        await mine.ends(1)


async def test_an_end_that_is_no_record_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    clock = Clock()
    mine = partitions(Consumer({QUERIES: 3, VERDICTS: 0}, {QUERIES: 3}), clock)
    mine.handed(mine.record(Kind.QUERY, event(QUERIES, 1, [])))
    waiting = asyncio.create_task(mine.caught_up(0))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    clock.time += 2 * module.QUIET_SECONDS
    await waiting


async def test_a_partition_that_stands_still_is_told_and_whether_it_is_the_consumer() -> None:
    clock, acked = Clock(), list[int]()
    consumer = Consumer({QUERIES: 5, VERDICTS: 10}, {QUERIES: 5, VERDICTS: 4})
    mine = partitions(consumer, clock)
    await mine.look()
    assert mine.stuck == []
    clock.time += 2 * module.STALL_SECONDS
    await mine.look()
    assert mine.stuck == ["haystream.verdicts/0 stands at 4 of 10, 0 in hand"]
    assert mine.deaf
    record = mine.record(Kind.VERDICT, event(VERDICTS, 4, acked))
    await mine.look()
    assert (len(mine.stuck), mine.deaf) == (1, False)
    record.ack()
    await mine.look()
    assert (mine.stuck, acked) == ([], [4])


async def test_what_is_revoked_is_neither_acknowledged_nor_measured() -> None:
    mine, acked = partitions(Consumer({QUERIES: 1, VERDICTS: 1}), Clock()), list[int]()
    record = mine.record(Kind.VERDICT, event(VERDICTS, 0, acked))
    await mine.look()
    mine.revoke({VERDICTS})
    record.ack()
    await mine.look()
    assert acked == []
    assert mine.numbers(Kind.QUERY, mine.assigned) == {0}
    assert mine.numbers(Kind.VERDICT, mine.assigned) == set()
