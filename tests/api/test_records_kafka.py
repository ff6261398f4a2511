"""Single records, read from a real Kafka where they lie."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import RecordsToDelete
from support.pipeline import Pipeline, admin_client

from haystream_service.api.facts import At
from haystream_service.api.records import READERS, KafkaRecords
from haystream_service.kafka.connection import client_arguments
from haystream_service.kafka.records import BrokerUnavailable
from haystream_service.settings import Settings

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka]

PARTITIONS = 2
EACH = 40


def value(partition: int, number: int) -> bytes:
    """Some are larger than what is fetched at once."""
    return b"%d/%d " % (partition, number) * (1 if number % 5 else 20_000)


@pytest_asyncio.fixture
async def topic(pipeline: Pipeline) -> AsyncIterator[str]:
    """The topic of items, in batches that are packed."""
    name = pipeline.settings.topic("items")
    async with AIOKafkaProducer(
        **client_arguments(pipeline.settings), compression_type="gzip", linger_ms=20
    ) as producer:
        await asyncio.gather(
            *[
                await producer.send(name, value(p, n) if n != 7 else None, key=b"k", partition=p)
                for n in range(EACH)
                for p in range(PARTITIONS)
            ]
        )
    yield name


async def test_whatever_is_asked_for_at_once_is_what_lies_there(pipeline: Pipeline, topic: str) -> None:
    records = KafkaRecords(pipeline.settings)
    places = [At(p, n) for p in range(PARTITIONS) for n in range(EACH) if n != 7]
    random.Random(7).shuffle(places)
    try:
        for start in range(0, len(places), 20):
            some = places[start : start + 20]
            assert await records.read(some) == [value(*at) for at in some]
        assert len(records._idle) <= READERS
    finally:
        await records.close()


async def test_what_kafka_has_no_longer_is_none(pipeline: Pipeline, topic: str) -> None:
    async with admin_client(pipeline.settings) as admin:
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=10)})
    records = KafkaRecords(pipeline.settings)
    try:
        found = await records.read([At(0, 9), At(0, 10), At(1, 7), At(1, EACH), At(1, EACH + 5)])
        assert found == [None, value(0, 10), None, None, None]
        assert await records.read([At(0, 11)]) == [value(0, 11)]
    finally:
        await records.close()


async def test_a_kafka_that_is_not_there_is_told_of() -> None:
    records = KafkaRecords(Settings(kafka="127.0.0.1:1"))
    with pytest.raises(BrokerUnavailable, match="did not hand out"):
        await records.read([At(0, 0)])
    await records.close()
