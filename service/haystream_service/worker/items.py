"""Items from Kafka into their collections' logs: a consumer with a group of its own, at its own pace.

An item is only appended to its collection's log, by whoever reads it: no worker has to own it, and nobody waits for
it as an analyst waits for the answer to a verdict. So items come beside Faust, one batch after the other: what is
not in the log yet stays with Kafka, and a flood of items holds up nothing but items.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import CommitFailedError, KafkaError, UnknownTopicOrPartitionError

from haystream_service.kafka.connection import answering, consumer_arguments, start
from haystream_service.kafka.records import Kind
from haystream_service.settings import Settings
from haystream_service.worker.consumer import Begin
from haystream_service.worker.partitions import Partitions
from haystream_service.worker.retry import Retry
from haystream_service.worker.worker import Worker

log = logging.getLogger(__name__)

GATHERING_SHARE = 0.2
"""The share of `item_publish_seconds` for which items are gathered: one round trip to the store for many."""
RECENT_SECONDS = 2.0
"""For so long after a verdict came, more of them are expected."""
AT_ONCE_AMONG_VERDICTS = 100
"""Then so many records are taken at once: each step of a verdict on its way through the event loop may have to wait
for such a lot, and it has some thirty steps."""
REST_FACTOR = 3.0
"""And then reading rests for so many times as long as that took: a flood of items takes a quarter of the time."""
POLL_SECONDS = 0.2
"""How long a read waits where there is nothing. It bounds how soon stopping is noticed."""
COMMIT_SECONDS = 0.5
"""What is committed less often comes again after a crash; it changes nothing, but it takes time."""
IDLE_COMMIT_SECONDS = 5.0
"""The same where no items come: the position may still move, past a transaction that was given up."""
AGAIN_SECONDS = 1.0
SESSION_MS = 10_000
HEARTBEAT_MS = 1000
"""The answer to a heartbeat says that somebody joins or leaves, and all wait until everybody has heard of it."""


class ItemsReader:
    """Reads the items topic until it is stopped."""

    def __init__(
        self, settings: Settings, worker: Worker, partitions: Partitions, retry: Retry, begin: Begin
    ) -> None:
        self._settings = settings
        self._worker = worker
        self._partitions = partitions
        self._retry = retry
        self._begin = begin
        self._fresh: set[TopicPartition] = set()
        """Partitions that were assigned and not read since."""
        self._stopping = False

    async def run(self) -> None:
        """Return once stopped; what was read is in the logs then, and committed. Raises what is a bug."""
        partitions = self._partitions
        while not self._stopping:
            partitions.items_unread = f"nothing is read of {partitions.topic(Kind.ITEM)} before Kafka tells of it"
            consumer = await self._retry(self._connected)
            partitions.items_unread = ""
            try:
                await self._take_in(consumer)
            except (KafkaError, OSError) as error:
                log.warning("items cannot be read: %r; connecting again", error)
                await asyncio.sleep(AGAIN_SECONDS)
            finally:
                partitions.revoke(partitions.of(Kind.ITEM))
                with suppress(KafkaError, OSError):
                    await consumer.stop()

    def stop(self) -> None:
        """Read no more than what is in hand."""
        self._stopping = True

    async def _connected(self) -> AIOKafkaConsumer:
        settings = self._settings
        consumer = AIOKafkaConsumer(
            **consumer_arguments(settings),
            group_id=settings.items_group,
            group_instance_id=settings.instance_id,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        self._fresh.clear()
        listener = _Listener(self._partitions, consumer, self._fresh)
        consumer.subscribe([self._partitions.topic(Kind.ITEM)], listener=listener)
        with answering("items cannot be read"):
            await start(consumer)
        return consumer

    async def _take_in(self, consumer: AIOKafkaConsumer) -> None:
        loop, settings = asyncio.get_running_loop(), self._settings
        committed, committed_records, records_done = loop.time(), 0, 0
        while not self._stopping:
            among_verdicts = self._partitions.since_verdict < RECENT_SECONDS
            most = min(AT_ONCE_AMONG_VERDICTS, settings.max_batch) if among_verdicts else settings.max_batch
            if self._fresh:
                await self._go_to_begin(consumer)
            if consumer.partitions_for_topic(self._partitions.topic(Kind.ITEM)) is None:
                # Deleted: this consumer has given up its partitions, and would look for others in five minutes.
                raise UnknownTopicOrPartitionError("the topic is not there")
            fetched = await consumer.getmany(timeout_ms=round(1000 * POLL_SECONDS), max_records=most)
            began = loop.time()
            for tp in fetched.keys() & self._fresh & consumer.assignment():
                # They were assigned while this waited, and may have to be read from before that.
                consumer.seek(tp, fetched.pop(tp)[0].offset)
            records = [
                self._partitions.record(Kind.ITEM, message, message.timestamp / 1000)
                for some in fetched.values()
                for message in some
            ]
            await self._worker.on_items(records)
            records_done += len(records)
            wait = COMMIT_SECONDS if records_done > committed_records else IDLE_COMMIT_SECONDS
            if loop.time() - committed > wait:
                await _commit(consumer)
                committed, committed_records = loop.time(), records_done
            if 0 < len(records) < most:
                await asyncio.sleep(GATHERING_SHARE * settings.item_publish_seconds)
            elif records and among_verdicts:
                await asyncio.sleep(REST_FACTOR * (loop.time() - began))
        await _commit(consumer)

    async def _go_to_begin(self, consumer: AIOKafkaConsumer) -> None:
        """Have partitions that were assigned read from where the store is, if that is before what is committed."""
        fresh = self._fresh & consumer.assignment()
        for tp, offset in (await self._begin({tp: await consumer.committed(tp) for tp in fresh})).items():
            if tp in consumer.assignment():
                log.warning("%s/%d: the store has it up to %d only: reading from there", *tp, offset)
                consumer.seek(tp, offset)
        self._fresh -= fresh


async def _commit(consumer: AIOKafkaConsumer) -> None:
    """Commit all positions: to be called when everything that was read is in the logs."""
    try:
        await consumer.commit()
    except CommitFailedError as error:
        log.info("items are not committed, as they are given to others: %s", error)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    def __init__(self, partitions: Partitions, consumer: AIOKafkaConsumer, fresh: set[TopicPartition]) -> None:
        self._partitions = partitions
        self._consumer = consumer
        self._fresh = fresh
        self._member = ""

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._partitions.revoke(set(revoked))

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        # Kafka keeps a member's id through rebalances, and gives another to one whose place it had given away.
        before, self._member = self._member, self._consumer._coordinator.member_id
        if before not in {"", self._member}:
            self._partitions.place_was_given_away()
        self._partitions.assign(set(assigned), self._consumer)
        self._fresh.update(assigned)
