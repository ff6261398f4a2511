"""What a worker knows of its partitions: how far they are read, what stands still, and why."""

import asyncio
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from faust.types import TP
from prometheus_client import CollectorRegistry

from haystream_service.kafka.records import Kind, Record
from haystream_service.metrics import Metrics
from haystream_service.settings import Settings
from haystream_service.worker import partitions as module
from haystream_service.worker.app import Flow
from haystream_service.worker.partitions import STALL_SECONDS, Partitions

pytestmark = pytest.mark.asyncio

QUERIES = TopicPartition("haystream.queries", 0)
VERDICTS = TopicPartition("haystream.verdicts", 0)
LEASES = TopicPartition("haystream.leases", 0)


@dataclass
class Consumer:
    """What is asked of Kafka, and of Faust's consumer."""

    ends: dict[TopicPartition, int]
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    held: set[TP] = field(default_factory=set)
    firsts: dict[TopicPartition, int] = field(default_factory=dict)

    async def __call__(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.ends[tp] for tp in partitions}

    async def first(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.firsts.get(tp, 0) for tp in partitions}

    async def position(self, partition: TopicPartition) -> int | None:
        return self.positions.get(partition)

    def on_buffer_full(self, tp: TP) -> None:
        self.held.add(tp)

    def on_buffer_drop(self, tp: TP) -> None:
        self.held.discard(tp)


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time


def lag(mine: Partitions) -> float:
    gauge: Any = mine._metrics.consumer_lag.labels(VERDICTS.topic, 0)
    return float(gauge._value.get())


def record(mine: Partitions, kind: Kind, tp: TopicPartition, offset: int, acked: list[int]) -> Record:
    message = SimpleNamespace(
        topic=tp.topic, partition=tp.partition, offset=offset, key=b"k", value=b"v", headers=()
    )
    return mine.record(kind, message, 1.0, release=lambda: acked.append(offset))


def partitions(consumer: Consumer, clock: Clock) -> Partitions:
    made = Partitions(Settings(), Metrics(CollectorRegistry(), labelled_queries=0), clock, consumer)
    made.assign({QUERIES, VERDICTS}, consumer)
    return made


async def test_queries_are_caught_up_once_the_last_of_them_is_handed_over() -> None:
    mine = partitions(Consumer({QUERIES: 2, VERDICTS: 0}, {QUERIES: 2}), Clock())
    waiting = asyncio.create_task(mine.caught_up(0))
    mine.handed(record(mine, Kind.QUERY, QUERIES, 0, []))
    await asyncio.sleep(0)
    assert not waiting.done()
    mine.handed(record(mine, Kind.QUERY, QUERIES, 1, []))
    await waiting


async def test_the_ends_of_every_topic_of_queries_are_told() -> None:
    mine = partitions(Consumer({QUERIES: 3, VERDICTS: 8, LEASES: 5}), Clock())
    assert await mine.ends([0]) == {0: (3, 8, 5)}


async def test_a_partition_whose_last_offsets_are_no_records_has_no_lag_and_is_not_stuck() -> None:
    clock, acked = Clock(), list[int]()
    consumer = Consumer({QUERIES: 0, VERDICTS: 7}, {QUERIES: 0, VERDICTS: 5})
    mine = partitions(consumer, clock)
    last = record(mine, Kind.VERDICT, VERDICTS, 4, acked)
    consumer.positions[VERDICTS] = 7  # 5 was given up, 6 is the marker that says so
    await mine.look()
    assert lag(mine) == 3
    last.ack()
    for _ in range(3):
        await mine.look()
        assert (mine.stalled, lag(mine)) == ([], 0)
        clock.time += 2 * module.STALL_SECONDS


async def test_an_end_that_is_no_record_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    clock = Clock()
    mine = partitions(Consumer({QUERIES: 3, VERDICTS: 0}, {QUERIES: 3}), clock)
    mine.handed(record(mine, Kind.QUERY, QUERIES, 1, []))
    waiting = asyncio.create_task(mine.caught_up(0))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    clock.time += 2 * module.QUIET_SECONDS
    await waiting


async def test_a_partition_that_stands_still_is_told_and_how_much_of_it_is_in_hand() -> None:
    clock, acked = Clock(), list[int]()
    consumer = Consumer({QUERIES: 5, VERDICTS: 10}, {QUERIES: 5, VERDICTS: 4})
    mine = partitions(consumer, clock)
    await mine.look()
    assert mine.stalled == []
    clock.time += 2 * module.STALL_SECONDS
    await mine.look()
    assert list(map(str, mine.stalled)) == ["haystream.verdicts/0 stands at 4 of 10 for 120 s, 0 in hand"]
    one = record(mine, Kind.VERDICT, VERDICTS, 4, acked)
    await mine.look()
    assert [stall.in_hand for stall in mine.stalled] == [1]
    one.ack()
    await mine.look()
    assert (mine.stalled, acked) == ([], [4])


async def test_verdicts_are_waited_for_until_they_are_acknowledged_or_the_partition_stands_still() -> None:
    clock, acked = Clock(), list[int]()
    consumer = Consumer({QUERIES: 0, VERDICTS: 2}, {QUERIES: 0, VERDICTS: 2})
    mine = partitions(consumer, clock)
    assert mine.behind(0) == math.inf
    # It has fetched two, which are in nobody's hands yet: of that look alone nothing can be said.
    await mine.look()
    assert mine.behind(0) == math.inf
    first, second = (record(mine, Kind.VERDICT, VERDICTS, offset, acked) for offset in range(2))
    clock.time += 1
    await mine.look()
    assert mine.behind(0) == math.inf
    first.ack()
    clock.time += 1
    await mine.look()
    assert mine.behind(0) == math.inf
    second.ack()
    clock.time += 1
    await mine.look()
    assert mine.behind(0) == 3  # when it was asked first where the partition ends
    clock.time += 1
    await mine.look()
    assert mine.behind(0) == 1
    consumer.ends[VERDICTS], consumer.positions[VERDICTS] = 3, 3
    record(mine, Kind.VERDICT, VERDICTS, 2, acked)
    for passed in (2, 3):
        clock.time += 1
        await mine.look()
        assert mine.behind(0) == passed - 1
    clock.time += STALL_SECONDS + 1
    await mine.look()
    assert mine.behind(0) < STALL_SECONDS + 3
    mine.revoke({VERDICTS})
    assert mine.behind(0) == math.inf


@pytest.mark.parametrize(("end", "position"), [(3, 3), (0, 0)], ids=["its last records are lost", "made anew"])
async def test_a_partition_that_ends_sooner_than_it_did_is_waited_for_up_to_where_it_ends_now(
    end: int, position: int
) -> None:
    clock = Clock()
    consumer = Consumer({QUERIES: 0, VERDICTS: 5}, {QUERIES: 0, VERDICTS: 3})
    mine = partitions(consumer, clock)
    mine.begins(VERDICTS, 3)
    await mine.look()
    clock.time += 1
    consumer.ends[VERDICTS], consumer.positions[VERDICTS] = end, position
    for _ in range(3):
        await mine.look()
        clock.time += 1
    assert mine.behind(0) <= 2


async def test_verdicts_of_which_nothing_is_read_are_waited_for_no_longer_than_those_that_stand_still() -> None:
    """As where their topic was not there when partitions were assigned: leases of their queries never ended."""
    clock = Clock()
    consumer = Consumer({QUERIES: 0, VERDICTS: 1}, {QUERIES: 0, VERDICTS: 1})
    mine = partitions(consumer, clock)
    mine.revoke({VERDICTS})
    await mine.look()
    clock.time += STALL_SECONDS
    await mine.look()
    assert mine.behind(0) == math.inf
    clock.time += 1
    assert mine.behind(0) == 0
    assert mine.behind(1) == math.inf, "that is not ours"
    mine.assign({VERDICTS}, consumer)
    assert mine.behind(0) == math.inf
    await mine.look()
    mine.revoke({VERDICTS})
    await mine.look()
    assert mine.behind(0) == math.inf, "it begins anew"


async def test_verdicts_that_were_fetched_just_now_are_waited_for() -> None:
    """As at a start: they were there before, and at one look are fetched and in nobody's hands yet."""
    clock, acked = Clock(), list[int]()
    consumer = Consumer({QUERIES: 0, VERDICTS: 2}, {QUERIES: 0, VERDICTS: 0})
    mine = partitions(consumer, clock)
    await mine.look()
    clock.time += 1
    consumer.positions[VERDICTS] = 2
    await mine.look()
    assert mine.behind(0) == math.inf
    both = [record(mine, Kind.VERDICT, VERDICTS, offset, acked) for offset in range(2)]
    clock.time += 1
    await mine.look()
    assert mine.behind(0) == math.inf
    for each in both:
        each.ack()
    clock.time += 1
    await mine.look()
    assert mine.behind(0) == 3


async def test_what_is_revoked_is_neither_acknowledged_nor_measured() -> None:
    mine, acked = partitions(Consumer({QUERIES: 1, VERDICTS: 1}), Clock()), list[int]()
    one = record(mine, Kind.VERDICT, VERDICTS, 0, acked)
    await mine.look()
    mine.revoke({VERDICTS})
    one.ack()
    await mine.look()
    assert acked == []
    assert mine.of(Kind.QUERY) == {QUERIES}
    assert mine.of(Kind.VERDICT) == set()


async def test_a_query_that_stands_still_holds_up_its_own_partition_and_no_other() -> None:
    consumer = Consumer({QUERIES: 9, VERDICTS: 9})
    mine = partitions(consumer, Clock())
    flow = Flow(consumer, mine, 4)

    def bounded(kind: Kind, tp: TopicPartition, offset: int) -> Record:
        return flow.bounded(record(mine, kind, tp, offset, []))

    records = [bounded(Kind.VERDICT, VERDICTS, offset) for offset in range(5)]
    bounded(Kind.QUERY, QUERIES, 0)
    assert consumer.held == {VERDICTS}
    for done in records[1:3]:
        done.ack()
    assert consumer.held == {VERDICTS}
    records[3].ack()
    records[4].ack()
    # The first one is still in hand: nothing is committed, but others may come.
    assert consumer.held == set()
    for offset in range(5, 9):
        bounded(Kind.VERDICT, VERDICTS, offset)
    mine.revoke({VERDICTS})
    assert consumer.held == {VERDICTS}
    records[0].ack()
    assert consumer.held == {VERDICTS}, "what is taken away is not asked for again"


@pytest.mark.parametrize("most", [1, 2, 3])
async def test_a_partition_of_which_nothing_is_in_hand_is_fetched_however_few_may_be(most: int) -> None:
    consumer = Consumer({QUERIES: 9, VERDICTS: 9})
    mine = partitions(consumer, Clock())
    flow = Flow(consumer, mine, most)
    records = [flow.bounded(record(mine, Kind.VERDICT, VERDICTS, offset, [])) for offset in range(most)]
    assert consumer.held == {VERDICTS}
    for done in records:
        done.ack()
    assert consumer.held == set()


async def test_partitions_of_a_topic_that_was_not_there_are_left_out() -> None:
    mine = partitions(Consumer({}), Clock())
    assert mine.left_out() == ["haystream.leases: of partition 0 nothing is read"]
    mine.assign({LEASES}, Consumer({}))
    assert mine.left_out() == []
    mine.assign({TopicPartition("haystream.items", 3), TopicPartition("haystream.queries", 1)}, Consumer({}))
    assert mine.left_out() == [
        "haystream.verdicts: of partition 1 nothing is read",
        "haystream.leases: of partition 1 nothing is read",
    ]
