"""A Redis that answers, and refuses, amid a stream: the worker waits, says why, and loses nothing."""

import asyncio
import re
from pathlib import Path

import pytest
import pytest_asyncio
from support.pipeline import Pipeline, is_ready, page, program, settings_on, until
from support.refusals import REFUSALS, USER, allow

from haystream.events import Event, Item, Outcome, Query, Verdict
from haystream_service.local import KafkaServer, ValkeyServer
from haystream_service.settings import Settings

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]

FIRST: list[Event] = [
    Query("q"),
    Query("r"),
    *(Item(f"i{n}", "default", f"p{n % 7}", (f"p{n % 5}x",)) for n in range(40)),
]
THEN: list[Event] = [
    event
    for n in range(40)
    for event in (
        Item(f"j{n}", "default", f"p{n % 5}", (f"p{n % 3}y",)),
        Verdict(f"v{n}", "qr"[n % 2], f"i{n}", "zoe", list(Outcome)[n % 2], 1_700_000_000_000_000 + n),
    )
]


@pytest_asyncio.fixture
async def settings(kafka: KafkaServer, own_valkey: ValkeyServer, password: Path, topic_prefix: str) -> Settings:
    await allow(own_valkey, topic_prefix, "S3cret")
    given = {
        "redis_user": USER,
        "redis_password_file": password,
        "item_publish_seconds": 0.05,
        "totals_seconds": 0.05,
    }
    return settings_on(kafka, own_valkey, topic_prefix, **given)


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_redis_that_refuses_is_waited_for(
    pipeline: Pipeline, own_valkey: ValkeyServer, password: Path, name: str
) -> None:
    worker = await pipeline.worker()
    await pipeline.say(*FIRST)
    await pipeline.drained()
    async with REFUSALS[name](own_valkey, password) as code:
        await pipeline.say(*THEN)

        async def said() -> bool:
            status, text = await asyncio.to_thread(page, worker, "/readyz")
            why = rf"Redis (cannot serve now|does not let us in): {code} \w"
            tried = re.search(rf"WARNING .*{why}.*; trying again", worker.log.read_text())
            return status == 503 and bool(re.search(why, text)) and bool(tried)

        await until(said, "the worker waits, is not ready, and says why")
    await pipeline.assert_is_the_fold([*FIRST, *THEN])

    await until(lambda: is_ready(worker), "the worker is ready again")
    assert worker.running
    assert "Traceback" not in worker.log.read_text()
    assert await pipeline.records("dead-letters") == []


async def test_one_that_gets_no_records_says_that_redis_takes_no_writes(
    pipeline: Pipeline, own_valkey: ValkeyServer, password: Path
) -> None:
    worker = await pipeline.worker()
    async with REFUSALS["memory_full"](own_valkey, password):

        async def said() -> bool:
            status, text = await asyncio.to_thread(page, worker, "/readyz")
            return status == 503 and "OOM command not allowed" in text

        await until(said, "the worker says that Redis takes no writes")
    await until(lambda: is_ready(worker), "the worker is ready again")


@pytest.mark.parametrize("lacking", ["password", "permission"])
async def test_who_is_refused_at_start_is_told_in_a_line(
    pipeline: Pipeline, own_valkey: ValkeyServer, password: Path, lacking: str
) -> None:
    environment = pipeline.environment()
    if lacking == "password":
        del environment["HAYSTREAM_REDIS_PASSWORD_FILE"]
        environment["HAYSTREAM_REDIS_PASSWORD"] = "wr0ng"
        said = "WRONGPASS invalid username-password pair"
    else:
        await allow(own_valkey, "another-prefix", "S3cret")
        said = "NOPERM "
    for command in ("worker", "rebuild --yes"):
        code, _, errors = await program({**environment, "HAYSTREAM_PORT": "0"}, *command.split())
        assert code == 2
        assert "Traceback" not in errors
        assert "wr0ng" not in errors
        assert errors.splitlines()[-1].startswith(f"haystream: Redis does not let us in: {said}")
    await allow(own_valkey, pipeline.settings.redis_prefix, "S3cret")
