"""Records that are removed from a topic before they were read: they cannot be had, and it is told."""

import asyncio
import re

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from redis.asyncio import Redis
from support.pipeline import Pipeline, is_ready, page, settings_on, until
from support.redis_copy import copied
from support.seeds import faults

from haystream.events import Action, Event, Item, LeaseFact, Outcome, Query, Verdict
from haystream_service.local import KafkaServer, ValkeyServer
from haystream_service.local.services import WorkerProcess
from haystream_service.settings import Settings

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]

DAY = 86_400_000_000
NOW = 1_700_000_000_000_000


def item(number: int) -> Item:
    return Item(f"i{number}", "default", f"p{number % 5}", (f"p{5 + number % 3}",))


def verdict(number: int, query_id: str = "q") -> Verdict:
    return Verdict(f"v{number}", query_id, f"i{number}", "zoe", list(Outcome)[number % 3], NOW + number)


def lease(number: int) -> LeaseFact:
    return LeaseFact(f"l{number}", "q", f"i{number}", "zoe", Action.CLAIMED, NOW, 2 * NOW + DAY * number)


BEFORE: list[Event] = [Query("q"), Query("r"), *map(item, range(12)), *map(verdict, range(6)), lease(11)]
MORE: dict[str, list[Event]] = {
    "queries": [Query(query_id) for query_id in "stuvw"],
    "items": [item(n) for n in range(12, 17)],
    "verdicts": [verdict(n) for n in range(6, 11)],
    "leases": [lease(n) for n in range(6, 11)],
}
"""By topic, five events that come after those."""
KINDS = {"queries": "query", "items": "item", "verdicts": "verdict", "leases": "lease"}
HELD = {"queries": 2, "items": 12, "verdicts": 6, "leases": 1}


@pytest.fixture
def settings(kafka: KafkaServer, own_valkey: ValkeyServer, topic_prefix: str) -> Settings:
    return settings_on(kafka, own_valkey, topic_prefix, partitions=1)


async def remove(admin: AIOKafkaAdminClient, settings: Settings, topic: str, before: int) -> None:
    """Have Kafka forget what lies before that offset, as `kafka-delete-records.sh` does."""
    await admin.delete_records({TopicPartition(settings.topic(topic), 0): RecordsToDelete(before_offset=before)})


async def missed(worker: WorkerProcess, topic: str) -> int:
    """How many records of the topic the worker says it has missed."""
    text = (await asyncio.to_thread(page, worker, "/metrics"))[1]
    return int(float(re.findall(rf'haystream_records_missed_total{{topic="{topic}"}} (\S+)', text)[0]))


async def tells(worker: WorkerProcess, topic: str, count: int) -> None:
    """Return once the worker says so, and is ready all the same."""

    async def told() -> bool:
        return await missed(worker, topic) == count

    await until(told, f"{count} records of {topic} are told of", patience=30.0)
    await until(lambda: is_ready(worker), "the worker is ready")


async def has_items(pipeline: Pipeline, count: int) -> None:
    """Return once so many are in the collection's log."""

    async def there() -> bool:
        return await pipeline.store.item_count("default") == count

    await until(there, f"{count} items are read", patience=30.0)


@pytest.mark.parametrize("left", [0, 2], ids=["nothing is left", "some are left"])
@pytest.mark.parametrize("topic", faults(MORE, "verdicts"))
async def test_what_is_removed_while_nobody_works_is_told_of(
    pipeline: Pipeline, admin: AIOKafkaAdminClient, topic: str, left: int
) -> None:
    worker = await pipeline.worker_after(BEFORE)
    await asyncio.to_thread(worker.stop)
    await pipeline.say(*MORE[topic])
    begin, gone = HELD[topic], 5 - left
    await remove(admin, pipeline.settings, topic, begin + gone)
    await asyncio.to_thread(worker.start)
    await tells(worker, topic, gone)
    where = f"{pipeline.settings.topic(topic)}/0: offsets {begin} to {begin + gone - 1} were removed from the topic"
    assert worker.log.read_text().count(where) == 1
    assert worker.log.read_text().count("were removed from the topic") == 1
    await pipeline.assert_is_the_fold([*BEFORE, *MORE[topic][gone:]])

    # Told once: who comes after it says nothing more, and what is produced again counts.
    name = f"{KINDS[topic]}/0"

    async def noted() -> bool:
        return await pipeline.store.read_up_to([name]) == {name: begin + 5}

    await until(noted, "it is noted that nothing more is to be had")
    await asyncio.to_thread(worker.stop)
    await pipeline.say(*MORE[topic])
    await asyncio.to_thread(worker.start)
    await pipeline.assert_is_the_fold([*BEFORE, *MORE[topic]])
    assert await missed(worker, topic) == 0


@pytest.mark.parametrize("topic", faults(["items", "verdicts"], "items"))
async def test_what_is_removed_while_a_worker_stands_still_is_counted_to_the_last_record(
    pipeline: Pipeline, admin: AIOKafkaAdminClient, topic: str
) -> None:
    worker = await pipeline.worker_after(BEFORE)
    with worker.frozen():
        # Some are on their way to it already: Kafka answers what it was asked before.
        for event in MORE[topic]:
            await pipeline.say(event)
        await remove(admin, pipeline.settings, topic, HELD[topic] + 5)

    async def all_accounted_for() -> bool:
        query = await pipeline.store.load_query("q")
        assert query is not None
        held = len(query.verdicts) if topic == "verdicts" else await pipeline.store.item_count("default")
        return held + await missed(worker, topic) == HELD[topic] + 5

    await until(all_accounted_for, "every record is read, or told of", patience=30.0)
    assert await missed(worker, topic) > 0


async def test_what_a_store_that_went_back_needs_and_kafka_no_longer_has_is_told_of(
    pipeline: Pipeline, admin: AIOKafkaAdminClient, own_valkey: ValkeyServer
) -> None:
    worker = await pipeline.worker_after(BEFORE)
    async with Redis.from_url(own_valkey.url) as redis:
        copy = await copied(redis, pipeline.settings)
        await pipeline.say(*MORE["verdicts"])
        await pipeline.assert_is_the_fold([*BEFORE, *MORE["verdicts"]])
        worker.kill()
        await copy.put_back()
    await remove(admin, pipeline.settings, "verdicts", 10)
    await asyncio.to_thread(worker.start)
    await tells(worker, "verdicts", 4)
    assert "verdicts/0: offsets 6 to 9 were removed" in worker.log.read_text()
    await pipeline.assert_is_the_fold([*BEFORE, MORE["verdicts"][-1]])


async def test_early_verdicts_that_are_gone_when_their_query_opens_are_told_of(
    pipeline: Pipeline, admin: AIOKafkaAdminClient
) -> None:
    worker = await pipeline.worker()
    early = [verdict(n, "late") for n in range(6, 11)]
    await pipeline.say(*BEFORE, *early)
    await pipeline.assert_is_the_fold(BEFORE)
    await remove(admin, pipeline.settings, "verdicts", 9)
    await pipeline.say(Query("late"))
    await tells(worker, "verdicts", 3)
    assert "verdicts/0: offsets 6 to 8 were removed" in worker.log.read_text()
    await pipeline.assert_is_the_fold([*BEFORE, Query("late"), *early[3:]])


async def test_a_rebuild_says_what_the_topics_lack(pipeline: Pipeline, admin: AIOKafkaAdminClient) -> None:
    await pipeline.say(*BEFORE)
    await remove(admin, pipeline.settings, "items", 3)
    await remove(admin, pipeline.settings, "leases", 1)
    code, _, said = await pipeline.program("rebuild", "--yes")
    assert code == 0, said
    text = " ".join(said.split())
    assert "2 partitions lack records that were removed from them" in text
    assert f"{pipeline.settings.topic('items')}/0: offsets 0 to 2, up to 3 records" in text
    assert f"{pipeline.settings.topic('leases')}/0: offsets 0 to 0, up to 1 records" in text
    left = [event for event in BEFORE if event not in BEFORE[2:5] and not isinstance(event, LeaseFact)]
    await pipeline.assert_is_the_fold(left)


async def test_a_worker_whose_topic_of_queries_is_deleted_says_so_and_waits(
    pipeline: Pipeline, admin: AIOKafkaAdminClient
) -> None:
    worker = await pipeline.worker_after(BEFORE)
    topic = pipeline.settings.topic("queries")
    await admin.delete_topics([topic])

    async def told() -> bool:
        status, text = await asyncio.to_thread(page, worker, "/readyz")
        return status == 503 and f"Kafka has no topic {topic} any more" in text

    await until(told, "the worker is not ready, with the reason", patience=60.0)
    assert worker.running
    assert "haystream repartition" not in worker.log.read_text()


async def test_items_that_are_deleted_and_made_anew_are_read_at_once(
    pipeline: Pipeline, admin: AIOKafkaAdminClient
) -> None:
    worker = await pipeline.worker_after(BEFORE)
    topic = pipeline.settings.topic("items")
    await admin.delete_topics([topic])

    async def told() -> bool:
        status, text = await asyncio.to_thread(page, worker, "/readyz")
        return status == 503 and topic in text

    await until(told, "the worker is not ready", patience=30.0)
    await admin.create_topics([NewTopic(topic, 1, 1)])
    await pipeline.say(*MORE["items"])
    await until(lambda: is_ready(worker), "the worker is ready", patience=30.0)
    await has_items(pipeline, 17)
    await pipeline.assert_is_the_fold([*BEFORE, *MORE["items"]])


async def test_items_that_are_made_anew_before_anybody_looks_are_read_at_once(
    pipeline: Pipeline, admin: AIOKafkaAdminClient
) -> None:
    worker = await pipeline.worker_after(BEFORE)
    topic = pipeline.settings.topic("items")
    with worker.frozen():
        await admin.delete_topics([topic])

        async def made() -> bool:
            return (await admin.create_topics([NewTopic(topic, 1, 1)])).topic_errors[0][1] == 0

        await until(made, "the topic is there again", patience=8.0)
        await pipeline.say(*MORE["items"])
    await has_items(pipeline, 17)
    await until(lambda: is_ready(worker), "the worker is ready", patience=30.0)
    await pipeline.assert_is_the_fold([*BEFORE, *MORE["items"]])
