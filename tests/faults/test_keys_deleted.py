"""Keys that somebody deletes in Redis while a worker runs, or before it starts: what they held is had again."""

import asyncio

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete
from redis.asyncio import Redis
from support.pipeline import Pipeline, admin_client, settings_on, until
from support.seeds import faults

from haystream.events import Event, Item, Outcome, Query, Verdict
from haystream_service.local import KafkaServer, ValkeyServer
from haystream_service.local.services import WorkerProcess
from haystream_service.settings import Settings
from haystream_service.store.base import Quarantine
from haystream_service.store.redis import RedisStore
from haystream_service.worker.listing import LOOK_SECONDS

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]

ALL = -1
"""As Kafka has it."""


@pytest.fixture
def settings(kafka: KafkaServer, own_valkey: ValkeyServer, topic_prefix: str) -> Settings:
    return settings_on(kafka, own_valkey, topic_prefix)


def item(number: int) -> Item:
    return Item(f"i{number}", "default", f"p{number % 5}", (f"p{5 + number % 3}",))


def verdict(number: int, query_id: str) -> Verdict:
    said = list(Outcome)[number % 3]
    return Verdict(f"v{number}", query_id, f"i{number}", "zoe", said, 1_700_000_000_000_000 + number)


BEFORE: list[Event] = [
    *(Query(query_id) for query_id in "qr"),
    *(item(n) for n in range(20)),
    *(verdict(n, "qr"[n % 2]) for n in range(12)),
]
SINCE: list[Event] = [item(20), *(verdict(n, "qr"[n % 2]) for n in range(12, 18))]


async def some_are_deleted(redis: Redis, key: str) -> None:
    """Two fields are deleted of what is under the key."""
    await redis.hdel(key, *sorted(await redis.hkeys(key))[:2])


@pytest.mark.parametrize("meanwhile", ["it runs", "it is stopped"])
@pytest.mark.parametrize("lost", faults(["all", "some"], "all"))
async def test_verdicts_that_are_gone_from_redis_are_read_again(
    pipeline: Pipeline, own_valkey: ValkeyServer, meanwhile: str, lost: str
) -> None:
    worker = await pipeline.worker_after(BEFORE)
    if meanwhile == "it is stopped":
        await asyncio.to_thread(worker.stop)
    key = f"{pipeline.settings.redis_prefix}:{{q:q}}:verdicts"
    async with Redis.from_url(own_valkey.url) as redis:
        await (redis.delete(key) if lost == "all" else some_are_deleted(redis, key))
    if meanwhile == "it is stopped":
        await asyncio.to_thread(worker.start)
    await pipeline.say(*SINCE)

    async def told() -> bool:
        return "read from Kafka again" in worker.log.read_text()

    await until(told, "the worker says that verdicts are gone")
    await pipeline.assert_is_the_fold([*BEFORE, *SINCE])
    assert await pipeline.records("dead-letters") == []


@pytest.mark.parametrize("part", faults(["people-told", "pairs-told"], "people-told"))
async def test_tables_that_are_gone_from_redis_are_written_anew(
    pipeline: Pipeline, own_valkey: ValkeyServer, part: str
) -> None:
    worker = await pipeline.worker_after(BEFORE)
    async with Redis.from_url(own_valkey.url) as redis:
        await redis.delete(f"{pipeline.settings.redis_prefix}:{{q:q}}:{part}")
    await pipeline.say(*SINCE)

    async def told() -> bool:
        return "query 'q': Redis has less of it than was saved" in worker.log.read_text()

    await until(told, "the worker says that rows are gone")
    await pipeline.assert_is_the_fold([*BEFORE, *SINCE])


async def test_a_query_whose_verdicts_are_gone_from_kafka_too_is_stopped(
    pipeline: Pipeline, own_valkey: ValkeyServer
) -> None:
    worker = await pipeline.worker_after(BEFORE)
    await asyncio.to_thread(worker.stop)
    async with Redis.from_url(own_valkey.url) as redis:
        await redis.delete(f"{pipeline.settings.redis_prefix}:{{q:q}}:verdicts")
    topic = pipeline.settings.topic("verdicts")
    async with admin_client(pipeline.settings) as admin:
        ends = {TopicPartition(topic, partition): RecordsToDelete(before_offset=ALL) for partition in range(2)}
        await admin.delete_records(ends)
    await asyncio.to_thread(worker.start)

    async def stopped() -> bool:
        quarantine = (await pipeline.store.read_note("q")).quarantine
        return quarantine is not None and "of 6 verdicts Redis has 0" in quarantine.detail

    await until(stopped, "the query is stopped")


@pytest.mark.parametrize("meanwhile", faults(["it runs", "it is stopped"], "it runs"))
async def test_ids_of_a_collection_that_are_gone_from_redis_are_made_anew(
    pipeline: Pipeline, own_valkey: ValkeyServer, meanwhile: str
) -> None:
    """Without them a record of an item that is known would be a new entry, which holds, whatever was known."""
    worker = await pipeline.worker_after(BEFORE)
    if meanwhile == "it is stopped":
        await asyncio.to_thread(worker.stop)
    key = f"{pipeline.settings.redis_prefix}:{{c:default}}:ids"
    async with Redis.from_url(own_valkey.url) as redis:
        ids = await redis.hgetall(key)
        await redis.delete(key)
        if meanwhile == "it is stopped":
            await asyncio.to_thread(worker.start)
        contradicts = Item("i3", "default", "somebody else", ("p1",))
        await pipeline.say(item(4), contradicts)
        await pipeline.drained()
        assert await redis.hgetall(key) == ids
    await pipeline.say(*SINCE)
    await pipeline.assert_is_the_fold([*BEFORE, *SINCE])
    assert f"lacks {key}, which is made anew" in worker.log.read_text()
    assert len(await pipeline.records("dead-letters")) == 1  # of what contradicts


@pytest.mark.parametrize("meanwhile", faults(["it runs", "it is stopped"], "it is stopped"))
@pytest.mark.parametrize("deleted", faults(["partition", "leased", "*"], "*"))
async def test_lists_of_queries_that_are_gone_from_redis_are_made_anew(
    pipeline: Pipeline, own_valkey: ValkeyServer, deleted: str, meanwhile: str
) -> None:
    """Else nobody would load a query after a restart, and no lease would run out."""
    stopped = Query("stopped")
    worker = await pipeline.worker_after([*BEFORE, stopped])
    store = pipeline.store
    why = Quarantine("quarantined", "it was", 1.0)
    await store.quarantine("stopped", (await store.read_heads(["stopped"]))[0].partition, why)  # type: ignore[union-attr]
    await store.claims.claim("q", "kim", 1, 30.0)
    await asyncio.sleep(LOOK_SECONDS + 1.0)  # until it has seen that there are such
    if meanwhile == "it is stopped":
        await asyncio.to_thread(worker.stop)
    before = await lists(store)
    prefix = pipeline.settings.redis_prefix
    async with Redis.from_url(own_valkey.url) as redis:
        names = ("partition", "leased", "quarantined") if deleted == "*" else (deleted,)
        for name in names:
            await redis.delete(*(f"{prefix}:{name}:{number}" for number in range(2)))
        if deleted == "*":
            await redis.delete(f"{prefix}:partitions")
    if meanwhile == "it is stopped":
        await asyncio.to_thread(worker.start)

    async def there() -> bool:
        return await lists(store) == before

    await until(there, "they are there again")
    await until(lambda: says(worker, "entries in its lists of queries: they are made anew"), "the worker says so")

    async def run_out() -> bool:
        return not await store.claims.live("q")

    await until(run_out, "the lease runs out")


@pytest.mark.parametrize(
    "alone",
    faults(
        [
            ("partition", "it runs"),
            ("partition", "it is stopped"),
            ("leased", "it runs"),
            ("leased", "it is stopped"),
            ("quarantined", "it is stopped"),  # nobody needs that list before the next start
        ],
        ("leased", "it runs"),
        ("partition", "it is stopped"),
    ),
    ids=" ".join,
)
async def test_a_query_that_is_gone_from_a_list_alone_is_listed_again(
    pipeline: Pipeline, own_valkey: ValkeyServer, alone: tuple[str, str]
) -> None:
    """Others stay in the list, so that it is not empty."""
    name, meanwhile = alone
    others = [Query(f"other{number}") for number in range(6)]
    worker = await pipeline.worker_after([*BEFORE, *others])
    store, stopped = pipeline.store, ["q", *(query.query_id for query in others)]
    why = Quarantine("quarantined", "it was", 1.0)
    heads = dict(zip(stopped, await store.read_heads(stopped), strict=True))
    for query_id, head in heads.items():
        assert head is not None
        await store.claims.claim(query_id, "kim", 1, 3600.0)
        if name == "quarantined":
            await store.quarantine(query_id, head.partition, why)
    await asyncio.sleep(LOOK_SECONDS + 1.0)  # until it has seen that there are such
    if meanwhile == "it is stopped":
        await asyncio.to_thread(worker.stop)
    before = await lists(store)
    partition = heads["q"].partition  # type: ignore[union-attr]
    async with Redis.from_url(own_valkey.url) as redis:
        assert await redis.srem(f"{pipeline.settings.redis_prefix}:{name}:{partition}", "q") == 1
    assert await lists(store) != before
    if meanwhile == "it is stopped":
        await asyncio.to_thread(worker.start)

    async def there() -> bool:
        return await lists(store) == before

    await until(there, "it is there again")
    await until(lambda: says(worker, "Redis lacked 1 entries in its lists of queries"), "the worker says so")


async def says(worker: WorkerProcess, text: str) -> bool:
    """Whether the worker's log has that."""
    return text in worker.log.read_text()


async def lists(store: RedisStore) -> list[object]:
    """Which queries there are, and how many are in each list."""
    return [await store.query_ids(), *[await store.list_sizes(number) for number in range(2)]]
