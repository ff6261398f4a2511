"""What a query, or a record, that is not good does on a real Kafka and a real Valkey: it harms itself alone."""

import asyncio
import json
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from redis.asyncio import Redis
from support.forked import ForkedWorker
from support.pipeline import Pipeline, is_ready, make_topic, page, until

from haystream.events import Event, Item, Outcome, Query, Verdict
from haystream_service.kafka import admin as kafka_admin
from haystream_service.local import ServerUnavailable
from haystream_service.settings import Settings
from haystream_service.wire import decode_dead_letter, encode_query, encode_verdict

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]

ITEMS = tuple(Item(f"m{n}", "default", f"p{n % 5}", (f"p{n % 5 + 1 + n % 2}",)) for n in range(20))


def verdicts(query_id: str, numbers: range) -> list[Verdict]:
    return [
        Verdict(f"{query_id}-v{n}", query_id, f"m{n}", "zoe", list(Outcome)[n % 2], 1_700_000_000_000_000 + n)
        for n in numbers
    ]


async def letters(pipeline: Pipeline) -> list[str]:
    """The codes of the dead letters, one for each record that has some."""
    found = [decode_dead_letter(record.value)[0] for record in await pipeline.records("dead-letters")]
    return sorted(
        {(str(letter.source), letter.error.code.value): letter.error.code.value for letter in found}.values()
    )


def fatal_worker(settings: dict[str, str], until_there: Path) -> ForkedWorker:
    """A worker whose process ends at once where it settles the query `bad` with its verdict `bad-v3`."""
    poison = f"""
import os
from haystream.query.state import QueryState
settle = QueryState.settle
def fatal(state):
    if "bad-v3" in state.verdicts and not os.path.exists({str(until_there)!r}):
        os._exit(7)
    settle(state)
QueryState.settle = fatal
"""
    return ForkedWorker(settings, first=poison)


@pytest.mark.parametrize("part", ["meta", "verdicts", "people-told", "pairs-told"])
async def test_a_query_of_which_redis_has_something_else_is_stopped_and_the_others_go_on(
    pipeline: Pipeline, redis_url: str, part: str
) -> None:
    worker = await pipeline.worker()
    events: list[Event] = [Query("bad"), Query("good"), *ITEMS]
    events += [*verdicts("bad", range(3)), *verdicts("good", range(3))]
    await pipeline.say(*events)
    await pipeline.assert_is_the_fold(events)
    key = f"{pipeline.settings.redis_prefix}:{{q:bad}}:{part}"
    later: list[Event] = [*verdicts("bad", range(3, 8)), *verdicts("good", range(3, 8))]
    async with Redis.from_url(redis_url) as redis:
        kept = await redis.dump(key)
        await redis.delete(key)
        await redis.sadd(key, "junk")
        await pipeline.say(*later)

        async def stopped() -> bool:
            return set(await pipeline.store.quarantined()) == {"bad"}

        await until(stopped, "the query is stopped")
        await pipeline.drained()
        assert worker.running
        good = await pipeline.store.load_query("good")
        assert good is not None
        assert len(good.verdicts) == 8
        await redis.restore(key, 0, kept, replace=True)
    await pipeline.store.release("bad")

    async def taken_up() -> bool:
        return not await pipeline.store.quarantined()

    await until(taken_up, "the query goes on")
    await pipeline.assert_is_the_fold([*events, *later])
    assert worker.running


async def test_a_query_that_ends_the_process_is_stopped_and_the_others_go_on(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    mended = tmp_path / "mended"
    # A name that lasts: it gets its partitions back at once, without a session that has to time out first.
    worker = fatal_worker({**pipeline.environment(), "HAYSTREAM_INSTANCE_ID": "w0"}, mended)
    with closing(worker):
        await asyncio.to_thread(worker.start)
        events: list[Event] = [Query("bad"), *(Query(f"q{n}") for n in range(3)), *ITEMS]
        for query_id in ("bad", "q0", "q1", "q2"):
            events += verdicts(query_id, range(3))
        await pipeline.say(*events)
        await pipeline.assert_is_the_fold(events)
        more: list[Event] = [v for query_id in ("bad", "q0", "q1", "q2") for v in verdicts(query_id, range(3, 8))]
        await pipeline.say(*more)
        deaths = 0
        while not await pipeline.store.quarantined():
            await until(lambda: _died_or_stopped(pipeline, worker), "the process ends, or the query is stopped")
            if not worker.running:
                deaths += 1
                assert deaths < 6
                await asyncio.to_thread(_start, worker)
        # One more where the batch of verdicts was a light one, of which nothing is noted.
        assert deaths in {3, 4}
        await until(lambda: is_ready(worker), "the worker is ready")
        await pipeline.drained()
        assert await letters(pipeline) == ["quarantined"] * 5
        assert list(await pipeline.store.quarantined()) == ["bad"]
        for query_id in ("q0", "q1", "q2"):
            assert (await pipeline.rankings(query_id))[-1].screened == 8
        assert "haystream_quarantined_queries 1.0" in page(worker, "/metrics")[1]

        code, out, _ = await pipeline.program("query", "list", "--stopped", "--json")
        assert (code, [row["query_id"] for row in json.loads(out)["queries"]]) == (0, ["bad"])
        code, out, _ = await pipeline.program("query", "show", "bad", "--json")
        shown = json.loads(out)
        assert (code, shown["state"], shown["verdicts"]) == (0, "stopped", 3)
        assert "processes ended while they computed it" in shown["quarantine"]["detail"]
        assert shown["passed_over"].keys() == {"verdicts"}
        code, _, err = await pipeline.program("query", "show", "nobody")
        assert (code, "nobody has opened query 'nobody'" in err) == (2, True)

        mended.touch()
        code, _, err = await pipeline.program("query", "release", "bad")
        assert (code, "is released" in err) == (0, True)

        async def taken_up() -> bool:
            return not await pipeline.store.quarantined()

        await until(taken_up, "what was passed over is applied")
        await pipeline.assert_is_the_fold([*events, *more])
        code, _, err = await pipeline.program("query", "release", "bad")
        assert (code, "is not stopped" in err) == (0, True)


def _start(worker: ForkedWorker) -> None:
    """Start it again, and do not mind if it ends before it is ready."""
    worker.stop()
    with suppress(ServerUnavailable):
        worker.start()


async def _died_or_stopped(pipeline: Pipeline, worker: ForkedWorker) -> bool:
    return not worker.running or "bad" in await pipeline.store.quarantined()


async def test_dead_letters_that_cannot_be_written_hold_up_nobody_and_come_later(
    pipeline: Pipeline, admin: AIOKafkaAdminClient
) -> None:
    settings, queries = pipeline.settings, ("q", "a", "b", "c")
    events: list[Event] = [*map(Query, queries), *ITEMS]
    worker = await pipeline.worker_after(events)
    await admin.delete_topics([settings.topic("dead-letters")])

    async def gone() -> bool:
        return settings.topic("dead-letters") not in await admin.list_topics()

    await until(gone, "the broker has no dead-letters any more")
    for key in queries:
        await pipeline.say_raw("verdicts", key.encode(), b"no json")
    await pipeline.say(*(said for key in queries for said in verdicts(key, range(3))))

    async def counted() -> bool:
        rankings = [await pipeline.rankings(key) for key in queries]
        return all(ranking[-1].screened == 3 for ranking in rankings)

    await until(counted, "every query has its verdicts, on both partitions")

    async def told() -> bool:
        return not await is_ready(worker)

    await until(told, "the worker is not ready")
    committed = await kafka_admin.committed_offsets(settings)
    assert not [tp for tp in committed if tp.topic == settings.topic("verdicts")]
    await kafka_admin.ensure_topics(settings)
    await pipeline.drained()
    written = await pipeline.records("dead-letters")
    assert {record.key for record in written} == {key.encode() for key in queries}
    assert {decode_dead_letter(record.value)[1] for record in written} == {b"no json"}


COMPACTED_SOON = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "200",
    "delete.retention.ms": "0",
}
"""A topic of queries as earlier versions made them."""


async def test_settings_survive_what_comes_under_their_key_and_the_compaction_after_it(
    admin: AIOKafkaAdminClient, settings: Settings
) -> None:
    settings = settings.model_copy(update={"partitions": 1})
    await make_topic(admin, settings.topic("queries"), 1, COMPACTED_SOON)
    async with Pipeline(settings) as pipeline:
        worker = await pipeline.worker()
        events: list[Event] = [Query("q", top=7), Query("r"), Query("s"), *ITEMS, *verdicts("q", range(9))]
        await pipeline.say(*events)
        await pipeline.drained()
        first = {record.key: record.offset for record in await pipeline.records("queries")}
        await pipeline.say_raw("queries", b"q", b'{"query_id":"q","top":-1}')
        await pipeline.say_raw("queries", b"r", None)
        await pipeline.say_raw("queries", b"s", encode_query(Query("s", collection="elsewhere")))
        await pipeline.assert_is_the_fold(events)

        async def cleaned() -> bool:
            # The segment that is written to is never compacted: something has to begin a new one.
            await pipeline.say_raw("queries", b"filler", b"{}")
            there = {record.offset for record in await pipeline.records("queries")}
            return not there & {first[b"q"], first[b"r"], first[b"s"]}

        await until(cleaned, "the first records of q, r and s are compacted away")
        assert set(await letters(pipeline)) == {
            "out_of_range",
            "malformed_json",
            "collection_changed",
            "missing_field",
        }
        await pipeline.drained()
        await asyncio.to_thread(worker.stop)
        code, _, said = await pipeline.program("rebuild", "--yes")
        assert code == 0, said
        assert "filler: its settings were rejected: missing_field" in said
        await pipeline.assert_is_the_fold(events)


async def test_early_verdicts_and_those_on_another_partition_are_told_of_and_treated_alike_everywhere(
    pipeline: Pipeline,
) -> None:
    worker = await pipeline.worker()
    early = verdicts("q", range(6))
    await pipeline.say(*ITEMS, *early, Query("r"), *verdicts("r", range(4)))
    await pipeline.drained()
    assert await letters(pipeline) == ["unknown_query"] * 6
    events = [*ITEMS, *early, Query("r"), *verdicts("r", range(4)), Query("q")]
    await pipeline.say(Query("q"))
    await pipeline.assert_is_the_fold(events)
    # CRC32 of "r" leads elsewhere, say: a producer with another partitioner.
    (opened,) = [record for record in await pipeline.records("queries") if record.key == b"r"]
    producer = AIOKafkaProducer(bootstrap_servers=pipeline.settings.kafka)
    await producer.start()
    for topic, value in (
        ("verdicts", encode_verdict(replace(early[0], query_id="r", verdict_id="astray"))),
        ("queries", encode_query(Query("r", top=3))),
    ):
        await producer.send_and_wait(
            pipeline.settings.topic(topic), value, key=b"r", partition=1 - opened.partition
        )
    await producer.stop()
    lost = verdicts("nobody", range(1))
    await pipeline.say(*lost)
    await pipeline.assert_is_the_fold(events)
    assert await letters(pipeline) == ["unknown_query"] * 7 + ["wrong_partition"] * 2
    await asyncio.to_thread(worker.stop)
    code, _, said = await pipeline.program("rebuild", "--yes")
    assert code == 0, said
    assert "nobody: verdicts or leases name it, and no record opens it" in said
    await pipeline.assert_is_the_fold(events)
    # And what nobody had opened still counts if somebody does, after the rebuild too.
    await pipeline.worker()
    await pipeline.say(Query("nobody"))
    await pipeline.assert_is_the_fold([*events, *lost, Query("nobody")])
