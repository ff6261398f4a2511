"""The Faust app: three agents that hand queries, verdicts and leases to the worker, and the rebalances.

Nothing is decoded, retried or acknowledged here. What Faust does by itself and must not: an exception in an
agent skips the message and commits it, so none may leave one; its own web pages; its own topics.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import faust
from faust.tables.manager import TableManager
from faust.types import TP

from haystream_service.kafka.connection import faust_arguments
from haystream_service.kafka.records import OWNED, Kind, Record
from haystream_service.settings import Settings
from haystream_service.worker.consumer import Begin, Transport
from haystream_service.worker.partitions import Partitions
from haystream_service.worker.worker import Worker

COMMIT_SECONDS = 0.5
"""What is committed less often comes again after a crash; it changes nothing, but it takes time."""
SESSION_SECONDS = 10.0
"""After so long without a heartbeat a worker is given up. Less, and a pause of a large rebuild would do."""
HEARTBEAT_SECONDS = 1.0
"""The answer to a heartbeat says that somebody joins or leaves, and all wait until everybody has heard of it."""
REQUEST_SECONDS = 30.0


def build_app(
    settings: Settings,
    worker: Worker,
    partitions: Partitions,
    *,
    begin: Begin,
    agents: set[Kind],
    data_dir: Path,
    moved: Callable[[float], None],
) -> faust.App:
    """The app, not started. It connects to nothing before that.

    `begin` says where to read partitions from instead of what is committed;
    `agents` holds the kinds whose agents are alive;
    `moved` is told the seconds that each rebalance took.
    """
    app = faust.App(
        settings.group,
        **faust_arguments(settings),
        version=1,
        autodiscover=False,
        store="memory://",
        datadir=str(data_dir),
        web_enabled=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        # What is in hand when partitions go is dropped, and delivered again; waiting could take for ever.
        stream_wait_empty=False,
        consumer_auto_offset_reset="earliest",
        consumer_group_instance_id=settings.instance_id,
        TableManager=_NoTables,
        broker_commit_interval=COMMIT_SECONDS,
        broker_session_timeout=SESSION_SECONDS,
        broker_heartbeat_interval=HEARTBEAT_SECONDS,
        broker_request_timeout=REQUEST_SECONDS,
    )
    app.transport = Transport(app.conf.broker_consumer, app, begin=begin)  # before anybody asks for `app.consumer`
    flow = Flow(app.consumer, partitions, settings.mailbox_size)
    for kind in OWNED:
        topic = app.topic(
            partitions.topic(kind),
            key_type=bytes,
            value_type=bytes,
            key_serializer="raw",
            value_serializer="raw",
        )
        app.agent(topic, name=f"haystream-{kind}")(_alive(kind, agents, _reader(kind, worker, partitions, flow)))

    taken: list[float] = []

    async def assigned(_: Any, assigned: set[TP], **__: Any) -> None:
        if taken:
            moved(monotonic() - taken[0])
            taken.clear()
        partitions.assign(assigned, app.consumer)
        await worker.assign(partitions.numbers(Kind.QUERY, assigned))

    async def revoked(_: Any, revoked: set[TP], **__: Any) -> None:
        taken.append(monotonic())
        partitions.revoke(revoked)
        await worker.revoke(partitions.numbers(Kind.QUERY, revoked))

    app.on_partitions_assigned.connect(assigned)
    app.on_partitions_revoked.connect(revoked)
    return app


class _NoTables(TableManager):  # type: ignore[misc]  # Faust has no types
    """Faust's, without the second that it waits for an app's tables before it subscribes: this app has none."""

    async def on_start(self) -> None:
        await self._update_channels()
        await self.recovery.start()


def _reader(kind: Kind, worker: Worker, partitions: Partitions, flow: "Flow") -> Callable[[Any], Awaitable[None]]:
    async def read(stream: Any) -> None:
        events: AsyncIterator[Any] = stream.noack().events()
        async for event in events:
            message = event.message
            try:
                record = partitions.record(kind, message, message.timestamp, release=event.ack)
                await worker.on_record(flow.bounded(record))
            except Exception as bug:  # noqa: BLE001 - a bug: reading stops here, and the process ends
                worker.fail(bug)
                await asyncio.Event().wait()
            partitions.handed(record)

    return read


def _alive(
    kind: Kind, agents: set[Kind], read: Callable[[Any], Awaitable[None]]
) -> Callable[[Any], Awaitable[None]]:
    async def reading(stream: Any) -> None:
        agents.add(kind)
        try:
            await read(stream)
        finally:
            agents.discard(kind)

    return reading


class Flow:
    """Bounds how many records of one partition are in hand: a query that stands still fills its own partition, and
    nobody else waits for it.

    Faust's `pause_partitions` would drop what is fetched already; what it does when a buffer is full does not.
    """

    def __init__(self, consumer: Any, partitions: Partitions, most: int) -> None:
        self._consumer = consumer
        self._partitions = partitions
        self._most = most

    def bounded(self, record: Record) -> Record:
        """The record; its partition is fetched no further while too many are in hand."""
        tp = TP(record.topic, record.partition)

        def ack() -> None:
            record.ack()
            if self._partitions.has(tp) and self._partitions.in_hand(tp) <= self._most // 2:
                self._consumer.on_buffer_drop(tp)  # does nothing where it is fetched

        if self._partitions.in_hand(tp) >= self._most:
            self._consumer.on_buffer_full(tp)
        return replace(record, ack=ack)
