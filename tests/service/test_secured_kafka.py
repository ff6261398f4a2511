"""A Kafka with TLS, with mutual TLS, and with users and passwords: whom it lets in, and what it says to others."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from conftest import started
from support.pipeline import Pipeline, is_ready, page, program, settings_on, until
from support.secured import MECHANISMS, USER, SecuredKafka

from haystream.events import Item, Outcome, Query, Verdict
from haystream_service.kafka import admin as kafka_admin
from haystream_service.kafka.records import BrokerRefused
from haystream_service.local import ValkeyServer
from haystream_service.settings import Settings, variables
from haystream_service.worker.kafka_publisher import KafkaPublisher

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]

PASSWORD = "S3cret@/# x"  # a URL would not take it
SECURED = ("TLS", "MTLS", *(f"SASLTLS {m}" for m in MECHANISMS), *(f"SASL {m}" for m in MECHANISMS))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with started(SecuredKafka(tmp_path_factory.mktemp("kafka"), plain_password=PASSWORD)) as server:
        server.set_password(PASSWORD)
        yield server


@pytest_asyncio.fixture(autouse=True)
async def connections_closed() -> AsyncIterator[None]:
    """End a test's event loop when its connections are closed, not before.

    A TLS connection is closed when the broker has closed its side too, and aiokafka does not wait for that
    where it was not let in. A loop that ends first leaves a socket open.
    """
    yield
    sockets = asyncio.get_running_loop()._selector.get_map()  # type: ignore[attr-defined]

    async def only_the_loops_own() -> bool:
        return len(sockets) == 1

    await until(only_the_loops_own, "the broker has closed the connections", patience=35.0)


@pytest.fixture
def settings_for(
    secured: SecuredKafka, valkey: ValkeyServer, topic_prefix: str, tmp_path: Path
) -> Callable[..., Settings]:
    """The settings with which one is let in at a listener, but for those given."""
    password = tmp_path / "password"
    password.write_text(f"{PASSWORD}\n")

    def settings(way: str, **given: Any) -> Settings:
        listener, _, mechanism = way.partition(" ")
        values: dict[str, Any] = {"kafka": secured.at(listener)}
        if "TLS" in listener:
            values |= {"kafka_tls": True, "kafka_ca_file": secured.authority.ca}
        if listener == "MTLS":
            cert, key = secured.authority.issue("worker", password="k3y")
            values |= {"kafka_cert_file": cert, "kafka_key_file": key, "kafka_key_password": "k3y"}
        if mechanism:
            values |= {"kafka_sasl": mechanism, "kafka_user": USER, "kafka_password_file": password}
        return settings_on(secured, valkey, topic_prefix, **{**values, **given})

    return settings


@pytest_asyncio.fixture
async def pipeline_for(settings_for: Callable[..., Settings]) -> AsyncIterator[Callable[..., Any]]:
    opened: list[Pipeline] = []

    async def pipeline(way: str, **given: Any) -> Pipeline:
        opened.append(await Pipeline(settings_for(way, **given)).__aenter__())
        return opened[-1]

    yield pipeline
    for each in opened:
        await each.__aexit__()


EVENTS = (Query("q"), *(Item(f"i{n}", "default", "a", (f"b{n}",)) for n in range(5)))


def verdict(number: int) -> Verdict:
    return Verdict(f"v{number}", "q", f"i{number}", "zoe", Outcome.RELEVANT, 1_700_000_000_000_000 + number)


@pytest.mark.parametrize("way", SECURED)
async def test_every_way_leads_in_with_every_sort_of_client(pipeline_for: Any, way: str) -> None:
    pipeline = await pipeline_for(way)  # an admin client, a producer
    publisher = KafkaPublisher(pipeline.settings)
    await publisher.publish_dead_letter(b"k", b"{}")
    await publisher.close()
    await pipeline.say(*EVENTS)
    assert len(await pipeline.records("items")) == 5  # a consumer


@pytest.mark.parametrize("way", ["MTLS", "SASL PLAIN"])
async def test_a_worker_works_there(pipeline_for: Any, way: str) -> None:
    pipeline = await pipeline_for(way)
    worker = await pipeline.worker()
    await pipeline.say(*EVENTS, verdict(0))
    await pipeline.assert_is_the_fold([*EVENTS, verdict(0)])
    for secret in (PASSWORD, "k3y"):
        assert secret not in worker.log.read_text()


@pytest.mark.parametrize(
    ("way", "given", "why"),
    [
        ("SASLTLS PLAIN", {"kafka_user": "mallory"}, "it refuses user 'mallory' or the password"),
        ("SASL SCRAM-SHA-512", {"kafka_user": "mallory"}, "it refuses user 'mallory' or the password"),
        ("TLS", {"kafka_ca_file": None}, "its certificate is not trusted: unable to get local issuer"),
        ("MTLS", {"kafka_cert_file": None, "kafka_key_file": None, "kafka_key_password": None}, "TLS: "),
        ("TLS", {"kafka_sasl": "PLAIN", "kafka_user": USER, "kafka_password": "S3cret"}, "it does not take PLAIN"),
    ],
)
async def test_who_is_not_let_in_is_told_why(
    settings_for: Callable[..., Settings], way: str, given: dict[str, Any], why: str
) -> None:
    with pytest.raises(BrokerRefused, match=f"does not let us in: {why}"):
        await kafka_admin.ensure_topics(settings_for(way, **given))


@pytest.mark.parametrize("command", ["worker", "rebuild --yes", "import csv {items} --to kafka", "demo --headless"])
async def test_a_wrong_password_is_one_line_at_start(
    settings_for: Callable[..., Settings], tmp_path: Path, command: str
) -> None:
    items = tmp_path / "items.csv"
    items.write_text("item_id,sender,recipients\n1,a,b\n")
    settings = settings_for("SASLTLS SCRAM-SHA-256", kafka_password_file=None, kafka_password="wr0ng", port=0)
    code, said, errors = await program(variables(settings), *command.format(items=items).split())
    assert code == 2
    last = errors.splitlines()[-1]
    assert last.startswith("haystream: ")
    assert f"does not let us in: it refuses user '{USER}' or the password" in last
    assert "Traceback" not in errors
    assert "wr0ng" not in said + errors


async def test_a_password_that_is_replaced_is_used_when_the_worker_connects_again(
    secured: SecuredKafka, pipeline_for: Any, tmp_path: Path
) -> None:
    pipeline = await pipeline_for("SASLTLS SCRAM-SHA-512")
    password = pipeline.settings.kafka_password_file
    worker = await pipeline.worker()
    await pipeline.say(*EVENTS, verdict(0))
    await pipeline.drained()
    try:
        await asyncio.to_thread(secured.set_password, "a new one")
        await asyncio.to_thread(secured.restart)  # which ends the connections that were let in before

        async def refused() -> bool:
            status, _ = await asyncio.to_thread(page, worker, "/readyz")
            return status == 503 and "Authentication failed" in worker.log.read_text()

        await until(refused, "the worker is refused with the old password, and is not ready")
        password.write_text("a new one")
        await pipeline.say(verdict(1))
        await pipeline.assert_is_the_fold([*EVENTS, verdict(0), verdict(1)])

        await until(lambda: is_ready(worker), "the worker is ready again")
        assert worker.running
        assert "a new one" not in worker.log.read_text()
    finally:
        await asyncio.to_thread(secured.set_password, PASSWORD)
