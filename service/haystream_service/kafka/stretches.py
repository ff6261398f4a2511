"""Reading stretches of our topics once more, beside the consumer group: nothing is committed."""

from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from heapq import heapify, heappop, heapreplace

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from haystream_service.kafka import admin
from haystream_service.kafka.connection import consumer_arguments, running
from haystream_service.kafka.records import SOURCES, Kind, Record, restates
from haystream_service.settings import Settings
from haystream_service.store.base import Span

POLL_MS = 1000
NO_END = 1 << 62
"""Where a stretch ends that goes to wherever its partition ends now."""
WHOLE = 0, NO_END
Tell = Callable[[TopicPartition, int, int], None]
"""Is told a partition, and from which offset up to, but without, which nothing can be had any more."""


async def stretch(
    settings: Settings, spans: Mapping[TopicPartition, tuple[int, int]], *, missing: Tell = lambda *_: None
) -> AsyncGenerator[ConsumerRecord, None]:
    """The records of each partition from one offset up to, but without, another, as far as they still are there.

    Those of one partition come in order. `missing` is told what of a span lies before its partition's beginning.
    Raises `BrokerUnavailable`.
    """
    consumer = AIOKafkaConsumer(
        **consumer_arguments(settings),
        auto_offset_reset="earliest",  # where the beginning is gone, from what is left
    )
    async with running(consumer):
        consumer.assign(list(spans))
        for tp, (begin, _) in spans.items():
            consumer.seek(tp, begin)
        for tp, first in (await consumer.beginning_offsets(list(spans))).items():
            begin, end = spans[tp]
            if begin < first:
                missing(tp, begin, min(end, first))
        there = await consumer.end_offsets(list(spans))
        ends = {tp: min(end, there[tp]) for tp, (_, end) in spans.items()}
        async for records in by_time(consumer, ends):
            for record in records:
                yield record


async def by_time(
    consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int]
) -> AsyncGenerator[list[ConsumerRecord], None]:
    """The records up to, but without, the ends, by and by: each partition's in order, and all by their timestamps.

    So what came first among the partitions comes first again, as far as clocks tell.
    """
    fetched: dict[TopicPartition, deque[ConsumerRecord]] = {tp: deque() for tp in ends}
    behind = {tp for tp, end in ends.items() if await consumer.position(tp) < end}
    heads: list[tuple[int, TopicPartition]] = []
    while behind or heads:
        while empty := [tp for tp in behind if not fetched[tp]]:
            for tp, records in (await consumer.getmany(*empty, timeout_ms=POLL_MS)).items():
                fetched[tp].extend(record for record in records if record.offset < ends[tp])
            behind = {tp for tp in behind if await consumer.position(tp) < ends[tp]}
        heads = [(records[0].timestamp, tp) for tp, records in fetched.items() if records]
        heapify(heads)
        some = []
        while heads:
            _, tp = heads[0]
            some.append(fetched[tp].popleft())
            if fetched[tp]:
                heapreplace(heads, (fetched[tp][0].timestamp, tp))
            else:
                heappop(heads)
                if tp in behind:
                    break
        yield some


async def again(
    settings: Settings,
    kind: Kind,
    partition: int,
    key: bytes,
    span: Span,
    *,
    missing: Tell = lambda *_: None,
) -> list[Record]:
    """The records of that key in the span, as far as they still are there. Raises `BrokerUnavailable`."""
    spans = {TopicPartition(settings.topic(SOURCES[kind]), partition): (span.first, span.last + 1)}
    async with aclosing(stretch(settings, spans, missing=missing)) as records:
        return [as_record(kind, record, _no_ack) async for record in records if record.key == key]


def as_record(kind: Kind, message: ConsumerRecord, ack: Callable[[], None]) -> Record:
    """A consumer's record as the worker takes it."""
    return Record(
        kind=kind,
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        timestamp=message.timestamp / 1000,
        key=message.key,
        value=message.value,
        ack=ack,
        restates=restates(message.headers),
    )


def _no_ack() -> None:
    """It is acknowledged, or will be by somebody else."""


async def whole(settings: Settings, name: str) -> AsyncGenerator[ConsumerRecord, None]:
    """All that one of our topics holds now. Raises `BrokerUnavailable`."""
    partitions = await admin.partitions_of(settings, name)
    spans = {TopicPartition(settings.topic(name), p): WHOLE for p in partitions}
    async with aclosing(stretch(settings, spans)) as records:
        async for record in records:
            yield record


async def since(settings: Settings, name: str, timestamp: int) -> AsyncGenerator[ConsumerRecord, None]:
    """What one of our topics holds from the first record of each partition on that is as late as this.

    `timestamp` is in milliseconds since the epoch. Raises `BrokerUnavailable`.
    """
    partitions = [TopicPartition(settings.topic(name), p) for p in await admin.partitions_of(settings, name)]
    if not partitions:
        return
    consumer = AIOKafkaConsumer(**consumer_arguments(settings))
    async with running(consumer):
        begins = await consumer.offsets_for_times(dict.fromkeys(partitions, timestamp))
    spans = {tp: (begin.offset, NO_END) for tp, begin in begins.items() if begin is not None}
    if spans:
        async with aclosing(stretch(settings, spans)) as records:
            async for record in records:
                yield record


async def record_at(settings: Settings, topic: str, partition: int, offset: int) -> ConsumerRecord | None:
    """The record at an offset, or None if it is gone. Raises `BrokerUnavailable`."""
    spans = {TopicPartition(topic, partition): (offset, offset + 1)}
    async with aclosing(stretch(settings, spans)) as records:
        async for record in records:
            if record.offset == offset:
                return record
    return None
