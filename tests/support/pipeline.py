"""Real Kafka, a real store and worker processes, as a test sees them."""

import asyncio
import os
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol, Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from haystream.events import Event, Item, LeaseFact, Query, Status, Verdict, View, Withdrawal
from haystream_service.kafka import admin as kafka_admin
from haystream_service.kafka.connection import client_arguments, consumer_arguments
from haystream_service.kafka.records import SOURCES, BrokerUnavailable
from haystream_service.local.services import WorkerProcess
from haystream_service.settings import PREFIX, Settings, variables
from haystream_service.store.base import Store, StoredQuery, StoreUnavailable
from haystream_service.store.redis import RedisStore
from haystream_service.wire import decode_ranking, encode_item, encode_lease, encode_query, encode_verdict
from haystream_service.wire.records import NextItems
from haystream_service.worker.kafka_publisher import KafkaPublisher
from haystream_service.worker.rebuilding import Rebuild
from support.equality import EXACT, assert_has_the_facts, assert_is_the_state, offline, stored_collection
from support.forked import Forked, ForkedWorker

PATIENCE = 120.0
"""Seconds until a condition that does not come true fails the test."""
LOOK = 0.05
PUT_OFF = Settings().totals_seconds + 3.0
"""Seconds until a worker has published what it had put off, where no metric says that it has."""
BACKLOGS = ("haystream_growth_backlog_items", "haystream_tending_backlog_queries", "haystream_mailbox_events")
"""What workers have still to do."""


async def until(condition: Callable[[], Awaitable[bool]], what: str, *, patience: float = PATIENCE) -> None:
    """Return once the condition holds; servers that do not answer just now count as: not yet."""
    give_up = time.monotonic() + patience
    while True:
        try:
            if await condition():
                return
        except (KafkaError, BrokerUnavailable, StoreUnavailable, OSError):
            pass
        assert time.monotonic() < give_up, f"not within {patience:g} s: {what}"
        await asyncio.sleep(LOOK)


class Kafka(Protocol):
    """Where a Kafka is."""

    @property
    def bootstrap(self) -> str: ...


class Valkey(Protocol):
    """Where a Valkey is."""

    @property
    def url(self) -> str: ...


def settings_on(kafka: Kafka, valkey: Valkey, name: str, /, **given: Any) -> Settings:
    """Settings for these servers: topics, keys and groups of that name, two partitions, computed exactly."""
    names = dict.fromkeys(("topic_prefix", "redis_prefix", "group"), name)
    common = {"kafka": kafka.bootstrap, "redis": valkey.url, "partitions": 2, "tolerance": EXACT}
    return Settings(**{**names, **common, **given})


@asynccontextmanager
async def admin_client(settings: Settings) -> AsyncIterator[AIOKafkaAdminClient]:
    """A connected admin client."""
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.kafka)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def make_topic(
    admin: AIOKafkaAdminClient, topic: str, partitions: int, config: Mapping[str, str] | None = None
) -> None:
    """Return when the broker has, and tells of, a topic that somebody else made as they liked."""
    await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=dict(config or {}))])

    async def known() -> bool:
        return topic in await admin.list_topics()

    await until(known, f"the broker tells of {topic}")


class Pipeline:
    """Produces events, reads results, and starts workers. An async context manager."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = RedisStore.open(settings)
        self._producer = AIOKafkaProducer(**client_arguments(settings), enable_idempotence=True)
        self._workers: list[WorkerProcess] = []

    async def __aenter__(self) -> Self:
        await kafka_admin.ensure_topics(self.settings)
        await self._producer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._producer.stop()
        for worker in self._workers:
            await asyncio.to_thread(worker.close)
        await self.store.wipe()
        await self.store.close()

    async def worker(self, **settings: str) -> WorkerProcess:
        """Another worker process, ready."""
        worker = ForkedWorker({**self.environment(), **_variables(settings)})
        self._workers.append(worker)
        await asyncio.to_thread(worker.start)
        return worker

    def environment(self) -> dict[str, str]:
        """The settings as a process's environment variables."""
        return variables(self.settings)

    async def program(self, *arguments: str) -> "Ran":
        """Run `haystream` with the settings until it ends."""
        return await program(self.environment(), *arguments)

    async def say(self, *events: Event) -> None:
        """Produce the events, and wait until the broker has them."""
        values = [encoded(event) for event in events]
        sent = [await self._producer.send(self.settings.topic(t), v, key=k) for t, k, v in values]
        await asyncio.gather(*sent)

    async def say_raw(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        """Produce anything."""
        await self._producer.send_and_wait(self.settings.topic(topic), value, key=key)

    async def records(self, topic: str, *, partitions: int | None = None) -> list[ConsumerRecord]:
        """All that is in the topic now, where it has so many partitions; else as many as the settings say."""
        count = self.settings.partitions if partitions is None else partitions
        every = [TopicPartition(self.settings.topic(topic), p) for p in range(count)]
        async with self._consumer() as consumer:
            ends = await consumer.end_offsets(every)
            return await _read(consumer, dict.fromkeys(every, 0), ends)

    async def rankings(self, query_id: str | None = None) -> list[NextItems]:
        """The rankings published so far, of one query or of all."""
        rankings = [decode_ranking(r.value) for r in await self.records("next-items") if r.value is not None]
        return [ranking for ranking in rankings if query_id in {None, ranking.query_id}]

    async def drained(self) -> None:
        """Return when the groups have committed everything that can be read in the source topics."""
        await until(self._committed, "everything committed")

    async def _committed(self) -> bool:
        offsets = await kafka_admin.committed_offsets(self.settings)
        partitions = [
            TopicPartition(self.settings.topic(topic), p)
            for topic in SOURCES.values()
            for p in range(self.settings.partitions)
        ]
        async with self._consumer() as consumer:
            ends = await consumer.end_offsets(partitions)
            behind = {tp: offsets.get(tp, 0) for tp, end in ends.items() if offsets.get(tp, 0) < end}
            return not behind or not await _read(consumer, behind, ends)

    def _consumer(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(**consumer_arguments(self.settings), auto_offset_reset="earliest")

    async def worker_after(self, events: Iterable[Event]) -> WorkerProcess:
        """A worker that has taken these in, and made of them what an offline fold does."""
        worker, events = await self.worker(), list(events)
        await self.say(*events)
        await self.assert_is_the_fold(events)
        return worker

    async def assert_is_the_fold(self, events: Iterable[Event]) -> None:
        """Once everything is read, ranked and tended, it is what an offline fold gives: facts there and then, and
        numbers as soon as totals that may wait are published."""
        events = list(events)
        await self.ranked(events)
        state = offline(events)
        await assert_has_the_facts(self.store, state)
        await until(self._tended, "no worker has anything left to do")
        give_up = time.monotonic() + PUT_OFF
        while True:
            try:
                await assert_is_the_state(self.store, await self.rankings(), state)
            except AssertionError:
                if time.monotonic() > give_up:
                    raise
            else:
                return
            await asyncio.sleep(LOOK)

    async def _tended(self) -> bool:
        pages = [await asyncio.to_thread(page, worker, "/metrics") for worker in self._workers if worker.running]
        lines = [line for _, text in pages for line in text.splitlines() if line.startswith(BACKLOGS)]
        return all(line.endswith(" 0.0") for line in lines)

    async def ranked(self, events: Iterable[Event]) -> None:
        """Return when everything is read, and every query's latest ranking is published."""
        await self.drained()
        known = {(event.collection, event.item_id) for event in events if isinstance(event, Item)}
        items = Counter(collection for collection, _ in known)
        last: dict[View, int] = {}

        async def enough(query: StoredQuery) -> int:
            """The last entry that came for the query; all are in the log by now."""
            view = query.settings.view
            if view not in last:
                last[view] = (await stored_collection(self.store, view)).changed
            return last[view] if view.scope is not None else max(items[view.collection], last[view])

        async def ranked() -> bool:
            queries = [await self.store.load_query(query_id) for query_id in await self.store.query_ids()]
            published = {(r.query_id, r.revision) for r in await self.rankings()}
            return all(
                [
                    (query is not None and query.settings.status == Status.DELETED)
                    or (
                        query is not None
                        and (query.settings.status != Status.OPEN or query.position.cursor >= await enough(query))
                        and (query.settings.query_id, query.revision) in published
                    )
                    for query in queries
                ]
            )

        await until(ranked, "every query ranked with all items, and published")


async def _read(
    consumer: AIOKafkaConsumer, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> list[ConsumerRecord]:
    """The records between two offsets of each partition."""
    consumer.assign(list(begins))
    for tp, begin in begins.items():
        consumer.seek(tp, begin)
    found: list[ConsumerRecord] = []
    while any([await consumer.position(tp) < ends[tp] for tp in begins]):
        for records in (await consumer.getmany(timeout_ms=200)).values():
            found += records
    return found


class Ran(NamedTuple):
    """What became of a program."""

    code: int
    out: str
    err: str


async def program(environment: Mapping[str, str], *arguments: str) -> Ran:
    """Run `haystream` until it ends, with these variables and no HAYSTREAM_ one of ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    with TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        process = await asyncio.to_thread(Forked, list(arguments), {**kept, **environment}, out=out, err=err)
        code = await asyncio.to_thread(process.wait, PATIENCE)
        return Ran(code, out.read_text(), err.read_text())


def _variables(settings: Mapping[str, object]) -> dict[str, str]:
    return {PREFIX + name.upper(): str(value) for name, value in settings.items()}


def page(worker: WorkerProcess, path: str, *, timeout: float = 10.0) -> tuple[int, str]:
    """Status and text of one of the worker's pages."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{worker.port}{path}", timeout=timeout) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def is_ready(worker: WorkerProcess) -> bool:
    """Whether /readyz says so."""
    return (await asyncio.to_thread(page, worker, "/readyz"))[0] == 200


async def has_no_lag(worker: WorkerProcess) -> bool:
    """Whether the metrics know the lag of all eight partitions of four topics, and it is none."""
    text = (await asyncio.to_thread(page, worker, "/metrics"))[1]
    lags = [line for line in text.splitlines() if line.startswith("haystream_consumer_lag")]
    return len(lags) == 8 and all(line.endswith(" 0.0") for line in lags)


def encoded(event: Event) -> tuple[str, bytes, bytes]:
    """Topic, key and value of the event's record."""
    match event:
        case Query():
            return "queries", event.query_id.encode(), encode_query(event)
        case Item() | Withdrawal():
            return "items", event.item_id.encode(), encode_item(event)
        case Verdict():
            return "verdicts", event.query_id.encode(), encode_verdict(event)
        case LeaseFact():
            return "leases", event.query_id.encode(), encode_lease(event)


class Silent:
    """A `Counter` that shows nothing."""

    def advance(self, by: float = 1) -> None:
        """So much more is done."""


async def rebuild(settings: Settings, store: Store) -> None:
    """Do what `haystream rebuild` does."""
    publisher = KafkaPublisher(settings)
    try:
        rebuilding = Rebuild(settings, store, publisher)
        await rebuilding.check()
        await rebuilding.run(lambda *_: Silent())
    finally:
        await publisher.close()
