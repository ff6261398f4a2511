"""A Redis that is as it was a while ago: what it lost is in Kafka, and is read from there once more."""

import asyncio

import pytest
from redis.asyncio import Redis
from support.forked import ForkedWorker
from support.pipeline import Pipeline, is_ready, rebuild, settings_on, until
from support.redis_copy import Copy, copied, noted
from support.seeds import faults

from haystream.events import Event, Item, Outcome, Query, Status, Verdict
from haystream_service.local import KafkaServer, ServerUnavailable, ValkeyServer
from haystream_service.local.services import WorkerProcess
from haystream_service.settings import Settings

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]


def item(number: int) -> Item:
    return Item(f"i{number}", "default", f"p{number % 5}", (f"p{5 + number % 3}",))


def verdict(number: int, query_id: str) -> Verdict:
    return Verdict(
        f"v{number}", query_id, f"i{number}", "zoe", list(Outcome)[number % 3], 1_700_000_000_000_000 + number
    )


BEFORE: list[Event] = [
    *(Query(query_id) for query_id in "qrs"),
    *(item(n) for n in range(20)),
    *(verdict(n, "qrs"[n % 3]) for n in range(12)),
]
SINCE: list[Event] = [
    Query("t"),
    Query("r", status=Status.PAUSED),
    *(item(n) for n in range(20, 40)),
    *(verdict(n, "qt"[n % 2]) for n in range(20, 32)),
    Query("r"),
]
SLOW_TO_LOWER = """
import asyncio
from haystream_service.worker.written import Written

lower = Written._lower_cursors

async def slowly(self, collection):
    await asyncio.sleep(2.0)
    await lower(self, collection)

Written._lower_cursors = slowly
"""
"""Python that has a worker take two seconds before queries say that they saw no more than there is."""
LATER: list[Event] = [item(40), *(verdict(n, "qrst"[n % 4]) for n in range(12, 20))]


@pytest.fixture
def settings(kafka: KafkaServer, own_valkey: ValkeyServer, topic_prefix: str) -> Settings:
    return settings_on(kafka, own_valkey, topic_prefix)


async def with_what_came_before(pipeline: Pipeline) -> WorkerProcess:
    """A worker that has folded in the facts `BEFORE`."""
    worker = await pipeline.worker()
    await pipeline.say(*BEFORE)
    await pipeline.assert_is_the_fold(BEFORE)
    return worker


async def started_again(worker: WorkerProcess) -> None:
    """Start the worker again as whoever looks after it does: once it has ended, and, where it saved a query
    between the store's going back and its end, once more.
    """

    async def ended() -> bool:
        return not worker.running

    await until(ended, "the worker ends")
    assert "the store has gone back to an earlier state" in worker.log.read_text()
    worker.kill()  # what is left of the process
    await started_until_it_stays(worker)


async def started_until_it_stays(worker: WorkerProcess) -> None:
    """Start it, and once more where it ends as a query saw more than there is."""
    try:
        await asyncio.to_thread(worker.start)
    except ServerUnavailable:
        assert "Reading all items again" in worker.log.read_text()
        await asyncio.to_thread(worker.start)
    assert "Traceback" not in worker.log.read_text()


@pytest.mark.parametrize("meanwhile", faults(["nothing comes", "verdicts come", "nobody works"], "verdicts come"))
async def test_what_a_store_that_goes_back_has_lost_is_read_again(
    pipeline: Pipeline, own_valkey: ValkeyServer, meanwhile: str
) -> None:
    worker = await with_what_came_before(pipeline)
    async with Redis.from_url(own_valkey.url) as redis:
        copy = await copied(redis, pipeline.settings)
        await pipeline.say(*SINCE)
        await pipeline.assert_is_the_fold([*BEFORE, *SINCE])
        await noted(redis, pipeline.settings)
        if meanwhile == "nobody works":
            worker.kill()
        await copy.put_back()
    if meanwhile != "nothing comes":
        await pipeline.say(*LATER)
    if meanwhile == "nobody works":
        await asyncio.to_thread(worker.start)
        assert "the store has it up to" in worker.log.read_text()
    else:
        await started_again(worker)
    if meanwhile == "nothing comes":
        await pipeline.say(*LATER)
    await pipeline.assert_is_the_fold([*BEFORE, *SINCE, *LATER])
    await until(lambda: is_ready(worker), "the worker is ready")
    assert await pipeline.records("dead-letters") == []


async def test_a_store_that_goes_back_to_before_anything_was_noted_is_read_from_the_beginning(
    pipeline: Pipeline, own_valkey: ValkeyServer
) -> None:
    worker = await with_what_came_before(pipeline)
    worker.kill()
    async with Redis.from_url(own_valkey.url) as redis:
        # As it is where a worker is killed in the second before it notes for the first time how far it is.
        await redis.delete(f"{pipeline.settings.redis_prefix}:up-to")
        copy = Copy(redis)
        await copy.take()
        await asyncio.to_thread(worker.start)
        await pipeline.say(*SINCE)
        await pipeline.assert_is_the_fold([*BEFORE, *SINCE])
        worker.kill()
        await copy.put_back()
    await asyncio.to_thread(worker.start)
    await pipeline.say(*LATER)
    await pipeline.assert_is_the_fold([*BEFORE, *SINCE, *LATER])
    assert await pipeline.records("dead-letters") == []


async def test_what_was_lost_before_it_was_noted_is_read_again(
    pipeline: Pipeline, own_valkey: ValkeyServer
) -> None:
    """A replica that lags by a moment becomes the master."""
    worker = await with_what_came_before(pipeline)
    since: list[Event] = [item(20), verdict(20, "q"), verdict(13, "r"), verdict(30, "nobody")]
    async with Redis.from_url(own_valkey.url) as redis:
        copy = await copied(redis, pipeline.settings)
        before = await pipeline.store.read_revisions(["q", "r"])

        async def saved() -> bool:
            now = await pipeline.store.read_revisions(["q", "r"])
            return all(new != old for new, old in zip(now, before, strict=True))

        await pipeline.say(*since)
        await until(saved, "what was said is in the store")
        await copy.put_back()
    await started_again(worker)
    await pipeline.say(Query("nobody"))
    await pipeline.assert_is_the_fold([*BEFORE, *since, Query("nobody")])


async def test_a_query_that_was_saved_when_the_store_had_gone_back_is_right_again(
    pipeline: Pipeline, own_valkey: ValkeyServer
) -> None:
    """Its worker had not noticed yet, and what it saved is of a log that is no more."""
    worker = await with_what_came_before(pipeline)
    since: list[Event] = [item(20), verdict(20, "q"), verdict(14, "s")]
    async with Redis.from_url(own_valkey.url) as redis:
        copy = await copied(redis, pipeline.settings)
        await pipeline.say(*since)
        await pipeline.assert_is_the_fold([*BEFORE, *since])
        worker.kill()
        await copy.put_back(but=f"{pipeline.settings.redis_prefix}:{{q:s}}:*")
    await started_until_it_stays(worker)  # unless the item is in the log again before it looks, it ends once
    await pipeline.say(*LATER[:4])
    await pipeline.assert_is_the_fold([*BEFORE, *since, *LATER[:4]])
    await until(lambda: is_ready(worker), "the worker is ready")


@pytest.mark.parametrize("since", [[item(40)], [item(3)]], ids=["more items come", "a known item comes again"])
async def test_a_log_that_is_gone_from_the_store_is_read_again(
    pipeline: Pipeline, own_valkey: ValkeyServer, since: list[Event]
) -> None:
    worker = await with_what_came_before(pipeline)
    async with Redis.from_url(own_valkey.url) as redis:
        await noted(redis, pipeline.settings)
        await redis.delete(f"{pipeline.settings.redis_prefix}:{{c:default}}:log")
    await pipeline.say(*since)
    await started_again(worker)
    await pipeline.say(*LATER[:4])
    await pipeline.assert_is_the_fold([*BEFORE, *since, *LATER[:4]])
    assert await pipeline.records("dead-letters") == []


async def test_a_log_that_is_gone_when_a_worker_starts_ends_it_once_however_many_queries_saw_it(
    pipeline: Pipeline, own_valkey: ValkeyServer
) -> None:
    worker = await with_what_came_before(pipeline)
    more = [Query(f"q{n}") for n in range(24)]
    await pipeline.say(*more)
    await pipeline.assert_is_the_fold([*BEFORE, *more])
    await asyncio.to_thread(worker.stop)
    async with Redis.from_url(own_valkey.url) as redis:
        await redis.delete(f"{pipeline.settings.redis_prefix}:{{c:default}}:log")
    with pytest.raises(ServerUnavailable):
        await asyncio.to_thread(worker.start)
    heads = await pipeline.store.read_heads(sorted(await pipeline.store.query_ids()))
    assert {head.position.cursor for head in heads if head is not None} == {0}
    await asyncio.to_thread(worker.start)
    await pipeline.assert_is_the_fold([*BEFORE, *more])


async def test_a_worker_that_says_slowly_that_a_log_is_gone_says_all_of_it_before_it_ends(
    pipeline: Pipeline, own_valkey: ValkeyServer
) -> None:
    """It sees within a second that less is noted than it had noted, which ends it."""
    worker = await with_what_came_before(pipeline)
    await asyncio.to_thread(worker.stop)
    async with Redis.from_url(own_valkey.url) as redis:
        await redis.delete(f"{pipeline.settings.redis_prefix}:{{c:default}}:log")
    slow = ForkedWorker(pipeline.environment(), first=SLOW_TO_LOWER)
    try:
        with pytest.raises(ServerUnavailable):
            await asyncio.to_thread(slow.start)
    finally:
        await asyncio.to_thread(slow.close)
    await asyncio.to_thread(worker.start)
    await pipeline.assert_is_the_fold(BEFORE)


async def test_a_query_that_is_gone_from_the_store_is_read_again(
    pipeline: Pipeline, own_valkey: ValkeyServer
) -> None:
    worker = await with_what_came_before(pipeline)
    async with Redis.from_url(own_valkey.url) as redis:
        await noted(redis, pipeline.settings)
        await redis.delete(f"{pipeline.settings.redis_prefix}:{{q:q}}:meta")
    since = [*LATER[:2], *(verdict(n, "q") for n in range(30, 33))]
    await pipeline.say(*since)
    await started_again(worker)
    await pipeline.assert_is_the_fold([*BEFORE, *since])


@pytest.mark.parametrize("parts", ["meta", "*"], ids=["its meta", "all of it"])
async def test_a_query_that_is_gone_when_a_worker_starts_is_read_again(
    pipeline: Pipeline, own_valkey: ValkeyServer, parts: str
) -> None:
    worker = await with_what_came_before(pipeline)
    await pipeline.say(paused := Query("q", status=Status.PAUSED))
    await pipeline.drained()
    await asyncio.to_thread(worker.stop)
    async with Redis.from_url(own_valkey.url) as redis:
        async for key in redis.scan_iter(f"{pipeline.settings.redis_prefix}:{{q:q}}:{parts}"):
            await redis.delete(key)
    await pipeline.say(*LATER[:4])
    await asyncio.to_thread(worker.start)
    await pipeline.say(again := Query("q"))
    await pipeline.assert_is_the_fold([*BEFORE, paused, *LATER[:4], again])
    assert "Redis lists query 'q' and has nothing of it" in worker.log.read_text()


async def test_rankings_of_a_rebuild_are_newer_than_those_of_a_worker_whose_clock_was_ahead(
    pipeline: Pipeline, own_valkey: ValkeyServer
) -> None:
    ahead = ForkedWorker(
        pipeline.environment(), first="import time; n = time.time; time.time = lambda: n() + 86400.0"
    )
    try:
        await asyncio.to_thread(ahead.start)
        await pipeline.say(*BEFORE)
        await pipeline.assert_is_the_fold(BEFORE)
        await asyncio.to_thread(ahead.stop)
    finally:
        await asyncio.to_thread(ahead.close)
    before = max(ranking.revision for ranking in await pipeline.rankings())
    async with Redis.from_url(own_valkey.url) as redis:
        await redis.flushall()
    await rebuild(pipeline.settings, pipeline.store)
    last = {ranking.query_id: ranking.revision for ranking in await pipeline.rankings()}
    assert all(revision > before for revision in last.values())
    await pipeline.assert_is_the_fold(BEFORE)
