"""`haystream rebuild` as a program, on a real Kafka, and on a Valkey alone and as a cluster."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import closing

import pytest
import pytest_asyncio
from redis import Redis
from support.cluster import ClusterServer
from support.equality import EXACT
from support.pipeline import Pipeline

from haystream.events import Event, Item, Outcome, Policy, Query, Verdict
from haystream.models import DEFAULT_PRIORS
from haystream_service.local import KafkaServer, ValkeyServer
from haystream_service.settings import Settings

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]

EVENTS: tuple[Event, ...] = (
    Query("q"),
    Query("r", prior=DEFAULT_PRIORS["relevance"], policy=Policy("bayes-ucb")),
    *(Item(f"m{n}", "default", f"p{n % 5}", (f"p{n % 5 + 1 + n % 2}",)) for n in range(40)),
    *(
        Verdict(f"v{n}", "qr"[n % 2], f"m{n}", "zoe", list(Outcome)[n % 3], 1_700_000_000_000_000 + n)
        for n in range(30)
    ),
)


@pytest_asyncio.fixture(params=["server", "cluster"])
async def pipeline(
    request: pytest.FixtureRequest, kafka: KafkaServer, own_valkey: ValkeyServer, topic_prefix: str
) -> AsyncIterator[Pipeline]:
    cluster = request.param == "cluster"
    with closing(ClusterServer() if cluster else own_valkey) as redis:
        redis.start()
        settings = Settings(
            kafka=kafka.bootstrap,
            redis=redis.url,
            redis_cluster=cluster,
            topic_prefix=topic_prefix,
            redis_prefix=topic_prefix,
            group=topic_prefix,
            partitions=2,
            tolerance=EXACT,
        )
        async with Pipeline(settings) as pipeline:
            yield pipeline


async def rebuild(pipeline: Pipeline) -> tuple[int, str]:
    """Runs the program; its exit code and what it says."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from haystream_service.cli import main; main()", "rebuild", "--yes"),
        env={**os.environ, **pipeline.environment()},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert out == b""
    assert process.returncode is not None
    return process.returncode, err.decode()


async def test_a_wiped_redis_is_restored_from_the_topics(pipeline: Pipeline) -> None:
    worker = await pipeline.worker()
    await pipeline.say(*EVENTS)
    await pipeline.assert_is_the_fold(EVENTS)
    code, said = await rebuild(pipeline)
    assert code == 2
    assert "still has members" in said
    assert len(said.splitlines()) == 1
    await asyncio.to_thread(worker.stop)
    with Redis(port=int(pipeline.settings.redis.rpartition(":")[2].partition("/")[0])) as server:
        server.flushall()
    unread = Verdict("later", "q", "m39", "zoe", Outcome.RELEVANT, 1_800_000_000_000_000)
    await pipeline.say(unread)
    code, said = await rebuild(pipeline)
    assert code == 0, said
    assert "73 records folded, 2 rankings published" in said
    # Without a worker: what the program left is the fold already.
    await pipeline.assert_is_the_fold([*EVENTS, unread])
