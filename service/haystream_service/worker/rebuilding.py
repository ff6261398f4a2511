"""Restoring a lost store: the topics, from their beginnings, through the worker's own handlers."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol
from uuid import uuid4

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from haystream_service.errors import UserError
from haystream_service.metrics import Metrics, new_registry
from haystream_service.settings import Settings
from haystream_service.store.base import Store, StoreUnavailable
from haystream_service.worker import kafka
from haystream_service.worker.records import BrokerUnavailable, Kind, Publisher, Record
from haystream_service.worker.retry import Retry
from haystream_service.worker.shared import Limits
from haystream_service.worker.worker import Worker

ORDER = ((Kind.ITEM, "items"), (Kind.QUERY, "queries"), (Kind.VERDICT, "verdicts"))
"""Items first, so that a query is opened on the whole collection; verdicts last, so that none waits."""
POLL_MS = 1000


class Counter(Protocol):
    """Is told of progress."""

    def advance(self, by: float = 1) -> None:
        """So many more records are read."""
        ...


@dataclass(slots=True)
class Held:
    """A `Publisher` that keeps the last ranking of each query, and rejects in silence.

    What is rejected now was rejected when it first came, and has its dead letter.
    """

    rankings: dict[str, bytes] = field(default_factory=dict)
    rejected: int = 0

    async def publish_ranking(self, query_id: str, value: bytes) -> None:
        """Keep it, in place of an earlier one."""
        self.rankings[query_id] = value

    async def publish_dead_letter(self, key: bytes | None, value: bytes) -> None:
        """Count it."""
        self.rejected += 1


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What was done."""

    records: int
    queries: int
    rejected: int


class Rebuild:
    """One rebuild. Nothing else may work for the group meanwhile."""

    def __init__(self, settings: Settings, store: Store, publisher: Publisher) -> None:
        self._settings = settings
        self._store = store
        self._publisher = publisher
        self._metrics = Metrics(new_registry(), labelled_queries=0)
        self._retry = Retry(self._metrics)
        self._partitions = 0

    async def check(self) -> None:
        """Raise `UserError` where a server does not answer, or while workers are members of the group."""
        try:
            await self._store.ping()
            members = await kafka.active_members(self._settings)
        except (BrokerUnavailable, StoreUnavailable) as error:
            raise UserError(f"{str(error).rstrip('.')}. Nothing was changed") from None
        if members:
            raise UserError(
                f"the group {self._settings.group} still has members: {', '.join(members)}. Stop the workers first"
            )

    async def run(self, progress: Callable[[str, int], Counter]) -> Rebuilt:
        """Wipe the store and fold the topics into it; then let workers go on from there.

        `progress` gives a counter for each topic: its name and how many offsets it spans.
        The mark that workers wait for is left last, after the offsets are committed: a rebuild that is
        interrupted has to be run again, and until then nothing is processed.
        """
        settings, held = self._settings, Held()
        self._partitions = await self._retry(lambda: kafka.ensure_topics(settings))
        await self._retry(self._store.wipe)
        worker = Worker(
            self._store,
            held,
            caught_up=_at_once,
            ends=_never,
            metrics=self._metrics,
            limits=Limits(
                max_batch=settings.max_batch,
                mailbox_size=settings.mailbox_size,
                tolerance=settings.tolerance,
            ),
        )
        read: dict[TopicPartition, int] = {}
        records = 0
        handlers = {Kind.ITEM: worker.on_item, Kind.QUERY: worker.on_query, Kind.VERDICT: worker.on_verdict}
        try:
            for kind, name in ORDER:
                records += await self._replay(kind, settings.topic(name), handlers[kind], read, progress)
                await _unless_failed(worker, worker.drain())
        finally:
            await worker.close()
        for query_id, value in held.rankings.items():
            await self._retry(lambda q=query_id, v=value: self._publisher.publish_ranking(q, v))  # type: ignore[misc]
        await self._retry(lambda: kafka.commit(settings, read))
        mark = uuid4().hex
        await self._retry(lambda: self._store.begin(mark))
        return Rebuilt(records, len(held.rankings), held.rejected)

    async def _replay(
        self,
        kind: Kind,
        topic: str,
        handler: Callable[[Record], Awaitable[None]],
        read: dict[TopicPartition, int],
        progress: Callable[[str, int], Counter],
    ) -> int:
        """Hand over every record of the topic; `read` gets the end offsets. The number of records."""
        consumer = AIOKafkaConsumer(bootstrap_servers=self._settings.kafka, enable_auto_commit=False)
        try:
            await consumer.start()
            partitions = [TopicPartition(topic, p) for p in range(self._partitions)]
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            ends = await kafka.end_offsets(consumer, partitions)
            read.update(ends)
            behind = {tp: end - await consumer.position(tp) for tp, end in ends.items()}
            counter = progress(topic, sum(behind.values()))
            records = 0
            while any([await consumer.position(tp) < end for tp, end in ends.items()]):
                for tp, messages in (await consumer.getmany(timeout_ms=POLL_MS)).items():
                    for message in messages:
                        if message.offset >= ends[tp]:
                            break
                        await handler(_record(kind, message))
                        records += 1
                        counter.advance()
        except (KafkaError, OSError) as error:
            raise BrokerUnavailable(f"Kafka stopped answering: {error!r}") from error
        finally:
            await consumer.stop()
        return records


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


async def _never(_: int) -> tuple[int, int]:
    """No end is below what was seen: the wiped store has seen nothing."""
    return sys.maxsize, sys.maxsize


def _record(kind: Kind, message: ConsumerRecord) -> Record:
    return Record(
        kind=kind,
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        timestamp=message.timestamp / 1000,
        key=message.key,
        value=message.value,
        ack=_no_ack,
    )


def _no_ack() -> None:
    """What is read is committed at the end, all at once."""
