"""Restoring a lost store: the topics, from their beginnings, through the worker's own handlers."""

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition

from haystream_service.errors import UserError
from haystream_service.kafka import admin
from haystream_service.kafka.connection import consumer_arguments, running
from haystream_service.kafka.records import (
    NO_OFFSET,
    OWNED,
    SOURCES,
    BrokerUnavailable,
    Kind,
    Offsets,
    Record,
)
from haystream_service.kafka.stretches import again, as_record, by_time
from haystream_service.metrics import Metrics, new_registry
from haystream_service.settings import Settings
from haystream_service.store.base import SharedDamaged, Store, StoreDamaged, StoreUnavailable
from haystream_service.store.claims import PUBLISHED_AT_ONCE, Claims, Outgoing, publish_outbox
from haystream_service.store.marks import StateLost, StateNewer, TopicsGrown, check_mark, described, mark
from haystream_service.worker.clock import SystemClock
from haystream_service.worker.missed import Missed
from haystream_service.worker.progress import named
from haystream_service.worker.rebuild_publisher import RebuildPublisher
from haystream_service.worker.retry import Retry
from haystream_service.worker.shared import Limits
from haystream_service.worker.transport import Publisher
from haystream_service.worker.worker import Worker

log = logging.getLogger(__name__)
T = TypeVar("T")

ORDER = (Kind.ITEM, *OWNED)
"""Items first, so that a query is opened on the whole collection; then queries, so that nothing waits for one."""

LOOK_SECONDS = 0.05
REST_SECONDS = 600.0
"""So long at most a rebuild waits for what queries do in idle time."""


class Counter(Protocol):
    """Is told of progress."""

    def advance(self, by: float = 1) -> None:
        """So many more records are read."""
        ...


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What was done."""

    records: int
    queries: int
    rejected: int
    """Records that had been rejected before."""
    letters: int
    """Records that are rejected, and that nobody had read before: they have become dead letters."""
    stopped: dict[str, str]
    """Queries that could not be computed, with the reason."""
    lost: dict[str, str]
    """Queries that verdicts name or that were there before, and that nothing opens any more, with the reason."""
    missing: dict[str, str]
    """Partitions that had records which are not there any more, with their offsets."""


class Rebuild:
    """One rebuild. Nothing else may work for the group meanwhile."""

    def __init__(self, settings: Settings, store: Store, publisher: Publisher) -> None:
        self._settings = settings
        self._store = store
        self._publisher = publisher
        self._metrics = Metrics(new_registry(), labelled_queries=0)
        self._retry = Retry(self._metrics)
        self._partitions: dict[str, int] = {}
        self._missing: dict[str, str] = {}

    async def check(self) -> None:
        """Raise `UserError` where a server or topic is not there, or while workers are members of the group."""
        before = None
        try:
            await self._store.ping()
            await admin.check_topics(self._settings, *SOURCES.values())
            members = await admin.active_members(self._settings)
            queries = self._settings.topic(SOURCES[Kind.QUERY])
            partitions = len(await admin.partitions_of(self._settings, SOURCES[Kind.QUERY]))
            with suppress(SharedDamaged):
                before = await self._store.generation()
        except (BrokerUnavailable, StoreUnavailable) as error:
            raise UserError(f"{str(error).rstrip('.')}. Nothing was changed") from None
        with suppress(StateLost, StateNewer):  # of other topics, or of none
            try:
                check_mark(before or "", described(queries, partitions) if partitions else "")
            except TopicsGrown as grown:
                raise UserError(f"{grown}, and rebuild from those. Nothing was changed") from None
        if members:
            raise UserError(
                f"the group {self._settings.group} still has members: {', '.join(members)}. Stop the workers first"
            )

    async def run(self, progress: Callable[[str, int], Counter]) -> Rebuilt:
        """Wipe the store and fold the topics into it; then let workers go on from there.

        `progress` gives a counter for each topic: its name and how many offsets it spans.
        The mark that workers wait for is taken away first and left last, after the offsets are committed: a
        rebuild that is interrupted has to be run again, and until then nothing is processed.
        """
        settings = self._settings
        self._partitions = await self._retry(lambda: admin.ensure_topics(settings))
        held = RebuildPublisher(self._publisher, await self._retry(lambda: admin.committed_offsets(settings)))
        await self._retry(self._store.end)
        before = await self._unless_damaged(self._store.query_ids, set[str]())
        await self._close(before)
        await self._retry(self._store.wipe)
        worker = Worker(
            self._store,
            held,
            caught_up=_at_once,
            ends=_never,
            again=partial(again, settings, missing=self._lacks),
            metrics=self._metrics,
            limits=Limits(
                max_batch=settings.max_batch,
                tolerance=settings.tolerance,
                item_publish_seconds=0.0,
                totals_seconds=0.0,
            ),
        )
        await worker.begin()
        read: dict[TopicPartition, int] = {}
        records = 0
        try:
            for kind in ORDER:
                records += await self._replay(kind, worker, read, progress)
            await _unless_failed(worker, _at_rest(worker))
        finally:
            await worker.close()
        for query_id, value in held.rankings.items():
            await self._retry(partial(self._publisher.publish_ranking, query_id, value))
        for query_id in held.withdrawn:
            await self._retry(partial(self._publisher.withdraw_ranking, query_id))
        for query_id, restated in held.restated.items():
            await self._retry(partial(self._publisher.restate_settings, query_id, *restated))
        await self._retry(lambda: admin.commit(settings, read))
        for query_id in await self._retry(self._store.query_ids):
            await self._retry(partial(self._store.let_claim, query_id, True))
        noted = {name: (NO_OFFSET, offset) for name, offset in named(read, settings).items()}
        await self._retry(lambda: self._store.move_up_to(noted))
        fresh = mark(described(settings.topic(SOURCES[Kind.QUERY]), self._partitions[SOURCES[Kind.QUERY]]))
        await self._retry(lambda: self._store.begin(fresh))
        return Rebuilt(
            records,
            len(held.rankings),
            held.rejected,
            held.letters,
            await self._stopped(),
            await self._lost(before, held),
            self._missing,
        )

    def _lacks(self, tp: TopicPartition, first: int, after: int) -> None:
        where = f"{tp.topic}/{tp.partition}"
        before = f"{self._missing[where]}; " if where in self._missing else ""
        self._missing[where] = f"{before}offsets {first} to {after - 1}, up to {after - first} records"

    async def _close(self, query_ids: Iterable[str]) -> None:
        """Let nobody claim any more, and publish what was claimed: then all of it comes back with the topic."""
        claims, publish = self._store.claims, self._publisher.publish_leases
        for query_id in query_ids:
            await self._unless_damaged(partial(self._store.let_claim, query_id, False), None)
            nothing: list[Outgoing] = []
            while await self._unless_damaged(partial(claims.outbox, query_id, PUBLISHED_AT_ONCE), nothing):
                if not await self._unless_damaged(partial(_published, claims, publish, query_id), False):
                    break

    async def _unless_damaged(self, call: Callable[[], Awaitable[T]], otherwise: T) -> T:
        """What the store answers; `otherwise` where it holds something else there, which is wiped in a moment."""

        async def once() -> T:
            try:
                return await call()
            except (StoreDamaged, SharedDamaged) as damaged:
                log.warning("%s", damaged)
                return otherwise

        return await self._retry(once)

    async def _stopped(self) -> dict[str, str]:
        notes = {q: await self._retry(partial(self._store.read_note, q)) for q in await self._quarantined()}
        return {
            q: f"{note.quarantine.code}: {note.quarantine.detail}" for q, note in notes.items() if note.quarantine
        }

    async def _lost(self, before: set[str], held: RebuildPublisher) -> dict[str, str]:
        there = await self._retry(self._store.query_ids) | await self._quarantined()
        named = await self._retry(self._store.unknown)
        why = dict.fromkeys(named, "verdicts or leases name it, and no record opens it")
        why |= dict.fromkeys(before, "Redis had it, and no record opens it")
        why |= {query_id: f"its settings were rejected: {text}" for query_id, text in held.refused_settings.items()}
        return {query_id: why[query_id] for query_id in sorted(why.keys() - there)}

    async def _quarantined(self) -> set[str]:
        return set(await self._retry(self._store.quarantined))

    async def _replay(
        self,
        kind: Kind,
        worker: Worker,
        read: dict[TopicPartition, int],
        progress: Callable[[str, int], Counter],
    ) -> int:
        """Hand over every record of the topic; `read` gets the end offsets. The number of records."""
        topic = self._settings.topic(SOURCES[kind])
        # Where records go meanwhile, from what is left.
        consumer = AIOKafkaConsumer(**consumer_arguments(self._settings), auto_offset_reset="earliest")
        missed = Missed(SystemClock(), self._lacks)
        async with running(consumer):
            partitions = [TopicPartition(topic, p) for p in range(self._partitions[SOURCES[kind]])]
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            ends = await consumer.end_offsets(partitions)
            read.update(ends)
            for tp in partitions:
                missed.begins(tp, 0)
            behind = {tp: end - await consumer.position(tp) for tp, end in ends.items()}
            counter = progress(topic, sum(behind.values()))
            records = 0
            async for messages in by_time(consumer, ends):
                for message in messages:
                    missed.came(TopicPartition(message.topic, message.partition), message.offset)
                for some in _one_after_the_other([as_record(kind, message, _no_ack) for message in messages]):
                    await _unless_failed(worker, _hand_over(worker, kind, some))
                records += len(messages)
                counter.advance(len(messages))
            for tp, first in (await consumer.beginning_offsets(partitions)).items():
                missed.look(tp, first)
                if missed.next(tp) < min(first, ends[tp]):
                    missed.jumped(tp, min(first, ends[tp]))
        return records


async def _published(
    claims: Claims, publish: Callable[[Sequence[Outgoing]], Awaitable[None]], query_id: str
) -> bool:
    """Have the query's outbox published; returns when what could be read of it is in the topic."""
    await publish_outbox(claims, publish, query_id)
    return True


def _one_after_the_other(records: Sequence[Record]) -> list[list[Record]]:
    """The same records in lists that have no key on two partitions: whoever opens a query first owns it."""
    lists: list[list[Record]] = [[]]
    seen: dict[bytes, int] = {}
    for record in records:
        keyed = record.key is not None and record.kind is Kind.QUERY
        if keyed and seen.setdefault(record.key or b"", record.partition) != record.partition:
            lists.append([])
            seen = {record.key or b"": record.partition}
        lists[-1].append(record)
    return lists


async def _hand_over(worker: Worker, kind: Kind, records: Sequence[Record]) -> None:
    """Return when the records are worked off: so many are in memory at once, and no more."""
    if kind is Kind.ITEM:
        await worker.on_items(records)
        return
    for record in records:
        await worker.on_record(record)
    await worker.drain()


async def _at_rest(worker: Worker) -> None:
    """Return when what queries do in idle time is done and saved: nobody does it for a query that is put away."""
    give_up = time.monotonic() + REST_SECONDS
    while not worker.idle():
        if time.monotonic() > give_up:
            log.warning(
                "queries are not at rest after %g s: a worker finishes each when something comes", REST_SECONDS
            )
            return
        await asyncio.sleep(LOOK_SECONDS)


async def _unless_failed(worker: Worker, work: Awaitable[None]) -> None:
    """Wait for the work, or raise the bug that keeps it from ending."""
    working = asyncio.ensure_future(work)
    await asyncio.wait({working, worker.failed}, return_when=asyncio.FIRST_COMPLETED)
    if worker.failed.done():
        working.cancel()
        worker.failed.result()
    working.result()


async def _at_once(_: int) -> None:
    """All queries are read before the first verdict."""


async def _never(partitions: Iterable[int]) -> dict[int, Offsets]:
    """No end is below what was seen: the wiped store has seen nothing."""
    return dict.fromkeys(partitions, (sys.maxsize, sys.maxsize, sys.maxsize))


def _no_ack() -> None:
    """What is read is committed at the end, all at once."""
