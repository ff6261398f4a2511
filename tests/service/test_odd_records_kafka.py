"""Records as no client of ours writes them: legal in Kafka, and read by every consumer of ours."""

import asyncio
import os
import sys

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from support.pipeline import Pipeline, Silent, encoded, rebuild

from haystream.events import Event, Item, Outcome, Query, Verdict
from haystream_service.kafka import admin as kafka_admin
from haystream_service.kafka.records import RESTATES, SOURCES
from haystream_service.worker.repartitioning import Repartition

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]

EVENTS: list[Event] = [
    Query("q"),
    *(Item(f"i{n}", "default", f"p{n % 4}", (f"p{4 + n % 3}",)) for n in range(12)),
    *(Verdict(f"v{n}", "q", f"i{n}", "zoe", list(Outcome)[n % 2], 1_700_000_000_000_000 + n) for n in range(6)),
]
HEADERS: list[list[tuple[str, bytes | None]]] = [
    [("trace", None)],
    [("", b""), ("same", b"1"), ("same", b"2")],
    *([(RESTATES, said)] for said in (None, b"", b"-1", b"one", "²".encode(), b"9" * 5000)),
]
"""A header may have no value, and ours may be anybody's."""

NO_TEXT = """
import asyncio, sys
from aiokafka import AIOKafkaProducer

class Name(str):
    def encode(self, *_):
        return b"\\xff\\xfe"

async def write(bootstrap, *topics):
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for topic in topics:
            await producer.send_and_wait(topic, b"{", key=b"q", headers=[("good", b"1"), (Name("ab"), b"2")])

asyncio.run(write(*sys.argv[1:]))
"""
"""A producer, for aiokafka without its extensions, of records with a header whose name is no UTF-8."""


async def test_whatever_its_headers_say_a_record_is_taken(pipeline: Pipeline) -> None:
    settings = pipeline.settings
    worker = await pipeline.worker()
    producer = AIOKafkaProducer(bootstrap_servers=settings.kafka)
    await producer.start()
    for headers in HEADERS:
        for topic, key, value in map(encoded, EVENTS):
            await producer.send(settings.topic(topic), value, key=key, headers=headers)
    await producer.stop()
    await pipeline.assert_is_the_fold(EVENTS)
    assert worker.running
    await asyncio.to_thread(worker.stop)
    await rebuild(settings, pipeline.store)
    await pipeline.assert_is_the_fold(EVENTS)
    assert await pipeline.records("dead-letters") == []


async def test_the_name_of_a_header_need_not_be_text(pipeline: Pipeline) -> None:
    settings = pipeline.settings
    worker = await pipeline.worker()
    await pipeline.say(*EVENTS)
    topics = [settings.topic(topic) for topic in SOURCES.values()]
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", NO_TEXT, settings.kafka, *topics, env={**os.environ, "AIOKAFKA_NO_EXTENSIONS": "1"}
    )
    assert await writer.wait() == 0
    later = [Verdict("later", "q", "i8", "zoe", Outcome.RELEVANT, 1_800_000_000_000_000)]
    await pipeline.say(*later)
    await pipeline.assert_is_the_fold([*EVENTS, *later])
    assert worker.running
    assert len(await pipeline.records("dead-letters")) == len(SOURCES)
    await asyncio.to_thread(worker.stop)
    await rebuild(settings, pipeline.store)
    await pipeline.worker()  # for the settings that the rebuild wrote once more behind the record
    await pipeline.assert_is_the_fold([*EVENTS, *later])
    odd = [record.headers for record in await pipeline.records("verdicts") if record.value == b"{"]
    assert odd == [(("good", b"1"), ("\ufffd\ufffd", b"2"))]


@pytest.mark.parametrize("packing", ["gzip", "snappy", "lz4", "zstd"])
async def test_records_may_be_packed_in_every_way(
    pipeline: Pipeline, admin: AIOKafkaAdminClient, packing: str
) -> None:
    for topic in SOURCES.values():
        named = ConfigResource(
            ConfigResourceType.TOPIC, pipeline.settings.topic(topic), {"compression.type": packing}
        )
        await admin.alter_configs([named])
    await pipeline.worker()
    await pipeline.say(*EVENTS)
    await pipeline.assert_is_the_fold(EVENTS)


async def test_a_record_with_neither_key_nor_value_is_a_dead_letter_and_is_not_copied(pipeline: Pipeline) -> None:
    settings = pipeline.settings
    await pipeline.worker()
    producer = AIOKafkaProducer(bootstrap_servers=settings.kafka)
    await producer.start()
    for topic in SOURCES.values():
        batch = producer.create_batch()
        batch.append(key=None, value=None, timestamp=None)
        await (await producer.send_batch(batch, settings.topic(topic), partition=0))
    await producer.stop()
    await pipeline.say(*EVENTS)
    await pipeline.assert_is_the_fold(EVENTS)
    assert len(await pipeline.records("dead-letters")) == len(SOURCES)
    wider = settings.model_copy(update={"topic_prefix": f"{settings.topic_prefix}-3", "partitions": 3})
    await kafka_admin.ensure_topics(wider)
    assert await Repartition(settings, wider).run(lambda *_: Silent()) == len(EVENTS)
