"""What the demo runs on: real Kafka and Redis with a worker process, or everything in this process."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from prometheus_client import CollectorRegistry

from haystream.warm import warm
from haystream_service.client import Haystream
from haystream_service.console import notes
from haystream_service.demo.bus import ApiBus, Bus, KafkaBus, MemoryBus
from haystream_service.demo.play import NoAnswer
from haystream_service.errors import UserError
from haystream_service.kafka.admin import TOPICS
from haystream_service.kafka.connection import client_arguments, refusal
from haystream_service.local import KafkaServer, ServerUnavailable, ValkeyServer
from haystream_service.local.services import ApiProcess, WorkerProcess
from haystream_service.local.starting import started
from haystream_service.metrics import Metrics
from haystream_service.settings import PREFIX, Settings, load, variables
from haystream_service.store.base import StoreUnavailable
from haystream_service.store.memory import MemoryStore
from haystream_service.store.redis import RedisStore
from haystream_service.worker.memory_broker import MemoryBroker, MemoryConsumer, MemoryPublisher
from haystream_service.worker.worker import Worker

IN_MEMORY = "in memory (this process)"
OR_NAME_THEM = "or name running servers with HAYSTREAM_KAFKA and HAYSTREAM_REDIS"
LOG_LINES = 15


@dataclass(frozen=True, slots=True)
class Stage:
    """A running haystream."""

    bus: Bus
    kafka: str
    """What stands for Kafka, in words."""
    redis: str
    metrics: str | None = None
    """Where the worker process serves its metrics, `host:port`; None where there is none."""
    api: tuple[str, str] | None = None
    """Where the queue API is, and the token that it takes; None where it is not installed, or all is in memory."""
    api_metrics: str | None = None
    """Where the API serves its metrics, `host:port`."""


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    """Real servers: those that HAYSTREAM_KAFKA and HAYSTREAM_REDIS name, else local ones that stop at the end.

    Where a local server cannot be had (no Java), everything runs in memory, on the same handlers.

    Raises:
        UserError: a server that was named does not answer.
        ServerUnavailable: the worker does not start.
    """
    async with AsyncExitStack() as stack:
        fresh = f"haystream-demo-{secrets.token_hex(4)}"
        named = load(topic_prefix=fresh, redis_prefix=fresh, group=fresh)
        try:
            async with AsyncExitStack() as servers:
                redis, redis_name = await _redis(servers, named)
                kafka, kafka_name = await _kafka(servers, named)
                stack.push_async_exit(servers.pop_all())
        except ServerUnavailable as missing:
            reason = str(missing).splitlines()[0]
            yield Stage(await _in_memory(stack), f"{IN_MEMORY}: {reason}; {OR_NAME_THEM}", IN_MEMORY)
            return
        names = {"topic_prefix": fresh, "redis_prefix": fresh, "group": fresh}
        settings = load(environ={}, **{**kafka, **redis, **names})
        worker = WorkerProcess(variables(settings))
        await started(stack, worker)  # which creates the topics
        metrics = f"127.0.0.1:{worker.port}"
        api, api_metrics = await _api(stack, settings, worker.data_dir) if find_spec("fastapi") else (None, None)
        bus = await _kafka_bus(stack, settings, api)
        with explained(worker):
            yield Stage(bus, kafka_name, redis_name, metrics, api, api_metrics)


async def _api(stack: AsyncExitStack, settings: Settings, folder: Path) -> tuple[tuple[str, str], str]:
    """The address of the queue API with a token for all of it, and where its metrics are."""
    from haystream_service.api.access import Role
    from haystream_service.api.tokens import new_key, write_keys

    token, key = new_key("demo", list(Role), ["*"])
    await asyncio.to_thread(write_keys, folder / "keys.json", [key])
    api = await started(stack, ApiProcess(variables(settings), folder / "keys.json"))
    return (api.address, token), f"127.0.0.1:{api.port}"


def _named(variable: str) -> bool:
    return bool(os.environ.get(PREFIX + variable))


def _about(server: str, named: Settings) -> dict[str, Any]:
    """The settings of how a server is reached."""
    return {name: getattr(named, name) for name in Settings.model_fields if name.split("_")[0] == server}


async def _kafka(stack: AsyncExitStack, named: Settings) -> tuple[dict[str, Any], str]:
    """How the Kafka to use is reached, and its name. One that was named gets rid of our topics in the end."""
    if not _named("KAFKA"):
        server = await started(stack, KafkaServer())
        return {"kafka": server.bootstrap}, f"Apache Kafka at {server.bootstrap} (started here)"
    admin = AIOKafkaAdminClient(**client_arguments(named))
    try:
        await admin.start()
    except KafkaError as error:
        why = await refusal(named) or f"no Kafka answers at {named.kafka} (HAYSTREAM_KAFKA): {error}"
        raise UserError(why) from None
    finally:
        await admin.close()
    stack.push_async_callback(_remove_topics, named)
    return _about("kafka", named), f"Apache Kafka at {named.kafka}"


async def _redis(stack: AsyncExitStack, named: Settings) -> tuple[dict[str, Any], str]:
    """How the Redis to use is reached, and its name. One that was named gets rid of our keys in the end."""
    if not _named("REDIS"):
        server = await started(stack, ValkeyServer())
        return {"redis": server.url}, f"Valkey at {server.url} (started here)"
    store = RedisStore.open(named)
    stack.push_async_callback(store.close)
    await store.ping()
    stack.push_async_callback(_remove_keys, store)
    return _about("redis", named), f"Redis at {named.redis}"


async def _kafka_bus(stack: AsyncExitStack, settings: Settings, api: tuple[str, str] | None) -> Bus:
    consumer = AIOKafkaConsumer(
        settings.topic("next-items"), **client_arguments(settings), auto_offset_reset="earliest"
    )
    producer = AIOKafkaProducer(**client_arguments(settings), enable_idempotence=True)
    for client in (consumer, producer):
        stack.push_async_callback(client.stop)
        await client.start()
    if api is None:
        return KafkaBus(settings, producer, consumer)
    return ApiBus(settings, producer, consumer, stack.enter_context(Haystream(*api)))


@contextmanager
def explained(worker: WorkerProcess) -> Iterator[None]:
    """With the end of the worker's log, which is removed with the worker, where that does not answer."""
    try:
        yield
    except NoAnswer as error:
        state = "runs" if worker.running else "has ended"
        log = "\n".join(worker.log.read_text(errors="replace").splitlines()[-LOG_LINES:])
        raise NoAnswer(f"{error}; {worker.name} {state}\n{log}") from None


async def _remove_topics(settings: Settings) -> None:
    admin = AIOKafkaAdminClient(**client_arguments(settings))
    try:
        await admin.start()
        await admin.delete_topics([settings.topic(name) for name in TOPICS])
    except KafkaError as error:
        notes.print(f"the topics {settings.topic_prefix}.* were not removed: {error!r}", markup=False)
    finally:
        await admin.close()


async def _remove_keys(store: RedisStore) -> None:
    try:
        await store.wipe()
    except StoreUnavailable as error:
        notes.print(f"the demo's keys in Redis were not removed: {error}", markup=False)


async def _in_memory(stack: AsyncExitStack) -> Bus:
    broker = MemoryBroker()
    consumer = MemoryConsumer(broker)
    worker = Worker(
        MemoryStore(),
        MemoryPublisher(broker),
        caught_up=consumer.caught_up,
        ends=consumer.ends,
        again=consumer.again,
        metrics=Metrics(CollectorRegistry(), labelled_queries=1),
    )
    await asyncio.to_thread(warm)
    await worker.start()
    stack.push_async_callback(worker.close)
    stack.push_async_callback(consumer.stop)
    await consumer.assign(worker, {0})
    return MemoryBus(broker, worker.failed)
