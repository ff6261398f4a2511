"""JSON as it lies in the store. Facts are in the wire's form, read back without most of the border's checks.

They were checked when they came in, and a cold start reads them by the million. What has another shape than what is
written here is `Unreadable`: somebody else was at it.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from haystream.errors import Code, Rejected
from haystream.events import Action, Item, ItemFact, LeaseFact, Outcome, Query, RecordPlace, Verdict, Withdrawal
from haystream.models.common import Common
from haystream.posterior.rows import Changes
from haystream_service.store.base import Position, Quarantine, Span, Spans
from haystream_service.store.shapes import (
    FIRST_TIME,
    LAST_TIME,
    Unreadable,
    number_in,
    read_number,
    read_object,
    read_text,
    read_time,
    text_in,
)
from haystream_service.wire import decode_stored_query, finite, times, who_is_on

BROKEN = frozenset({Code.MALFORMED_JSON, Code.MISSING_FIELD, Code.WRONG_TYPE, Code.KEY_MISMATCH})
"""Why settings are rejected that no version of ours wrote; for other reasons a later one may have."""
TEXTS = frozenset({str})
NO_OFFSET = -1
"""Of a topic of which nothing was read."""
MOST_PARTITIONS = (1 << 31) - 1
"""Kafka's own bound."""


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
    """What `encode_entry` wrote. Raises `Unreadable`."""
    value = read_object(raw, "an entry")
    known = value.get
    item_id, collection, sender = known("item_id"), known("collection"), known("sender")
    people = known("participants") if sender is None else known("recipients")
    if type(item_id) is not str or type(collection) is not str:
        raise Unreadable("item_id and collection of an entry", "text", (item_id, collection))
    if people is None and sender is None:
        return Withdrawal(item_id, collection)
    if not isinstance(people, list) or not _are_people(people, sender):
        raise Unreadable(f"who is on item {item_id!r}", "a list of people", people)
    if len(value) == (3 if sender is None else 4):  # a cold start reads millions of which no more is known
        return Item(item_id, collection, sender, tuple(people))
    return Item(item_id, collection, sender, tuple(people), *_details(known, item_id))


def _are_people(people: list[Any], sender: object) -> bool:
    """Whether there are enough on an item, and all are ids."""
    if len(people) < (2 if sender is None else 1) or not (sender is None or type(sender) is str):
        return False
    return TEXTS.issuperset(map(type, people))


def _details(known: Callable[..., Any], item_id: str) -> tuple[Any, ...]:
    """What else an entry says of its item. A cold start reads millions of these, too."""
    sent_at, uri, labels, withdrawn = known("sent_at"), known("uri"), known("labels"), known("withdrawn", False)
    if sent_at is not None and type(sent_at) is not int:
        raise _no_detail("sent_at", item_id, sent_at)
    if uri is not None and type(uri) is not str:
        raise _no_detail("uri", item_id, uri)
    if labels and not (type(labels) is list and all(map(_is_label, labels))):
        raise _no_detail("labels", item_id, labels)
    if type(withdrawn) is not bool:
        raise _no_detail("withdrawn", item_id, withdrawn)
    places = _place(known, "subject_at", item_id), _place(known, "text_at", item_id)
    return sent_at, uri, tuple(map(tuple, labels)) if labels else (), *places, withdrawn


def _no_detail(field: str, item_id: str, found: object) -> Unreadable:
    return Unreadable(f"{field} of item {item_id!r}", "something else", found)


def _is_label(label: object) -> bool:
    return type(label) is list and len(label) == 2 and type(label[0]) is type(label[1]) is str


def _place(known: Callable[..., Any], field: str, item_id: str) -> RecordPlace | None:
    place = known(field)
    if place is None:
        return None
    if type(place) is list and len(place) == 3:
        digest, partition, offset = place
        if type(digest) is str and type(partition) is type(offset) is int:
            return RecordPlace(digest, partition, offset)
    raise _no_detail(field, item_id, place)


def read_verdict(raw: bytes) -> Verdict:
    """What `wire.encode_verdict` wrote. Raises `Unreadable`."""
    value = read_object(raw, "a verdict")
    verdict_id, query_id, item_id, analyst = (
        text_in(value, field, "a verdict") for field in ("verdict_id", "query_id", "item_id", "analyst")
    )
    said, decided_at = (text_in(value, field, "a verdict") for field in ("outcome", "decided_at"))
    try:
        outcome, at = Outcome(said), times.to_microseconds(times.parse(decided_at))
    except ValueError:
        raise Unreadable(f"verdict {verdict_id!r}", "an outcome and a time", (said, decided_at)) from None
    return Verdict(verdict_id, query_id, item_id, analyst, outcome, at)


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
        """What happened to it. Raises `Unreadable`."""
        score, mean, level = (_real(number, "a lease") for number in (self.score, self.mean, self.level))
        rank = read_number(self.rank, "the rank of a lease") if self.rank else None
        ids = lease_id, query_id, self.item_id, self.analyst
        until = read_time(self.until, "until when a lease is")
        return LeaseFact(*ids, action, at, until, rank, score, mean, level, self.by)

    def folded_fact(self, query_id: str, lease_id: str) -> LeaseFact | None:
        """All that the query's owner has folded of it, as one fact. Raises `Unreadable`."""
        action = Action.EXPIRED if self.folded == "over" else Action.CLAIMED
        return self.fact(query_id, lease_id, action, self.begun) if self.folded else None

    @property
    def begun(self) -> int:
        """When it began. Raises `Unreadable`."""
        return read_time(self.begin, "when a lease began")


def read_lease(raw: bytes) -> StoredLease:
    """What the scripts wrote. Raises `Unreadable`."""
    lines = read_text(raw, "a lease").split("\n")
    if len(lines) != len(StoredLease._fields) + 1:
        raise Unreadable("a lease", f"{len(StoredLease._fields)} lines", raw)
    return StoredLease(*lines[:-1])


def read_outgoing(query_id: str, raw: bytes) -> LeaseFact:
    """What `tell` in `lease_functions.lua` wrote. Raises `Unreadable`."""
    lines = read_text(raw, "a fact about a lease").split("\n", 3)
    if len(lines) != 4 or lines[0] not in set(Action):
        raise Unreadable("a fact about a lease", "an action, a time, an id and a lease", raw)
    action, at, lease_id, lease = lines
    moment = read_time(at, "when a lease was told of")
    return read_lease(lease.encode()).fact(query_id, lease_id, Action(action), moment)


def _real(text: str, part: str) -> float | None:
    """The number that a line is; None of an empty one."""
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise Unreadable(part, "a number, or nothing,", text)
    return number


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
    """What `encode_shared` wrote. Raises `Unreadable`."""
    value = read_object(raw, "shared")
    common = Common(*(number_in(value, field, "shared") for field in Common._fields))
    return common, number_in(value, "discrepancy", "shared")


def read_settings(query_id: str, raw: bytes | None) -> Query:
    """The settings that `wire.encode_query` wrote.

    Raises:
        Unreadable: nobody of ours wrote that.
        Rejected: this version does not take them.
    """
    try:
        return decode_stored_query(raw, query_id.encode())
    except Rejected as rejected:
        if rejected.code in BROKEN:
            raise Unreadable("settings", "those of the query", str(rejected)) from None
        raise


def read_partition(raw: bytes | None) -> int:
    """The partition that a query's `meta` says. Raises `Unreadable`."""
    return read_number(raw, "partition", most=MOST_PARTITIONS)


class Meta(NamedTuple):
    """What a query's `meta` says of it beside its settings."""

    partition: int
    revision: int
    position: Position
    touched: int
    unfinished: bool


def read_meta(meta: Mapping[bytes, bytes]) -> Meta:
    """What the scripts and versions of ours wrote: the first saved neither `touched` nor `unfinished`, nor
    leases. Raises `Unreadable`.
    """

    def number(field: str, least: int = 0, otherwise: int | None = None) -> int:
        raw = meta.get(field.encode())
        return otherwise if raw is None and otherwise is not None else read_number(raw, field, least=least)

    offsets = number("queries_offset", NO_OFFSET), number("verdicts_offset", NO_OFFSET)
    leases = number("leases_offset", NO_OFFSET, NO_OFFSET)
    position = Position(*offsets, number("cursor"), leases, number("history", NO_OFFSET, 0))
    revision = number("revision")
    touched = number("touched", 0, revision)
    partition = read_partition(meta.get(b"partition"))
    return Meta(partition, revision, position, touched, meta.get(b"unfinished") == b"1")


def encode_span(span: Span | None) -> str:
    """`first last`, or nothing."""
    return f"{span.first} {span.last}" if span else ""


def read_span(raw: bytes | None, part: str) -> Span | None:
    """What `encode_span` wrote. Raises `Unreadable`."""
    if not raw:
        return None
    first, _, last = raw.partition(b" ")
    span = Span(read_number(first, part), read_number(last, part))
    if span.first > span.last:
        raise Unreadable(part, "a first and a last offset", raw)
    return span


def encode_quarantine(why: Quarantine) -> bytes:
    """The quarantine as JSON."""
    return orjson.dumps(why)


def read_quarantine(raw: bytes) -> Quarantine:
    """What `encode_quarantine` wrote. Raises `Unreadable`."""
    value, part = read_object(raw, "quarantine"), "quarantine"
    since = number_in(value, "since", part)
    if not FIRST_TIME <= since * 1e6 <= LAST_TIME:
        raise Unreadable("since of quarantine", "a time", since)
    return Quarantine(text_in(value, "code", part), text_in(value, "detail", part), since)


def read_note(raw: Mapping[bytes, bytes]) -> tuple[Spans, Quarantine | None]:
    """The spans and the quarantine that the fields of a hash make. Raises `Unreadable`."""
    why = raw.get(b"quarantine")
    spans = (read_span(raw.get(field.encode()), field) for field in Spans._fields)
    return Spans(*spans), read_quarantine(why) if why else None
