"""JSON as it lies in the store. Facts are in the wire's form, read back without the border's checks.

They were checked when they came in, and a cold start reads them by the million.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import orjson

from haystream.events import Action, Item, ItemFact, LeaseFact, Outcome, RecordPlace, Verdict, Withdrawal
from haystream.models.common import Common
from haystream.posterior.tables import Changes
from haystream_service.store.base import Note, Position, Quarantine, Span, Spans
from haystream_service.wire import finite, times, who_is_on


def encode_entry(fact: ItemFact) -> bytes:
    """An entry of a collection's log: who is on the item as in the wire's form, and what else is known."""
    value = who_is_on(fact)
    if isinstance(fact, Withdrawal):
        return orjson.dumps(value)
    details = {
        "sent_at": fact.sent_at,
        "uri": fact.uri,
        "labels": fact.labels or None,
        "subject_at": fact.subject_at and tuple(fact.subject_at),
        "text_at": fact.text_at and tuple(fact.text_at),
        "withdrawn": fact.withdrawn or None,
    }
    value |= {name: detail for name, detail in details.items() if detail is not None}
    return orjson.dumps(value)


def read_entry(raw: bytes) -> ItemFact:
    """What `encode_entry` wrote."""
    value = orjson.loads(raw)
    known = value.get
    item_id, collection, sender = value["item_id"], value["collection"], known("sender")
    people = known("participants") if sender is None else value["recipients"]
    if people is None:
        return Withdrawal(item_id, collection)
    if len(value) == (3 if sender is None else 4):  # a cold start reads millions of which no more is known
        return Item(item_id, collection, sender, tuple(people))
    labels, subject_at, text_at = known("labels"), known("subject_at"), known("text_at")
    return Item(
        item_id,
        collection,
        sender,
        tuple(people),
        known("sent_at"),
        known("uri"),
        tuple(map(tuple, labels)) if labels else (),
        subject_at and RecordPlace._make(subject_at),
        text_at and RecordPlace._make(text_at),
        known("withdrawn", False),
    )


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


def read_verdicts_on(raws: Iterable[bytes], item_id: str) -> list[Verdict]:
    """Those of what `wire.encode_verdict` wrote that are on the item; most of the others are not even decoded."""
    name = orjson.dumps(item_id)
    return [v for raw in raws if name in raw and (v := read_verdict(raw)).item_id == item_id]


class StoredLease(NamedTuple):
    """A lease as `lease_functions.lua` has it, line by line; empty where nobody said."""

    now: str
    folded: str
    begin: str
    until: str
    item_id: str
    analyst: str
    rank: str
    score: str
    mean: str
    level: str
    by: str

    def encoded(self) -> str:
        """So many lines."""
        return "".join(f"{line}\n" for line in self)

    def fact(self, query_id: str, lease_id: str, action: Action, at: int) -> LeaseFact:
        """What happened to it."""
        score, mean, level = (float(number) if number else None for number in (self.score, self.mean, self.level))
        rank = int(self.rank) if self.rank else None
        ids = lease_id, query_id, self.item_id, self.analyst
        return LeaseFact(*ids, action, at, int(self.until), rank, score, mean, level, self.by)

    def folded_fact(self, query_id: str, lease_id: str) -> LeaseFact | None:
        """All that the query's owner has folded of it, as one fact."""
        action = Action.EXPIRED if self.folded == "over" else Action.CLAIMED
        return self.fact(query_id, lease_id, action, int(self.begin)) if self.folded else None


def read_lease(raw: bytes) -> StoredLease:
    """What the scripts wrote."""
    return StoredLease(*raw.decode().split("\n")[:-1])


def read_outgoing(query_id: str, raw: bytes) -> LeaseFact:
    """What `tell` in `lease_functions.lua` wrote."""
    action, at, lease_id, lease = raw.decode().split("\n", 3)
    return read_lease(lease.encode()).fact(query_id, lease_id, Action(action), int(at))


def encode_fact(fact: LeaseFact) -> tuple[str, str, str]:
    """The lease's id, '1' where it is over, and the lease, for `merge_lease` in `lease_functions.lua`."""
    rank, score, mean, level = (
        "" if value is None else repr(value) for value in (fact.rank, fact.score, fact.mean, fact.level)
    )
    at, until = str(fact.at), str(fact.until)
    lease = StoredLease("", "", at, until, fact.item_id, fact.analyst, rank, score, mean, level, fact.by)
    return fact.lease_id, "1" if fact.action.ends else "", lease.encoded()


def encode_shared(tables: Changes) -> bytes:
    """What all rows of the tables are read with. Raises ValueError where a number is not finite."""
    return finite.dumps({**tables.common._asdict(), "discrepancy": tables.discrepancy})


def read_shared(raw: bytes) -> tuple[Common, float]:
    """What `encode_shared` wrote."""
    value = orjson.loads(raw)
    discrepancy = value.pop("discrepancy")
    return Common(**value), discrepancy


def read_meta(meta: Mapping[bytes, bytes]) -> tuple[int, int, Position, int, bool]:
    """A query's partition, revision, position, `touched` and `unfinished`. Earlier versions saved neither
    of these two, nor leases."""
    queries, verdicts, cursor = (int(meta[field]) for field in (b"queries_offset", b"verdicts_offset", b"cursor"))
    history = int(meta.get(b"history", 0))
    position = Position(queries, verdicts, cursor, int(meta.get(b"leases_offset", -1)), history)
    revision = int(meta[b"revision"])
    touched = int(meta.get(b"touched", revision))
    return int(meta[b"partition"]), revision, position, touched, meta.get(b"unfinished") == b"1"


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
        Spans(*(read_span(raw.get(field.encode())) for field in Spans._fields)),
        Quarantine(**orjson.loads(why)) if why else None,
    )
