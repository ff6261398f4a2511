"""`haystream import`: turns mail archives and tables into items, as an event log or on Kafka."""

import asyncio
import gzip
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO, Any, Literal, cast

import orjson
from rich.markup import escape

from haystream_service.commands.console import notes, progress, shown, write_json
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
from haystream_service.settings import Settings, load
from haystream_service.wire import ItemRecord, as_id, encode_line, encode_record

Kind = Literal["csv", "mbox", "maildir", "eml"]
READERS: dict[Kind, Callable[..., Iterator[Imported]]] = {
    "csv": read_csv,
    "mbox": read_mbox,
    "maildir": read_maildir,
    "eml": read_eml,
}
SHOWN = 10
IN_FLIGHT = 1000
"""Records handed to the producer before the broker's answers are awaited."""


@dataclass(slots=True)
class Tally:
    """What became of what was read."""

    imported: int = 0
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
    if (
        to
        and to != "kafka"
        and Path(to).exists()
        and any(Path(to).samefile(read) for read in (path, aliases) if read)
    ):
        raise UserError(f"--to {to}: that is what is read; it would be lost")
    settings = load(config) if config or to == "kafka" else Settings()
    making = Making(
        collection,
        text=text,
        aliases=read_aliases(aliases) if aliases else Aliases(),
        uri=UriTemplate.parse(uri) if uri else None,
    )
    tally = Tally()
    items = tally.items(READERS[kind](path, making))
    with closing(items):
        # What ends an import before its first item leaves a file as it was.
        begun = chain([first], items) if (first := next(items, None)) else items
        if to == "kafka":
            destination = f"{settings.topic('items')} at {settings.kafka}"
            asyncio.run(_to_kafka(begun, settings))
        else:
            destination = to or "standard output"
            _to_file(begun, Path(to) if to else None)
    if json:
        _write_summary(tally, destination, beside_items=to is None)
    else:
        _print_summary(tally, destination)


def _to_file(items: Iterator[ItemRecord], path: Path | None) -> None:
    with _output(path) as file:
        for item in items:
            file.write(encode_line("items", encode_record(item)))


@contextmanager
def _output(path: Path | None) -> Iterator[IO[bytes]]:
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as file:
            yield cast(IO[bytes], file)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from None


async def _to_kafka(items: Iterator[ItemRecord], settings: Settings) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    from haystream_service.kafka_connection import client_arguments, refusal
    from haystream_service.kafka_producer import RANKING_BYTES

    topic = settings.topic("items")
    # Idempotent: what the producer sends again after a lost answer is still there once, in its order.
    producer = AIOKafkaProducer(
        **client_arguments(settings),
        enable_idempotence=True,
        compression_type="gzip",
        linger_ms=5,
        max_request_size=RANKING_BYTES,  # how large an item may be is for the topic to say
    )
    try:
        try:
            await producer.start()
        except KafkaError as error:
            why = await refusal(settings) or f"no Kafka answers at {settings.kafka} (HAYSTREAM_KAFKA): {error}"
            raise UserError(why) from None
        try:
            if topic not in (await producer.client.fetch_all_metadata()).topics():
                raise UserError(f"Kafka has no topic {topic}; `haystream worker` creates it when it starts")
            in_flight = []
            for item in items:
                in_flight.append(await producer.send(topic, value=encode_record(item), key=item.item_id.encode()))
                if len(in_flight) >= IN_FLIGHT:
                    await asyncio.gather(*in_flight)
                    in_flight.clear()
            await asyncio.gather(*in_flight)
        except KafkaError as error:
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


def _print_summary(tally: Tally, destination: str) -> None:
    notes.print(f"{tally.imported} items to {escape(destination)}")
    if tally.skipped:
        codes = ", ".join(f"{count} {code}" for code, count in tally.skipped.most_common())
        notes.print(f"{tally.skipped.total()} skipped ({codes}), the first of them:")
        for skipped in tally.first:
            notes.print(f"  {escape(shown(skipped.where))}: {escape(shown(skipped.detail))}")
