"""`haystream dead-letters`, on a real broker: what was rejected, and sending it again."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from support.pipeline import Silent

from haystream.errors import Code, Rejected
from haystream.events import Item, Outcome, Query, Verdict
from haystream_service.commands import dead_letters
from haystream_service.commands.dead_letters import Wanted
from haystream_service.errors import UserError
from haystream_service.kafka import admin as kafka_admin
from haystream_service.kafka.stretches import whole
from haystream_service.settings import Settings
from haystream_service.wire import encode_dead_letter, encode_item, encode_query, encode_verdict
from haystream_service.worker.repartitioning import Repartition

pytestmark = pytest.mark.kafka

VERDICT = Verdict("v1", "q", "m1", "zoe", Outcome.RELEVANT, 1_700_000_000_000_000)
ITEM = Item("m1", "default", "ann", ("bob",))
NO_SUCH = b'{"query_id":"q","top":0}'


class Letters:
    """A Kafka whose dead letters are known, and the commands on it."""

    def __init__(self, settings: Settings, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
        self.settings = settings
        self._capture = capfdbinary

    def source(self, name: str, partition: int, offset: int) -> str:
        return f"{self.settings.topic(name)}/{partition}/{offset}"

    async def put(self) -> None:
        settings, letters = self.settings, []
        await kafka_admin.ensure_topics(settings)
        cut = encode_item(replace(ITEM, participants=("bob", "x" * 500)))
        producer = AIOKafkaProducer(bootstrap_servers=settings.kafka)
        await producer.start()
        await producer.send_and_wait(settings.topic("items"), cut, key=b"m1", partition=0)
        for name, offset, key, value, code in (
            ("verdicts", 7, b"q", encode_verdict(VERDICT), Code.WRONG_PARTITION),
            ("queries", 3, b"q", NO_SUCH, Code.OUT_OF_RANGE),
            ("items", 0, b"m1", cut, Code.KEY_MISMATCH),
            ("items", 9, None, b"\x1b[2J{", Code.MALFORMED_JSON),
        ):
            letter = encode_dead_letter(
                Rejected(code, f"the [detail] of {offset}"),
                value,
                topic=settings.topic(name),
                partition=0,
                offset=offset,
            )
            if value == cut:
                whole_letter = json.loads(letter)
                whole_letter["payload_base64"] = whole_letter["payload_base64"][:40]
                letter = json.dumps(whole_letter).encode()
            letters.append((key, letter))
        for key, letter in [*letters, letters[0]]:  # a record that was delivered twice has two letters
            await producer.send_and_wait(settings.topic("dead-letters"), letter, key=key)
        await producer.send_and_wait(settings.topic("dead-letters"), b"not ours")
        await producer.stop()

    def reject(self, name: str, partition: int, offset: int, value: bytes, code: Code, key: bytes) -> str:
        """The source of the record, for which there is a letter now."""

        async def put() -> None:
            topic = self.settings.topic(name)
            letter = encode_dead_letter(
                Rejected(code, "no"), value, key=key, topic=topic, partition=partition, offset=offset
            )
            async with AIOKafkaProducer(bootstrap_servers=self.settings.kafka) as producer:
                await producer.send_and_wait(self.settings.topic("dead-letters"), letter, key=key)

        asyncio.run(put())
        return self.source(name, partition, offset)

    def replay(self, *, corrected: str | None = None, dry_run: bool = False, **wanted: Any) -> Any:
        dead_letters.run_replay(Wanted(**wanted), corrected=corrected, dry_run=dry_run, config=None, json=True)
        return self.printed()

    def places(self, name: str) -> list[tuple[int, int]]:
        """Partition and offset of the topic's records."""

        async def found() -> list[tuple[int, int]]:
            return [(record.partition, record.offset) async for record in whole(self.settings, name)]

        return asyncio.run(found())

    async def sent(self, name: str) -> list[tuple[bytes | None, bytes]]:
        return [(record.key, record.value) async for record in whole(self.settings, name)]

    def printed(self) -> Any:
        return json.loads(self._capture.readouterr().out)


@pytest.fixture
def letters(kafka, topic_prefix, monkeypatch, capfdbinary) -> Letters:
    monkeypatch.setenv("HAYSTREAM_KAFKA", kafka.bootstrap)
    monkeypatch.setenv("HAYSTREAM_TOPIC_PREFIX", topic_prefix)
    settings = Settings(kafka=kafka.bootstrap, topic_prefix=topic_prefix, partitions=2)
    letters = Letters(settings, capfdbinary)
    asyncio.run(letters.put())
    capfdbinary.readouterr()
    return letters


def test_they_are_listed_once_each_and_can_be_chosen(letters):
    def chosen(**wanted: Any) -> list[str]:
        dead_letters.run_list(Wanted(**wanted), limit=100, config=None, json=True)
        return sorted(letter["code"] for letter in letters.printed()["letters"])

    assert chosen() == ["key_mismatch", "malformed_json", "out_of_range", "wrong_partition"]
    assert chosen(topic="items") == ["key_mismatch", "malformed_json"]
    assert chosen(query="q") == ["out_of_range", "wrong_partition"]
    assert chosen(code="out_of_range") == ["out_of_range"]
    assert chosen(query="m1") == []
    dead_letters.run_list(Wanted(), limit=1, config=None, json=True)
    said = letters.printed()
    assert (said["count"], len(said["letters"])) == (4, 1)


def test_one_is_shown_in_full_or_byte_for_byte(letters, capfdbinary):
    source = letters.source("verdicts", 0, 7)
    dead_letters.run_show(source, payload=False, config=None, json=True)
    said = letters.printed()
    assert (said["source"], said["key"], said["detail"]) == (source, "q", "the [detail] of 7")
    dead_letters.run_show(source, payload=True, config=None, json=False)
    assert capfdbinary.readouterr().out == encode_verdict(VERDICT)
    dead_letters.run_list(Wanted(), limit=9, config=None, json=False)
    listed = capfdbinary.readouterr().out
    assert b"the [detail] of 7" in listed
    dead_letters.run_show(letters.source("items", 0, 9), payload=False, config=None, json=False)
    for told in (listed, capfdbinary.readouterr().out):  # whatever was sent, it moves no cursor
        assert b"[2J{" in told
        assert b"\x1b" not in told
    with pytest.raises(UserError, match="no dead letter of nothing/0/0"):
        dead_letters.run_show("nothing/0/0", payload=False, config=None, json=True)


def test_what_is_an_event_is_sent_again_whole_and_by_its_own_id(letters):
    dead_letters.run_replay(Wanted(), corrected=None, dry_run=True, config=None, json=True)
    assert len(letters.printed()["sent"]) == 2
    assert asyncio.run(letters.sent("verdicts")) == []
    dead_letters.run_replay(Wanted(), corrected=None, dry_run=False, config=None, json=True)
    said = letters.printed()
    assert sorted(said["sent"]) == sorted([letters.source("items", 0, 0), letters.source("verdicts", 0, 7)])
    assert set(said["refused"]) == {letters.source("queries", 0, 3), letters.source("items", 0, 9)}
    assert asyncio.run(letters.sent("verdicts")) == [(b"q", encode_verdict(VERDICT))]
    (original, again) = asyncio.run(letters.sent("items"))
    assert again == original  # the letter held the first bytes only


def test_a_corrected_record_takes_its_place(letters, tmp_path):
    source = letters.source("queries", 0, 3)
    fixed = tmp_path / "fixed.json"
    for value, why in ((b'{"query_id":"q","top":-1}', "out_of_range"), (b"{", "malformed_json")):
        fixed.write_bytes(value)
        with pytest.raises(UserError, match=f"it would be rejected again, as {why}"):
            dead_letters.run_replay(
                Wanted(sources=(source,)), corrected=str(fixed), dry_run=False, config=None, json=False
            )
    fixed.write_bytes(encode_query(Query("q2")))
    with pytest.raises(UserError, match="stands for one letter"):
        dead_letters.run_replay(Wanted(), corrected=str(fixed), dry_run=False, config=None, json=False)
    dead_letters.run_replay(Wanted(sources=(source,)), corrected=str(fixed), dry_run=False, config=None, json=False)
    assert asyncio.run(letters.sent("queries")) == [(b"q2", encode_query(Query("q2")))]


def test_what_was_sent_again_is_not_again_unless_it_is_named(letters):
    source = letters.source("verdicts", 0, 7)
    assert letters.replay(topic="verdicts")["sent"] == [source]
    for dry_run in (True, False):
        said = letters.replay(topic="verdicts", dry_run=dry_run)
        assert said == {"sent": [], "answered": [source], "refused": {}}
    ((partition, offset),) = letters.places("verdicts")
    again = letters.reject("verdicts", partition, offset, encode_verdict(VERDICT), Code.WRONG_PARTITION, b"q")
    said = letters.replay(topic="verdicts")
    assert (said["sent"], set(said["answered"])) == ([], {source, again})
    assert len(letters.places("verdicts")) == 1
    assert letters.replay(sources=(source, again))["sent"] == [source, again]
    assert len(letters.places("verdicts")) == 3


def test_settings_are_sent_again_where_they_are_meant_and_once(letters, tmp_path):
    source = letters.reject("queries", 0, 5, encode_query(Query("q1", top=7)), Code.WRONG_PARTITION, b"q1")
    assert "--topic queries" in letters.replay()["refused"][source]
    with pytest.raises(UserError, match="--topic queries"):
        letters.replay(query="q1")
    letters.printed()
    assert letters.places("queries") == []
    assert letters.replay(topic="queries")["sent"] == [source]
    fixed = tmp_path / "fixed.json"
    fixed.write_bytes(encode_query(Query("q")))
    corrected = letters.source("queries", 0, 3)
    assert letters.replay(sources=(corrected,), corrected=str(fixed))["sent"] == [corrected]
    said = letters.replay(topic="queries")
    assert (said["sent"], set(said["answered"])) == ([], {source, corrected})
    assert len(letters.places("queries")) == 2


@pytest.mark.parametrize("code", sorted(dead_letters.LASTING))
def test_what_stays_rejected_is_sent_again_only_where_it_is_named(letters, code, capfdbinary):
    source = letters.reject("verdicts", 0, 8, encode_verdict(VERDICT), code, b"q")
    with pytest.raises(UserError, match="stands for good"):
        letters.replay(code=code.value)
    capfdbinary.readouterr()
    assert letters.places("verdicts") == []
    assert letters.replay(sources=(source,))["sent"] == [source]


def test_what_was_sent_again_is_known_in_the_topics_of_a_repartition(letters, monkeypatch):
    good = encode_verdict(VERDICT)

    async def put(count: int) -> Any:
        async with AIOKafkaProducer(bootstrap_servers=letters.settings.kafka) as producer:
            for _ in range(count):
                at = await producer.send_and_wait(letters.settings.topic("verdicts"), good, key=b"q")
        return at

    async def copy(wider: Settings) -> None:
        repartition = Repartition(letters.settings, wider)
        await kafka_admin.ensure_topics(wider)
        await repartition.run(lambda *_: Silent())

    def as_rejected(value: bytes, key: bytes) -> list[str]:
        return [
            letters.reject("verdicts", *at, value, Code.WRONG_PARTITION, key) for at in letters.places("verdicts")
        ]

    asyncio.run(put(2))
    last = asyncio.run(put(1))
    source = letters.reject("verdicts", last.partition, last.offset, good, Code.WRONG_PARTITION, b"q")
    gone = letters.source("verdicts", 0, 7)
    assert set(letters.replay(topic="verdicts")["sent"]) == {source, gone}
    wider = letters.settings.model_copy(
        update={"topic_prefix": f"{letters.settings.topic_prefix}-3", "partitions": 3}
    )
    asyncio.run(copy(wider))
    monkeypatch.setenv("HAYSTREAM_TOPIC_PREFIX", wider.topic_prefix)
    monkeypatch.setattr(dead_letters, "CLOCKS_MS", 0)
    letters.settings = wider
    first, second, third, *sent_again = as_rejected(good, b"q")
    assert len(sent_again) == 2
    said = letters.replay(topic="verdicts")
    assert (set(said["sent"]), set(said["answered"])) == ({first, second}, {third, *sent_again})


def test_where_of_all_nothing_is_left_that_can_be_sent_all_is_well(letters):
    lasting = letters.reject("verdicts", 0, 8, encode_verdict(VERDICT), Code.VERDICT_CONFLICT, b"q")
    assert len(letters.replay()["sent"]) == 2
    for _ in range(2):
        said = letters.replay()
        assert (said["sent"], len(said["answered"])) == ([], 2)
        assert said["refused"].keys() == {lasting, letters.source("queries", 0, 3), letters.source("items", 0, 9)}


@pytest.mark.parametrize("said", [None, b"", b"\xff", b"haystream"])
def test_a_header_of_ours_that_is_anybodys_hides_no_letter(letters, said):
    async def put() -> None:
        async with AIOKafkaProducer(bootstrap_servers=letters.settings.kafka) as producer:
            headers = [(dead_letters.REPLAYS, said)]
            await producer.send_and_wait(letters.settings.topic("verdicts"), b"{", headers=headers)

    asyncio.run(put())
    assert letters.replay(topic="verdicts")["sent"] == [letters.source("verdicts", 0, 7)]


def test_a_record_as_large_as_an_event_may_be_is_sent_again(letters):
    large = encode_item(ITEM).ljust(1 << 20)

    async def put() -> Any:
        async with AIOKafkaProducer(
            bootstrap_servers=letters.settings.kafka, compression_type="gzip", max_request_size=2 << 20
        ) as producer:
            return await producer.send_and_wait(letters.settings.topic("items"), large, key=b"other")

    at = asyncio.run(put())
    source = letters.reject("items", at.partition, at.offset, large, Code.KEY_MISMATCH, b"other")
    assert letters.replay(sources=(source,))["sent"] == [source]
    assert (b"m1", large) in asyncio.run(letters.sent("items"))


def test_a_broker_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("HAYSTREAM_KAFKA", "127.0.0.1:1")
    with pytest.raises(UserError, match=r"Kafka at 127\.0\.0\.1:1"):
        dead_letters.run_list(Wanted(), limit=1, config=None, json=True)
