"""The composition root of `haystream api`: everything is made, started, watched and stopped here."""

import asyncio
import logging
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

import uvicorn
from fastapi import FastAPI

from haystream_service.api.app import build_app
from haystream_service.api.contents import ContentReader
from haystream_service.api.desk import Desk
from haystream_service.api.facts import KafkaFacts
from haystream_service.api.guards import Gate
from haystream_service.api.on_demand import GraphsOnDemand
from haystream_service.api.outbox import Outbox
from haystream_service.api.records import KafkaRecords
from haystream_service.api.tokens import Doorkeeper
from haystream_service.api.watching import Watching
from haystream_service.errors import UserError
from haystream_service.kafka.admin import ensure_topics
from haystream_service.kafka.producer import Producer
from haystream_service.kafka.records import SOURCES, BrokerUnavailable, Kind
from haystream_service.metrics import ApiMetrics, new_registry
from haystream_service.probes import Probes
from haystream_service.settings import Settings
from haystream_service.store.base import StoreUnavailable
from haystream_service.store.marks import StateLost, StateNewer, TopicsGrown, check_mark, described
from haystream_service.store.redis import RedisStore

log = logging.getLogger(__name__)

REDIS_SECONDS = 2.0
"""For one answer: whoever waits is told to come again."""
KAFKA_SECONDS = 8.0
"""For an acknowledgement. A broker that moves its leaders takes a few seconds; whoever waits longer has gone."""
TRY_SECONDS = 1.0
"""Between two looks whether the servers are there, at the start."""
GRACE_SECONDS = 5
"""For requests that are under way when the replica is told to stop."""


class Listener(uvicorn.Server):
    """An HTTP server that leaves signals to `serve`."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    @property
    def port(self) -> int:
        """What was bound, once started."""
        return int(self.servers[0].sockets[0].getsockname()[1])


def listener(app: FastAPI, host: str, port: int) -> Listener:
    """A server of the application. Requests are not logged: metrics count them; problems are, where they arise."""
    return Listener(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
    )


class Replica:
    """An API process: what it consists of, and what it says of itself."""

    def __init__(self, settings: Settings, doorkeeper: Doorkeeper) -> None:
        registry = new_registry()
        self.settings = settings
        self.metrics = ApiMetrics(registry)
        self.doorkeeper = doorkeeper
        self.store = RedisStore.open(
            settings,
            timeout=REDIS_SECONDS,
            answered=lambda script, seconds: self.metrics.redis.labels(script).observe(seconds),
        )
        self.producer = Producer(
            settings,
            acknowledge_seconds=KAFKA_SECONDS,
            acknowledged=lambda topic, seconds: self.metrics.publish.labels(topic).observe(seconds),
        )
        self.graphs = GraphsOnDemand(self.store, settings.tolerance)
        facts = KafkaFacts(settings, self.producer)
        self.records = KafkaRecords(settings)
        self.outbox = Outbox(self.store.claims, facts)
        self.desk = Desk(
            self.store,
            self.store.claims,
            facts,
            ContentReader(self.records, self.metrics),
            self.outbox,
            self.graphs,
            Watching(self.store),
            body_bytes=settings.api_body_mib << 20,
        )
        self.app = build_app(
            self.desk,
            Gate(self.doorkeeper, rate=settings.api_rate),
            self.metrics,
            origins=settings.api_cors_origins.split(",") if settings.api_cors_origins else (),
        )
        self.probes = Probes(registry, ready=self.ready, healthy=list)
        self.waiting_for: str | None = "starting"
        self.metrics.api_ready.set_function(lambda: not self.ready())

    def ready(self) -> list[str]:
        """Why not to send requests here. That a server is away is no reason: it would be away for all replicas."""
        return [self.waiting_for] if self.waiting_for else []

    async def prepare(self) -> None:
        """Return when the topics are there and the store is made from them. Raises `UserError`."""
        settings, queries = self.settings, SOURCES[Kind.QUERY]
        while True:
            try:
                counts = await ensure_topics(settings)
                found = await self.store.generation()
                if found is not None:
                    check_mark(found, described(settings.topic(queries), counts[queries]))
            except (BrokerUnavailable, StoreUnavailable, StateLost, StateNewer, TopicsGrown) as error:
                self.waiting_for = str(error)
                log.warning("%s; trying again", error)
                await asyncio.sleep(TRY_SECONDS)
            else:
                self.waiting_for = None
                return

    async def close(self) -> None:
        """Let go of everything."""
        await self.graphs.close()
        await self.outbox.close()
        await self.records.close()
        await self.producer.close()
        await self.doorkeeper.close()
        await self.store.close()


async def serve(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT. The exit code.

    Raises:
        UserError: the topics, the keys or a port cannot be used.
    """
    async with AsyncExitStack() as stack:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        replica = Replica(settings, Doorkeeper.of(settings))
        stack.push_async_callback(replica.close)
        await replica.probes.start(settings.host, settings.port)
        stack.push_async_callback(replica.probes.stop)
        server = listener(replica.app, settings.host, settings.api_port)
        stopping = asyncio.ensure_future(stop.wait())
        preparing = asyncio.ensure_future(replica.prepare())
        serving = asyncio.ensure_future(_serve(server, settings))
        tasks: set[asyncio.Future[object]] = {stopping, preparing, serving}  # type: ignore[arg-type]
        stack.push_async_callback(_end, tasks)
        log.info("serving the API on %s:%d", settings.host, settings.api_port)
        await asyncio.wait({stopping, serving, preparing}, return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set() and preparing.done() and not serving.done():
            preparing.result()
            await asyncio.wait({stopping, serving}, return_when=asyncio.FIRST_COMPLETED)
        replica.waiting_for = "stopping"
        replica.desk.stopping.set()
        server.should_exit = True
        await asyncio.wait({serving})
        serving.result()
        return 0 if stop.is_set() else 1


async def _serve(server: Listener, settings: Settings) -> None:
    try:
        await server.serve()
    except SystemExit:  # uvicorn's way to say that the port is taken; it has logged why
        raise UserError(
            f"cannot serve on {settings.host}:{settings.api_port}. "
            "Name another address with HAYSTREAM_HOST, or another port with HAYSTREAM_API_PORT"
        ) from None


async def _end(tasks: set[asyncio.Future[object]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
