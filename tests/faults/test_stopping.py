"""A worker that is told to stop ends, also where Kafka stands still; whoever comes next has all of it."""

import asyncio
import os
import signal

import pytest
from support.pipeline import PATIENCE, Pipeline, settings_on
from support.seeds import faults

from haystream.events import Event, Item, Outcome, Query, Verdict
from haystream_service.local import KafkaServer, ValkeyServer
from haystream_service.settings import Settings

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]

ITEMS = tuple(Item(f"m{n}", "default", f"p{n % 5}", (f"p{n % 5 + 1}",)) for n in range(12))
VERDICTS = tuple(
    Verdict(f"v{n}", "q", f"m{n}", "zoe", list(Outcome)[n % 2], 1_700_000_000_000_000 + n) for n in range(12)
)


@pytest.fixture
def settings(own_kafka: KafkaServer, own_valkey: ValkeyServer, topic_prefix: str) -> Settings:
    return settings_on(own_kafka, own_valkey, topic_prefix, drain_seconds=1.0)


@pytest.mark.parametrize("busy", faults([False, True], True), ids=["idle", "busy"])
async def test_a_worker_that_is_told_to_stop_ends_though_kafka_stands_still(
    pipeline: Pipeline, own_kafka: KafkaServer, busy: bool
) -> None:
    events: list[Event] = [Query("q"), *ITEMS]
    worker = await pipeline.worker_after(events)
    if busy:
        events += VERDICTS
        await pipeline.say(*VERDICTS)
    with own_kafka.frozen():
        os.kill(worker._process.pid, signal.SIGTERM)
        assert await asyncio.to_thread(worker._process.wait, PATIENCE) == 0
    await pipeline.worker()
    await pipeline.assert_is_the_fold(events)
