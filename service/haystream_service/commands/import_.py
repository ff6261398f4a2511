"""`haystream import`: turns mail archives and tables into items, as an event log or on Kafka."""

import asyncio
import gzip
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, cast

import orjson

from haystream_service.console import notes, plain, progress, whole, write_json
from haystream_service.errors import UserError
from haystream_service.importers import (
    Aliases,
    Imported,
    Making,
    Skipped,
    UriTemplate,
    read_aliases,
    read_csv,
    read_eml,
    read_maildir,
    read_mbox,
)
from haystream_service.kafka.records import BrokerUnavailable
from haystream_service.settings import Settings, load
from haystream_service.wire import ItemRecord, as_id, encode_line, encode_record

Kind = Literal["csv", "mbox", "maildir", "eml"]
READERS: dict[Kind, Callable[..., Iterator[Imported]]] = {
    "csv": read_csv,
    "mbox": read_mbox,
    "maildir": read_maildir,
    "eml": read_eml,
}
KAFKA = "kafka"
"""What `to` says in whatever case; a file of that name is ./kafka."""
SHOWN = 10
IN_FLIGHT = 1000
"""Records handed to the producer before the broker's answers are awaited."""


@dataclass(slots=True)
class Tally:
    """What became of what was read."""

    imported: int = 0
    written: int = 0
    """Of the imported, how many are where they were to go."""
    skipped: Counter[str] = field(default_factory=Counter)
    first: list[Skipped] = field(default_factory=list)

    def items(self, results: Iterator[Imported]) -> Generator[ItemRecord, None, None]:
        """The items among the results; everything is counted, under a progress bar."""
        with progress("importing", None) as bar:
            for result in results:
                bar.advance()
                if isinstance(result, Skipped):
                    self.skipped[result.code] += 1
                    if len(self.first) < SHOWN:
                        self.first.append(result)
                else:
                    self.imported += 1
                    yield result


def run(
    kind: Kind,
    path: Path,
    *,
    to: str | None = None,
    collection: str = "default",
    text: bool = False,
    aliases: Path | None = None,
    uri: str | None = None,
    config: Path | None = None,
    json: bool = False,
) -> None:
    """Import and say what was done. Raises `UserError`."""
    if not path.exists():
        raise UserError(f"there is no {path}")
    if as_id(collection.encode(errors="surrogateescape")) is None:
        raise UserError(
            f"--collection {collection!r}: expected 1 to 512 characters, none of them a control character"
        )
    to_kafka = to is not None and to.lower() == KAFKA
    file = Path(to) if to and not to_kafka else None
    if file is not None and file.exists() and any(file.samefile(read) for read in (path, aliases) if read):
        raise UserError(f"--to {to}: that is what is read; it would be lost")
    settings = load(config) if config or to_kafka else Settings()
    making = Making(
        collection,
        text=text,
        aliases=read_aliases(aliases) if aliases else Aliases(),
        uri=UriTemplate.parse(uri) if uri else None,
    )
    tally = Tally()
    items = tally.items(READERS[kind](path, making))
    destination = f"{settings.topic('items')} at {settings.kafka}" if to_kafka else to or "standard output"
    try:
        with closing(items):
            if to_kafka:
                asyncio.run(_to_kafka(items, settings, tally))
            else:
                _to_file(items, file, tally)
    except (UserError, KeyboardInterrupt):
        if tally.imported or tally.skipped:
            notes.print(f"the import broke off: {tally.written} items were written to {plain(destination)}")
            _print_skipped(tally)
        raise
    if json:
        _write_summary(tally, destination, beside_items=to is None)
    else:
        notes.print(f"{tally.imported} items to {plain(destination)}")
        _print_skipped(tally)


def _to_file(items: Iterator[ItemRecord], path: Path | None, tally: Tally) -> None:
    at_once = path is None or (path.exists() and not path.is_file())
    with _output(path) as file:
        for item in items:
            file.write(encode_line("items", encode_record(item)))
            tally.written += at_once
    tally.written = tally.imported


@contextmanager
def _output(path: Path | None) -> Iterator[IO[bytes]]:
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with whole(path) as file:
            if path.suffix.lower() == ".gz":
                with gzip.GzipFile(path.name, "wb", fileobj=file) as packed:
                    yield cast(IO[bytes], packed)
            else:
                yield file
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from None


async def _to_kafka(items: Iterator[ItemRecord], settings: Settings, tally: Tally) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    from haystream_service.kafka.admin import check_topics
    from haystream_service.kafka.connection import client_arguments, refusal
    from haystream_service.kafka.producer import RANKING_BYTES
    from haystream_service.logs import quiet

    topic = settings.topic("items")
    # Idempotent: what the producer sends again after a lost answer is still there once, in its order.
    producer = AIOKafkaProducer(
        **client_arguments(settings),
        enable_idempotence=True,
        compression_type="gzip",
        linger_ms=5,
        max_request_size=RANKING_BYTES,  # how large an item may be is for the topic to say
    )
    in_flight: list[asyncio.Future[object]] = []

    async def acknowledged() -> None:
        """Return when Kafka has answered for all that is in flight. Raises what it refuses one of them with."""
        if in_flight:
            await asyncio.wait(in_flight)  # a gather that Ctrl-C ends would give them up
        refusals = [error for sent in in_flight if (error := sent.exception()) is not None]
        tally.written += len(in_flight) - len(refusals)
        in_flight.clear()
        if refusals:
            raise refusals[0]

    try:
        try:
            with quiet():
                await producer.start()
        except KafkaError as error:
            why = await refusal(settings) or f"no Kafka answers at {settings.kafka} (HAYSTREAM_KAFKA): {error}"
            raise UserError(why) from None
        try:
            await check_topics(settings, "items")
            try:
                for item in items:
                    sent = await producer.send(topic, value=encode_record(item), key=item.item_id.encode())
                    in_flight.append(sent)
                    if len(in_flight) >= IN_FLIGHT:
                        await acknowledged()
            finally:  # what was sent before an import ends early is there, too
                await acknowledged()
        except (KafkaError, BrokerUnavailable) as error:
            raise UserError(f"Kafka at {settings.kafka} did not take the items: {error!r}") from None
    finally:
        await producer.stop()


def _write_summary(tally: Tally, destination: str, *, beside_items: bool) -> None:
    summary: dict[str, Any] = {
        "imported": tally.imported,
        "skipped": {"count": tally.skipped.total(), "by_code": dict(tally.skipped), "first": tally.first},
        "to": destination,
    }
    if beside_items:  # standard output has the items
        print(orjson.dumps(summary).decode(), file=sys.stderr)  # noqa: T201 - one plain line, for programs
    else:
        write_json(summary)


def _print_skipped(tally: Tally) -> None:
    if tally.skipped:
        codes = ", ".join(f"{count} {code}" for code, count in tally.skipped.most_common())
        notes.print(f"{tally.skipped.total()} skipped ({codes}), the first of them:")
        for skipped in tally.first:
            notes.print(f"  {plain(skipped.where)}: {plain(skipped.detail)}")
