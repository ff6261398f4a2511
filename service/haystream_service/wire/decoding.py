"""From the wire's bytes to the core's events."""

import base64
from collections.abc import Mapping, Sized
from dataclasses import replace
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from haystream.errors import Code, Rejected
from haystream.events import (
    MOST_LABELS,
    NO_OVERRIDES,
    TABLE_1,
    TABLE_2,
    Conditional,
    Item,
    ItemFact,
    LeaseFact,
    Policy,
    Prior,
    Query,
    RecordPlace,
    Verdict,
    Withdrawal,
)
from haystream.models.ranges import check_ranges
from haystream.models.settings import MODEL_SETTINGS
from haystream.scope import Scope, scope
from haystream_service.wire import limits, times
from haystream_service.wire.labels import labels_of
from haystream_service.wire.reading import read, rejection, short
from haystream_service.wire.records import (
    PEOPLE,
    ConditionalRecord,
    DeadLetter,
    ItemRecord,
    LeaseRecord,
    NextItems,
    PolicyRecord,
    PriorRecord,
    QueryRecord,
    ScopeRecord,
    VerdictRecord,
)

NOT_NUMBERS = ("conditional", "covariance")
"""Models' settings that are said in another way, or not at all."""

Offset = tuple[int, int]
"""A partition of a topic, and a place in it."""

TABLES = {"table-1": TABLE_1, "table-2": TABLE_2}


def decode_query(value: bytes | None, key: bytes | None) -> Query:
    """A query's settings. The key must be its query_id. Raises `Rejected`."""
    return _in_range(decode_stored_query(value, key))


def decode_stored_query(value: bytes | None, key: bytes | None) -> Query:
    """Settings that were taken once, whatever ranges there were then. Raises `Rejected`."""
    _check_key_size(key)
    record = read(QueryRecord, value, limit=limits.MESSAGE_BYTES)
    _check_key(key, "query_id", record.query_id)
    return _query(record)


def decode_item(value: bytes | None, key: bytes | None, *, at: Offset | None = None) -> ItemFact:
    """An item, or that it is withdrawn. The key, where there is one, must be its item_id. Raises `Rejected`.

    `at` is where the record lies: without it, the item does not know where its subject and text are.
    """
    _check_key_size(key)
    record = read(ItemRecord, value, limit=limits.MESSAGE_BYTES)
    if key is not None:
        _check_key(key, "item_id", record.item_id)
    return to_item_fact(record, at=at)


def decode_verdict(value: bytes | None, key: bytes | None) -> Verdict:
    """A verdict. The key must be its query_id. Raises `Rejected`."""
    _check_key_size(key)
    record = read(VerdictRecord, value, limit=limits.MESSAGE_BYTES)
    _check_key(key, "query_id", record.query_id)
    return to_verdict(record)


def decode_lease(value: bytes | None, key: bytes | None) -> LeaseFact:
    """What happened to a lease. The key must be its query_id. Raises `Rejected`."""
    _check_key_size(key)
    record = read(LeaseRecord, value, limit=limits.MESSAGE_BYTES)
    _check_key(key, "query_id", record.query_id)
    return to_lease(record)


def decode_ranking(value: bytes | None) -> NextItems:
    """A value of next-items, for those who consume it. Raises `Rejected`."""
    return read(NextItems, value, limit=_OUR_OWN)


def decode_dead_letter(value: bytes | None) -> tuple[DeadLetter, bytes]:
    """A dead letter and the payload it holds. Raises `Rejected`."""
    record = read(DeadLetter, value, limit=_OUR_OWN)
    try:
        return record, base64.b64decode(record.payload_base64, validate=True)
    except ValueError:
        raise Rejected(Code.INVALID_VALUE, "payload_base64: should be base64") from None


def item_record(fields: Mapping[str, Any]) -> ItemRecord:
    """A record from Python values (lists as tuples) that is sure to decode to an item. Raises `Rejected`."""
    try:
        record = ItemRecord.model_validate(fields)
    except ValidationError as error:
        raise rejection(error) from None
    to_item(record)
    return record


def to_query(record: QueryRecord) -> Query:
    """The settings as the core knows them. Raises `Rejected`."""
    return _in_range(_query(record))


def to_verdict(record: VerdictRecord) -> Verdict:
    """The verdict as the core knows it. Raises `Rejected`."""
    return Verdict(
        verdict_id=record.verdict_id,
        query_id=record.query_id,
        item_id=record.item_id,
        analyst=record.analyst,
        outcome=record.outcome,
        decided_at=_moment("decided_at", record.decided_at),
    )


def to_lease(record: LeaseRecord) -> LeaseFact:
    """What happened to a lease, as the core knows it. Raises `Rejected`."""
    at, until = _moment("at", record.at), _moment("until", record.until)
    return LeaseFact(**record.model_dump(exclude={"at", "until"}), at=at, until=until)


def to_item_fact(record: ItemRecord, *, at: Offset | None = None) -> ItemFact:
    """What the record says, as the core knows it: the item, or only that it is withdrawn. Raises `Rejected`."""
    if record.withdrawn and all(getattr(record, name) is None for name in PEOPLE):
        return Withdrawal(record.item_id, record.collection)
    return to_item(record, at=at)


def to_item(record: ItemRecord, *, at: Offset | None = None) -> Item:
    """The item as the core knows it: people distinct and sorted, the sender not among the recipients.

    Raises `Rejected`; MISSING_FIELD also of a withdrawal that names nobody.
    """
    sent_at = _sent_at(record.sent_at)
    sender, people = record.sender, record.participants
    if people is None:
        if sender is None:
            raise Rejected(Code.MISSING_FIELD, "sender: needed with recipients; or give participants")
        people = record.recipients
        if people is None:
            raise Rejected(Code.MISSING_FIELD, "recipients: needed with a sender; or give participants")
        _check_size("recipients", people, limits.RECIPIENTS)
        others = {*people} - {sender}
        enough = len(others) >= 1
    else:
        if sender is not None or record.recipients is not None:
            raise Rejected(Code.INVALID_VALUE, "participants: give these, or sender and recipients, not both")
        _check_size("participants", people, limits.PARTICIPANTS)
        others = {*people}
        enough = len(others) >= 2
    if not enough:
        raise Rejected(Code.TOO_FEW_PARTICIPANTS, "an item needs at least two distinct participants")
    return Item(
        record.item_id,
        record.collection,
        sender,
        tuple(sorted(others)),
        sent_at=sent_at,
        uri=record.uri or None,
        labels=labels_of(record.labels),
        subject_at=_place(record.subject, at),
        text_at=_place(record.text, at),
        withdrawn=record.withdrawn,
    )


_OUR_OWN = 1 << 30
"""No bound worth the name: what we publish ourselves, read back."""


def _check_key_size(key: bytes | None) -> None:
    if key is not None and len(key) > limits.KEY_BYTES:
        raise Rejected(Code.TOO_LARGE, f"the key has {len(key)} bytes, at most {limits.KEY_BYTES} are taken")


def _check_key(key: bytes | None, name: str, value: str) -> None:
    if key is None:
        raise Rejected(Code.KEY_MISMATCH, f"the record has no key; it should be its {name}, {short(value)}")
    if key != value.encode():
        raise Rejected(Code.KEY_MISMATCH, f"the key {short(key)} is not the {name}, {short(value)}")


def _check_size(name: str, entries: Sized, limit: int) -> None:
    if len(entries) > limit:
        raise Rejected(Code.TOO_LARGE, f"{name}: has {len(entries)} entries, at most {limit} are taken")


def _sent_at(text: str | None) -> int | None:
    """Microseconds since the epoch; mail has dates of any year."""
    if not text:
        return None
    try:
        moment = times.parse(text)
    except ValueError:
        raise Rejected(Code.INVALID_VALUE, f"sent_at: should be ISO 8601, got {short(text)}") from None
    if not times.has_year(moment):
        raise Rejected(Code.OUT_OF_RANGE, f"sent_at: should lie in the years 1 to 9999, got {short(text)}")
    return times.to_microseconds(moment)


def _place(content: str | None, at: Offset | None) -> RecordPlace | None:
    if not content or at is None:
        return None
    return RecordPlace(content_digest(content), *at)


def content_digest(content: str) -> str:
    """What a subject or a text is known by, 32 hexadecimal digits."""
    return blake2b(content.encode(), digest_size=16).hexdigest()


def _moment(name: str, text: str) -> int:
    """Microseconds since the epoch."""
    try:
        moment = times.parse(text)
    except ValueError:
        raise Rejected(
            Code.INVALID_VALUE, f"{name}: should be ISO 8601, like 2026-01-31T12:00:00Z, got {short(text)}"
        ) from None
    if not times.in_range(moment):
        raise Rejected(Code.OUT_OF_RANGE, f"{name}: should lie in 1970 to 2099, got {short(text)}")
    return times.to_microseconds(moment)


def _in_range(query: Query) -> Query:
    check_ranges(query.prior, MODEL_SETTINGS[query.prior.model].ranges)
    return query


def _query(record: QueryRecord) -> Query:
    return Query(
        query_id=record.query_id,
        collection=record.collection,
        prior=_prior(record.prior),
        policy=_policy(record.policy),
        engine=record.engine,
        top=record.top,
        status=record.status,
        scope=_scope(record.scope),
    )


def _scope(record: ScopeRecord | None) -> Scope | None:
    if record is None:
        return None
    for name, people in (("with", record.anybody), ("without", record.nobody)):
        _check_size(f"scope.{name}", people, limits.SCOPE_LIST)
    _check_size("scope.labels", record.labels, MOST_LABELS)
    sent = record.sent or (None, None)
    since, before = (None if text is None else _moment(f"scope.sent[{n}]", text) for n, text in enumerate(sent))
    if since is not None and before is not None and since >= before:
        raise Rejected(Code.INVALID_VALUE, "scope.sent: nothing can be sent then: the first time should be earlier")
    labels = labels_of(record.labels)
    return scope(since=since, before=before, anybody=record.anybody, nobody=record.nobody, labels=labels)


def _prior(record: PriorRecord) -> Prior:
    model = MODEL_SETTINGS[record.model]
    if "conditional" in record.model_fields_set and "conditional" not in model.own_fields:
        raise Rejected(Code.UNSUPPORTED, f"prior.conditional: is no setting of the model {record.model}")
    _check_size("prior.participants", record.participants, limits.WATCH_LIST)
    numbers = ("mean", "correlation", *(name for name in model.own_fields if name not in NOT_NUMBERS))
    given = {name: getattr(record, name) for name in numbers if getattr(record, name) is not None}
    return replace(
        model.defaults,
        **given,
        conditional=_conditional(record.conditional),
        participants=MappingProxyType(record.participants) if record.participants else NO_OVERRIDES,
    )


def _conditional(given: str | ConditionalRecord) -> Conditional:
    if isinstance(given, str):
        return TABLES[given]
    betas = (given.z00, given.z01, given.z10, given.z11)
    a0, a1, a2, a3 = (a for a, _ in betas)
    b0, b1, b2, b3 = (b for _, b in betas)
    return Conditional(a=(a0, a1, a2, a3), b=(b0, b1, b2, b3))


def _policy(record: PolicyRecord) -> Policy:
    return Policy(name=record.name, epsilon=record.epsilon, seed=record.seed, horizon=record.horizon)
