"""What is legal but large, on a real Kafka: it is cut, and nothing stops for it."""

import asyncio
import logging
from collections.abc import Mapping

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from support.pipeline import Pipeline, make_topic, rebuild, until

from haystream.events import Event, Item, Outcome, Prior, Query, Verdict
from haystream_service.errors import UserError
from haystream_service.kafka import admin as kafka_admin
from haystream_service.settings import Settings
from haystream_service.store.claims import publish_outbox
from haystream_service.wire import decode_dead_letter, decode_lease
from haystream_service.worker.kafka_publisher import KafkaPublisher

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]

KAFKAS_DEFAULT = "1048588"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"partitions": 1})


def wide_items(count: int, *, recipients: int = 1000) -> list[Item]:
    """Items of half a megabyte each, between people with ids of 500 characters."""
    people = [f"{n:04d}".ljust(500, "x") for n in range(recipients + 1)]
    return [Item(f"item-{n}", "default", people[0], tuple(people[1:])) for n in range(count)]


def said(number: int) -> Verdict:
    return Verdict(f"v{number}", "q", f"item-{number}", "zoe", Outcome.RELEVANT, 1_700_000_000_000_000 + number)


async def test_a_record_as_large_as_kafka_takes_becomes_a_dead_letter(settings: Settings) -> None:
    key, value = b"k" * 380_000, b"\xff" * 650_000
    async with Pipeline(settings) as pipeline:
        await pipeline.say_raw("items", key, value)
        await pipeline.worker()
        events: list[Event] = [Query("q"), Item("item-1", "default", "ann", ("bo",)), said(1)]
        await pipeline.say(*events)
        await pipeline.assert_is_the_fold(events)
        (record,) = await pipeline.records("dead-letters")
        letter, kept = decode_dead_letter(record.value)
        assert (letter.error.code, letter.key_bytes, letter.payload_bytes) == ("too_large", len(key), len(value))
        assert kept == value[: 512 << 10]
        assert record.key is None


async def test_wide_items_make_a_ranking_that_names_some_people_and_every_item(settings: Settings) -> None:
    async with Pipeline(settings) as pipeline:
        events: list[Event] = [Query("q"), *wide_items(50), said(1)]
        await pipeline.worker()
        await pipeline.say(*events)
        await pipeline.assert_is_the_fold(events)
        ranking = (await pipeline.rankings("q"))[-1]
        assert (len(ranking.items), ranking.items_cut) == (49, 0)
        assert {(len(item.participants), item.participants_cut) for item in ranking.items} == {(64, 937)}


async def test_ids_may_have_their_full_length_everywhere(settings: Settings) -> None:
    def longest(name: str) -> str:
        return name.ljust(512, "\U0001f600")

    query, later, collection, kim = longest("q"), longest("later"), longest("c"), longest("kim")
    people = [longest(f"p{n}") for n in range(600)]
    watched = Prior(participants=dict.fromkeys(people[:300], 0.3))
    wide = [Item(longest(f"wide-{n}"), collection, people[n], tuple(people[n + 1 : n + 500])) for n in range(5)]
    small = [Item(longest(f"item-{n}"), collection, people[n], (people[n + 1],)) for n in range(50)]
    events: list[Event] = [Query(query, collection, prior=watched, top=10_000), *wide, *small]
    async with Pipeline(settings) as pipeline:
        worker = await pipeline.worker()
        await pipeline.say(*events)
        await pipeline.ranked(events)
        leases = await pipeline.store.claims.claim(query, kim, 10, 3600)
        publisher = KafkaPublisher(settings)
        try:
            await publish_outbox(pipeline.store.claims, publisher.publish_leases, query)
        finally:
            await publisher.close()
        events += [decode_lease(record.value, record.key) for record in await pipeline.records("leases")]
        judged = [wide[0].item_id, leases[0].item_id, leases[1].item_id]
        facts: list[Event] = [
            Verdict(longest(f"v{n}"), query, item_id, kim, Outcome.RELEVANT, leases[0].at + n)
            for n, item_id in enumerate(judged)
        ]
        facts.append(Verdict(longest("v"), later, judged[0], kim, Outcome.RELEVANT, leases[0].at))
        await pipeline.say(*facts)
        await pipeline.drained()
        events += [*facts, Query(later, collection, top=10_000)]
        await pipeline.say(events[-1])
        await pipeline.assert_is_the_fold(events)
        assert len(await pipeline.store.claims.live(query)) == 10 - len({*judged} & {e.item_id for e in leases})
        await asyncio.to_thread(worker.stop)
        await rebuild(settings, pipeline.store)
        await pipeline.worker()
        await pipeline.assert_is_the_fold(events)


@pytest.mark.parametrize("most", [KAFKAS_DEFAULT, "100000"])
async def test_topics_that_take_less_get_less(admin: AIOKafkaAdminClient, settings: Settings, most: str) -> None:
    for name in ("next-items", "dead-letters"):
        config = {**kafka_admin.TOPICS[name], "max.message.bytes": most}
        await make_topic(admin, settings.topic(name), 1, config)
    async with Pipeline(settings) as pipeline:
        worker = await pipeline.worker()
        await pipeline.say_raw("verdicts", b"q", b"\xff" * 1_000_000)
        events: list[Event] = [Query("q", top=100), *wide_items(200, recipients=100), said(1)]
        await pipeline.say(*events)
        await pipeline.ranked(events)
        ranking = (await pipeline.rankings("q"))[-1]
        assert len(ranking.items) + ranking.items_cut == 100
        assert len(ranking.items) > 5
        assert [item.rank for item in ranking.items] == list(range(1, len(ranking.items) + 1))
        (record,) = await pipeline.records("dead-letters")
        letter, kept = decode_dead_letter(record.value)
        assert (letter.error.code, letter.payload_bytes) == ("malformed_json", 1_000_000)
        assert len(kept) > int(most) // 3
        assert f"kafka-configs.sh --bootstrap-server {settings.kafka} --alter" in worker.log.read_text()
        assert worker.running


async def test_a_topic_may_take_less_while_a_worker_runs(admin: AIOKafkaAdminClient, settings: Settings) -> None:
    async with Pipeline(settings) as pipeline:
        worker = await pipeline.worker()
        events: list[Event] = [Query("q"), *wide_items(20)]
        await pipeline.say(*events)
        await pipeline.assert_is_the_fold(events)
        resource = ConfigResource(
            ConfigResourceType.TOPIC,
            settings.topic("next-items"),
            {**kafka_admin.TOPICS["next-items"], "max.message.bytes": "200000"},
        )
        await admin.alter_configs([resource])
        await pipeline.say(said(1))
        await pipeline.drained()
        ranking = (await pipeline.rankings("q"))[-1]
        assert (ranking.screened, len(ranking.items) + ranking.items_cut) == (1, 19)
        assert ranking.items
        assert worker.running


@pytest.mark.parametrize(
    ("name", "config", "sentence"),
    [
        ("verdicts", {"cleanup.policy": "compact"}, "deletes all but the last record of a key"),
        ("items", {"cleanup.policy": "compact,delete"}, "deletes all but the last record of a key"),
        ("next-items", {"cleanup.policy": "compact", "max.message.bytes": "1000"}, "takes messages of 1000 bytes"),
        ("dead-letters", {"max.message.bytes": "1000"}, "takes messages of 1000 bytes"),
        ("leases", {**kafka_admin.TOPICS["leases"], "max.message.bytes": "1000"}, "takes messages of 1000 bytes"),
    ],
)
async def test_topics_that_cannot_be_worked_with_are_refused_with_the_command_that_mends_them(
    admin: AIOKafkaAdminClient, settings: Settings, name: str, config: Mapping[str, str], sentence: str
) -> None:
    await make_topic(admin, settings.topic(name), 1, config)
    with pytest.raises(UserError, match=sentence) as refused:
        await kafka_admin.ensure_topics(settings)
    changes = str(refused.value).split("--add-config ")[1]
    mended = dict(change.split("=") for change in changes.split(","))
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, settings.topic(name), mended)])

    async def taken() -> bool:
        try:
            return (await kafka_admin.ensure_topics(settings))[name] == 1
        except UserError:
            return False

    await until(taken, "the mended topic is taken")


@pytest.mark.parametrize(
    ("name", "config", "sentence"),
    [
        ("verdicts", {"retention.ms": "604800000"}, "forgets its records after 604800000 ms"),
        ("items", {"cleanup.policy": "delete"}, "forgets its records after"),
        ("queries", {"cleanup.policy": "delete", "retention.ms": "1000"}, "forgets its records after 1000 ms"),
        ("next-items", {"cleanup.policy": "compact", "max.message.bytes": KAFKAS_DEFAULT}, "what is longer is cut"),
        ("queries", {"cleanup.policy": "delete", "retention.ms": "-1"}, None),
        ("queries", {"cleanup.policy": "compact"}, "has cleanup.policy=compact"),
    ],
)
async def test_what_topics_would_better_be_is_said(
    admin: AIOKafkaAdminClient,
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
    name: str,
    config: Mapping[str, str],
    sentence: str | None,
) -> None:
    await make_topic(admin, settings.topic(name), 1, config)
    with caplog.at_level(logging.WARNING, "haystream_service"):
        await kafka_admin.ensure_topics(settings)
    warned = [record.message for record in caplog.records if record.name == "haystream_service.kafka.topics"]
    assert len(warned) == (sentence is not None)
    assert all(sentence in text and "kafka-configs.sh" in text for text in warned if sentence is not None)
