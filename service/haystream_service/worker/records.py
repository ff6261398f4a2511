"""What passes between the worker and whatever carries its messages: Kafka, or the in-memory transport."""

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from haystream_service.store.base import Span
from haystream_service.store.claims import Outgoing


class Kind(StrEnum):
    """What a record is about; also the `kind` label of the metrics."""

    QUERY = "query"
    ITEM = "item"
    VERDICT = "verdict"
    LEASE = "lease"


SOURCES: Mapping[Kind, str] = {
    Kind.QUERY: "queries",
    Kind.ITEM: "items",
    Kind.VERDICT: "verdicts",
    Kind.LEASE: "leases",
}
"""The topic that brings each kind of record, without the prefix that real topics have."""


OWNED = (Kind.QUERY, Kind.VERDICT, Kind.LEASE)
"""What is keyed by query: partition n of each belongs to the owner of its queries."""


NOTHING = -1
"""Noted of a partition of which nothing is."""


def partition_name(kind: Kind, partition: int) -> str:
    """What the store calls a partition of a topic."""
    return f"{kind}/{partition}"


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """A message as it was read, and the way to acknowledge it.

    `timestamp` is in seconds since the epoch. `ack` may be called in any order, and more than once: the
    transport commits an offset only when everything before it is acknowledged too.
    `restates` is of settings that the worker wrote once more (`Publisher.restate_settings`): the offset after which
    they still held.
    """

    kind: Kind
    topic: str
    partition: int
    offset: int
    timestamp: float
    key: bytes | None
    value: bytes | None
    ack: Callable[[], None]
    restates: int | None = None


class BrokerUnavailable(Exception):  # noqa: N818 - it says what is the matter, like StoreUnavailable
    """The broker did not acknowledge: try again. The message may have been written all the same."""


class BrokerRefused(BrokerUnavailable):
    """The broker does not let us in: a password, a certificate or a permission. Somebody has to mend it."""


class Publisher(Protocol):
    """Where results go. All methods return after the broker's acknowledgement, or raise `BrokerUnavailable`."""

    async def publish_ranking(self, query_id: str, value: bytes) -> None:
        """Write to next-items, keyed by the query."""
        ...

    async def withdraw_ranking(self, query_id: str) -> None:
        """Write a record without a value to next-items, keyed by the query: there is no ranking any more."""
        ...

    async def publish_dead_letter(self, key: bytes | None, value: bytes) -> None:
        """Write to dead-letters, keyed as the rejected record was."""
        ...

    async def publish_leases(self, records: Sequence[Outgoing]) -> None:
        """Write to leases what is all of one query, to its partition."""
        ...

    async def restate_settings(self, query_id: str, partition: int, value: bytes, restates: int) -> None:
        """Write to that partition of queries the settings that hold there, in spite of a record at an offset."""
        ...


Offsets = tuple[int, int, int]
"""One of each topic in `OWNED`."""
Ends = Callable[[Collection[int]], Awaitable[Mapping[int, Offsets]]]
"""By partition, the offsets that its next records will get. May raise `BrokerUnavailable`."""
Again = Callable[[Kind, int, bytes, Span], Awaitable[list[Record]]]
"""The records of a kind, a partition and a key between two offsets, read once more, as far as they still are there.
To acknowledge them does nothing. May raise `BrokerUnavailable`."""
CaughtUp = Callable[[int], Awaitable[None]]
"""Returns when a partition of the queries topic was read (handed to `Worker.on_record`) as far as it goes now."""
RESTATES = "haystream-restates"
"""The header of a record that bears `Record.restates`, in decimal."""
REPLAYS = "haystream-replays"
"""The header of what `haystream dead-letters replay` has sent: the `place` of the record that it stands for."""


_OFFSET = re.compile(rb"[0-9]{1,19}")


def place(topic: str, partition: int, offset: int) -> str:
    """Where a record lies. No two records share it."""
    return f"{topic}/{partition}/{offset}"


def replays(headers: Iterable[tuple[str, bytes | None]] | None) -> set[str]:
    """What a record's headers, which anybody may write, say of the places of those that it stands for."""
    return {said.decode(errors="replace") for name, said in headers or () if name == REPLAYS and said}


def restates(headers: Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]] | None) -> int | None:
    """What a record's headers, which anybody may write, say of `Record.restates`; None where it is no offset."""
    said = dict(headers or ()).get(RESTATES)
    return int(said) if said is not None and _OFFSET.fullmatch(said) else None
