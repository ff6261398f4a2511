"""What the store is told of a query's troubles, so that the next process knows of them."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial

from haystream.errors import Code, QueryFailed, Rejected
from haystream_service.kafka.records import OWNED, Kind, partition_name
from haystream_service.store.base import (
    Fenced,
    Note,
    Position,
    Quarantine,
    Span,
    Spans,
    StoreDamaged,
    StoreUnavailable,
)
from haystream_service.store.marks import StateLost, StateNewer
from haystream_service.worker.batch import Batch
from haystream_service.worker.endings import ShortOfMemory, TopicsReplaced
from haystream_service.worker.followers import Stale
from haystream_service.worker.retry import FREE_PERMIT
from haystream_service.worker.shared import Shared

log = logging.getLogger(__name__)

MOST_RAISES = 2
"""A batch that raises so often, each time from the stored state, stops its query."""
MEMORY_SECONDS = 1.0
LONGEST_MEMORY_SECONDS = 60.0
"""How long a query waits that got no memory, the first time and at most: loading it again is work."""
CALM_SECONDS = 60.0
"""A process that has held a query for so long does not die of it."""


class Broken(Exception):  # noqa: N818 - it is about a query
    """Computing a query raised: a bug, perhaps of this query alone."""

    def __init__(self, bug: Exception) -> None:
        super().__init__(f"{type(bug).__name__}: {bug}")


@contextmanager
def computing() -> Iterator[None]:
    """For what is computed of one query, or decoded: what it raises is that query's trouble (`Broken`), unless the
    machine is at fault (`ShortOfMemory`)."""
    try:
        yield
    except (QueryFailed, Fenced, Stale, StateLost, StateNewer, TopicsReplaced, StoreUnavailable, StoreDamaged):
        raise
    except ShortOfMemory:
        raise
    except Rejected as rejected:
        raise QueryFailed(rejected.code, rejected.detail) from rejected
    except MemoryError as error:
        raise ShortOfMemory(error) from error
    except Exception as bug:
        raise Broken(bug) from bug


class Troubles:
    """The note of one query in the store, as its owner reads and writes it."""

    def __init__(self, query_id: str, partition: int, shared: Shared) -> None:
        self.stopped: Quarantine | None = None
        """Why the query is in quarantine, where it is."""
        self._query_id = query_id
        self._partition = partition
        self._counted = partition_name(Kind.QUERY, partition)
        self._shared = shared
        # Without its note nothing can be known of the query, and nothing be said: it waits, and others go on.
        self._retry = partial(shared.retry, until_mended=True)
        self.listed = False
        """Whether the store lists it among the queries that are stopped, or were."""
        self._left: frozenset[str] = frozenset()
        """Attempts of processes that are gone, or think so."""
        self._mine: str | None = None
        self._read_at = 0.0
        self._raised = 0
        self._tending_raised = False
        self._memory_seconds = MEMORY_SECONDS

    async def read(self) -> Note:
        """What is noted; stops the query where that says so."""
        shared = self._shared
        note = await self._retry(lambda: shared.store.read_note(self._query_id))
        self.stopped = note.quarantine
        self.listed = self.listed or note.quarantine is not None
        self._left = frozenset(attempt for attempt in note.attempts if not attempt.endswith(shared.process))
        self._read_at = shared.clock.monotonic()
        return note

    @asynccontextmanager
    async def attempt(
        self, position: Position, *, permit: AbstractAsyncContextManager[object] = FREE_PERMIT
    ) -> AsyncGenerator[None, None]:
        """Note that what may end the process is begun, and, where it did not, that it came to an end.

        Who died at the same position, died of the same. A query that somebody died of already has no other attempt
        beside it: the next death is its own. What is done under the `permit` is noted under it, too.

        Whoever waits for the store has neither a turn nor the permit meanwhile: others have theirs.

        Raises:
            QueryFailed: too many have died of it.
        """
        shared = self._shared
        where = f"{position.queries_offset},{position.verdicts_offset} "
        deaths = sum(attempt.startswith(where) for attempt in self._left)
        if deaths >= shared.limits.deaths:
            raise QueryFailed(Code.QUARANTINED, f"{deaths} processes ended while they computed it")
        mine = self._mine = where + shared.process

        async def begin() -> AsyncExitStack:
            async with AsyncExitStack() as held:
                await held.enter_async_context(shared.attempts.turn(alone=deaths > 0))
                await held.enter_async_context(permit)
                await shared.store.begin_attempt(self._query_id, mine)
                return held.pop_all()

        raised: Exception | None = None
        async with await self._retry(begin):
            try:
                yield
            except Exception as error:  # noqa: BLE001 - raised below; where it is cancelled, `abandon` notes that
                raised = error
            # While it has its turn: of whoever is alone next the process may die, and that is not to be this one's.
            await self.abandon()
        if self._mine is not None:
            await self._end({mine})
        if raised is not None:
            raise raised

    async def abandon(self) -> None:
        """Note that what was begun has ended, or was broken off by ourselves, if the store answers at once."""
        if self._mine is not None:
            with suppress(StoreUnavailable, StoreDamaged):
                await self._shared.store.end_attempts(self._query_id, {self._mine})
                self._mine = None

    async def _end(self, attempts: AbstractSet[str]) -> None:
        shared = self._shared
        await self._retry(lambda: shared.store.end_attempts(self._query_id, attempts))
        self._mine = None

    async def went_well(self, position: Position) -> None:
        """A batch was computed and saved: deaths before it, or a while ago, are not held against the query."""
        self._raised = 0
        if self._left:
            where = f"{position.queries_offset},{position.verdicts_offset} "
            calm = self._shared.clock.monotonic() - self._read_at >= CALM_SECONDS
            over = {attempt for attempt in self._left if calm or not attempt.startswith(where)}
            if over:
                await self._end(over)
                self._left -= over

    @property
    def suspect(self) -> bool:
        """Whether somebody died of the query, and it is not proved innocent yet."""
        return bool(self._left)

    async def raised(self, bug: Broken) -> None:
        """Count a bug; the second in a row stops the query."""
        self._raised += 1
        log.error("query %r: %s", self._query_id, bug, exc_info=bug.__cause__)
        if self._raised >= MOST_RAISES:
            await self.stop(QueryFailed(Code.QUARANTINED, f"computing it raised {bug}"))

    async def short_of_memory(self, short: ShortOfMemory) -> None:
        """Wait, longer each time, for others to give memory back; the query is to have let go of its own."""
        held: BaseException | None = short
        while held is not None:  # its traceback holds what was being worked on
            held = held.with_traceback(None).__context__
        said = f"query {self._query_id!r} waits: {short}"
        log.error("%s", said)
        with self._shared.retry.told(said):
            await asyncio.sleep(self._memory_seconds)
        self._memory_seconds = min(2 * self._memory_seconds, LONGEST_MEMORY_SECONDS)

    async def tending_raised(self, trouble: Broken | QueryFailed | ShortOfMemory) -> None:
        """Stop the query if it cannot be computed, or if what is done when nobody waits raises for the second time
        in a row; wait where that is for want of memory."""
        if isinstance(trouble, ShortOfMemory):
            await self.short_of_memory(trouble)
            return
        if isinstance(trouble, QueryFailed):
            await self.stop(trouble)
            return
        log.error("query %r, tending: %s", self._query_id, trouble, exc_info=trouble.__cause__)
        if self._tending_raised:
            await self.stop(QueryFailed(Code.QUARANTINED, f"tending it raised {trouble}"))
        self._tending_raised = True

    def tending_went_well(self) -> None:
        """It came to its end: what it raised before is not held against the query, and there is memory."""
        self._tending_raised, self._memory_seconds = False, MEMORY_SECONDS

    async def damaged(self, damaged: StoreDamaged) -> None:
        """Put the query into quarantine as what the store has of it cannot be used."""
        await self.stop(QueryFailed(Code.QUARANTINED, str(damaged)))

    async def stop(self, failure: QueryFailed) -> None:
        """Put the query into quarantine."""
        shared = self._shared
        why = Quarantine(failure.code.value, failure.detail, shared.store_clock.now())
        note = partial(shared.store.quarantine, self._query_id, self._partition, why)
        await shared.written.counted(self._counted, note)
        self.stopped, self.listed, self._raised = why, True, 0
        log.error("query %r is stopped: %s; `haystream query release` lets it go on", self._query_id, failure)

    async def pass_over(self, batch: Batch) -> None:
        """Note where the batch's records lie, and reject them until the query is released."""
        assert self.stopped is not None
        why = f"the query is stopped ({self.stopped.code}: {self.stopped.detail}); this counts when it is released"
        await self._note_passed(_spans(batch))
        batch.reject_all(Rejected(Code.QUARANTINED, why))

    async def pass_over_unknown(self, batch: Batch) -> None:
        """Note where the batch's verdicts and leases lie, and reject them until somebody opens the query."""
        shared, spans = self._shared, _spans(batch)._replace(queries=None)
        why = f"nobody has opened query {self._query_id!r}; this counts when somebody does"
        if spans:
            noted, room = shared.store.note_unknown, shared.limits.unknown
            note = partial(noted, self._partition, self._query_id, spans, room=room)
            await shared.written.counted(self._counted, note)
        batch.reject_all(Rejected(Code.UNKNOWN_QUERY, why))

    async def adopt_unknown(self, note: Note) -> Note:
        """The note of a query that is being opened, with the verdicts and leases that came before."""
        shared = self._shared
        early = await self._retry(lambda: shared.store.read_unknown(self._partition, self._query_id))
        if not early:
            return note
        await self._note_passed(early)
        return await self._retry(lambda: shared.store.read_note(self._query_id))

    async def taken_up(self, note: Note, revision: int) -> None:
        """Note that the query goes on, and that what the note says was passed over is applied, in that revision."""
        shared = self._shared
        await self._retry(lambda: shared.store.take_up(self._query_id, self._partition, note, revision))
        self.listed = False

    async def have_read_again(self, verdicts: Span) -> Note:
        """Note that verdicts there have to be read once more, by whoever loads the query; the note with that."""
        await self._note_passed(Spans(verdicts=verdicts))
        return await self._retry(lambda: self._shared.store.read_note(self._query_id))

    async def _note_passed(self, spans: Spans) -> None:
        """Note where records lie that have to be read again."""
        shared = self._shared
        if spans:
            await shared.written.counted(self._counted, partial(shared.store.pass_over, self._query_id, spans))


def _spans(batch: Batch) -> Spans:
    """Where the records lie of those deliveries that nothing is wrong with."""
    good = ([d.record.offset for d in batch.of(kind) if d not in batch.rejected] for kind in OWNED)
    return Spans(*(Span(min(offsets), max(offsets)) if offsets else None for offsets in good))
