"""Faust's consumer of queries and verdicts, with what would lose records mended.

During a rebalance Faust throws away what it has fetched and goes back to what is committed. aiokafka leaves a
partition where it is as long as nothing of it is committed: behind what was thrown away. Where going back fails,
Faust says so in its log and goes on from there, too. Either way it takes what was thrown away for offsets without
records, as markers of transactions are, and commits them as if they had been read.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError
from faust.transport.drivers import aiokafka
from faust.types import TP

from haystream_service.kafka.connection import READ_COMMITTED

log = logging.getLogger(__name__)

AGAIN_SECONDS = 0.5

Begin = Callable[[Mapping[TopicPartition, int | None]], Awaitable[Mapping[TopicPartition, int]]]
"""Where to read partitions from instead of what is committed (`Progress.begin`)."""


async def back_to_committed(consumer: AIOKafkaConsumer) -> Mapping[TopicPartition, int | None]:
    """Go back to what is committed of every partition that is assigned, and where nothing is, to the beginning.

    Returns the committed offsets, None where there is none. Raises what aiokafka's `seek_to_committed` does.
    """
    committed: Mapping[TopicPartition, int | None] = await consumer.seek_to_committed()
    for tp in {tp for tp, offset in committed.items() if not offset} & consumer.assignment():
        # Where that is gone, Kafka says so and aiokafka goes to what is there (`auto_offset_reset`). Asking for the
        # beginning would first wait for a fetch that is under way, for as long as that finds no record.
        consumer.seek(tp, 0)
    return committed


class _Thread(aiokafka.AIOKafkaConsumerThread):  # type: ignore[misc]  # Faust has no types
    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        # Faust has no setting for this but with its own transactions.
        consumer._isolation_level = READ_COMMITTED
        return consumer

    async def seek_to_committed(self) -> Any:
        return await self.call_thread(back_to_committed, self._ensure_consumer())


class _Consumer(aiokafka.Consumer):  # type: ignore[misc]
    def _new_consumer_thread(self) -> Any:
        return _Thread(self, loop=self.loop, beacon=self.beacon)

    async def perform_seek(self) -> None:
        while True:
            try:
                await super().perform_seek()
            except IllegalStateError:
                raise  # the partitions are others now, and their assignment has a seek of its own
            except KafkaError as error:
                log.warning("Kafka does not say what is committed: %r; asking again", error)
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                return

    async def seek_to_committed(self) -> Mapping[TP, int | None]:
        """Go back to what is committed, or to where the store is, if that is before it."""
        committed: Mapping[TP, int | None] = await super().seek_to_committed()
        begins = await self.transport.begin({TopicPartition(*tp): offset for tp, offset in committed.items()})
        for tp, offset in begins.items():
            log.warning("%s/%d: the store has it up to %d only: reading from there", *tp, offset)
            await self.seek(TP(*tp), offset)
        return {TP(*tp): begins.get(TopicPartition(*tp), offset) for tp, offset in committed.items()}

    async def _seek(self, partition: TP, offset: int) -> None:
        """Seek where records are fetched. Faust does it at once, and what the thread that fetches looks at is gone
        the next moment: that ends the process."""
        await self._thread.call_thread(self._thread.seek, partition, offset)

    def _new_offset(self, tp: TP) -> int | None:
        """What can be committed: the offset after the last record that was acknowledged.

        All that was handed over before it is acknowledged, too (`OrderedAcks`); what lies between is no record.
        Faust looks for gaps instead: at those that transactions leave it stops, at some of them for ever.
        """
        acked = self._acked[tp]
        if not acked:
            return None
        last: int = max(acked)
        acked[:] = [last]  # until another comes: committing may fail
        self._acked_index[tp] = {last}
        self._gap[tp].clear()
        return last + 1

    async def verify_all_partitions_active(self) -> None:
        """Nothing: `Partitions` watches that. Faust would end the process while one has no position yet."""


class Transport(aiokafka.Transport):  # type: ignore[misc]
    """Kafka, of which only what is committed is read, and all of that."""

    Consumer = _Consumer

    def __init__(self, *args: Any, begin: Begin) -> None:
        super().__init__(*args)
        self.begin = begin
