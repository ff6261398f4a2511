"""`haystream repartition`."""

import asyncio
import logging
import sys
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path

import typer

from haystream_service.console import notes, progress
from haystream_service.errors import UserError
from haystream_service.kafka.records import BrokerUnavailable
from haystream_service.settings import Settings, load

NEXT = """\
{copied} records copied. Now:
1. set HAYSTREAM_TOPIC_PREFIX={prefix} for the workers, and have producers and readers use {topics}
2. run `haystream rebuild` with it, and start the workers
3. when all is well, delete the old topics"""


def run(
    to: str, partitions: int, *, without: Collection[str] = (), config: Path | None = None, yes: bool = False
) -> None:
    """Copy the source topics to new ones with so many partitions. Raises `UserError`.

    `without`: collections whose items are left out.
    """
    source = load(config)
    target = load(config, topic_prefix=to, partitions=partitions)
    if source.topic_prefix == target.topic_prefix:
        raise UserError(f"the topics are {source.topic('*')} already: name another prefix with --to")
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # what matters of it is raised, too
    question = f"Copy {source.topic('*')} to {target.topic('*')}, with {partitions} partitions?"
    if not yes and not typer.confirm(question, err=True):
        raise UserError("nothing was copied")
    try:
        copied = asyncio.run(_copy(source, target, frozenset(without)))
    except BrokerUnavailable as error:
        again = f"The copy is not complete: delete {target.topic('*')} and run it again"
        raise UserError(f"{str(error).rstrip('.')}. {again}") from None
    notes.print(NEXT.format(copied=copied, prefix=target.topic_prefix, topics=target.topic("*")))


async def _copy(source: Settings, target: Settings, without: frozenset[str]) -> int:
    from haystream_service.worker.repartitioning import Repartition

    repartition = Repartition(source, target, without=without)
    await repartition.check()
    with ExitStack() as bars:
        return await repartition.run(lambda topic, _: bars.enter_context(progress(topic, None)))
