"""Offsets of the groups that somebody sets elsewhere while no worker runs: what is read is what Redis lacks."""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from support.pipeline import Pipeline, settings_on, until
from support.seeds import faults

from haystream.events import Event, Item, Outcome, Query, Verdict
from haystream_service.kafka.connection import consumer_arguments
from haystream_service.local import KafkaServer, ValkeyServer
from haystream_service.settings import Settings

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]


@pytest.fixture
def settings(kafka: KafkaServer, own_valkey: ValkeyServer, topic_prefix: str) -> Settings:
    return settings_on(kafka, own_valkey, topic_prefix)


def item(number: int) -> Item:
    return Item(f"i{number}", "default", f"p{number % 5}", (f"p{5 + number % 3}",))


def verdict(number: int) -> Verdict:
    said = list(Outcome)[number % 3]
    return Verdict(f"v{number}", "q", f"i{number}", "zoe", said, 1_700_000_000_000_000 + number)


BEFORE: list[Event] = [Query("q"), *map(item, range(20)), *map(verdict, range(8))]
SINCE: list[Event] = [item(20), *map(verdict, range(8, 14)), Query("q", top=5)]
LATER: list[Event] = [item(21), *map(verdict, range(14, 18))]


async def reset(settings: Settings, group: str, topics: tuple[str, ...], to: str) -> None:
    """As `kafka-consumer-groups.sh --reset-offsets` does it."""
    consumer = AIOKafkaConsumer(**consumer_arguments(settings), group_id=group)
    await consumer.start()
    every = [TopicPartition(settings.topic(topic), number) for topic in topics for number in range(2)]
    consumer.assign(every)
    ends = await consumer.end_offsets(every)
    beyond = {"earliest": None, "latest": 0, "beyond the end": 5}[to]
    await consumer.commit({tp: 0 if beyond is None else end + beyond for tp, end in ends.items()})
    await consumer.stop()


CHOICES = "earliest", "latest", "beyond the end"


@pytest.mark.parametrize("to", faults(CHOICES, "latest"))
async def test_offsets_that_somebody_has_set_lose_nothing(pipeline: Pipeline, to: str) -> None:
    worker = await pipeline.worker_after(BEFORE)
    await asyncio.to_thread(worker.stop)
    await pipeline.say(*SINCE)
    settings = pipeline.settings
    await reset(settings, settings.group, ("queries", "verdicts", "leases"), to)
    await reset(settings, settings.items_group, ("items",), to)
    await asyncio.to_thread(worker.start)

    async def read() -> bool:  # what is committed says nothing here
        query = await pipeline.store.load_query("q")
        return query is not None and len(query.verdicts) == 14 and query.settings.top == 5

    await until(read, "what came since is read")
    await pipeline.say(*LATER)
    await pipeline.assert_is_the_fold([*BEFORE, *SINCE, *LATER])
    assert await pipeline.records("dead-letters") == []
