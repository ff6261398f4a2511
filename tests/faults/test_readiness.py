"""/readyz says the truth while a server is away, and says it at once."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from redis.asyncio import Redis
from support.forked import ForkedWorker
from support.pipeline import Pipeline, is_ready, page, settings_on, until

from haystream.events import Event, Item, Outcome, Query, Verdict
from haystream_service.local import KafkaServer, LocalServer, ValkeyServer
from haystream_service.local.services import WorkerProcess
from haystream_service.settings import Settings

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]

FEW_FILES, MANY_FILES = 64, 4096
"""That may be open: until it asks for more, and then."""
LINES = 300
"""Of a log in which a client that cannot reach its server wrote a hundred a second."""


@pytest.fixture
def settings(own_kafka: KafkaServer, own_valkey: ValkeyServer, topic_prefix: str) -> Settings:
    return settings_on(own_kafka, own_valkey, topic_prefix)


@contextmanager
def killed(server: LocalServer) -> Iterator[None]:
    server.kill()
    try:
        yield
    finally:
        server.start()


async def metric_is(worker: WorkerProcess, value: int) -> bool:
    return f"\nhaystream_ready {value}.0\n" in page(worker, "/metrics")[1]


async def test_a_redis_that_may_drop_what_it_holds_is_told_of(pipeline: Pipeline, own_valkey: ValkeyServer) -> None:
    worker = await pipeline.worker()
    async with Redis.from_url(own_valkey.url) as redis:
        for policy, ready in (("allkeys-lru", False), ("volatile-lru", True), ("allkeys-random", False)):
            await redis.config_set("maxmemory-policy", policy)
            await redis.config_set("maxmemory", "1gb")

            async def said(policy: str = policy, ready: bool = ready) -> bool:
                status, text = await asyncio.to_thread(page, worker, "/readyz")
                return status == 200 if ready else status == 503 and f"noeviction instead of {policy}" in text

            await until(said, f"/readyz says so of {policy}")
        await redis.config_set("maxmemory", "0")
    await until(lambda: is_ready(worker), "a store without bound drops nothing")


@pytest.mark.parametrize(("away", "name"), [("kafka", "Kafka"), ("valkey", "Redis")])
async def test_a_worker_whose_server_is_away_is_not_ready_and_says_which(
    pipeline: Pipeline, own_kafka: KafkaServer, own_valkey: ValkeyServer, away: str, name: str
) -> None:
    server: LocalServer = own_kafka if away == "kafka" else own_valkey
    worker = await pipeline.worker()
    await pipeline.say(Query("q"), Item("i", "default", "ann", ("bo",)))
    await pipeline.drained()
    for number, fault in enumerate((server.frozen, lambda: killed(server))):
        await until(lambda: metric_is(worker, 1), "the worker is ready")
        assert await is_ready(worker)
        with fault():

            async def told() -> bool:
                status, text = page(worker, "/readyz")
                return status == 503 and name in text

            await until(told, f"/readyz says that {name} is away")
            await until(lambda: metric_is(worker, 0), "the metric says so, too")
            assert page(worker, "/healthz") == (200, "ok\n"), "a restart would not help"
            await asyncio.sleep(5.0)  # for what its clients have to say meanwhile

        await until(lambda: is_ready(worker), f"ready again, after {name} is back")
        when = 1_700_000_000_000_000 + number
        await pipeline.say(Verdict(f"v{number}", "q", "i", "zoe", Outcome.RELEVANT, when))
        await pipeline.drained()
    lines = worker.log.read_text().splitlines()
    assert len(lines) < LINES, "\n".join(lines[-20:])


async def test_a_worker_may_have_as_many_collections_as_the_system_lets_it_have_open_files(
    pipeline: Pipeline,
) -> None:
    first = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({FEW_FILES}, {MANY_FILES}))"
    worker = ForkedWorker(pipeline.environment(), first=first)
    try:
        await asyncio.to_thread(worker.start)
        names = [f"c{number}" for number in range(FEW_FILES)]
        said: list[Event] = [
            event for c in names for event in (Query(c, collection=c), Item("i", c, "ann", ("bo",)))
        ]
        await pipeline.say(*said)
        await pipeline.assert_is_the_fold(said)
        await until(lambda: is_ready(worker), "the worker is ready")
        assert "Too many open files" not in worker.log.read_text()
    finally:
        await asyncio.to_thread(worker.close)


async def test_two_workers_of_one_name_say_so_until_one_has_gone(pipeline: Pipeline) -> None:
    """Kafka knows one of them at a time: each takes the other's partitions away every second or two."""
    workers = [await pipeline.worker(instance_id="ann") for _ in range(2)]
    said = "Kafka gives the place of 'ann' in the group to another process again and again"

    async def told() -> bool:
        pages = [await asyncio.to_thread(page, worker, "/readyz") for worker in workers]
        return all(status == 503 and said in text for status, text in pages)

    await until(told, "both say so by /readyz")
    assert all(worker.log.read_text().count(said) == 1 for worker in workers)
    await asyncio.to_thread(workers[0].stop)
    await until(lambda: is_ready(workers[1]), "the one that stays is ready")
    await pipeline.say(Query("q"), Item("i", "default", "ann", ("bo",)))
    await pipeline.assert_is_the_fold([Query("q"), Item("i", "default", "ann", ("bo",))])
