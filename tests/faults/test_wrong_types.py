"""Keys that all queries share, a collection's or a query's hold something else: that is told, and waited for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis
from support.pipeline import Pipeline, is_ready, page, settings_on, until
from support.seeds import faults

from haystream.events import Event, Item, Outcome, Query, Verdict
from haystream_service.local import KafkaServer, ValkeyServer
from haystream_service.local.services import WorkerProcess
from haystream_service.settings import Settings
from haystream_service.wire import decode_lease

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]

SHARED = (
    "generation",
    "partitions",
    "partition:0",
    "quarantined:0",
    "unknown:0",
    "unknown-leases:0",
    "leased:0",
    "up-to",
)


@pytest.fixture
def settings(kafka: KafkaServer, own_valkey: ValkeyServer, topic_prefix: str) -> Settings:
    return settings_on(kafka, own_valkey, topic_prefix, partitions=1)


def items(collection: str, numbers: range) -> list[Item]:
    return [Item(f"{collection}{n}", collection, f"p{n % 5}", (f"p{5 + n % 3}",)) for n in numbers]


def verdict(number: int, query_id: str, collection: str = "a") -> Verdict:
    said = list(Outcome)[number % 3]
    return Verdict(
        f"{query_id}{number}", query_id, f"{collection}{number}", "zoe", said, 1_700_000_000_000_000 + number
    )


RUBBISH = b"\xffrub.bish"
BEFORE: list[Event] = [
    Query("q", collection="a"),
    Query("r", collection="b"),
    *items("a", range(12)),
    *items("b", range(12)),
    *(verdict(n, "q") for n in range(4)),
    *(verdict(n, "r", "b") for n in range(4)),
]
SINCE: list[Event] = [
    *items("a", range(12, 16)),
    *(verdict(n, "q") for n in range(4, 8)),
    *(verdict(n, "r", "b") for n in range(4, 8)),
]


@asynccontextmanager
async def something_else(redis: Redis, key: str) -> AsyncIterator[None]:
    """A list is under the key inside, and what was there again afterwards; nobody writes there in between."""
    async with redis.pipeline(transaction=True) as at_once:
        at_once.dump(key)
        at_once.delete(key)
        at_once.rpush(key, "junk")
        kept, *_ = await at_once.execute()
    yield
    if kept is None:
        await redis.delete(key)
    else:
        await redis.restore(key, 0, kept, replace=True)


@asynccontextmanager
async def rubbish(redis: Redis, key: str) -> AsyncIterator[None]:
    """A context in which what is under the key has the right type and says nothing; it is mended after that."""
    kind, fields = await redis.type(key), await redis.hkeys(key) if await redis.type(key) == b"hash" else []
    async with redis.pipeline(transaction=True) as at_once:
        at_once.dump(key)
        if kind == b"string":
            at_once.set(key, RUBBISH)
        elif kind == b"stream":
            at_once.xadd(key, {RUBBISH: RUBBISH})
        elif kind == b"set":
            at_once.sadd(key, RUBBISH)
        else:
            at_once.hset(key, mapping=dict.fromkeys(fields, RUBBISH))
        kept, *_ = await at_once.execute()
    assert kept is not None
    yield
    await redis.restore(key, 0, kept, replace=True)


async def names(worker: WorkerProcess, key: str, said: str = "the Redis key {} holds a list, and a") -> None:
    """Return once the worker is not ready, and says that it is for that key."""

    async def named() -> bool:
        status, text = await asyncio.to_thread(page, worker, "/readyz")
        return status == 503 and said.format(key) in text

    await until(named, f"/readyz names {key}", patience=30.0)


@pytest.mark.parametrize("name", faults(SHARED, "generation", "partition:0", "leased:0"))
async def test_whoever_starts_on_a_shared_key_of_another_type_names_it_and_waits(
    pipeline: Pipeline, own_valkey: ValkeyServer, name: str
) -> None:
    worker = await pipeline.worker_after(BEFORE)
    await asyncio.to_thread(worker.stop)
    key = f"{pipeline.settings.redis_prefix}:{name}"
    async with Redis.from_url(own_valkey.url) as redis:
        async with something_else(redis, key):
            starting = asyncio.create_task(asyncio.to_thread(worker.start))
            await pipeline.say(*SINCE)
            await names(worker, key)
            await asyncio.sleep(1.0)
            assert worker.running
        await starting
    await pipeline.assert_is_the_fold([*BEFORE, *SINCE])
    assert "Traceback" not in worker.log.read_text()


@pytest.mark.parametrize("name", faults(["generation", "leased:0", "up-to", "partitions"], "leased:0", "up-to"))
async def test_a_worker_under_which_a_shared_key_becomes_another_type_goes_on_when_it_is_mended(
    pipeline: Pipeline, own_valkey: ValkeyServer, name: str
) -> None:
    worker = await pipeline.worker_after(BEFORE)
    key = f"{pipeline.settings.redis_prefix}:{name}"
    later = [*SINCE, Query("s", collection="a")]
    async with Redis.from_url(own_valkey.url) as redis, something_else(redis, key):
        await pipeline.say(*later)
        await names(worker, key)
        assert worker.running
    await until(lambda: is_ready(worker), "the worker is ready")
    await pipeline.assert_is_the_fold([*BEFORE, *later])
    assert "Traceback" not in worker.log.read_text()


UNREADABLE = "generation", "partition:0", "leased:0", "unknown:0", "up-to", "{c:a}:log"


@pytest.mark.parametrize("name", faults(UNREADABLE, "unknown:0", "{c:a}:log"))
async def test_whoever_starts_on_a_key_that_cannot_be_read_names_it_and_waits(
    pipeline: Pipeline, own_valkey: ValkeyServer, name: str
) -> None:
    early: list[Event] = [verdict(9, "early"), Query("early", collection="a")]
    worker = await pipeline.worker()
    await pipeline.say(early[0])
    await pipeline.say(*BEFORE)
    await pipeline.ranked(BEFORE)
    await pipeline.store.claims.claim("q", "kim", 1, 3600.0)
    await asyncio.to_thread(worker.stop)
    key = f"{pipeline.settings.redis_prefix}:{name}"
    async with Redis.from_url(own_valkey.url) as redis:
        async with rubbish(redis, key):
            starting = asyncio.create_task(asyncio.to_thread(worker.start))
            await pipeline.say(*SINCE, early[1])
            await names(worker, key, "what is in {} in Redis cannot be read")
            assert worker.running
        await starting
    await until(lambda: told(pipeline), "the claim is in its topic")
    facts = [decode_lease(record.value, record.key) for record in await pipeline.records("leases")]
    await pipeline.assert_is_the_fold([*BEFORE, *SINCE, *early, *facts])
    assert "Traceback" not in worker.log.read_text()


async def told(pipeline: Pipeline) -> bool:
    """Whether all that happened to the query's leases is in their topic."""
    return not await pipeline.store.claims.outbox("q", 1)


@pytest.mark.parametrize("part", faults(["meta", "verdicts", "leases"], "verdicts"))
async def test_whoever_starts_on_a_query_that_cannot_be_read_stops_it_and_others_go_on(
    pipeline: Pipeline, own_valkey: ValkeyServer, part: str
) -> None:
    worker = await pipeline.worker_after(BEFORE)
    await pipeline.store.claims.claim("q", "kim", 1, 3600.0)
    await asyncio.to_thread(worker.stop)
    key = f"{pipeline.settings.redis_prefix}:{{q:q}}:{part}"
    async with Redis.from_url(own_valkey.url) as redis, rubbish(redis, key):
        await asyncio.to_thread(worker.start)
        await pipeline.say(*SINCE)

        async def goes_on() -> bool:
            note, query = await pipeline.store.read_note("q"), await pipeline.store.load_query("r")
            return note.quarantine is not None and query is not None and len(query.verdicts) == 8

        await until(goes_on, "the query is stopped, and the other one goes on", patience=30.0)
        quarantine = (await pipeline.store.read_note("q")).quarantine
        assert quarantine is not None
        assert key in quarantine.detail
    await pipeline.store.release("q")
    await until(lambda: told(pipeline), "the claim is in its topic")
    facts = [decode_lease(record.value, record.key) for record in await pipeline.records("leases")]
    await pipeline.assert_is_the_fold([*BEFORE, *SINCE, *facts])
    assert "Traceback" not in worker.log.read_text()


@pytest.mark.parametrize("part", ["log", "ids"])
async def test_a_collection_of_which_redis_has_something_else_waits_and_other_queries_go_on(
    pipeline: Pipeline, own_valkey: ValkeyServer, part: str
) -> None:
    worker = await pipeline.worker_after(BEFORE)
    key = f"{pipeline.settings.redis_prefix}:{{c:a}}:{part}"

    async def goes_on() -> bool:
        query = await pipeline.store.load_query("r")
        return query is not None and len(query.verdicts) == 8

    async with Redis.from_url(own_valkey.url) as redis, something_else(redis, key):
        await pipeline.say(*SINCE)
        await names(worker, key)
        await until(goes_on, "the query of the other collection goes on", patience=30.0)
        assert worker.running
    await until(lambda: is_ready(worker), "the worker is ready")
    await pipeline.assert_is_the_fold([*BEFORE, *SINCE])
    assert "Traceback" not in worker.log.read_text()


@pytest.mark.parametrize("part", faults(["meta", "note", "attempts"], "meta", "note"))
async def test_whoever_starts_on_a_query_of_another_type_stops_it_or_waits_and_others_go_on(
    pipeline: Pipeline, own_valkey: ValkeyServer, part: str
) -> None:
    worker = await pipeline.worker_after(BEFORE)
    await asyncio.to_thread(worker.stop)
    key = f"{pipeline.settings.redis_prefix}:{{q:q}}:{part}"

    async def told() -> bool:
        text = worker.log.read_text() if worker.log.exists() else ""
        return f"the Redis key {key} holds a list" in text

    async def goes_on() -> bool:
        query = await pipeline.store.load_query("r")
        return query is not None and len(query.verdicts) == 8

    async with Redis.from_url(own_valkey.url) as redis, something_else(redis, key):
        starting = asyncio.create_task(asyncio.to_thread(worker.start))
        await pipeline.say(*SINCE)
        await until(told, "the key is named", patience=30.0)
        await until(goes_on, "the other query goes on", patience=30.0)
        assert worker.running
    await starting
    await pipeline.store.release("q")
    await pipeline.assert_is_the_fold([*BEFORE, *SINCE])
    assert "Traceback" not in worker.log.read_text()


async def test_a_query_of_another_type_can_be_deleted(pipeline: Pipeline, own_valkey: ValkeyServer) -> None:
    worker = await pipeline.worker_after(BEFORE)
    async with Redis.from_url(own_valkey.url) as redis:
        for part in ("meta", "outbox", "note"):
            key = f"{pipeline.settings.redis_prefix}:{{q:q}}:{part}"
            await redis.delete(key)
            await redis.rpush(key, "junk")
    code, _, said = await pipeline.program("query", "delete", "q", "--yes")
    assert code == 0, said
    assert worker.running
    assert "Traceback" not in worker.log.read_text()


@pytest.mark.parametrize(
    "name", faults(["generation", "partitions", "{q:q}:meta", "{c:a}:log"], "partitions", "{c:a}:log")
)
async def test_a_rebuild_mends_it(pipeline: Pipeline, own_valkey: ValkeyServer, name: str) -> None:
    worker = await pipeline.worker_after(BEFORE)
    await asyncio.to_thread(worker.stop)
    async with Redis.from_url(own_valkey.url) as redis:
        key = f"{pipeline.settings.redis_prefix}:{name}"
        await redis.delete(key)
        await redis.rpush(key, "junk")
    code, _, said = await pipeline.program("rebuild", "--yes")
    assert code == 0, said
    await pipeline.assert_is_the_fold(BEFORE)


@pytest.mark.parametrize("field", faults(["queries_offset", "verdicts_offset", "leases_offset"], "leases_offset"))
async def test_a_query_that_cannot_have_seen_what_it_says_is_stopped_and_others_go_on(
    pipeline: Pipeline, own_valkey: ValkeyServer, field: str
) -> None:
    """Topics that were cut off end the worker; but there all have seen more, and so has what is noted of them."""
    worker = await pipeline.worker_after(BEFORE)
    await asyncio.to_thread(worker.stop)
    key = f"{pipeline.settings.redis_prefix}:{{q:q}}:meta"
    async with Redis.from_url(own_valkey.url) as redis:
        was = await redis.hget(key, field)
        await redis.hset(key, field, 1_000_000)
        await asyncio.to_thread(worker.start)
        await pipeline.say(*SINCE)

        async def goes_on() -> bool:
            note, query = await pipeline.store.read_note("q"), await pipeline.store.load_query("r")
            return note.quarantine is not None and query is not None and len(query.verdicts) == 8

        await until(goes_on, "the query is stopped, and the other one goes on", patience=30.0)
        quarantine = (await pipeline.store.read_note("q")).quarantine
        assert quarantine is not None
        assert "has seen offset 1000000 of" in quarantine.detail
        assert worker.running
        await redis.hset(key, field, was)
    await pipeline.store.release("q")
    await pipeline.assert_is_the_fold([*BEFORE, *SINCE])
    assert "Traceback" not in worker.log.read_text()


@pytest.mark.parametrize("partition", faults(["7", "-1", ""], "7"))
async def test_a_rebuild_mends_a_query_whose_partition_there_is_not(
    pipeline: Pipeline, own_valkey: ValkeyServer, partition: str
) -> None:
    """It has claims in its outbox, which a rebuild publishes before it wipes the store."""
    worker = await pipeline.worker_after(BEFORE)
    await asyncio.to_thread(worker.stop)
    await pipeline.store.claims.claim("q", "kim", 1, 3600.0)
    await pipeline.store.claims.claim("r", "lee", 1, 3600.0)
    async with Redis.from_url(own_valkey.url) as redis:
        await redis.hset(f"{pipeline.settings.redis_prefix}:{{q:q}}:meta", "partition", partition)
    code, _, said = await pipeline.program("rebuild", "--yes")
    assert code == 0, said
    facts = [decode_lease(record.value, record.key) for record in await pipeline.records("leases")]
    assert [fact.query_id for fact in facts] == ["r"]
    await pipeline.assert_is_the_fold([*BEFORE, *facts])


async def test_a_claim_is_not_lost_beside_what_is_no_fact(pipeline: Pipeline, own_valkey: ValkeyServer) -> None:
    """Not by a rebuild either, which has to publish it before it wipes the store."""
    worker = await pipeline.worker_after(BEFORE)
    await asyncio.to_thread(worker.stop)
    key = f"{pipeline.settings.redis_prefix}:{{q:q}}:outbox"
    async with Redis.from_url(own_valkey.url) as redis:
        await redis.xadd(key, {"fact": RUBBISH})
        await pipeline.store.claims.claim("q", "kim", 1, 3600.0)
    code, _, said = await pipeline.program("rebuild", "--yes")
    assert code == 0, said
    facts = [decode_lease(record.value, record.key) for record in await pipeline.records("leases")]
    assert [fact.analyst for fact in facts] == ["kim"]
    await pipeline.assert_is_the_fold([*BEFORE, *facts])
