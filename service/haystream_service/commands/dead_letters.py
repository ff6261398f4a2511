"""`haystream dead-letters`: what was rejected and why, and sending it again."""

import asyncio
import sys
from codecs import BOM_UTF8
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from haystream.errors import Code, Rejected
from haystream.events import Item, LeaseFact, Query, Verdict, Withdrawal
from haystream_service.console import notes, plain, results, write_json
from haystream_service.errors import UserError
from haystream_service.kafka.records import REPLAYS, SOURCES, BrokerUnavailable, place, replays
from haystream_service.logs import quiet
from haystream_service.settings import Settings, load
from haystream_service.wire import DeadLetter, decode_dead_letter, decode_line, encode_line, times

BYTES_SHOWN = 200
"""Bytes of a payload that a list shows."""
CLOCKS_MS = 60 * 60 * 1000
"""How far the clocks of those who write records and letters and of those who answer them may differ."""
LASTING = {
    Code.ITEM_CONFLICT,
    Code.VERDICT_CONFLICT,
    Code.LEASE_CONFLICT,
    Code.QUERY_DELETED,
    Code.COLLECTION_DELETED,
    Code.COLLECTION_CHANGED,
    Code.SCOPE_CHANGED,
}
"""What a record is rejected with that will be again, for what stands for good."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter as it lies in its topic."""

    letter: DeadLetter
    payload: bytes
    key: bytes | None
    timestamp: int
    """Milliseconds since the epoch."""

    @property
    def source(self) -> str:
        """Where the record lies: `topic/partition/offset`."""
        source = self.letter.source
        return place(source.topic, source.partition, source.offset)

    @property
    def complete(self) -> bool:
        """Whether the letter holds the whole payload."""
        return len(self.payload) == self.letter.payload_bytes

    def as_json(self) -> dict[str, Any]:
        """For --json."""
        return {
            "source": self.source,
            "at": times.to_text(self.timestamp * 1000),
            "code": self.letter.error.code,
            "detail": self.letter.error.detail,
            "key": None if self.key is None else self.key.decode(errors="replace"),
            "payload": self.payload.decode(errors="replace"),
            "payload_bytes": self.letter.payload_bytes,
        }


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which letters are asked for; None stands for all."""

    sources: tuple[str, ...] | None = None
    code: str | None = None
    topic: str | None = None
    """A source topic, without the prefix."""
    query: str | None = None
    """The key of records of queries and verdicts."""

    def has(self, letter: Letter, settings: Settings) -> bool:
        """Whether the letter is one of them."""
        return (
            (self.sources is None or letter.source in self.sources)
            and self.code in {None, letter.letter.error.code}
            and (self.topic is None or letter.letter.source.topic == settings.topic(self.topic))
            and (self.query is None or (letter.key == self.query.encode() and _is_of_a_query(letter, settings)))
        )


class ReplayedLetters(NamedTuple):
    """What became of the letters whose records were to be sent again."""

    sent: list[str]
    answered: list[str]
    """Those that a replay has sent before."""
    refused: dict[str, str]
    """Those that were not sent, with the reason."""


def run_list(wanted: Wanted, *, limit: int, config: Path | None, json: bool) -> None:
    """Print the newest letters, the oldest of them first. Raises `UserError`."""
    found = _answer(config, lambda settings: _letters(settings, wanted))
    last = found[-limit:]
    if json:
        write_json({"count": len(found), "letters": [letter.as_json() for letter in last]})
        return

    out = results()
    for letter in last:
        said = letter.as_json()
        payload = said["payload"] if len(said["payload"]) <= BYTES_SHOWN else said["payload"][:BYTES_SHOWN] + "…"
        detail = plain(said["detail"])
        out.print(f"[bold]{plain(letter.source)}[/] {said['at']} {said['code']}: {detail}")
        out.print(f"  {plain(payload)}")
    left = f", the last {len(last)} of them shown" if len(last) < len(found) else ""
    notes.print(f"{len(found)} dead letters{left}")


def run_show(source: str, *, payload: bool, config: Path | None, json: bool) -> None:
    """Print one letter, or the record itself, byte for byte. Raises `UserError`."""
    letter = _answer(config, lambda settings: _one(settings, source))
    if payload:
        if not letter.complete:
            notes.print(f"only the first {len(letter.payload)} of {letter.letter.payload_bytes} bytes were kept")
        sys.stdout.buffer.write(letter.payload)
        sys.stdout.buffer.flush()
    elif json:
        write_json(letter.as_json())
    else:
        out = results()
        for name, value in letter.as_json().items():
            out.print(f"[bold]{name}[/]: {plain(str(value))}")


def run_replay(wanted: Wanted, *, corrected: str | None, dry_run: bool, config: Path | None, json: bool) -> None:
    """Send letters' records again, or one corrected record in place of the letter's. Raises `UserError`.

    `corrected` names a file; `-` is standard input. What would be rejected again is not sent, nor, unless it is
    named, what a replay has sent before. Where some are asked for, and none can be sent, that is an error.
    """
    value = None if corrected is None else _read(corrected)
    if value is not None and (wanted.sources is None or len(wanted.sources) != 1):
        raise UserError("a corrected record stands for one letter: name its source, and no other")
    replayed = _answer(config, lambda settings: _replay(settings, wanted, value, dry_run=dry_run))
    sent, answered, refused = replayed
    if json:
        write_json(replayed._asdict())
    else:
        notes.print(f"{len(sent)} records " + ("would be sent again" if dry_run else "sent again"))
        if answered:
            notes.print(f"{len(answered)} left out that a replay has sent before; name them to send them once more")
        for source, why in refused.items():
            notes.print(f"  {plain(source)} not: {plain(why)}")
    if not sent and refused and wanted != Wanted():  # of all of them, nothing is left that can be sent
        raise UserError("nothing was sent: " + next(iter(refused.values())))


def _answer(config: Path | None, ask: Callable[[Settings], Awaitable[T]]) -> T:
    settings = load(config)

    async def asked() -> T:
        return await ask(settings)

    try:
        with quiet():
            return asyncio.run(asked())
    except BrokerUnavailable as error:
        raise UserError(str(error)) from None


async def _letters(settings: Settings, wanted: Wanted) -> list[Letter]:
    """The letters asked for, in the order of their coming; of several about one record, the last."""
    from haystream_service.kafka.admin import check_topics
    from haystream_service.kafka.stretches import whole

    found: dict[str, Letter] = {}
    if wanted.code not in {None, *Code}:
        raise UserError(f"there is no code {wanted.code!r}; there are {', '.join(sorted(Code))}")
    await check_topics(settings, "dead-letters")
    async with aclosing(whole(settings, "dead-letters")) as records:
        async for record in records:
            try:
                letter = Letter(*decode_dead_letter(record.value), record.key, record.timestamp)
            except Rejected:
                continue  # none of ours
            if wanted.has(letter, settings):
                found.pop(letter.source, None)
                found[letter.source] = letter
    missing = set(wanted.sources or ()) - found.keys()
    if missing:
        raise UserError(f"there is no dead letter of {', '.join(sorted(missing))}; `haystream dead-letters list`")
    return sorted(found.values(), key=lambda letter: letter.timestamp)


async def _one(settings: Settings, source: str) -> Letter:
    (letter,) = await _letters(settings, Wanted(sources=(source,)))
    return letter


async def _replay(settings: Settings, wanted: Wanted, value: bytes | None, *, dry_run: bool) -> ReplayedLetters:
    """What was sent again, or would be, and what was not."""
    ready: list[tuple[str, str, bytes | None, bytes]] = []
    refused: dict[str, str] = {}
    letters = await _letters(settings, wanted)
    known = set[str]() if wanted.sources else await _replays(settings, letters)
    answered = [letter.source for letter in letters if letter.source in known]
    for letter in letters:
        if letter.source in known:
            continue
        try:
            if not wanted.sources:
                _check_unnamed(settings, wanted, letter)
            payload = value if value is not None else await _whole_payload(settings, letter)
            topic = letter.letter.source.topic
            ready.append((letter.source, topic, _check(settings, topic, payload, letter.key), payload))
        except Rejected as error:
            refused[letter.source] = f"it would be rejected again, as {error}"
        except LookupError as error:
            refused[letter.source] = str(error.args[0])
    if not dry_run:
        await _send(settings, ready)
    return ReplayedLetters([source for source, *_ in ready], answered, refused)


async def _replays(settings: Settings, letters: Sequence[Letter]) -> set[str]:
    """The sources of letters that a replay has answered, and where the records lie that it has sent."""
    from haystream_service.kafka.stretches import since

    found: set[str] = set()
    topics = {letter.letter.source.topic for letter in letters}
    for name in (name for name in SOURCES.values() if settings.topic(name) in topics):
        earliest = await _earliest(settings, name, letters)
        async with aclosing(since(settings, name, earliest)) as records:
            async for record in records:
                if answers := replays(record.headers):
                    found |= {*answers, place(record.topic, record.partition, record.offset)}
    return found


async def _earliest(settings: Settings, name: str, letters: Sequence[Letter]) -> int:
    """Since when a topic may have replays of its letters, in milliseconds since the epoch.

    Of what is read again, or was copied (`haystream repartition`), the letter may be later than its replay, but not
    the record.
    """
    from aiokafka import TopicPartition

    from haystream_service.kafka import admin
    from haystream_service.kafka.stretches import stretch

    ours = [letter for letter in letters if letter.letter.source.topic == settings.topic(name)]
    firsts: dict[int, int] = {}
    for source in (letter.letter.source for letter in ours):
        firsts[source.partition] = min(source.offset, firsts.get(source.partition, source.offset))
    if firsts.keys() - set(await admin.partitions_of(settings, name)):
        return 0
    spans = {TopicPartition(settings.topic(name), p): (first, first + 1) for p, first in firsts.items()}
    async with aclosing(stretch(settings, spans)) as records:
        times: list[int] = [
            record.timestamp async for record in records if record.offset == firsts[record.partition]
        ]
    if len(times) < len(firsts):  # a record is gone, and nobody knows when it came
        return 0
    return max(0, min(*times, *(letter.timestamp for letter in ours)) - CLOCKS_MS)


def _check_unnamed(settings: Settings, wanted: Wanted, letter: Letter) -> None:
    """Raise `LookupError` for what is sent again only where somebody means it."""
    code = letter.letter.error.code
    if code in LASTING:
        raise LookupError(f"{code} stands for good, and it would be rejected again")
    if letter.letter.source.topic == settings.topic("queries") and wanted.topic != "queries":
        raise LookupError("settings would hold as the latest of their query: name it, or all with --topic queries")


async def _whole_payload(settings: Settings, letter: Letter) -> bytes:
    if letter.complete:
        return letter.payload
    from haystream_service.kafka.stretches import record_at

    source = letter.letter.source
    record = await record_at(settings, source.topic, source.partition, source.offset)
    if record is None or record.value is None or len(record.value) != letter.letter.payload_bytes:
        raise LookupError("its letter holds only a part of it, and it is gone from its topic")
    return bytes(record.value)


def _check(settings: Settings, topic: str, payload: bytes, key: bytes | None) -> bytes | None:
    """The key to send the record with: the id that the value names. Raises `Rejected` where it is no event."""
    name = topic.removeprefix(settings.topic(""))
    if name not in SOURCES.values():
        raise LookupError(f"{topic} is none of the topics that this command sends to")
    match decode_line(encode_line(name, payload)):
        case Item(item_id=item_id) | Withdrawal(item_id=item_id):
            return None if key is None else item_id.encode()
        case Query(query_id=query_id) | Verdict(query_id=query_id) | LeaseFact(query_id=query_id):
            return query_id.encode()


async def _send(settings: Settings, records: Iterable[tuple[str, str, bytes | None, bytes]]) -> None:
    from aiokafka import AIOKafkaProducer

    from haystream_service.kafka.connection import client_arguments, running
    from haystream_service.kafka.producer import RANKING_BYTES

    producer = AIOKafkaProducer(
        **client_arguments(settings),
        enable_idempotence=True,
        compression_type="gzip",  # so that with its header a record still fits that was packed as it came
        max_request_size=RANKING_BYTES,
    )
    async with running(producer, f"Kafka at {settings.kafka} did not take the records"):
        sent = [
            await producer.send(topic, value, key=key, headers=[(REPLAYS, source.encode())])
            for source, topic, key, value in records
        ]
        await asyncio.gather(*sent)


def _is_of_a_query(letter: Letter, settings: Settings) -> bool:
    return letter.letter.source.topic in {settings.topic(name) for name in ("queries", "verdicts", "leases")}


def _read(path: str) -> bytes:
    try:
        whole = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    return whole.removeprefix(BOM_UTF8)
