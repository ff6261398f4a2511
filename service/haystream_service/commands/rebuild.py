"""`haystream rebuild`."""

import asyncio
import logging
import sys
from contextlib import ExitStack
from pathlib import Path

import typer

from haystream_service.commands.console import notes, progress
from haystream_service.errors import UserError
from haystream_service.settings import Settings, SettingsError, load
from haystream_service.store.base import StoreUnavailable
from haystream_service.worker.records import BrokerUnavailable


def run(*, config: Path | None = None, yes: bool = False) -> None:
    """Restore Redis from the topics. Raises `UserError`."""
    try:
        settings = load(config)
    except SettingsError as error:
        raise UserError(str(error)) from None
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # what matters of it is raised, too
    where = f"{settings.redis.rpartition('@')[2]} under {settings.redis_prefix}:"
    if not yes and not typer.confirm(f"Wipe {where} and fold the topics {settings.topic('*')} into it?", err=True):
        raise UserError("nothing was changed")
    try:
        asyncio.run(_rebuild(settings))
    except (BrokerUnavailable, StoreUnavailable) as error:
        raise UserError(f"{str(error).rstrip('.')}. The rebuild is not complete: run it again") from None


async def _rebuild(settings: Settings) -> None:
    from haystream_service.store.redis import RedisStore
    from haystream_service.worker.kafka import KafkaPublisher
    from haystream_service.worker.rebuilding import Rebuild

    store = RedisStore.connect(settings.redis, prefix=settings.redis_prefix, cluster=settings.redis_cluster)
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
        + (f", {done.rejected} records rejected as before" if done.rejected else "")
    )
