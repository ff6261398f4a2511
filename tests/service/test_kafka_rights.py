"""A Kafka that lets the workers' user do what docs/operations.md says and nothing else."""

import asyncio
import re
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import started
from support.forked import ForkedApi, ForkedWorker
from support.pipeline import Pipeline, page, program, settings_on, until
from support.queue_api import EVERYTHING, write_keys
from support.secured import AUTHORIZED, USER, Right, SecuredKafka

from haystream.events import Event, Item, Outcome, Query, Verdict
from haystream_service.api.access import Role
from haystream_service.client import ApiUnavailable, Haystream
from haystream_service.local import ServerUnavailable, ValkeyServer
from haystream_service.settings import Settings, variables

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
PASSWORD = "S3cret"
EVENTS: tuple[Event, ...] = (
    Query("q"),
    *(Item(f"i{n}", "default", "a", (f"b{n}",)) for n in range(5)),
    Verdict("v", "q", "i1", "zoe", Outcome.RELEVANT, 1_700_000_000_000_000),
)
PATIENCE = 15.0
"""Seconds for a worker that lacks a right to show it."""


def rights(user: str) -> list[Right]:
    """Those that the page's commands give the user, with the names of the page."""
    page = PAGE.read_text()
    parser = ArgumentParser()
    parser.add_argument("--allow-principal")
    parser.add_argument("--operation", action="append")
    parser.add_argument("--topic", action="append", default=[])
    parser.add_argument("--group", action="append", default=[])
    parser.add_argument("--resource-pattern-type", default="literal")
    found = []
    for command in re.findall(r"^    kafka-acls\.sh (.* --add .*)$", page, re.MULTILINE):
        given, _ = parser.parse_known_args(command.split())
        if given.allow_principal != f"User:{user}":
            continue
        for kind in ("topic", "group"):
            for name in getattr(given, kind):
                found += [Right(kind, name, given.resource_pattern_type, each) for each in given.operation]
    return found


RIGHTS, RIGHTS_OF_THE_API = rights("haystream"), rights("haystream-api")
[SAID_OF_A_COPY] = re.findall(r"`haystream repartition` needs (.*) on all topics of the new", PAGE.read_text())
OF_A_COPY = re.split(r", | and ", SAID_OF_A_COPY)
"""What `haystream repartition` needs besides."""
SELDOM = {("haystream.queries", "Write"), ("haystream.leases", "Write")}
"""Wanted where settings are stated again, and where items are handed out."""
NEEDED = [
    right for right in RIGHTS if (right.name, right.operation) not in SELDOM | {("haystream.", "DescribeConfigs")}
]
IN_SAMPLE = [("haystream.", "Read")]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    kafka = SecuredKafka(tmp_path_factory.mktemp("kafka"), plain_password=PASSWORD, settings=AUTHORIZED)
    with started(kafka) as server:
        yield server


@pytest.fixture
def settings(secured: SecuredKafka, valkey: ValkeyServer, topic_prefix: str) -> Settings:
    """Of who may do everything."""
    return settings_on(secured, valkey, topic_prefix, group=f"{topic_prefix}-worker")


@pytest.fixture
def allowed(secured: SecuredKafka, settings: Settings) -> dict[Right, Right]:
    """The rights of the page with the names of this test, which the user has."""
    named = {right: right._replace(name=right.name.replace("haystream", settings.topic_prefix)) for right in RIGHTS}
    for right in named.values():
        secured.allow(right)
    return named


@pytest.fixture
def restricted(secured: SecuredKafka, settings: Settings) -> Settings:
    """Of the user whose rights are the page's."""
    login = {"kafka_sasl": "PLAIN", "kafka_user": USER, "kafka_password": PASSWORD, "port": 0}
    return Settings(**{**settings.model_dump(exclude_defaults=True), **login, "kafka": secured.at("SASL")})


@pytest.mark.usefixtures("allowed")
async def test_a_worker_makes_its_topics_and_works(
    secured: SecuredKafka, settings: Settings, restricted: Settings
) -> None:
    with ForkedWorker(variables(restricted)) as worker:
        async with Pipeline(settings) as pipeline:
            await pipeline.say(*EVENTS)
            await pipeline.say_raw("verdicts", b"q", b"no JSON")
            await pipeline.assert_is_the_fold(EVENTS)
            assert len(await pipeline.records("dead-letters")) == 1
            assert "not authorized" not in worker.log.read_text().lower()
            assert "AuthorizationFailed" not in worker.log.read_text()
            await asyncio.to_thread(worker.stop)
            ran = await program(variables(restricted), "rebuild", "--yes")
            assert ran.code == 0, ran.err
            copy = f"{settings.topic_prefix}-3"
            for operation in OF_A_COPY:
                secured.allow(Right("topic", f"{copy}.", "prefixed", operation))
            ran = await program(variables(restricted), "repartition", "--to", copy, "--partitions", "3", "--yes")
            assert ran.code == 0, ran.err


async def _works(pipeline: Pipeline) -> bool:
    letters = await pipeline.records("dead-letters")
    rankings = await pipeline.rankings("q")
    return bool(letters) and any(ranking.screened for ranking in rankings)


@pytest.mark.parametrize("missing", NEEDED, ids=" ".join)
async def test_what_is_refused_without_a_right(
    secured: SecuredKafka,
    settings: Settings,
    restricted: Settings,
    allowed: dict[Right, Right],
    missing: Right,
    pytestconfig: pytest.Config,
    shown: Callable[[str], None],
) -> None:
    if pytestconfig.getoption("faults") != "all" and (missing.name, missing.operation) not in IN_SAMPLE:
        pytest.skip("with --faults all")
    secured.forbid(allowed[missing])
    worker = ForkedWorker(variables(restricted))
    worker._start_seconds = PATIENCE
    said = ""
    try:
        await asyncio.to_thread(worker.start)
        async with Pipeline(settings) as pipeline:
            await pipeline.say(*EVENTS)
            await pipeline.say_raw("verdicts", b"q", b"no JSON")
            with pytest.raises(AssertionError, match="not within"):
                await until(lambda: _works(pipeline), "it works", patience=PATIENCE)
            said = (await asyncio.to_thread(page, worker, "/readyz"))[1]
    except ServerUnavailable:
        pass
    finally:
        lines = worker.log.read_text().splitlines()
        said = said or next(line for line in reversed(lines) if re.search("authoriz", line, re.IGNORECASE))
        await asyncio.to_thread(worker.close)
    shown(f"without {missing.operation} on {missing.resource} {missing.name}: {said[:300]}")
    assert re.search("authoriz", said, re.IGNORECASE)


SAYING = b'{"item_id": "said", "sender": "a", "recipients": ["b"], "text": "At noon?"}'


async def test_the_api_works_with_less_and_says_what_it_may_not(
    secured: SecuredKafka, settings: Settings, restricted: Settings, tmp_path: Path
) -> None:
    named = [
        right._replace(name=right.name.replace("haystream", settings.topic_prefix)) for right in RIGHTS_OF_THE_API
    ]
    keys = tmp_path / "keys.json"
    write_keys(keys, ("boss", list(Role), [EVERYTHING]))
    async with Pipeline(settings) as pipeline:
        await pipeline.worker()
        for right in named:
            secured.allow(right)
        api = ForkedApi(variables(restricted), keys)
        try:
            await asyncio.to_thread(api.start)
            with Haystream(api.address, "boss", pause=lambda _: None) as client:
                await asyncio.to_thread(_work, client)
                read = next(right for right in named if (right.operation, right.name[-5:]) == ("Read", "items"))
                secured.forbid(read)
                client.send_items("default", [SAYING.replace(b"said", b"more").replace(b"noon", b"ten")])
                await pipeline.drained()
                with pytest.raises(ApiUnavailable, match="uthoriz"):
                    await asyncio.to_thread(client.item, "default", "more")
            assert "Traceback" not in api.log.read_text()
        finally:
            await asyncio.to_thread(api.close)


def _work(client: Haystream) -> None:
    assert client.send_items("default", [SAYING]).accepted == 1
    assert client.open("q").applied
    while not (leases := client.next("q", with_text=True)):
        pass
    assert leases[0].item is not None
    assert leases[0].item.text == "At noon?"
    assert client.decide("q", "said", Outcome.RELEVANT, wait="ranking").ranked
    with client.export("q", "audit") as pieces:
        assert b"".join(pieces).count(b"\n") == 2
