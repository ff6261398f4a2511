"""Redis as several servers, amid a stream of verdicts: slots move, a master hands over, a master dies."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import NoReturn

import pytest
from support.cluster import Cluster
from support.pipeline import Pipeline, is_ready, settings_on, until
from support.sentinels import NAME, PASSWORD, Replicated

from haystream.events import Event, Item, Outcome, Query, Verdict
from haystream_service.local import KafkaServer, ServerUnavailable
from haystream_service.settings import Settings
from haystream_service.store.keys import Keys

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]

QUERIES = ("q", "r", "s")
BEGIN: tuple[Event, ...] = (
    *(Query(query) for query in QUERIES),
    *(Item(f"m{n}", "default", f"p{n % 9}", (f"p{n % 7 + 9}",)) for n in range(100)),
)


def verdicts(first: int, count: int) -> list[Event]:
    return [
        Verdict(f"v{n}", QUERIES[n % 3], f"m{n % 100}", "zoe", list(Outcome)[n % 3], 1_700_000_000_000_000 + n)
        for n in range(first, first + count)
    ]


class Stream:
    """Verdicts, as long as something else goes on."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.said: list[Event] = [*BEGIN]
        self._pipeline = pipeline

    async def amid(self, change: Callable[[], None]) -> None:
        """Return when the change is made; verdicts come meanwhile."""
        changing = asyncio.create_task(asyncio.to_thread(change))
        while not changing.done():
            more = verdicts(len(self.said), 6)
            self.said += more
            await self._pipeline.say(*more)
            await asyncio.sleep(0.02)
        await changing


@asynccontextmanager
async def working(settings: Settings) -> AsyncIterator[tuple[Pipeline, Stream]]:
    async with Pipeline(settings) as pipeline:
        worker = await pipeline.worker()
        await pipeline.say(*BEGIN)
        stream = Stream(pipeline)
        yield pipeline, stream
        assert worker.running
        await until(lambda: is_ready(worker), "the worker is ready again")
        await pipeline.assert_is_the_fold(stream.said)


@pytest.fixture
def cluster(unavailable: Callable[[str], NoReturn]) -> Iterator[Cluster]:
    try:
        with Cluster() as cluster:
            yield cluster
    except ServerUnavailable as missing:
        unavailable(str(missing))


@pytest.fixture
def replicated(unavailable: Callable[[str], NoReturn]) -> Iterator[Replicated]:
    try:
        with Replicated() as servers:
            yield servers
    except ServerUnavailable as missing:
        unavailable(str(missing))


async def test_a_cluster_changes_and_nothing_is_lost(
    kafka: KafkaServer, cluster: Cluster, topic_prefix: str
) -> None:
    settings = settings_on(kafka, cluster, topic_prefix, redis_cluster=True)
    async with working(settings) as (pipeline, stream):
        keys = Keys(settings.redis_prefix)
        for key in (keys.query("q", "meta"), keys.log("default")):
            source = cluster.owner(key)
            target = (source + 1) % len(cluster.masters)
            move = partial(cluster.migrate, cluster.slot(key), cluster.masters[source], cluster.masters[target])
            await stream.amid(move)
            assert cluster.owner(key) == target
        await stream.amid(partial(cluster.fail_over, cluster.owner(keys.query("q", "meta"))))
        # What a replica has not got yet is lost with its master: this one has everything.
        await pipeline.assert_is_the_fold(stream.said)
        victim = cluster.owner(keys.query("r", "meta"))
        cluster.kill(victim)
        await stream.amid(partial(cluster.elect, victim))


async def test_sentinels_choose_another_master_and_nothing_is_lost(
    kafka: KafkaServer, replicated: Replicated, topic_prefix: str
) -> None:
    named = {"redis_sentinel": NAME, "redis_sentinel_password": PASSWORD}
    async with working(settings_on(kafka, replicated, topic_prefix, **named)) as (pipeline, stream):
        await pipeline.assert_is_the_fold(stream.said)
        replicated.kill()
        await stream.amid(replicated.elect)
