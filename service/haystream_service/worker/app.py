"""The Faust app: three agents that hand records to the worker, and the rebalances.

Nothing is decoded, retried or acknowledged here. What Faust does by itself and must not: an exception in an
agent skips the message and commits it, so none may leave one; its own web pages; its own topics.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import faust
from faust.types import TP
from yarl import URL

from haystream_service.settings import Settings
from haystream_service.worker.fetching import Transport
from haystream_service.worker.partitions import Partitions
from haystream_service.worker.records import Kind, Record
from haystream_service.worker.worker import Worker

COMMIT_SECONDS = 0.5
"""What is committed less often comes again after a crash; it changes nothing, but it takes time."""
SESSION_SECONDS = 10.0
"""After so long without a heartbeat a worker is given up. Less, and a pause of a large rebuild would do."""
HEARTBEAT_SECONDS = 3.0
REQUEST_SECONDS = 30.0


def build_app(settings: Settings, worker: Worker, partitions: Partitions, *, data_dir: Path) -> faust.App:
    """The app, not started. It connects to nothing before that."""
    app = faust.App(
        settings.group,
        broker=[URL(f"kafka://{server}") for server in settings.kafka.split(",")],
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
        broker_commit_interval=COMMIT_SECONDS,
        broker_session_timeout=SESSION_SECONDS,
        broker_heartbeat_interval=HEARTBEAT_SECONDS,
        broker_request_timeout=REQUEST_SECONDS,
    )
    app.transport = Transport(app.conf.broker_consumer, app)  # before anybody asks for `app.consumer`
    app.consumer.items_topic = partitions.topic(Kind.ITEM)
    for kind, handler in (
        (Kind.QUERY, worker.on_query),
        (Kind.ITEM, worker.on_item),
        (Kind.VERDICT, worker.on_verdict),
    ):
        topic = app.topic(
            partitions.topic(kind),
            key_type=bytes,
            value_type=bytes,
            key_serializer="raw",
            value_serializer="raw",
        )
        app.agent(topic, name=f"haystream-{kind}")(_reader(kind, handler, worker, partitions))

    async def assigned(_: Any, assigned: set[TP], **__: Any) -> None:
        partitions.assign(assigned)
        await worker.assign(partitions.numbers(Kind.QUERY, assigned))

    async def revoked(_: Any, revoked: set[TP], **__: Any) -> None:
        partitions.revoke(revoked)
        await worker.revoke(partitions.numbers(Kind.QUERY, revoked))

    app.on_partitions_assigned.connect(assigned)
    app.on_partitions_revoked.connect(revoked)
    return app


def _reader(
    kind: Kind, handler: Callable[[Record], Awaitable[None]], worker: Worker, partitions: Partitions
) -> Callable[[Any], Awaitable[None]]:
    async def read(stream: Any) -> None:
        events: AsyncIterator[Any] = stream.noack().events()
        async for event in events:
            record = partitions.record(kind, event)
            try:
                await handler(record)
            except Exception as bug:  # noqa: BLE001 - a bug: reading stops here, and the process ends
                worker.fail(bug)
                await asyncio.Event().wait()
            partitions.handed(record)

    return read
