"""Producers that write in transactions: what is given up counts for nothing, and what ends one is no lag."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from support.pipeline import Pipeline, encoded, has_no_lag, page, rebuild, until

from haystream.events import Event, Item, Outcome, Query, Verdict
from haystream_service.kafka.records import SOURCES
from haystream_service.settings import Settings

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]


def item(number: int) -> Item:
    return Item(f"item-{number}", "default", f"p{number % 4}", (f"p{4 + number % 3}",))


def verdict(number: int, outcome: Outcome = Outcome.RELEVANT) -> Verdict:
    return Verdict(f"v{number}", "q", f"item-{number}", "zoe", outcome, 1_700_000_000_000_000 + number)


@asynccontextmanager
async def producer(settings: Settings, name: str | None = None) -> AsyncIterator[AIOKafkaProducer]:
    name = name or f"{settings.topic_prefix}-writer"
    made = AIOKafkaProducer(bootstrap_servers=settings.kafka, transactional_id=name)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


async def write(settings: Settings, made: AIOKafkaProducer, events: list[Event], *, keep: bool) -> None:
    """The events as one transaction, which is then committed or given up."""
    await made.begin_transaction()
    await send(settings, made, events)
    await (made.commit_transaction() if keep else made.abort_transaction())
    await until(lambda: ended(settings), "the markers that end the transaction")


async def ended(settings: Settings) -> bool:
    """Whether no transaction is open any more: its markers are written after the producer has its answer."""
    ends = []
    for level in ("read_committed", "read_uncommitted"):
        partitions = [TopicPartition(settings.topic(t), p) for t in SOURCES.values() for p in range(2)]
        async with AIOKafkaConsumer(bootstrap_servers=settings.kafka, isolation_level=level) as consumer:
            ends.append(await consumer.end_offsets(partitions))
    return ends[0] == ends[1]


async def send(settings: Settings, made: AIOKafkaProducer, events: list[Event]) -> None:
    for topic, key, value in map(encoded, events):
        await made.send_and_wait(settings.topic(topic), value, key=key)


GIVEN_UP: list[Event] = [Query("never"), item(100), verdict(3, Outcome.IRRELEVANT), verdict(0, Outcome.RETRACTED)]
KEPT: list[Event] = [Query("q"), *(item(n) for n in range(12)), *(verdict(n) for n in range(6))]


@pytest.mark.parametrize("last_is_kept", [True, False], ids=["committed", "given up"])
async def test_only_what_is_committed_counts_and_a_marker_at_the_end_is_no_lag(
    pipeline: Pipeline, last_is_kept: bool
) -> None:
    settings = pipeline.settings
    worker = await pipeline.worker()
    async with producer(settings) as made:
        await write(settings, made, GIVEN_UP, keep=False)
        await write(settings, made, KEPT, keep=True)
        await write(settings, made, [verdict(7)] if last_is_kept else GIVEN_UP, keep=last_is_kept)
    events = [*KEPT, verdict(7)] if last_is_kept else KEPT
    await pipeline.assert_is_the_fold(events)
    await until(lambda: has_no_lag(worker), "no lag, though a marker ends every partition")
    assert page(worker, "/readyz") == (200, "ok\n")
    assert await pipeline.records("dead-letters") == []
    # A restart finds the markers behind what it has committed, a rebuild reads past all of them.
    await asyncio.to_thread(worker.restart)
    await until(lambda: has_no_lag(worker), "no lag after a restart")
    await asyncio.to_thread(worker.stop)
    await rebuild(settings, pipeline.store)
    await asyncio.to_thread(worker.start)
    await pipeline.assert_is_the_fold(events)
    await until(lambda: has_no_lag(worker), "no lag after a rebuild")


async def test_behind_a_transaction_that_is_open_nothing_is_read_and_then_all_of_it(pipeline: Pipeline) -> None:
    settings = pipeline.settings
    await pipeline.say(*KEPT)
    worker = await pipeline.worker()
    await pipeline.assert_is_the_fold(KEPT)
    async with producer(settings) as made:
        await made.begin_transaction()
        await send(settings, made, [verdict(7)])
        await pipeline.say(verdict(8))
        await until(lambda: has_no_lag(worker), "what cannot be read yet is no lag")
        assert page(worker, "/readyz") == (200, "ok\n")
        await pipeline.assert_is_the_fold(KEPT)
        await made.commit_transaction()
        await until(lambda: ended(settings), "the markers that end the transaction")
        await pipeline.assert_is_the_fold([*KEPT, verdict(7), verdict(8)])


async def test_a_verdict_waits_for_no_query_that_was_given_up(pipeline: Pipeline) -> None:
    settings = pipeline.settings
    await pipeline.say(Query("q"), item(1))
    await pipeline.worker()
    await pipeline.drained()
    async with producer(settings) as made:
        await write(settings, made, [Query("never"), Query("q")], keep=False)
        unknown = Verdict("v", "never", "item-1", "zoe", Outcome.RELEVANT, 1_700_000_000_000_000)
        await write(settings, made, [unknown], keep=True)

    async def told() -> bool:
        return len(await pipeline.records("dead-letters")) == 1

    await until(told, "the verdict for a query that nobody opened is told")


async def test_whatever_transactions_leave_everything_is_committed_in_the_end(pipeline: Pipeline) -> None:
    """Three who write at once, so that records, markers and what is given up lie in any order."""
    settings, rng = pipeline.settings, random.Random(5)
    await pipeline.say(Query("q"))
    await pipeline.worker()
    kept: list[Event] = [Query("q")]

    async def writes(writer: int) -> None:
        async with producer(settings, f"{settings.topic_prefix}-{writer}") as made:
            for round_ in range(12):
                events: list[Event] = [Query(f"q{writer}-{round_}"), item(100 * writer + round_)]
                keep = rng.random() < 0.5
                await made.begin_transaction()
                await send(settings, made, events)
                await (made.commit_transaction() if keep else made.abort_transaction())
                kept.extend(events if keep else [])

    await asyncio.gather(*map(writes, range(3)))
    await until(lambda: ended(settings), "the markers that end the transactions")
    await pipeline.assert_is_the_fold(kept)
