"""Records of our topics as they are read, and what may be the matter with the broker that has them."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


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


NO_OFFSET = -1
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


class NoSuchPartition(Exception):  # noqa: N818
    """The topic does not have the partition that a record is to be written to. Nothing was written."""


Offsets = tuple[int, int, int]
"""One of each topic in `OWNED`."""
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
