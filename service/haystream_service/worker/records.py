"""What passes between the worker and whatever carries its messages: Kafka, or the in-memory transport."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Kind(StrEnum):
    """What a record is about; also the `kind` label of the metrics."""

    QUERY = "query"
    ITEM = "item"
    VERDICT = "verdict"


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """A message as it was read, and the way to acknowledge it.

    `timestamp` is in seconds since the epoch. `ack` may be called in any order, and more than once: the
    transport commits an offset only when everything before it is acknowledged too.
    """

    kind: Kind
    topic: str
    partition: int
    offset: int
    timestamp: float
    key: bytes | None
    value: bytes | None
    ack: Callable[[], None]


class BrokerUnavailable(Exception):  # noqa: N818 - it says what is the matter, like StoreUnavailable
    """The broker did not acknowledge: try again. The message may have been written all the same."""


class Publisher(Protocol):
    """Where results go. Both methods return after the broker's acknowledgement, or raise `BrokerUnavailable`."""

    async def publish_ranking(self, query_id: str, value: bytes) -> None:
        """Write to next-items, keyed by the query."""
        ...

    async def publish_dead_letter(self, key: bytes | None, value: bytes) -> None:
        """Write to dead-letters, keyed as the rejected record was."""
        ...


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()


Ends = Callable[[int], Awaitable[tuple[int, int]]]
"""The offsets that a partition's next records will get, in the queries topic and in the verdicts topic. May raise
`BrokerUnavailable`."""
CaughtUp = Callable[[int], Awaitable[None]]
"""Returns when a partition of the queries topic was read (handed to `Worker.on_query`) as far as it goes now."""
