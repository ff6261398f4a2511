"""From where, and how far, partitions can be read."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from haystream_service.kafka.connection import consumer_arguments, start
from haystream_service.kafka.records import BrokerUnavailable
from haystream_service.settings import Settings

ANSWER_SECONDS = 5.0


class KafkaEnds:
    """Asks Kafka for offsets, on a connection of its own: a consumer's is taken up by its long poll.

    The end is the last stable offset: what open transactions have written after it, nobody reads yet.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._consumer: AIOKafkaConsumer | None = None
        self._starting = asyncio.Lock()

    async def __call__(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset up to which each can be read. Raises `BrokerUnavailable`."""
        return await self._ask(partitions, lambda consumer: consumer.end_offsets, "how far {} goes")

    async def first(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset of the first record that each still has, or will have. Raises `BrokerUnavailable`."""
        return await self._ask(partitions, lambda consumer: consumer.beginning_offsets, "where {} begins")

    async def _ask(
        self, partitions: Iterable[TopicPartition], how: Callable[[AIOKafkaConsumer], Any], what: str
    ) -> Mapping[TopicPartition, int]:
        wanted = list(partitions)
        topics = sorted({tp.topic for tp in wanted})
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                consumer = await self._started()
                # All at once: else it finds out of one topic after the other, and pauses after each.
                await asyncio.gather(*[consumer._client.add_topic(topic) for topic in topics])
                return dict(await how(consumer)(wanted))
        except TimeoutError:
            reason = f"within {ANSWER_SECONDS:g} s"
        except (KafkaError, OSError) as error:
            reason = f"{error!r}"
        raise BrokerUnavailable(f"Kafka did not say {what.format(', '.join(topics))}: {reason}")

    async def close(self) -> None:
        """Let go of the connection."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with suppress(KafkaError, OSError):
                await consumer.stop()

    async def _started(self) -> AIOKafkaConsumer:
        async with self._starting:
            if self._consumer is None:
                consumer = AIOKafkaConsumer(**consumer_arguments(self._settings))
                await start(consumer)
                self._consumer = consumer
            return self._consumer
