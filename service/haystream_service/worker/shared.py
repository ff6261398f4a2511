"""What every part of the worker is given, and what they all do alike."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from haystream.engines.local import DEFAULT_TOLERANCE
from haystream.errors import Rejected
from haystream_service.metrics import Metrics
from haystream_service.store.base import Store, StoredQuery
from haystream_service.wire import encode_dead_letter
from haystream_service.worker.records import CaughtUp, Clock, Ends, Publisher, Record
from haystream_service.worker.retry import Retry

log = logging.getLogger(__name__)

LOADS_AT_ONCE = 4


class StateLost(Exception):  # noqa: N818 - it names a state of the store, not a bug of ours
    """The store does not hold what it held. Only `haystream rebuild` helps; nothing may be acknowledged."""


class TopicsReplaced(Exception):  # noqa: N818
    """The topics are not those that the store was made from: offsets begin anew. A person has to decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much the worker takes at once."""

    max_batch: int = 1000
    mailbox_size: int = 10_000
    item_publish_seconds: float = 0.25
    """How often new items are let in, in a batch of their own. Verdicts never wait for them."""
    tolerance: float = DEFAULT_TOLERANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The worker's collaborators, as its parts see them."""

    store: Store
    publisher: Publisher
    metrics: Metrics
    clock: Clock
    retry: Retry
    limits: Limits
    caught_up: CaughtUp
    ends: Ends
    on_bug: Callable[[BaseException], None]
    generation: Callable[[], str | None]
    """The store's mark, as it was when the worker started."""
    loads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LOADS_AT_ONCE))
    """Held while a query is loaded: an assignment brings many at once, and each may be large."""

    async def reject(self, record: Record, rejected: Rejected) -> None:
        """Make the record a dead letter; returns when the broker has it. Acknowledging is the caller's."""
        letter = encode_dead_letter(
            rejected, record.value, topic=record.topic, partition=record.partition, offset=record.offset
        )
        await self.retry(lambda: self.publisher.publish_dead_letter(record.key, letter))
        self.metrics.dead_letters.labels(rejected.code.value).inc()
        self.count(record, "rejected")
        log.warning("%s %d/%d rejected: %s", record.topic, record.partition, record.offset, rejected)

    def count(self, record: Record, outcome: str) -> None:
        """Count an event as applied, known or rejected."""
        self.metrics.events.labels(record.kind.value, outcome).inc()

    async def check_not_lost(self) -> None:
        """Raise `StateLost` if the store's mark is not the one that the worker started with."""
        mark = await self.retry(self.store.generation)
        if mark != self.generation():
            raise StateLost(f"the store's mark was {self.generation()!r} and is {mark!r}: run `haystream rebuild`")

    async def check_same_topics(self, stored: StoredQuery) -> None:
        """Raise `TopicsReplaced` if the query has seen offsets that its partition does not have yet.

        New settings would pass for old ones that come again. Topics that were made anew and have grown past
        what was seen are not found out.
        """
        ends = await self.retry(lambda: self.ends(stored.partition))
        seen = stored.position.queries_offset, stored.position.verdicts_offset
        for name, offset, end in zip(("queries", "verdicts"), seen, ends, strict=True):
            if offset >= end:
                raise TopicsReplaced(
                    f"query {stored.settings.query_id!r} has seen offset {offset} of {name}, partition "
                    f"{stored.partition}, which ends at {end}: the topic was deleted, or cut off. Bring its "
                    "records back and run `haystream rebuild`"
                )
