"""`haystream rebuild`."""

import asyncio
import logging
import sys
from contextlib import ExitStack
from pathlib import Path

import typer

from haystream_service.console import notes, plain, progress
from haystream_service.errors import UserError
from haystream_service.kafka.records import BrokerUnavailable
from haystream_service.settings import Settings, load
from haystream_service.store.base import StoreUnavailable

QUERIES_SHOWN = 20
"""Queries that are named, of those that did not come back as they were; and partitions."""


def run(*, config: Path | None = None, yes: bool = False) -> None:
    """Restore Redis from the topics. Raises `UserError`."""
    settings = load(config)
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # what matters of it is raised, too
    where = f"{settings.redis} under {settings.redis_prefix}:"
    if not yes and not typer.confirm(f"Wipe {where} and fold the topics {settings.topic('*')} into it?", err=True):
        raise UserError("nothing was changed")
    try:
        asyncio.run(_rebuild(settings))
    except (BrokerUnavailable, StoreUnavailable) as error:
        raise UserError(f"{str(error).rstrip('.')}. The rebuild is not complete: run it again") from None


async def _rebuild(settings: Settings) -> None:
    from haystream_service.store.redis import RedisStore
    from haystream_service.worker.kafka_publisher import KafkaPublisher
    from haystream_service.worker.rebuilding import Rebuild

    store = RedisStore.open(settings)
    publisher = KafkaPublisher(settings)
    rebuild = Rebuild(settings, store, publisher)
    try:
        await rebuild.check()
        with ExitStack() as bars:
            done = await rebuild.run(lambda topic, total: bars.enter_context(progress(topic, total)))
    finally:
        await publisher.close()
        await store.close()
    notes.print(
        f"{done.records} records folded, {done.queries} rankings published"
        + (f", {done.rejected} records left out (rejected before, or of deleted queries)" if done.rejected else "")
        + (f", {done.letters} records that came meanwhile rejected (dead letters)" if done.letters else "")
    )
    gone = "partitions lack records that were removed from them, and are not in what was rebuilt"
    _tell(gone, done.missing, rest="")
    _tell("queries are stopped (`haystream query release` tries them again)", done.stopped)
    _tell("queries could not be brought back; verdicts for them count if they are opened again", done.lost)


def _tell(what: str, named: dict[str, str], *, rest: str = ": `haystream query list`") -> None:
    if named:
        notes.print(f"{len(named)} {what}:")
    for name, why in list(named.items())[:QUERIES_SHOWN]:
        notes.print(f"  {plain(name)}: {plain(why)}")
    if len(named) > QUERIES_SHOWN:
        notes.print(f"  and {len(named) - QUERIES_SHOWN} more{rest}")
