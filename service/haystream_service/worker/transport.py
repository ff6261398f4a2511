"""What the worker needs of whatever carries its messages: Kafka, or the one in memory."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol

from haystream_service.kafka.records import Kind, Offsets, Record
from haystream_service.store.base import Span
from haystream_service.store.claims import Outgoing


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


Ends = Callable[[Collection[int]], Awaitable[Mapping[int, Offsets]]]
"""By partition, the offsets that its next records will get. May raise `BrokerUnavailable`."""
Again = Callable[[Kind, int, bytes, Span], Awaitable[list[Record]]]
"""The records of a kind, a partition and a key between two offsets, read once more, as far as they still are there.
To acknowledge them does nothing. May raise `BrokerUnavailable`."""
CaughtUp = Callable[[int], Awaitable[None]]
"""Returns when a partition of the queries topic was read (handed to `Worker.on_record`) as far as it goes now."""
