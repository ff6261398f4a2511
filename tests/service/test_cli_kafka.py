"""`haystream import --to kafka` on a real broker, and what commands say of one that is not there, or not ours."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from support.pipeline import admin_client, make_topic, program, settings_on

from haystream_service.commands import import_, rebuild
from haystream_service.errors import UserError
from haystream_service.importers import ImportFailed
from haystream_service.settings import Settings, variables
from haystream_service.wire import ItemRecord, decode_item

TABLE = "item_id,sender,recipients\n" + "".join(f"m{i},p{i},p{i + 1}\n" for i in range(2500))


async def create(bootstrap: str, topic: str) -> None:
    async with admin_client(Settings(kafka=bootstrap)) as admin:
        await make_topic(admin, topic, 3)


async def consume(bootstrap: str, topic: str, count: int) -> list[tuple[bytes, bytes]]:
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        return [((r := await asyncio.wait_for(consumer.getone(), 30)).key, r.value) for _ in range(count)]
    finally:
        await consumer.stop()


@pytest.mark.kafka
def test_items_arrive_keyed_and_once(kafka, topic_prefix, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("HAYSTREAM_KAFKA", kafka.bootstrap)
    monkeypatch.setenv("HAYSTREAM_TOPIC_PREFIX", topic_prefix)
    table = tmp_path / "t.csv"
    table.write_text(TABLE)
    with pytest.raises(UserError, match=f"no topic {topic_prefix}.items"):
        import_.run("csv", table, to="kafka")
    asyncio.run(create(kafka.bootstrap, f"{topic_prefix}.items"))
    import_.run("csv", table, to="Kafka")  # which is no file either
    assert "2500 items to" in capfd.readouterr().err
    records = asyncio.run(consume(kafka.bootstrap, f"{topic_prefix}.items", 2500))
    assert {decode_item(value, key).item_id for key, value in records} == {f"m{i}" for i in range(2500)}


@pytest.mark.kafka
def test_an_import_that_breaks_off_says_how_many_items_are_there(kafka, topic_prefix, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("HAYSTREAM_KAFKA", kafka.bootstrap)
    monkeypatch.setenv("HAYSTREAM_TOPIC_PREFIX", topic_prefix)
    asyncio.run(create(kafka.bootstrap, f"{topic_prefix}.items"))

    def broken(*_: Any) -> Iterator[ItemRecord]:
        for number in range(1500):
            yield ItemRecord(item_id=f"m{number}", sender="ann", recipients=("bob",))
        raise ImportFailed("it ends too early")

    monkeypatch.setitem(import_.READERS, "csv", broken)
    with pytest.raises(ImportFailed):
        import_.run("csv", tmp_path, to="kafka")
    assert f"the import broke off: 1500 items were written to {topic_prefix}.items" in capfd.readouterr().err
    assert len(asyncio.run(consume(kafka.bootstrap, f"{topic_prefix}.items", 1500))) == 1500


@pytest.mark.kafka
def test_the_largest_mail_arrives_and_so_does_the_next(kafka, topic_prefix, tmp_path, monkeypatch):
    monkeypatch.setenv("HAYSTREAM_KAFKA", kafka.bootstrap)
    monkeypatch.setenv("HAYSTREAM_TOPIC_PREFIX", topic_prefix)
    ids = ["x" * 300, "next"]
    for number, (name, text) in enumerate(zip(ids, ("\U0001f600" * (1 << 18), "short"), strict=True)):
        head = f"From: ann@x\nTo: bob@x\nMessage-ID: <{name}>\nContent-Type: text/plain; charset=utf-8\n"
        (tmp_path / f"{number}.eml").write_text(f"{head}Content-Transfer-Encoding: 8bit\n\n{text}\n")
    asyncio.run(create(kafka.bootstrap, f"{topic_prefix}.items"))
    import_.run("eml", tmp_path, text=True, to="kafka")
    records = asyncio.run(consume(kafka.bootstrap, f"{topic_prefix}.items", 2))
    assert {key.decode().strip("<>") for key, _ in records} == set(ids)


def test_a_broker_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HAYSTREAM_KAFKA", "127.0.0.1:1")
    table = tmp_path / "t.csv"
    table.write_text(TABLE)
    with pytest.raises(UserError, match=r"no Kafka answers at 127\.0\.0\.1:1"):
        import_.run("csv", table, to="kafka")


@pytest.mark.kafka
@pytest.mark.redis
@pytest.mark.parametrize("missing", ["KAFKA", "REDIS"])
def test_a_rebuild_without_a_server_changes_nothing_and_names_it(missing, kafka, redis_url, monkeypatch):
    ours = {"KAFKA": kafka.bootstrap, "REDIS": redis_url}
    theirs = {"KAFKA": "127.0.0.1:1", "REDIS": "redis://127.0.0.1:1/0"}
    for name, value in {**ours, missing: theirs[missing]}.items():
        monkeypatch.setenv(f"HAYSTREAM_{name}", value)
    with pytest.raises(UserError, match=r"127\.0\.0\.1.*1.*Nothing was changed") as caught:
        rebuild.run(yes=True)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.kafka
@pytest.mark.redis
@pytest.mark.parametrize(
    ("command", "missing"),
    [
        ("dead-letters list", "dead-letters"),
        ("dead-letters show x.items/0/1", "dead-letters"),
        ("dead-letters replay --all", "dead-letters"),
        ("import csv {table} --to kafka", "items"),
        ("next q", "queries"),
        ("query open q", "queries"),
        ("rebuild --yes", "queries"),
        ("repartition --to other --partitions 1 --yes", "queries"),
        ("verdict q m relevant", "queries"),
    ],
)
def test_topics_that_are_not_there_are_named(command, missing, kafka, valkey, topic_prefix, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text(TABLE)
    settings = settings_on(kafka, valkey, topic_prefix)
    ran = asyncio.run(program(variables(settings), *command.format(table=table).split()))
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert f"has no topic {settings.topic(missing)}" in ran.err
