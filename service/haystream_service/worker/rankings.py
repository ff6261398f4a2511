"""Readers of next-items see the newest ranking last: an older one that lands on it is written over.

A worker that was cut off from Kafka may have a ranking on its way that is sent when the way is free again, long
after its heir has published newer ones. So the owner of a query reads what is published of it. Where that is gone,
as the topic was made anew, it is published again.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

import orjson
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from haystream_service.kafka.connection import answering, consumer_arguments, start
from haystream_service.settings import Settings
from haystream_service.worker.retry import Retry
from haystream_service.worker.worker import Worker

log = logging.getLogger(__name__)

BUNDLE_MS = 500
BUNDLE_BYTES = 1 << 20
"""The broker answers when there is so much to read, or after so long: nobody waits for it."""
AGAIN_SECONDS = 1.0
NO_REVISION = -1
"""Of what is no ranking, and of none at all: older than any."""
NOWHERE = -1
"""Where a ranking is that is gone: before all offsets."""


class OwnRankings:
    """Reads the partitions of next-items that hold this worker's queries, from where it published them."""

    def __init__(self, settings: Settings, worker: Worker, retry: Retry) -> None:
        self._settings = settings
        self._topic = settings.topic("next-items")
        self._worker = worker
        self._retry = retry
        self._landed: dict[str, tuple[int, int]] = {}
        """By query, the partition and the offset of the ranking that this worker published last, or NOWHERE."""
        self._passed: dict[str, int] = {}
        """By query that was taken away, perhaps for a moment, the revision that landed last of it meanwhile."""
        self._positions: dict[int, int] = {}
        """By partition, the offset to be read next; of one that is not read now, where that ended."""

    def __len__(self) -> int:
        """How many queries' rankings are looked for."""
        return len(self._landed)

    def landed(self, query_id: str, partition: int, offset: int) -> None:
        """The broker has a ranking of ours."""
        if offset >= 0:  # of a repeated message the broker may not say where the first one is
            self._landed[query_id] = partition, offset

    async def run(self) -> None:
        """Read until cancelled. Raises what is a bug."""
        while True:
            consumer = await self._retry(self._connected)
            try:
                while True:
                    await self._read(consumer)
            except (KafkaError, OSError) as error:
                log.warning("published rankings cannot be read: %r; connecting again", error)
                await asyncio.sleep(AGAIN_SECONDS)
            finally:
                with suppress(KafkaError, OSError):
                    await consumer.stop()

    async def _connected(self) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            **consumer_arguments(self._settings),
            auto_offset_reset="earliest",  # where compaction or retention has been, from what is left
            fetch_max_wait_ms=BUNDLE_MS,
            fetch_min_bytes=BUNDLE_BYTES,
        )
        with answering("published rankings cannot be read"):
            await start(consumer)
        return consumer

    async def _read(self, consumer: AIOKafkaConsumer) -> None:
        for query_id in [query_id for query_id in self._passed if self._worker.revision(query_id) is not None]:
            self._compare(query_id, self._passed.pop(query_id))
        begins = self.begins()
        if begins.keys() != {tp.partition for tp in consumer.assignment()}:
            consumer.assign([TopicPartition(self._topic, p) for p in begins])
            for partition, begin in begins.items():
                # What was read has been looked at, and what lies before all that we published is nobody's concern.
                self._positions[partition] = max(begin, self._positions.get(partition, 0))
                consumer.seek(TopicPartition(self._topic, partition), self._positions[partition])
        if not begins:
            await asyncio.sleep(AGAIN_SECONDS)
            return
        found = await consumer.getmany(timeout_ms=2 * BUNDLE_MS)
        for tp in consumer.assignment():
            records = found.get(tp, [])
            # Of a partition of which nothing has been fetched yet the end is not known.
            goes_on = records[0].offset if records else consumer.highwater(tp)
            if goes_on is not None and goes_on < self._positions[tp.partition]:
                self._begun_anew(tp)
                self._positions[tp.partition] = goes_on
            for record in records:
                self._look(record)
                self._positions[tp.partition] = record.offset + 1

    def begins(self) -> Mapping[int, int]:
        """By partition that holds a query of ours, the first offset at which a query that we know was published."""
        begins: dict[int, int] = {}
        ours: set[int] = set()
        known = self._worker.query_ids()
        for query_id, (partition, offset) in list(self._landed.items()):
            # Of one that is taken away the place is kept: if it comes back, still in memory, it is not published.
            if query_id not in known:
                del self._landed[query_id]
                self._passed.pop(query_id, None)
                continue
            begins[partition] = min(offset, begins.get(partition, offset))
            if self._worker.revision(query_id) is not None:
                ours.add(partition)
        return {partition: begins[partition] for partition in ours}

    def _begun_anew(self, tp: TopicPartition) -> None:
        """Have the newest ranking of each query published again that was in the partition."""
        text = "%s/%d ends before what was read of it: the topic was made anew, or has lost its last records"
        log.warning(f"{text}; its rankings are published again", *tp)
        for query_id in [query_id for query_id, where in self._landed.items() if where[0] == tp.partition]:
            self._landed[query_id] = tp.partition, NOWHERE  # else where it was would be looked for once more
            if self._worker.revision(query_id) is None:
                self._passed[query_id] = NO_REVISION
            else:
                self._worker.publish_again(query_id)

    def _look(self, record: ConsumerRecord) -> None:
        query_id = (record.key or b"").decode(errors="replace")
        # Of a query without a place nothing of ours is there yet, or nobody has said where.
        _, ours = self._landed.get(query_id, (record.partition, NOWHERE))
        known = query_id in self._landed or self._worker.revision(query_id) is not None
        if known and record.offset > ours:
            self._compare(query_id, _revision(record.value))

    def _compare(self, query_id: str, landed: int) -> None:
        """Have the newest ranking published again, if that revision is older; where that can be said."""
        revision = self._worker.revision(query_id)
        if revision is None:
            self._passed[query_id] = landed
        elif landed < revision:
            text = "an older ranking of query %r landed after its newest: publishing that again"
            log.warning(text, query_id, extra={"query": query_id})
            self._worker.publish_again(query_id)


def _revision(value: bytes | None) -> int:
    """The revision of a published ranking; NO_REVISION of anything else."""
    try:
        return int(orjson.loads(value or b"")["revision"])
    except (ValueError, TypeError, KeyError):
        return NO_REVISION
