"""The worker process on a real Kafka and a real Valkey."""

import asyncio
import random
from dataclasses import replace

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from support.pipeline import Pipeline, has_no_lag, make_topic, page, rebuild, until

from haystream.events import Event, Item, Outcome, Policy, Query, Verdict
from haystream.models import DEFAULT_PRIORS
from haystream_service.errors import UserError
from haystream_service.kafka import admin as kafka_admin
from haystream_service.settings import Settings
from haystream_service.wire import decode_dead_letter, encode_item, encode_verdict

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]


def item(number: int) -> Item:
    sender, recipient = random.Random(number).sample(["ann", "bo", "cy", "dee", "eve"], 2)
    return Item(f"item-{number}", "default", sender, (recipient,))


def verdict(number: int, query_id: str = "q") -> Verdict:
    outcome = list(Outcome)[number % 3]
    return Verdict(f"v{number}", query_id, f"item-{number}", "zoe", outcome, 1_700_000_000_000_000 + number)


async def test_from_topics_to_rankings_and_back_after_a_restart(pipeline: Pipeline) -> None:
    events: list[Event] = [
        Query("q"),
        Query("r", prior=DEFAULT_PRIORS["relevance"], policy=Policy("bayes-ucb")),
        *(item(n) for n in range(60)),
        *(verdict(n) for n in range(30)),
        *(replace(verdict(n, "r"), verdict_id=f"r{n}") for n in range(20, 50)),
    ]
    worker = await pipeline.worker()
    await pipeline.say(*events)
    await pipeline.assert_is_the_fold(events)
    assert page(worker, "/healthz")[0] == 200
    assert page(worker, "/readyz") == (200, "ok\n")
    assert page(worker, "/router/")[0] == page(worker, "/table/")[0] == 404
    metrics = page(worker, "/metrics")[1]
    assert 'haystream_events_total{kind="verdict",outcome="applied"} 60.0' in metrics
    assert "haystream_verdict_to_ranking_seconds_count 60.0" in metrics

    await until(lambda: has_no_lag(worker), "eight partitions without lag in the metrics")
    await asyncio.to_thread(worker.stop)
    later: list[Event] = [verdict(n) for n in range(30, 40)]
    await pipeline.say(*later)
    await pipeline.worker()
    await pipeline.assert_is_the_fold([*events, *later])
    revisions = [ranking.revision for ranking in await pipeline.rankings("q")]
    assert revisions == sorted(revisions)
    assert await pipeline.records("dead-letters") == []


async def test_bad_records_become_dead_letters_and_the_partition_goes_on(pipeline: Pipeline) -> None:
    events: list[Event] = [Query("q"), item(1), verdict(1)]
    await pipeline.say(*events)
    await pipeline.worker()
    await pipeline.drained()
    bad = [
        ("queries", b"q", None, "malformed_json"),
        ("queries", b"q", b"[]", "malformed_json"),
        ("items", None, b"\xff\xfe", "malformed_json"),
        ("items", b"item-1", encode_item(replace(item(1), sender="zed")), "item_conflict"),
        ("verdicts", b"q", encode_verdict(replace(verdict(1), analyst="max")), "verdict_conflict"),
        ("verdicts", b"nobody", encode_verdict(verdict(2, "nobody")), "unknown_query"),
    ]
    for topic, key, value, _ in bad:
        await pipeline.say_raw(topic, key, value)
    more: list[Event] = [item(2), verdict(2)]
    await pipeline.say(*more)
    await pipeline.assert_is_the_fold([*events, *more])
    letters = [decode_dead_letter(record.value) for record in await pipeline.records("dead-letters")]
    found = sorted((letter.source.topic, letter.error.code.value, payload) for letter, payload in letters)
    topic = pipeline.settings.topic
    assert found == sorted((topic(name), code, value or b"") for name, _, value, code in bad)


async def test_two_workers_share_the_work_and_one_takes_over(pipeline: Pipeline) -> None:
    queries = [Query(f"q{n}") for n in range(6)]
    events: list[Event] = [*queries, *(item(n) for n in range(40))]
    first, _ = await asyncio.gather(pipeline.worker(), pipeline.worker())
    await pipeline.say(*events)
    for number in range(40):
        said = replace(verdict(number, f"q{number % 6}"))
        events.append(said)
        await pipeline.say(said)
        if number == 20:
            await asyncio.to_thread(first.stop)
    await pipeline.assert_is_the_fold(events)


async def test_a_flood_of_items_loses_nothing_while_workers_come_and_go(pipeline: Pipeline) -> None:
    # More than is taken in hand at once, so that every rebalance finds items and verdicts there.
    queries = [Query(f"q{n}") for n in range(4)]
    items = [item(n) for n in range(12_000)]
    said = [verdict(n, f"q{n % 4}") for n in range(120)]
    await pipeline.say(*queries)
    first = await pipeline.worker()
    saying = asyncio.ensure_future(pipeline.say(*items))
    await pipeline.say(*said[:40])
    second = await pipeline.worker()
    await pipeline.say(*said[40:80])
    await asyncio.to_thread(first.stop)
    await pipeline.worker()
    await pipeline.say(*said[80:])
    await asyncio.to_thread(second.stop)
    await saying
    await pipeline.assert_is_the_fold([*queries, *items, *said])
    assert await pipeline.records("dead-letters") == []


async def test_an_emptied_store_is_not_worked_on_until_it_is_rebuilt(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Event] = [Query("q"), *(item(n) for n in range(20)), *(verdict(n) for n in range(10))]
    worker = await pipeline.worker()
    await pipeline.say(*events)
    await pipeline.drained()
    with pytest.raises(UserError, match="still has members"):
        await rebuild(pipeline.settings, pipeline.store)
    await asyncio.to_thread(worker.stop)
    await pipeline.store.wipe()
    later: list[Event] = [verdict(n) for n in range(10, 15)]
    await pipeline.say(*later)
    starting = asyncio.create_task(pipeline.worker())

    async def refuses() -> bool:
        idle = pipeline._workers[-1]
        return idle.running and "haystream rebuild" in page(idle, "/readyz")[1]

    await until(refuses, "the worker says that the store is lost")
    assert await pipeline.store.query_ids() == set()
    await rebuild(pipeline.settings, pipeline.store)
    await starting
    await pipeline.assert_is_the_fold([*events, *later])


async def test_a_worker_whose_store_is_emptied_ends_and_refuses_nothing(pipeline: Pipeline) -> None:
    worker = await pipeline.worker()
    await pipeline.say(Query("q"))
    await pipeline.drained()
    await pipeline.store.wipe()
    await pipeline.say(verdict(1, "another"))

    async def ended() -> bool:
        return not worker.running

    await until(ended, "the worker process ends by itself")
    assert worker._process is not None
    assert worker._process.poll() == 1
    assert "haystream rebuild" in worker.log.read_text()
    assert await pipeline.records("dead-letters") == []


async def test_a_worker_told_to_stop_ends_well(pipeline: Pipeline) -> None:
    events: list[Event] = [Query("q"), *(item(n) for n in range(50)), *(verdict(n) for n in range(40))]
    worker = await pipeline.worker()
    await pipeline.say(*events)
    process = worker._process
    assert process is not None
    await asyncio.to_thread(worker.stop)
    assert process.returncode == 0
    await pipeline.worker()
    await pipeline.assert_is_the_fold(events)


async def test_topics_are_made_once_and_with_one_number_of_partitions(settings: Settings) -> None:
    assert set((await kafka_admin.ensure_topics(settings)).values()) == {2}
    assert set((await kafka_admin.ensure_topics(settings.model_copy(update={"partitions": 5}))).values()) == {2}

    async def nothing_committed() -> bool:
        return await kafka_admin.committed_offsets(settings) == {}

    await until(nothing_committed, "a group's coordinator, which says that nothing is committed")


async def test_topics_that_differ_in_partitions_are_refused(admin: AIOKafkaAdminClient, settings: Settings) -> None:
    for name, partitions in (("queries", 2), ("verdicts", 3)):
        await make_topic(admin, settings.topic(name), partitions)
    with pytest.raises(UserError, match="equally many partitions"):
        await kafka_admin.ensure_topics(settings)
