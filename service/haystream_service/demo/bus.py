"""The way to the worker and back: over Kafka, or over the in-memory broker."""

import asyncio
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from haystream_service.settings import Settings
from haystream_service.wire import NextItems, decode_ranking
from haystream_service.worker.memory import MemoryBroker


class Bus(Protocol):
    """What the play needs. One reader of rankings at a time."""

    async def send(self, topic: str, key: str, value: bytes) -> None:
        """Write to a topic; returns when the broker has it."""
        ...

    async def send_items(self, items: list[tuple[str, bytes]]) -> None:
        """Write (item_id, value) pairs to the items topic; returns when the broker has them."""
        ...

    async def next_ranking(self) -> NextItems:
        """The next value of next-items."""
        ...


class KafkaBus:
    """A `Bus` over Kafka."""

    def __init__(self, settings: Settings, producer: AIOKafkaProducer, consumer: AIOKafkaConsumer) -> None:
        self._settings = settings
        self._producer = producer
        self._consumer = consumer

    async def send(self, topic: str, key: str, value: bytes) -> None:
        """Write to a topic."""
        await self._producer.send_and_wait(self._settings.topic(topic), value, key=key.encode())

    async def send_items(self, items: list[tuple[str, bytes]]) -> None:
        """Write items, many in flight."""
        topic = self._settings.topic("items")
        sent = [await self._producer.send(topic, value, key=key.encode()) for key, value in items]
        await asyncio.gather(*sent)

    async def next_ranking(self) -> NextItems:
        """The next value of next-items."""
        return decode_ranking((await self._consumer.getone()).value)


class MemoryBus:
    """A `Bus` over the in-memory broker. `failed` is the worker's: its bug is raised where a ranking is awaited."""

    def __init__(self, broker: MemoryBroker, failed: "asyncio.Future[None]") -> None:
        self._broker = broker
        self._failed = failed
        self._offset = 0

    async def send(self, topic: str, key: str, value: bytes) -> None:
        """Write to a topic."""
        self._broker.produce(topic, key.encode(), value)

    async def send_items(self, items: list[tuple[str, bytes]]) -> None:
        """Write items."""
        for key, value in items:
            self._broker.produce("items", key.encode(), value)

    async def next_ranking(self) -> NextItems:
        """The next value of next-items."""
        reading = asyncio.ensure_future(self._broker.read(("next-items", 0), self._offset))
        waits: set[asyncio.Future[Any]] = {reading, self._failed}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                self._failed.result()
            self._offset += 1
            return decode_ranking(reading.result().value)
        finally:
            reading.cancel()
