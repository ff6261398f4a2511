"""What every part of the worker is given, and what they all do alike."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from uuid import uuid4

from haystream.engines.local.engine import DEFAULT_TOLERANCE
from haystream.errors import Rejected
from haystream_service.metrics import Metrics
from haystream_service.store.base import Store, StoredQuery
from haystream_service.wire import as_id, dead_letter_key, encode_dead_letter
from haystream_service.worker.records import Again, CaughtUp, Clock, Ends, Kind, Publisher, Record
from haystream_service.worker.retry import Retry
from haystream_service.worker.turns import Turns

log = logging.getLogger(__name__)

LOADS_AT_ONCE = 4


class StateLost(Exception):  # noqa: N818 - it names a state of the store, not a bug of ours
    """The store does not hold what it held. Only `haystream rebuild` helps; nothing may be acknowledged."""


class TopicsReplaced(Exception):  # noqa: N818
    """The topics are not those that the store was made from: offsets begin anew. A person has to decide."""


class TopicsGrown(Exception):  # noqa: N818
    """The topics have other partitions than when the store was made: a query's records come on another than it."""


class Stalled(Exception):  # noqa: N818
    """Something does not move, and nobody is to blame: only a new process helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much the worker takes at once."""

    max_batch: int = 1000
    item_publish_seconds: float = 0.25
    """How often new items are let in, in a batch of their own. Verdicts never wait for them."""
    totals_seconds: float = 5.0
    """How long new items that change nothing of a ranking's `items` wait, at most, to be saved and published."""
    idle_seconds: float = 900.0
    """How long a collection is kept that no query in memory needs."""
    tolerance: float = DEFAULT_TOLERANCE
    deaths: int = 3
    """Processes in a row that end while they compute a query, until it is stopped. The first of them may have
    computed others beside it; a kill from outside looks the same."""
    unknown: int = 10_000
    """Queries of a partition that verdicts name and nobody has opened, that are told apart."""
    release_seconds: float = 2.0
    """Between two looks whether a query that is stopped was released."""


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
    again: Again
    on_bug: Callable[[BaseException], None]
    generation: Callable[[], str | None]
    """The store's mark, as it was when the worker started."""
    process: str = field(default_factory=lambda: uuid4().hex)
    """Tells this process from those that died."""
    attempts: Turns = field(default_factory=Turns)
    loads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LOADS_AT_ONCE))
    """Held while a query is loaded: an assignment brings many at once, and each may be large."""

    def timed(self, stage: str) -> AbstractContextManager[object]:
        """Within it a batch is in this stage (`haystream_stage_seconds`)."""
        return self.metrics.stage.labels(stage).time()

    async def reject(self, record: Record, rejected: Rejected) -> None:
        """Make the record a dead letter; returns when the broker has it. Acknowledging is the caller's."""
        letter = encode_dead_letter(
            rejected,
            record.value,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            key=record.key,
        )
        key = dead_letter_key(record.key)
        await self.retry(lambda: self.publisher.publish_dead_letter(key, letter))
        self.metrics.dead_letters.labels(rejected.code.value).inc()
        self.count(record, "rejected")
        about = None if record.kind is Kind.ITEM else as_id(record.key)
        where = record.topic, record.partition, record.offset
        log.warning("%s %d/%d rejected: %s", *where, rejected, extra={"query": about})

    def count(self, record: Record, outcome: str) -> None:
        """Count an event as applied, known or rejected."""
        self.metrics.events.labels(record.kind.value, outcome).inc()

    async def check_not_lost(self) -> None:
        """Raise `StateLost` if the store's mark is not the one that the worker started with."""
        mark = await self.retry(self.store.generation)
        if mark != self.generation():
            raise StateLost(f"the store's mark was {self.generation()!r} and is {mark!r}: run `haystream rebuild`")

    async def check_same_topics(self, stored: StoredQuery) -> tuple[int, int]:
        """The `ends` of the query's partition.

        Raises `TopicsReplaced` if the query has seen offsets that its partition does not have yet.

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
        return ends
