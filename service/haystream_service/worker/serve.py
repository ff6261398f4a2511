"""The composition root of `haystream worker`: everything is made, started, watched and stopped here."""

import asyncio
import gc
import logging
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import TypeVar

import faust

from haystream.memory.compiled import cached
from haystream.warm import warm
from haystream_service.errors import UserError
from haystream_service.kafka.admin import committed_offsets, ensure_topics, partitions_of
from haystream_service.kafka.ends import KafkaEnds
from haystream_service.kafka.records import SOURCES, BrokerRefused, BrokerUnavailable, Kind
from haystream_service.kafka.stretches import again
from haystream_service.metrics import Metrics, new_registry
from haystream_service.probes import Probes
from haystream_service.settings import Settings
from haystream_service.store.base import StoreRefused
from haystream_service.store.marks import StateLost, StateNewer, TopicsGrown, check_mark, described, mark
from haystream_service.store.redis import RedisStore
from haystream_service.worker.app import build_app
from haystream_service.worker.clock import SystemClock
from haystream_service.worker.items import ItemsReader
from haystream_service.worker.kafka_publisher import KafkaPublisher
from haystream_service.worker.leasing import Leasing
from haystream_service.worker.listing import Listing
from haystream_service.worker.missed import told
from haystream_service.worker.partitions import Partitions
from haystream_service.worker.progress import Progress, named
from haystream_service.worker.rankings import OwnRankings
from haystream_service.worker.retry import Retry
from haystream_service.worker.shared import Limits
from haystream_service.worker.stopping import (
    abandon,
    drain,
    give_up,
    in_background,
    running,
    stopped_by_signals,
    unless,
    until_over,
)
from haystream_service.worker.watch import Watch
from haystream_service.worker.worker import Worker

log = logging.getLogger(__name__)

SWITCH_SECONDS = 0.0005
"""How long a thread that tends keeps the interpreter while the event loop wants it: a tenth of Python's default,
which a verdict would wait for several times on its way."""

GARBAGE_THRESHOLDS = (700, 10, 1000)
"""Thresholds of Python's garbage collector. A walk through all that is in memory holds up every verdict, for 0.1 s
and more: what comes and goes is freed without, so it is done a hundred times as seldom as by default."""

LOOK_SECONDS = 1.0
WEIGH_SECONDS = 10.0
"""Between two looks whether all is well."""
TICK_SECONDS = 0.1
"""Between two looks at how late the event loop is."""
COUNT_SECONDS = 15.0
"""Between two looks whether the topics have more partitions than they had."""
LOST_SECONDS = 2.0
"""Between two looks whether a lost store was rebuilt."""

T = TypeVar("T")


class Server:
    """A worker process: what it consists of, and what it says of itself."""

    def __init__(self, settings: Settings) -> None:
        registry = new_registry()
        self.settings = settings
        self.metrics = Metrics(registry, labelled_queries=settings.labelled_queries)
        self.retry = Retry(self.metrics)
        self.store = RedisStore.open(
            settings, answered=lambda script, seconds: self.metrics.redis.labels(script).observe(seconds)
        )
        self.publisher = KafkaPublisher(
            settings,
            landed=lambda *where: self.rankings.landed(*where),
            acknowledged=lambda topic, seconds: self.metrics.publish.labels(topic).observe(seconds),
        )
        self.ends = KafkaEnds(settings)
        self.partitions = Partitions(settings, self.metrics, SystemClock(), self.ends)
        self.worker = Worker(
            self.store,
            self.publisher,
            caught_up=self.partitions.caught_up,
            ends=self.partitions.ends,
            again=partial(again, settings, missing=told(self.metrics)),
            metrics=self.metrics,
            retry=self.retry,
            limits=Limits(
                max_batch=settings.max_batch,
                item_publish_seconds=settings.item_publish_seconds,
                totals_seconds=settings.totals_seconds,
                idle_seconds=settings.idle_seconds,
                queries_in_memory=settings.queries_in_memory,
                memory_bytes=settings.memory_mib << 20,
                slim_seconds=settings.slim_seconds,
                refresh_seconds=settings.refresh_seconds,
                tolerance=settings.tolerance,
            ),
        )
        self.leasing = Leasing(
            self.store,
            self.publisher,
            lambda: self.worker.partitions,
            metrics=self.metrics,
            retry=self.retry,
            behind=self.partitions.behind,
            load_again=self.worker.load_again,
        )
        self.listing = Listing(self.store, lambda: self.worker.partitions, self.retry)
        self.rankings = OwnRankings(settings, self.worker, self.retry)
        self.agents: set[Kind] = set()
        self.progress = Progress(self.store, self.partitions, self.worker.written)
        self.watch = Watch(self.worker, self.partitions, self.progress, self.agents, self.metrics, SystemClock())
        self.items = ItemsReader(settings, self.worker, self.partitions, self.retry, self.progress.begin)
        self.probes = Probes(registry, ready=self.ready, healthy=self.unhealthy)
        self.app: faust.App | None = None
        self.waiting_for: str | None = "starting"
        self.topics = ""
        """Where the records come from, as the store's mark bears it."""

    def ready(self) -> list[str]:
        """Why not to count on it; nothing where it works. Asks nobody: it is what the last look saw."""
        if self.waiting_for is not None:
            reasons = [self.waiting_for, *self.retry.troubles]
        elif self.app is None or self.app.rebalancing:
            reasons = ["partitions are being moved"]
        else:
            reasons = [*self.worker.troubles(), *self.watch.troubles]
        self.metrics.ready.set(not reasons)
        return reasons

    def unhealthy(self) -> list[str]:
        """Why a restart would help; nothing where it would not. The process also ends by itself then."""
        return ["a bug stopped it"] if self.worker.failed.done() else []


async def serve(settings: Settings) -> int:
    """Work until SIGTERM or SIGINT; then finish what is in hand. The exit code: 0, or 1 after a bug.

    Raises:
        UserError: the topics, the port or the folder cannot be used.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    async with AsyncExitStack() as stack:
        stop = stopped_by_signals(settings.drain_seconds)
        data_dir = _data_dir(settings, stack)
        server = Server(settings)
        worker = server.worker
        stack.push_async_callback(server.store.close)
        stack.push_async_callback(server.publisher.close)
        stack.push_async_callback(server.ends.close)
        stack.push_async_callback(worker.close)
        stack.callback(server.watch.close)
        await server.probes.start(settings.host, settings.port)
        stack.push_async_callback(server.probes.stop)
        if not await unless(stop, _prepare(server)):
            return 0
        app = server.app = build_app(
            settings,
            worker,
            server.partitions,
            begin=server.progress.begin,
            agents=server.agents,
            data_dir=data_dir,
            moved=server.metrics.rebalance.observe,
        )
        _settle_memory()
        server.waiting_for = None
        async with (
            running(app, worker),
            in_background(server.items.run(), worker) as reading,
            in_background(server.rankings.run(), worker),
            in_background(server.leasing.run(), worker),
            in_background(server.listing.run(), worker),
            in_background(_look(server), worker),
            in_background(_count(server), worker),
            in_background(_listen(server.metrics), worker),
            in_background(_weigh(worker), worker),
        ):
            by_signal = await until_over(app, worker, stop)
            server.waiting_for = "stopping"
            server.ready()  # for its metric
            if by_signal:
                await drain(app, worker, server.items, reading, server.progress, seconds=settings.drain_seconds)
            else:
                give_up(app)
            await abandon(worker)
        if worker.failed.done():
            worker.failed.exception()  # which has been told
        return 0 if by_signal else 1


def _settle_memory() -> None:
    """Have the garbage collector pass over what is there now, which stays, and seldom walk through all the rest."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)


def _data_dir(settings: Settings, stack: AsyncExitStack) -> Path:
    """The folder where Faust keeps its own files."""
    try:
        if settings.data_dir is None:
            return Path(stack.enter_context(TemporaryDirectory(prefix="haystream-")))
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=settings.data_dir).close()
    except OSError as error:
        raise UserError(
            f"there is no folder for temporary files: {error}. Name one with HAYSTREAM_DATA_DIR"
        ) from None
    return settings.data_dir


async def _prepare(server: Server) -> bool:
    """Everything that has to be there before the first record is read."""
    settings = server.settings
    if not cached():
        log.warning(
            "every start compiles for a minute or more: let NUMBA_CACHE_DIR name a folder that can be written to"
        )
    await asyncio.to_thread(warm)
    server.waiting_for = f"waiting for Kafka at {settings.kafka}"
    counts = await _unless_refused(server, lambda: ensure_topics(settings))
    queries = SOURCES[Kind.QUERY]
    server.topics = described(settings.topic(queries), counts[queries])
    server.waiting_for = "waiting for Redis"
    await _unless_refused(server, server.store.ping)
    while True:
        server.waiting_for = f"waiting for Kafka at {settings.kafka}"
        committed = await server.retry(lambda: committed_offsets(settings))
        server.waiting_for = "waiting for Redis"
        try:
            await server.worker.start(committed=named(committed, settings), topics=server.topics)
        except (StateLost, StateNewer, TopicsGrown) as lost:
            # Nothing is read until `haystream rebuild` has left another mark; then this one goes on by itself.
            log.error("%s", lost)
            server.waiting_for = str(lost)
            await asyncio.sleep(LOST_SECONDS)
        else:
            return True


async def _unless_refused(server: Server, call: Callable[[], Awaitable[T]]) -> T:
    """The answer of the first call that gets one. A password or a permission that is wrong from the start is said
    at once; one that is changed while the worker runs is waited for."""

    async def once() -> T:
        try:
            return await call()
        except (StoreRefused, BrokerRefused) as refused:
            raise UserError(str(refused)) from None

    return await server.retry(once)


async def _count(server: Server) -> None:
    """Raise `TopicsGrown` once partitions are added to the topics; tell of one that is not there any more."""
    settings, queries = server.settings, SOURCES[Kind.QUERY]
    topic = settings.topic(queries)
    while True:
        await asyncio.sleep(COUNT_SECONDS)
        with suppress(BrokerUnavailable):
            count = len(await partitions_of(settings, queries))
            server.partitions.absent = "" if count else f"Kafka has no topic {topic} any more"
            if count:
                check_mark(mark(server.topics), described(topic, count))


async def _look(server: Server) -> None:
    while True:
        await server.watch.look()
        server.ready()  # for its metric
        await asyncio.sleep(LOOK_SECONDS)


async def _weigh(worker: Worker) -> None:
    while True:
        worker.gauges.weigh()
        await asyncio.sleep(WEIGH_SECONDS)


async def _listen(metrics: Metrics) -> None:
    """Measure how late the event loop is, for ever."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + TICK_SECONDS
        await asyncio.sleep(TICK_SECONDS)
        metrics.event_loop_lag.observe(max(0.0, loop.time() - due))
