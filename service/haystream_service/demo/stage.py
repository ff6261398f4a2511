"""What the demo runs on: real Kafka and Redis with a worker process, or everything in this process."""

import asyncio
import os
import secrets
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from prometheus_client import CollectorRegistry

from haystream.warm import warm
from haystream_service.demo.play import Bus
from haystream_service.local import KafkaServer, LocalServer, ServerUnavailable, ValkeyServer
from haystream_service.metrics import Metrics
from haystream_service.settings import PREFIX, Settings, load
from haystream_service.store.memory import MemoryStore
from haystream_service.store.redis import RedisStore
from haystream_service.worker.memory import MemoryBroker, MemoryConsumer, MemoryPublisher
from haystream_service.worker.worker import Worker

TOPICS = ("queries", "items", "verdicts", "next-items", "dead-letters")
IN_MEMORY = "in memory (this process)"


@dataclass(frozen=True, slots=True)
class Stage:
    """A running haystream."""

    bus: Bus
    kafka: str
    """What stands for Kafka, in words."""
    redis: str


class WorkerProcess(LocalServer):
    """`haystream worker` as a process of its own, as it runs in production."""

    name = "the haystream worker"

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__(data_dir=None, start_seconds=90.0)
        self._settings = {**settings, f"{PREFIX}HOST": "127.0.0.1", f"{PREFIX}PORT": str(self.port)}

    def command(self) -> list[str]:
        """The worker, by this interpreter."""
        return [sys.executable, "-c", "from haystream_service.cli import main; main()", "worker"]

    def environment(self) -> dict[str, str]:
        """Ours, but no HAYSTREAM_ setting of it: the demo must not touch a real deployment's topics."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        return {**kept, **self._settings}

    def answers(self) -> bool:
        """Whether it says that it is ready."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2.0) as response:
                return bool(response.status == 200)
        except (urllib.error.HTTPError, urllib.error.URLError):
            return False  # not yet


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

    async def next_ranking(self) -> dict[str, Any]:
        """The next value of next-items."""
        record = await self._consumer.getone()
        return dict(orjson.loads(record.value))


class MemoryBus:
    """A `Bus` over the in-memory broker."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._offset = 0

    async def send(self, topic: str, key: str, value: bytes) -> None:
        """Write to a topic."""
        self._broker.produce(topic, key.encode(), value)

    async def send_items(self, items: list[tuple[str, bytes]]) -> None:
        """Write items."""
        for key, value in items:
            self._broker.produce("items", key.encode(), value)

    async def next_ranking(self) -> dict[str, Any]:
        """The next value of next-items."""
        message = await self._broker.read(("next-items", 0), self._offset)
        self._offset += 1
        return dict(orjson.loads(message.value or b"{}"))


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    """Real servers: those that HAYSTREAM_KAFKA and HAYSTREAM_REDIS name, else local ones that stop at the end.

    Where a local server cannot be had (no Java), everything runs in memory, on the same handlers.
    """
    async with AsyncExitStack() as stack:
        named = load()
        try:
            kafka, kafka_name = await asyncio.to_thread(_kafka, stack, named)
            redis, redis_name = await asyncio.to_thread(_redis, stack, named)
        except ServerUnavailable as missing:
            reason = str(missing).splitlines()[0]
            on = Stage(await _in_memory(stack), f"{IN_MEMORY}: {reason}", IN_MEMORY)
        else:
            fresh = f"haystream-demo-{secrets.token_hex(4)}"
            settings = load(
                environ={}, kafka=kafka, redis=redis, topic_prefix=fresh, redis_prefix=fresh, group=fresh
            )
            on = Stage(await _on_kafka(stack, settings), kafka_name, redis_name)
        yield on


def _named(variable: str) -> bool:
    return bool(os.environ.get(PREFIX + variable))


def _kafka(stack: AsyncExitStack, named: Settings) -> tuple[str, str]:
    """Address and name of the Kafka to use."""
    if _named("KAFKA"):
        return named.kafka, f"Apache Kafka at {named.kafka}"
    server = stack.enter_context(KafkaServer())
    return server.bootstrap, f"Apache Kafka at {server.bootstrap} (started here)"


def _redis(stack: AsyncExitStack, named: Settings) -> tuple[str, str]:
    """URL and name of the Redis to use."""
    if _named("REDIS"):
        return named.redis, f"Redis at {named.redis.rpartition('@')[2]}"
    server = stack.enter_context(ValkeyServer())
    return server.url, f"Valkey at {server.url} (started here)"


async def _on_kafka(stack: AsyncExitStack, settings: Settings) -> Bus:
    stack.push_async_callback(_remove_traces, settings)
    given = settings.model_dump(include={"kafka", "redis", "topic_prefix", "redis_prefix", "group"})
    worker = WorkerProcess({PREFIX + name.upper(): str(value) for name, value in given.items()})
    stack.callback(worker.close)
    await asyncio.to_thread(worker.start)  # which creates the topics
    consumer = AIOKafkaConsumer(
        settings.topic("next-items"), bootstrap_servers=settings.kafka, auto_offset_reset="earliest"
    )
    producer = AIOKafkaProducer(bootstrap_servers=settings.kafka, enable_idempotence=True)
    for client in (consumer, producer):
        await client.start()
        stack.push_async_callback(client.stop)
    return KafkaBus(settings, producer, consumer)


async def _remove_traces(settings: Settings) -> None:
    """Leave nothing on servers that are not ours; ours are gone with their directories anyway."""
    if _named("REDIS"):
        store = RedisStore.connect(settings.redis, prefix=settings.redis_prefix)
        await store.wipe()
        await store.close()
    if _named("KAFKA"):
        admin = AIOKafkaAdminClient(bootstrap_servers=settings.kafka)
        await admin.start()
        await admin.delete_topics([settings.topic(name) for name in TOPICS])
        await admin.close()


async def _in_memory(stack: AsyncExitStack) -> Bus:
    broker = MemoryBroker()
    consumer = MemoryConsumer(broker)
    worker = Worker(
        MemoryStore(),
        MemoryPublisher(broker),
        caught_up=consumer.caught_up,
        metrics=Metrics(CollectorRegistry(), labelled_queries=1),
    )
    await asyncio.to_thread(warm)
    await worker.start()
    await consumer.assign(worker, {0})
    stack.push_async_callback(worker.close)
    stack.push_async_callback(consumer.stop)
    return MemoryBus(broker)
