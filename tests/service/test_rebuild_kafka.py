"""`haystream rebuild` as a program, on a real Kafka, and on a Valkey alone and as a cluster."""

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest
from conftest import started
from redis import Redis
from support.cluster import ClusterServer
from support.pipeline import Pipeline, program, settings_on

from haystream.errors import Code
from haystream.events import Event, Item, Outcome, Policy, Query, Verdict
from haystream.models import DEFAULT_PRIORS
from haystream_service.kafka.admin import committed_offsets, ensure_topics
from haystream_service.local import KafkaServer, ValkeyServer
from haystream_service.settings import Settings, variables
from haystream_service.wire import decode_dead_letter
from haystream_service.worker.progress import named

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


@pytest.fixture(params=["server", "cluster"])
def settings(request: pytest.FixtureRequest, kafka: KafkaServer, topic_prefix: str) -> Iterator[Settings]:
    cluster = request.param == "cluster"
    with started(ClusterServer() if cluster else ValkeyServer()) as valkey:
        yield settings_on(kafka, valkey, topic_prefix, redis_cluster=cluster)


async def test_a_wiped_redis_is_restored_from_the_topics(pipeline: Pipeline) -> None:
    worker = await pipeline.worker()
    await pipeline.say(*EVENTS)
    await pipeline.assert_is_the_fold(EVENTS)
    code, _, said = await pipeline.program("rebuild", "--yes")
    assert code == 2
    assert "still has members" in said
    assert len(said.splitlines()) == 1
    await asyncio.to_thread(worker.stop)
    with Redis(port=int(pipeline.settings.redis.rpartition(":")[2].partition("/")[0])) as server:
        server.flushall()
    unread = Verdict("later", "q", "m39", "zoe", Outcome.RELEVANT, 1_800_000_000_000_000)
    await pipeline.say(unread)
    code, _, said = await pipeline.program("rebuild", "--yes")
    assert code == 0, said
    assert "73 records folded, 2 rankings published" in said
    # Without a worker: what the program left is the fold already.
    await pipeline.assert_is_the_fold([*EVENTS, unread])
    # And workers know from where they had to read on, if this store went back.
    committed = named(await committed_offsets(pipeline.settings), pipeline.settings)
    assert await pipeline.store.read_up_to(committed) == committed


async def test_a_kafka_that_has_never_had_a_group_is_no_hindrance(
    own_kafka: KafkaServer, own_valkey: ValkeyServer, topic_prefix: str
) -> None:
    settings = settings_on(own_kafka, own_valkey, topic_prefix)
    await ensure_topics(settings)
    ran = await program(variables(settings), "rebuild", "--yes")
    assert (ran.code, ran.err) == (0, "0 records folded, 0 rankings published\n")


async def test_what_came_while_nobody_worked_and_is_rejected_by_a_rebuild_becomes_a_dead_letter(
    pipeline: Pipeline,
) -> None:
    """Once: of what was rejected before there is one already, and workers go on behind all of it."""
    early = Verdict("early", "nobody", "m1", "zoe", Outcome.RELEVANT, 1_800_000_000_000_000)
    worker = await pipeline.worker()
    await pipeline.say(*EVENTS[:10])
    await pipeline.say_raw("items", b"before", b"{")
    await pipeline.drained()
    await asyncio.to_thread(worker.stop)
    await pipeline.store.wipe()
    await pipeline.say_raw("items", b"since", b"{")
    await pipeline.say_raw("queries", b"q", b"[]")
    await pipeline.say(early)
    code, _, said = await pipeline.program("rebuild", "--yes")
    assert code == 0, said
    assert (
        "1 records left out (rejected before, or of deleted queries), 3 records that came meanwhile rejected"
        in said
    )
    await asyncio.to_thread(worker.start)
    await pipeline.assert_is_the_fold(EVENTS[:10])
    letters = Counter(
        (letter.key, decode_dead_letter(letter.value)[0].error.code)
        for letter in await pipeline.records("dead-letters")
    )
    assert letters == {
        (b"before", Code.MALFORMED_JSON): 1,
        (b"since", Code.MALFORMED_JSON): 1,
        (b"q", Code.MALFORMED_JSON): 1,
        (b"nobody", Code.UNKNOWN_QUERY): 1,
    }
