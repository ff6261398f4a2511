"""The way to the worker and back: over Kafka and the queue API, over Kafka alone, or over the in-memory broker."""

import asyncio
from datetime import UTC, datetime
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from typing_extensions import override

from haystream.events import Verdict
from haystream_service.client import Haystream
from haystream_service.settings import Settings
from haystream_service.wire import NextItems, decode_ranking, encode_verdict
from haystream_service.worker.memory_broker import MemoryBroker


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

    async def take(self, query_id: str, top: str) -> str | None:
        """The item to read, given the one on top of the last ranking; None where none can be had just now."""
        return top

    async def decide(self, verdict: Verdict) -> None:
        """Give a verdict; returns when the broker has it."""
        await self.send("verdicts", verdict.query_id, encode_verdict(verdict))


class KafkaBus(Bus):
    """A `Bus` over Kafka alone: whoever reads takes what is on top."""

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


class ApiBus(KafkaBus):
    """A `Bus` whose analyst claims and decides over HTTP, as queue software does; the rest goes over Kafka."""

    def __init__(
        self, settings: Settings, producer: AIOKafkaProducer, consumer: AIOKafkaConsumer, api: Haystream
    ) -> None:
        super().__init__(settings, producer, consumer)
        self._api = api

    @override
    async def take(self, query_id: str, top: str) -> str | None:
        """The best item that nobody has: it is ours until it is decided."""
        leases = await asyncio.to_thread(self._api.next, query_id)
        return leases[0].item_id if leases else None

    @override
    async def decide(self, verdict: Verdict) -> None:
        """Give a verdict, which ends our lease."""
        at = datetime.fromtimestamp(verdict.decided_at / 1e6, UTC)
        what = verdict.query_id, verdict.item_id, verdict.outcome
        await asyncio.to_thread(self._api.decide, *what, verdict_id=verdict.verdict_id, decided_at=at)


class MemoryBus(Bus):
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
