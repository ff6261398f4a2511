"""After a rebalance the consumer goes back to what is committed: what was fetched and thrown away comes again."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import GroupCoordinatorNotAvailableError, IllegalStateError
from faust.transport.drivers import aiokafka
from faust.types import TP
from intervaltree import IntervalTree
from mode.threads import QueueServiceThread
from support.pipeline import PATIENCE, Pipeline

from haystream_service.kafka.connection import consumer_arguments
from haystream_service.worker import consumer as module
from haystream_service.worker.consumer import Transport, back_to_committed

pytestmark = [pytest.mark.asyncio]
RECORDS = 5


@pytest_asyncio.fixture
async def reader(pipeline: Pipeline) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer of a group that has read all of a partition and committed nothing."""
    settings = pipeline.settings
    for number in range(RECORDS):
        await pipeline.say_raw("verdicts", b"q", b"%d" % number)
    consumer = AIOKafkaConsumer(
        settings.topic("verdicts"),
        **consumer_arguments(settings),
        group_id=settings.group,
        auto_offset_reset="earliest",
    )
    async with consumer:
        assert await offsets(consumer) == list(range(RECORDS))
        yield consumer


async def offsets(consumer: AIOKafkaConsumer) -> list[int]:
    """Those of the records that come until all that there are have come."""
    found: list[int] = []
    while not found or found[-1] < RECORDS - 1:
        for records in (await consumer.getmany(timeout_ms=200)).values():
            found += [record.offset for record in records]
    return found


def partition(consumer: AIOKafkaConsumer) -> TopicPartition:
    (tp,) = [tp for tp in consumer.assignment() if consumer.highwater(tp)]
    return tp


@pytest.mark.kafka
@pytest.mark.redis
@pytest.mark.parametrize("committed", [None, 0, 3])
async def test_it_goes_back_to_what_is_committed_or_to_the_beginning(
    reader: AIOKafkaConsumer, committed: int | None
) -> None:
    tp = partition(reader)
    if committed is not None:
        await reader.commit({tp: committed})
    assert (await back_to_committed(reader))[tp] == committed
    assert await offsets(reader) == list(range(committed or 0, RECORDS))


@pytest.mark.kafka
@pytest.mark.redis
async def test_going_back_to_the_beginning_does_not_wait_for_a_fetch_that_waits_for_records(
    pipeline: Pipeline,
) -> None:
    settings = pipeline.settings
    consumer = AIOKafkaConsumer(
        settings.topic("verdicts"),
        **consumer_arguments(settings),
        group_id=settings.group,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=900_000,
        request_timeout_ms=1_000_000,
    )
    async with consumer:
        assert not await consumer.getmany(timeout_ms=1000)  # so there is such a fetch
        async with asyncio.timeout(PATIENCE):
            await back_to_committed(consumer)
            assert [await consumer.position(tp) for tp in consumer.assignment()] == [0, 0]


@pytest.mark.kafka
@pytest.mark.redis
async def test_aiokafka_alone_leaves_a_partition_of_which_nothing_is_committed_where_it_is(
    reader: AIOKafkaConsumer,
) -> None:
    """Once this fails, `back_to_committed` has become needless."""
    await reader.seek_to_committed()
    assert await reader.position(partition(reader)) == RECORDS


@pytest.mark.parametrize(("error", "tries"), [(GroupCoordinatorNotAvailableError, 3), (IllegalStateError, 1)])
async def test_going_back_is_tried_until_kafka_answers_or_the_partitions_are_others(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception], tries: int
) -> None:
    tried = []

    async def fails_twice(_: object) -> None:
        tried.append(1)
        if len(tried) < 3:
            raise error("no")

    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(aiokafka.Consumer, "perform_seek", fails_twice)
    consumer = object.__new__(Transport.Consumer)
    if error is IllegalStateError:
        with pytest.raises(IllegalStateError):
            await consumer.perform_seek()
    else:
        await consumer.perform_seek()
    assert len(tried) == tries


async def test_what_transactions_leave_between_records_is_no_gap() -> None:
    tp = TP("queries", 0)
    consumer = object.__new__(Transport.Consumer)
    consumer._committed_offset, consumer._gap = {tp: 1}, defaultdict(IntervalTree)
    consumer._acked, consumer._acked_index = defaultdict(list), defaultdict(set)
    assert consumer._new_offset(tp) is None
    for offset in (8, 12, 13):
        consumer._acked[tp].append(offset)
        consumer._acked_index[tp].add(offset)
    # Until another comes: it may have to be committed again.
    assert [consumer._new_offset(tp), consumer._new_offset(tp)] == [14, 14]
    consumer._acked[tp].append(20)
    assert consumer._new_offset(tp) == 21


async def test_a_partition_that_has_no_position_yet_ends_nothing() -> None:
    consumer = object.__new__(Transport.Consumer)
    consumer.assignment = lambda: {("queries", 0)}
    consumer.verify_event_path = _no_position
    await consumer.verify_all_partitions_active()


def _no_position(*_: object) -> None:
    raise AssertionError("aiokafka's, of a partition that is being positioned")


class Fetching(QueueServiceThread):  # type: ignore[misc]  # mode has no types
    """A thread that fetches nothing, and notes where seeks are made."""

    def __init__(self) -> None:
        super().__init__()
        self.sought: list[tuple[int, TP, int]] = []

    def seek(self, partition: TP, offset: int) -> None:
        self.sought.append((threading.get_ident(), partition, offset))


async def test_a_seek_is_made_by_the_thread_that_fetches() -> None:
    """By another one it takes away what the fetching one looks at just then, whose KeyError ends the process."""
    consumer, tp = object.__new__(Transport.Consumer), TP("verdicts", 2)
    async with Fetching() as thread:
        consumer._thread = thread
        await consumer._seek(tp, 89)
    ((where, *what),) = thread.sought
    assert what == [tp, 89]
    assert where != threading.get_ident()
