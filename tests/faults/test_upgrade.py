"""This version on what an earlier one left behind; and what it does with what a later one has written.

`make upgrade FROM=COMMIT` writes what a version leaves behind, and tries the way back, which takes that version.
"""

import asyncio
from pathlib import Path

import pytest
from redis.asyncio import Redis
from support.equality import assert_is_stored, offline
from support.left import lay
from support.pipeline import Pipeline, page, rebuild, until
from support.versions import part

from haystream_service.store.marks import FORMAT

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis]

LEFT = sorted((Path(__file__).parent / "left").glob("*.jsonl"))


@pytest.mark.parametrize("left", LEFT, ids=lambda path: path.stem)
async def test_it_goes_on_where_an_earlier_version_stopped(pipeline: Pipeline, left: Path) -> None:
    await lay(pipeline, left)
    await pipeline.worker()
    # What that version has published of a query stands until something comes for the query.
    await assert_is_stored(pipeline.store, offline(part(0)))
    await pipeline.say(*part(1))
    await pipeline.assert_is_the_fold([*part(0), *part(1)])


@pytest.mark.parametrize("left", LEFT, ids=lambda path: path.stem)
async def test_topics_of_an_earlier_version_are_rebuilt_from(pipeline: Pipeline, left: Path) -> None:
    await lay(pipeline, left)
    await rebuild(pipeline.settings, pipeline.store)
    await pipeline.assert_is_the_fold(part(0))


async def test_a_later_version_takes_over_and_a_rebuild_goes_back(pipeline: Pipeline) -> None:
    worker = await pipeline.worker()
    await pipeline.say(*part(0))
    await pipeline.ranked(part(0))
    mark = f"{pipeline.settings.redis_prefix}:generation"
    async with Redis.from_url(pipeline.settings.redis) as redis:
        begun, topics = (await redis.get(mark)).decode().split(":", 1)
        await redis.set(mark, f"{begun.split('.')[0]}.{FORMAT + 1}:{topics}")

    async def ended() -> bool:
        return not worker.running

    await until(ended, "the worker of this version ends")
    assert "a later version of haystream has written to Redis" in worker.log.read_text()
    starting = asyncio.create_task(asyncio.to_thread(worker.start))

    async def refused() -> bool:
        status, said = await asyncio.to_thread(page, worker, "/readyz")
        return status == 503 and "run that version, or stop all workers and run `haystream rebuild`" in said

    await until(refused, "started anew it says why it waits")
    await rebuild(pipeline.settings, pipeline.store)
    await starting
    await pipeline.assert_is_the_fold(part(0))
