"""What every part of the worker is given, and what they all do alike."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from uuid import uuid4

from haystream.engines.local.solves.budget import DEFAULT_TOLERANCE
from haystream.errors import Code, QueryFailed, Rejected
from haystream_service.kafka.records import (
    NO_OFFSET,
    OWNED,
    SOURCES,
    Kind,
    Offsets,
    Record,
    partition_name,
)
from haystream_service.metrics import Metrics
from haystream_service.store.base import Position, Store
from haystream_service.store.marks import check_kept
from haystream_service.wire import as_id, dead_letter_key, encode_dead_letter
from haystream_service.worker.attempts import Attempts
from haystream_service.worker.clock import Clock, StoreClock
from haystream_service.worker.endings import TopicsReplaced
from haystream_service.worker.retry import Retry
from haystream_service.worker.transport import Again, CaughtUp, Ends, Publisher
from haystream_service.worker.written import Written

log = logging.getLogger(__name__)

LOADS_AT_ONCE = 4
SHOWS_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much the worker takes at once."""

    max_batch: int = 1000
    item_publish_seconds: float = 0.25
    """How often new items are let in, in a batch of their own. Verdicts never wait for them."""
    totals_seconds: float = 5.0
    """How long new items that change nothing of a ranking's `items` wait, at most, to be saved and published, and
    rows that tending moved to be saved while verdicts come."""
    idle_seconds: float = 900.0
    """How long a query is kept in memory that nothing comes for, and a collection that no query in memory needs."""
    queries_in_memory: int = 1000
    """Of more, those that nothing has come for the longest are put away."""
    memory_bytes: int = 0
    """The same where the process holds more than this, once they are all slim; 0: without bound."""
    slim_seconds: float = 60.0
    """How long nothing is done in a query until it is made slim."""
    refresh_seconds: float = 30.0
    """How long new items wait, at least, until queries that are put away take them in, one after the other."""
    tolerance: float = DEFAULT_TOLERANCE
    deaths: int = 3
    """Processes in a row that end while they compute a query, until it is stopped. The first of them may have
    computed others beside it; a kill from outside looks the same."""
    unknown: int = 10_000
    """Queries of a partition that verdicts name and nobody has opened, that are told apart."""
    withdrawn_seconds: float = 86_400.0
    """How long after a query was deleted its owner looks for rankings of it that somebody publishes late, who was
    cut off. Of one whose readers know that it is gone, nobody takes notice after that."""
    release_seconds: float = 2.0
    """Between two looks whether a query that is stopped was released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The worker's collaborators, as its parts see them."""

    store: Store
    publisher: Publisher
    metrics: Metrics
    clock: Clock
    store_clock: StoreClock
    """By which all is dated that is saved or published: of two processes the later one has the later date."""
    retry: Retry
    limits: Limits
    caught_up: CaughtUp
    ends: "AssignedEnds"
    again: Again
    written: Written
    on_bug: Callable[[BaseException], None]
    generation: Callable[[], str | None]
    """The store's mark, as it was when the worker started."""
    process: str = field(default_factory=lambda: uuid4().hex)
    """Tells this process from those that died."""
    attempts: Attempts = field(default_factory=Attempts)
    loads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LOADS_AT_ONCE))
    """Held while a query is read, and while it is computed: an assignment brings many, and each may be large."""
    shows: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(SHOWS_AT_ONCE))
    """Held while the ranking of a query that is put away is published again: an assignment has many."""

    async def telling_bugs(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do what a task does that nobody awaits: what it raises is a bug, whatever it is, and told."""
        try:
            await work()
        except Exception as bug:  # noqa: BLE001 - told, never swallowed
            self.on_bug(bug)

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
        """Raise `StateLost` or `StateNewer` if the store's mark is not the one that the worker started with."""
        check_kept(self.generation(), await self.retry(self.store.generation))

    async def check_same_topics(self, query_id: str, partition: int, position: Position) -> Offsets:
        """Where the query's partition ended when it was assigned, in each topic.

        Raises `TopicsReplaced` if the query has seen offsets that its partition does not have yet, and
        `QueryFailed` where all that the store has of the partition is there: then it is what the store has of the
        query that cannot be, or records are lost that came after that was noted, a moment ago.

        New settings would pass for old ones that come again. Topics that were made anew and have grown past
        what was seen are not found out.
        """
        ends = await self.ends(partition)
        if _past(position, ends):
            for kind, offset, end in _past(position, await self.ends.now(partition)):  # it may have gone on since
                seen = f"query {query_id!r} has seen offset {offset} of {SOURCES[kind]}, partition {partition}"
                name = partition_name(kind, partition)
                noted = (await self.retry(partial(self.store.read_up_to, [name]))).get(name, NO_OFFSET)
                if NO_OFFSET < noted <= end:
                    raise QueryFailed(
                        Code.QUARANTINED,
                        f"by what Redis has of it, {seen}, which ends before, and all {noted} that Redis has of "
                        "that partition are there: somebody was at the query's `meta`, or the topic has just lost "
                        "its last records. Run `haystream rebuild`",
                    )
                raise TopicsReplaced(
                    f"{seen}, which ends before: the topic was deleted, or cut off. Bring its records back and run "
                    "`haystream rebuild`"
                )
        return ends


def _past(position: Position, ends: Offsets) -> list[tuple[Kind, int, int]]:
    """By kind of record, the last offset that was seen, and where the topic ends, of those that end before it."""
    seen = zip(OWNED, position.offsets, ends, strict=True)
    return [(kind, offset, end) for kind, offset, end in seen if offset >= end]


class AssignedEnds:
    """How far this process's partitions went when they were assigned: asked for once, of all of them.

    What lies before may have been in another's hands.
    """

    def __init__(self, ask: Ends, retry: Retry) -> None:
        self._ask = ask
        self._retry = retry
        self._assigned: frozenset[int] = frozenset()
        self._known: dict[int, Offsets] = {}
        self._asking = asyncio.Lock()

    def assign(self, partitions: Iterable[int]) -> None:
        """These are this process's now."""
        self._assigned, self._known = frozenset(partitions), {}

    async def __call__(self, partition: int) -> Offsets:
        """The offsets that the partition's next records would have got then."""
        known = self._known
        async with self._asking:
            if partition not in known:
                known.update(await self._retry(lambda: self._ask(self._assigned | {partition})))
        return known[partition]

    async def now(self, partition: int) -> Offsets:
        """The offsets that they get now."""
        return (await self._retry(lambda: self._ask({partition})))[partition]
