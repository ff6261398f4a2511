"""Copying the log of record to topics with another number of partitions, every record to where its key lies there.

Kafka adds partitions to a topic in place, but moves no record: a query's settings would lie on one partition, and
new verdicts for it come on another, which its owner does not read. So more partitions are new topics.
"""

import asyncio
import heapq
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, aclosing, suppress

from aiokafka import AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.structs import RecordMetadata

from haystream.errors import Rejected
from haystream.events import ItemFact, Status
from haystream.facts.merging import merge
from haystream_service.errors import UserError
from haystream_service.kafka import admin
from haystream_service.kafka.connection import client_arguments, running
from haystream_service.kafka.ends import KafkaEnds
from haystream_service.kafka.producer import RANKING_BYTES
from haystream_service.kafka.records import (
    OWNED,
    REPLAYS,
    RESTATES,
    SOURCES,
    BrokerUnavailable,
    Kind,
    place,
    replays,
    restates,
)
from haystream_service.kafka.stretches import WHOLE, stretch, whole
from haystream_service.settings import Settings
from haystream_service.wire import decode_item, decode_query, encode_item
from haystream_service.worker.rebuilding import Counter

RECORDS_AT_ONCE = 1000
"""Records under way before their acknowledgement is awaited."""
GONE_PLACE = "gone"
"""In place of a place: what a replay has sent stands for a record that was not copied."""


class Repartition:
    """One copy, from the topics of `source` to those of `target`. Nothing may write to either meanwhile.

    Of queries that were deleted only the deletion is copied, and nothing of the items of the collections `without`.
    Of items that were withdrawn it is copied who is on them, and what scopes ask for, but not what they say.
    """

    def __init__(self, source: Settings, target: Settings, *, without: Collection[str] = ()) -> None:
        self._source = source
        self._target = target
        self._without = without
        self._deleted: set[bytes] = set()
        """The ids of queries that were deleted."""
        self._withdrawn: set[tuple[str, str]] = set()
        """Collection and id of the items that were taken back."""
        self._answered: set[str] = set()
        """The places of the records that replays have stood for."""
        self._moved: dict[str, RecordMetadata] = {}
        """Of settings, and of what replays stand for, by the place where it was, where it is now."""

    async def check(self) -> None:
        """Create the new topics. Raises `UserError` where copying must not begin, or Kafka does not answer."""
        try:
            await admin.check_topics(self._source, *SOURCES.values())
            members = await admin.active_members(self._source)
            there = {} if members else await self._there()
        except BrokerUnavailable as error:
            raise UserError(f"{str(error).rstrip('.')}. Nothing was copied") from None
        if members:
            raise UserError(f"the group still has members: {', '.join(members)}. Stop the workers first")
        if filled := sorted({tp.topic for tp, end in there.items() if end > 0}):
            raise UserError(f"{', '.join(filled)} hold records already: name another prefix, or delete the topics")

    async def _there(self) -> Mapping[TopicPartition, int]:
        """How far the partitions go to which is copied; they are made where they are not there."""
        counts = await admin.ensure_topics(self._target)
        queries = SOURCES[Kind.QUERY]
        if counts[queries] != self._target.partitions:
            raise UserError(f"{self._target.topic(queries)} is there already, with {counts[queries]} partitions")
        ends = KafkaEnds(self._target)
        try:
            return await ends(
                [TopicPartition(self._target.topic(n), p) for n in SOURCES.values() for p in range(counts[n])]
            )
        finally:
            await ends.close()

    async def run(self, progress: Callable[[str, int], Counter]) -> int:
        """Copy everything that was not deleted; the number of records.

        Raises `UserError` where a collection to leave out has no items: it may be misspelt, and nothing is copied.
        Raises `BrokerUnavailable`; the copy is not complete then.
        """
        producer = AIOKafkaProducer(
            **client_arguments(self._target), enable_idempotence=True, max_request_size=RANKING_BYTES
        )
        async with running(producer, "Kafka did not take a record"):
            await self._look()
            return sum([await self._copy(kind, producer, progress) for kind in (*OWNED, Kind.ITEM)])

    async def _look(self) -> None:
        """Read all of it once, for what has to be known before the first record is copied."""
        named: set[tuple[str, str]] = set()
        unseen = set(self._without)
        for kind in (*OWNED, Kind.ITEM):
            async with aclosing(whole(self._source, SOURCES[kind])) as records:
                async for record in records:
                    self._answered |= replays(record.headers)
                    if kind is Kind.QUERY and _deletes(record):
                        self._deleted.add(record.key)
                    elif kind is Kind.ITEM and (fact := _fact(record)) is not None:
                        unseen.discard(fact.collection)
                        if fact.withdrawn:
                            named.add((fact.collection, fact.item_id))
        if unseen:
            names, topic = ", ".join(map(repr, sorted(unseen))), self._source.topic(SOURCES[Kind.ITEM])
            raise UserError(f"{topic} has no items of {names} to leave out. Nothing was copied")
        if named:
            self._withdrawn = await self._taken_back(named)

    async def _taken_back(self, named: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        # A record that names other people than the first one does is rejected, and takes nothing back.
        known: dict[tuple[str, str], ItemFact] = {}
        async with aclosing(whole(self._source, SOURCES[Kind.ITEM])) as records:
            async for record in records:
                fact = _fact(record)
                if fact is not None and (item := (fact.collection, fact.item_id)) in named:
                    with suppress(Rejected):
                        known[item] = merge(known[item], fact) if item in known else fact
        return {item for item, fact in known.items() if fact.withdrawn}

    async def _copy(self, kind: Kind, producer: AIOKafkaProducer, progress: Callable[[str, int], Counter]) -> int:
        copied, under_way = 0, list[asyncio.Future[RecordMetadata]]()
        partitions = [
            TopicPartition(self._source.topic(SOURCES[kind]), p)
            for p in await admin.partitions_of(self._source, SOURCES[kind])
        ]
        counter = progress(self._source.topic(SOURCES[kind]), 0)
        async with aclosing(in_order(self._source, partitions)) as records:
            async for record in records:
                if self._leaves_out(kind, record):
                    continue
                sent = await producer.send(
                    self._target.topic(SOURCES[kind]),
                    self._value(kind, record),
                    key=record.key,
                    timestamp_ms=record.timestamp,
                    headers=self._headers(record),
                )
                was = place(record.topic, record.partition, record.offset)
                if kind is Kind.QUERY or was in self._answered:
                    self._moved[was] = await sent
                under_way.append(sent)
                copied += 1
                counter.advance()
                if len(under_way) == RECORDS_AT_ONCE:
                    await asyncio.gather(*under_way)
                    under_way.clear()
        await asyncio.gather(*under_way)
        return copied

    def _leaves_out(self, kind: Kind, record: ConsumerRecord) -> bool:
        if record.key is None and record.value is None:
            return True  # it says nothing, and no producer of ours can write it
        if kind is not Kind.ITEM:
            return record.key in self._deleted and not (kind is Kind.QUERY and _deletes(record))
        fact = _fact(record) if self._without else None
        return fact is not None and fact.collection in self._without

    def _value(self, kind: Kind, record: ConsumerRecord) -> bytes | None:
        """The record's value, without what an item says that was taken back."""
        value: bytes | None = record.value
        fact = _fact(record) if kind is Kind.ITEM and self._withdrawn else None
        taken_back = fact is not None and (fact.collection, fact.item_id) in self._withdrawn
        return encode_item(fact) if fact is not None and taken_back else value

    def _headers(self, record: ConsumerRecord) -> list[tuple[str, bytes]]:
        """The record's headers; where they name an earlier record, where that lies now."""
        headers = [(name, value) for name, value in record.headers or () if name not in {RESTATES, REPLAYS}]
        earlier = restates(record.headers)
        if earlier is not None:
            # Retention may have taken that record: then these are settings like any others.
            moved = self._moved.get(place(record.topic, record.partition, earlier))
            headers += [] if moved is None else [(RESTATES, str(moved.offset).encode())]
        for answered in sorted(replays(record.headers)):
            moved = self._moved.get(answered)
            now = GONE_PLACE if moved is None else place(moved.topic, moved.partition, moved.offset)
            headers.append((REPLAYS, now.encode()))
        return headers


def _deletes(record: ConsumerRecord) -> bool:
    try:
        return decode_query(record.value, record.key).status == Status.DELETED
    except Rejected:
        return False


def _fact(record: ConsumerRecord) -> ItemFact | None:
    """What the record of `items` says; None of what is no item."""
    try:
        return decode_item(record.value, record.key)
    except Rejected:
        return None


async def in_order(settings: Settings, partitions: list[TopicPartition]) -> AsyncGenerator[ConsumerRecord, None]:
    """All that the partitions hold, by time, as far as that keeps the order of each. Raises `BrokerUnavailable`."""
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(aclosing(stretch(settings, {tp: WHOLE}))) for tp in partitions]
        heads: list[tuple[int, int, ConsumerRecord]] = []

        async def pull(number: int, not_before: int) -> None:
            record = await anext(streams[number], None)
            if record is not None:
                heapq.heappush(heads, (max(record.timestamp, not_before), number, record))

        for number in range(len(streams)):
            await pull(number, 0)
        while heads:
            time, number, record = heapq.heappop(heads)
            yield record
            await pull(number, time)
