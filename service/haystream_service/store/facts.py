"""JSON as it lies in the store. Facts are in the wire's form, read back without the border's checks.

They were checked when they came in, and a cold start reads them by the million.
"""

from collections.abc import Iterable, Mapping

import orjson

from haystream.events import Item, Outcome, Verdict
from haystream.models.common import Common
from haystream.posterior_tables import Changes
from haystream_service.store.base import Note, Position, Quarantine, Span
from haystream_service.wire import finite, times


def read_item(raw: bytes) -> Item:
    """What `wire.encode_item` wrote."""
    value = orjson.loads(raw)
    sender = value.get("sender")
    people = value["participants"] if sender is None else value["recipients"]
    return Item(value["item_id"], value["collection"], sender, tuple(people))


def read_verdict(raw: bytes) -> Verdict:
    """What `wire.encode_verdict` wrote."""
    value = orjson.loads(raw)
    return Verdict(
        verdict_id=value["verdict_id"],
        query_id=value["query_id"],
        item_id=value["item_id"],
        analyst=value["analyst"],
        outcome=Outcome(value["outcome"]),
        decided_at=times.to_microseconds(times.parse(value["decided_at"])),
    )


def encode_shared(tables: Changes) -> bytes:
    """What all rows of the tables are read with. Raises ValueError where a number is not finite."""
    return finite.dumps({**tables.common._asdict(), "discrepancy": tables.discrepancy})


def read_shared(raw: bytes) -> tuple[Common, float]:
    """What `encode_shared` wrote."""
    value = orjson.loads(raw)
    discrepancy = value.pop("discrepancy")
    return Common(**value), discrepancy


def read_meta(meta: Mapping[bytes, bytes]) -> tuple[int, int, Position, int]:
    """A query's partition, revision, position and `touched`, which earlier versions did not save."""
    position = Position(*(int(meta[field]) for field in (b"queries_offset", b"verdicts_offset", b"cursor")))
    revision = int(meta[b"revision"])
    return int(meta[b"partition"]), revision, position, int(meta.get(b"touched", revision))


def encode_span(span: Span | None) -> str:
    """`first last`, or nothing."""
    return f"{span.first} {span.last}" if span else ""


def read_span(raw: bytes | None) -> Span | None:
    """What `encode_span` wrote."""
    return Span(*map(int, raw.split())) if raw else None


def encode_quarantine(why: Quarantine) -> bytes:
    """The quarantine as JSON."""
    return orjson.dumps(why)


def read_note(attempts: Iterable[bytes], raw: Mapping[bytes, bytes]) -> Note:
    """The note that a set and the fields of a hash make."""
    why = raw.get(b"quarantine")
    return Note(
        frozenset(attempt.decode() for attempt in attempts),
        read_span(raw.get(b"queries")),
        read_span(raw.get(b"verdicts")),
        Quarantine(**orjson.loads(why)) if why else None,
    )
