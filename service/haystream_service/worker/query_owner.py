"""The one writer of a query: its mailbox, its state in memory, and what is done when nobody waits."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from haystream.errors import Code, QueryFailed, Rejected
from haystream.events import LeaseFact, Query, Status, Verdict, View
from haystream.query_state import QueryState
from haystream_service.kafka.records import Kind, Record
from haystream_service.logs import ABOUT
from haystream_service.store.base import Fenced, Head, Note, Position, StoreDamaged
from haystream_service.worker.batch import Batch, Delivery
from haystream_service.worker.committing import Committing, query_deleted
from haystream_service.worker.exclusive import Turn
from haystream_service.worker.folding import AT_ONCE, Folded, Loaded, Pace, fold
from haystream_service.worker.followers import Followers, Stale
from haystream_service.worker.gathering import gather
from haystream_service.worker.mailbox import Mailbox
from haystream_service.worker.opening import Opening
from haystream_service.worker.shared import Shared
from haystream_service.worker.tending import Tending
from haystream_service.worker.troubles import CALM_SECONDS, Broken, Troubles, computing
from haystream_service.worker.written import NONE_SAID

log = logging.getLogger(__name__)

LEAST_SECONDS = 0.001
"""A timer may end early by the rounding of its time: set to nothing then, it would end at once, again and again."""


@dataclass(frozen=True, slots=True)
class Away:
    """What its owner remembers of a query that is put away: in the store alone, until an event for it comes."""

    revision: int
    cursor: int
    """Entries of its collection's log after which it would be as it is."""
    follows: View | None
    """Whose new items are to be taken in; None of a query that is not open."""
    outdated: bool = False
    """Whether it is to be saved anew: its owner ended before what it had saved was exact, or saved it in another
    history of the store, so that its tables may number people as a log did that is no more."""


class QueryOwner:
    """A query's mailbox in this process, and its state while that is in memory.

    The state in memory is a copy of the stored one that may be out of date: after a pause or a rebalance
    another process may have been the writer. Every save finds that out (`Fenced`), and then the state is
    loaded again and the batch, which was not acknowledged, applied to it.
    """

    def __init__(
        self,
        query_id: str,
        partition: int,
        shared: Shared,
        followers: Followers,
        *,
        on_unknown: Callable[["QueryOwner"], None],
    ) -> None:
        self.query_id = query_id
        self.partition = partition
        self._shared = shared
        self._on_unknown = on_unknown
        self._loaded: Loaded | None = None
        self.away: Away | None = None
        """Where the query is put away."""
        self.touched = float("-inf")
        """When something came for it, on the monotonic clock."""
        self.worked = float("-inf")
        """When it took something in, on the same."""
        self.slimmed = False
        """Whether `slim` was tried since, and is as good as done."""
        self._wanted = False
        """Whether it is to be in memory although nothing came for it."""
        self._leaving = False
        """Whether it is to be put away as soon as it is saved and tended: nobody has touched it for long."""
        self._left = asyncio.Event()
        self._opening = Opening(query_id, partition, shared, followers, listener=self)
        self._committing = Committing(query_id, partition, shared)
        self._tending = Tending(query_id, shared.clock)
        self._troubles = Troubles(query_id, partition, shared)
        self._elsewhere: int | None = None
        """The partition that owns the query, where that is another."""
        self.deleted = False
        """Whether the query was deleted: then nothing counts for it any more."""
        self._read_before = Position()
        """How far the topics were read when it was: that counted then, or has its dead letter."""
        self._stale_shown = False
        """Whether readers may see an older ranking than the newest, or one of a query that was deleted."""
        self._tending_raised = False
        self._lacking = False
        """Whether the store has less of the query than the state in memory."""
        self._trouble: Broken | QueryFailed | None = None
        """What was raised as the query was made slim."""
        self._timer: asyncio.TimerHandle | None = None
        self.mailbox: Mailbox[Delivery] = Mailbox(
            self._handle, rest=self._tend, max_batch=shared.limits.max_batch, on_bug=shared.on_bug
        )

    @property
    def state(self) -> QueryState | None:
        """The state in memory, for reading."""
        return self._loaded.state if self._loaded else None

    @property
    def revision(self) -> int | None:
        """The revision that was saved last, as far as this process knows; None where the query is not its own."""
        if self._loaded is not None:
            return self._loaded.revision or None
        return self.away.revision if self.away is not None else None

    def publish_again(self) -> None:
        """Publish the newest ranking once more, as after a load."""
        if self._loaded is not None:
            self._loaded.published = False
        self._stale_shown = True
        self.mailbox.poke()

    def load_again(self) -> None:
        """Have a state that is in memory be made anew of what the store has: it has lost something of it."""
        if self._loaded is not None:
            self._lacking = True
            self.wake()

    def idle(self) -> bool:
        """Whether there is nothing left to do but to wait for what comes: all is saved, published and tended."""
        loaded = self._loaded
        if loaded is None:
            return self.mailbox.idle
        unsaved = loaded.finished or loaded.owed or loaded.unsaved_items
        return self.mailbox.idle and not unsaved and not loaded.state.unfinished

    @property
    def owned(self) -> bool:
        """Whether this process is the query's writer, whether or not it has it in memory."""
        return self._loaded is not None or self.away is not None

    @property
    def in_memory(self) -> bool:
        """Whether this process has the query's state in its memory."""
        return self._loaded is not None

    @property
    def followed(self) -> float:
        """Seconds that its collection's growth took since anything came for the query, while it is in memory."""
        return self._loaded.followed if self._loaded is not None else 0.0

    @property
    def stopped(self) -> bool:
        """Whether the query is in quarantine."""
        return self._troubles.stopped is not None

    @property
    def long_gone(self) -> bool:
        """Whether the query was deleted long ago, readers know, and nothing came for it since."""
        untouched = self._shared.clock.monotonic() - self.touched
        known = self.deleted and not self._stale_shown and self.mailbox.idle
        return known and untouched >= self._shared.limits.withdrawn_seconds

    def deliver(self, record: Record, event: Query | Verdict | LeaseFact | Rejected) -> None:
        """Leave an event, or why a record under the query's key is none."""
        if isinstance(event, Query):
            self._opening.settings_came.set()
        self.touched, self._leaving = self._shared.clock.monotonic(), False
        self.mailbox.post(Delivery(record, event))
        if (follower := self._opening.follower) is not None:
            if isinstance(event, Verdict):
                follower.expected.came(self.query_id, self.touched)
                follower.exclusive.verdict_came()
            # Else it would wait until all before it have taken in new items.
            follower.exclusive.hurry(self.query_id)

    def put_down(self, head: Head) -> None:
        """Take that the query is stored, after an assignment. Unless it is in memory, it is put away.

        Its ranking is published once more: whoever saved that may have died before the broker had it. Since the
        head was read the query may have been loaded, saved and put away again: then that is known better.
        """
        if self._loaded is not None:
            self.wake()
            return
        clock = self._shared.store_clock
        self.touched = max(self.touched, clock.monotonic() - max(0.0, clock.now() - head.touched / 1000))
        if head.settings is not None and head.settings.status == Status.DELETED:
            self._be_deleted(head.revision, head.position)
            self.publish_again()
            return
        if self.away is None or self.away.revision < head.revision:
            other = head.position.history not in {NONE_SAID, self._shared.written.history}
            outdated = other or head.unfinished
            self.away = replace(_away(head.settings, head.revision, head.position.cursor), outdated=outdated)
        self.mailbox.poke()

    def put_away(self) -> None:
        """Have the query let go of its state as soon as that is saved and tended, unless something comes for it."""
        if self._loaded is not None and not self._leaving:
            self._leaving = True
            self.wake()

    async def slim(self, turn: Turn) -> bool:
        """Have the query give up memory for what it can compute again (`QueryState.slim`); False if there is none,
        or it has something to do."""
        loaded, follower = self._loaded, self._opening.follower
        if loaded is None or follower is None or not self.idle():
            return False
        self.slimmed = True
        try:
            with computing():
                await follower.exclusive(loaded.state.slim, in_thread=True, turn=turn, who=self.query_id)
        except (Broken, QueryFailed) as trouble:
            self._trouble = trouble  # the mailbox deals with it: a batch may have come meanwhile
            self.mailbox.poke()
            return False
        return loaded is self._loaded and loaded.state.is_slim

    async def visit(self) -> None:
        """Return when the query has come back, has taken in its collection's new items, and is put away again.

        Or when something came for it, so that it stays.
        """
        self._leaving = True
        self._left.clear()
        self.wake()
        await self._left.wait()

    def wake(self) -> None:
        """Load the query if it is not in memory, and take in what its collection got since."""
        self._wanted = True
        self.mailbox.poke()
        if self._opening.follower is not None:  # else it would wait until all others have tended that wait to
            self._opening.follower.exclusive.hurry(self.query_id, Turn.GROWTH)

    def wake_listed(self) -> None:
        """The same for a query that is stopped, or was when it was last in memory."""
        self._troubles.listed = True
        self.wake()

    async def suspend(self) -> None:
        """Forget what waits, and the state too if it was in the middle of a batch."""
        async with self.mailbox.dropped() as amid_a_batch:
            if amid_a_batch:
                self._loaded = self.away = None
                await self._troubles.abandon()
        self._left.set()
        self._opening.settings_came.clear()  # if they had, they come again

    def release(self) -> None:
        """Let go of everything; to be called when the mailbox is idle, or by the handler as its last act."""
        self._let_go()
        self.away = None
        if self._elsewhere is None:
            self._shared.metrics.queries.forget(self.query_id)

    # ---- one batch ----

    async def _handle(self, deliveries: list[Delivery]) -> None:
        ABOUT.set(self.query_id)
        if self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            await self._stop_tending(trouble)
        if self._lacking:
            self._loaded = None
        if self.deleted and self._stale_shown:
            self._stale_shown = False  # from now on it is told anew whether one lands after that
            await self._committing.withdraw(permit=self._shared.shows)
        if self.away is not None and not deliveries and (self.deleted or not self._wanted):
            if not self.deleted:
                try:
                    await self._committing.publish_again(permit=self._shared.shows)
                except StoreDamaged as damaged:
                    await self._troubles.damaged(damaged)
            return
        shared = self._shared
        if self._loaded is not None and len(self._loaded.state.leases):  # until then what is offered is the ranking
            await gather(deliveries, self.mailbox, shared.clock, pace=shared.limits.item_publish_seconds)
        batch = Batch(deliveries)
        for delivery in batch.of(Kind.VERDICT):
            shared.metrics.stage.labels("queue").observe(max(0.0, shared.clock.now() - delivery.record.timestamp))
        while not await self._tried(batch):
            self._loaded = None
        if self._loaded is None or not self._leaving:
            self._left.set()

    async def _tried(self, batch: Batch) -> bool:
        """Whether the batch is dealt with; else it has to be done again, from the stored state."""
        try:
            loaded = await self._taken_in(batch)
        except Fenced as fenced:
            if fenced.stored < fenced.expected:
                await self._committing.go_back(fenced)
            self._shared.metrics.fenced_writes.inc()
            log.warning("%s; loading it again", fenced)
            return False
        except Stale as stale:
            log.warning("%s; loading it again", stale)
            return False
        except QueryFailed as failure:
            await self._troubles.stop(failure)
            return False
        except StoreDamaged as damaged:
            await self._troubles.damaged(damaged)
            return False
        except Broken as bug:
            await self._troubles.raised(bug)
            return False
        if loaded is None:
            return True
        await self._troubles.went_well(loaded.saved)
        if (due := loaded.put_off) is not None:
            self._wake_after(max(LEAST_SECONDS, due - self._shared.clock.monotonic()))
        if self._troubles.suspect:
            self._wake_after(CALM_SECONDS)
            self._left.set()
        return True

    async def _taken_in(self, batch: Batch) -> Loaded | None:
        """The query in memory, with the batch folded in, saved and published; None where it is not taken in."""
        passed = None
        known = self._loaded is not None or self._elsewhere is not None or self.deleted
        if not known and batch.deletion is None:
            passed = await self._get_hold(batch)
            self._wanted = False
            if not self.deleted:
                self.away = None
        if batch.deletion is not None and self._elsewhere is None:
            await self._delete(batch, batch.deletion)
            return None
        loaded = self._loaded
        if loaded is None:
            await self._refuse(batch)
            return None
        for part in batch.parts(self._shared.limits.max_batch):
            first_new = loaded.saved.cursor + 1 if loaded.published else None
            with self._shared.timed("settle"):
                folded = await self._fold(loaded, part)
            await self._committing.commit(loaded, part, folded)
            self._time_items(first_new, loaded.saved.cursor)
        if passed is not None:
            await self._troubles.taken_up(passed, loaded.revision)
        return loaded

    async def _get_hold(self, batch: Batch) -> Note | None:
        """Load or open the query, if it can be, and add to the batch what was passed over; the note of that.

        What comes while its settings are waited for is added to the batch, too.
        """
        batch.forget_again()
        note = await self._troubles.read()
        if self._troubles.stopped is not None:
            return None
        # What an assignment finds out while the query is read may be newer than what is read: nothing is lost then.
        seen = self.revision or 0
        stored = await self._opening.stored()
        if stored is None:
            note = await self._open(batch, note)
        elif stored.revision < seen:
            raise Fenced(self.query_id, seen, stored.revision)
        elif stored.partition != self.partition:
            self._elsewhere = stored.partition
        elif stored.settings.status == Status.DELETED:
            self._be_deleted(stored.revision, stored.position)
            self.publish_again()  # from then on it is seen if a ranking lands after that
        else:
            if self._troubles.listed:  # who opened it may have done so when the store had gone back
                note = await self._troubles.adopt_unknown(note)
            again = await self._opening.passed_over(note.passed)
            self._loaded = await self._opening.load(stored, again, self._troubles)
            self._loaded.finished = self._loaded.finished or self._lacking
            self._lacking = False
            self._committing.show(self._loaded.state)
            batch.add_again(again)
        return note if self._loaded and (note.passed or self._troubles.listed) else None

    async def _open(self, batch: Batch, note: Note) -> Note:
        """Open the query if its settings are there, or come; its note, with the verdicts that came before them."""
        if batch.deliveries and not batch.of(Kind.QUERY) and note.passed.queries is None:
            await self._opening.settings_or_all_read()
            while taken := self.mailbox.take():
                batch.add(taken)
        if batch.of(Kind.QUERY) or note.passed.queries is not None:
            note = await self._troubles.adopt_unknown(note)
            batch.add_again(await self._opening.passed_over(note.passed))
            self._loaded = await self._opening.open(batch, self._troubles)
        return note

    async def _refuse(self, batch: Batch) -> None:
        """Reject a batch for a query that is stopped, deleted, another partition's, or not opened by anybody."""
        if self._troubles.stopped is not None:
            self._opening.leave()
            await self._troubles.pass_over(batch)
            self._wake_after(self._shared.limits.release_seconds)
        elif self._elsewhere is not None:
            batch.reject_all(wrong_partition(self.query_id, self._elsewhere, self.partition))
        elif self.deleted:
            batch.reject_all(query_deleted(self.query_id), after=self._read_before)
        else:
            await self._troubles.pass_over_unknown(batch)
        await self._committing.commit(None, batch, None)
        self._opening.settings_came.clear()
        # Anybody can name a query: one that nobody opened takes no memory.
        unknown = self._troubles.stopped is None and self._elsewhere is None and not self.deleted
        if unknown and not len(self.mailbox):
            self._on_unknown(self)

    async def _delete(self, batch: Batch, deletion: Delivery) -> None:
        """Delete the query, whether or not it can be computed, and let go of it; or refuse, if it is another's."""
        self._stale_shown = False  # as in `_handle`
        left = await self._committing.delete(batch, deletion)
        if left.partition != self.partition:
            self._elsewhere = left.partition
            await self._refuse(batch)
            return
        self._troubles = Troubles(self.query_id, self.partition, self._shared)
        self._be_deleted(left.revision, left.position)

    def _be_deleted(self, revision: int, position: Position) -> None:
        self._let_go()
        self._read_before = position
        self.deleted, self.away = True, Away(revision, cursor=0, follows=None)
        self._shared.metrics.queries.forget(self.query_id)

    async def _fold(self, loaded: Loaded, batch: Batch) -> Folded | None:
        """Apply what is in the batch, and what the collection got since."""
        follower = self._opening.follower
        assert follower is not None
        limits, clock = self._shared.limits, self._shared.store_clock
        self.worked, self.slimmed = clock.monotonic(), False
        pace = Pace(limits.item_publish_seconds, limits.totals_seconds) if self._stays(loaded) else AT_ONCE
        heavy, turn = loaded.heavy(batch), Turn.ANSWER if batch.deliveries else Turn.GROWTH

        def work() -> Folded | None:
            if follower.stale:  # of which nothing may be saved: rows are numbered otherwise from then on
                raise Stale(f"query {self.query_id!r}: the items of its scope are counted anew")
            return fold(loaded, batch, partition=self.partition, clock=clock, pace=pace)

        async def folded() -> Folded | None:
            with computing():
                return await follower.exclusive(work, in_thread=heavy, turn=turn, who=self.query_id)

        if loaded.may_kill(batch):
            async with self._troubles.attempt(loaded.saved):
                result = await folded()
        else:
            result = await folded()
        follower.took(self.query_id, loaded.took)
        if result is not None:
            self._shared.metrics.engine_settle.observe(result.settle_seconds)
            self._shared.metrics.touched_participants.observe(result.touched)
        return result

    def _time_items(self, first: int | None, last: int) -> None:
        """Observe how long ago the first of the items was read that are now in a ranking."""
        follower = self._opening.follower
        if first is not None and first <= last and follower is not None:
            came = follower.read_at(first)
            if came is not None:
                self._shared.metrics.log_to_ranking.observe(self._shared.clock.monotonic() - came)

    # ---- when nobody waits ----

    async def _tend(self) -> None:
        """Undo drift of the posterior for as long as nobody waits; the next batch saves what it changed, or a later
        save of that alone."""
        ABOUT.set(self.query_id)
        loaded, follower = self._loaded, self._opening.follower
        if loaded is None or follower is None:
            return
        state = loaded.state
        unfinished = state.unfinished or loaded.owed
        try:
            with computing():
                done = await self._tending.until_due(state, follower.exclusive, self.mailbox)
        except (Broken, QueryFailed) as trouble:
            await self._stop_tending(trouble)
            return
        if not done:
            return
        self._tending_raised = False
        if (unfinished or state.tended) and not loaded.finished:
            self._have_saved(loaded, soon=unfinished)
        follower.snapshots.keep(state.settings)
        follower.originals.make_ahead(state)
        if not (self._stays(loaded) or loaded.finished or self._troubles.suspect or self.mailbox.due):
            self.away = _away(state.settings, loaded.revision, loaded.cursor)
            self._let_go()

    def _have_saved(self, loaded: Loaded, *, soon: bool) -> None:
        """Have what was made with estimates, or was told of when nobody waited, saved and published once it is all
        done; a batch that comes before does."""
        state, limits, stays = loaded.state, self._shared.limits, self._stays(loaded)
        # One that leaves does not follow its collection any more: where that has grown, this stays undone until it
        # is brought back. Nobody brings back one that is not open: that one takes in what came, and then goes on.
        cut_short = state.unfinished and bool(state.behind) and not loaded.follows
        if stays or cut_short or not state.unfinished:
            loaded.finished = True
            pace = limits.item_publish_seconds if soon and not cut_short else limits.totals_seconds
            self._wake_after(pace if stays or cut_short else 0.0)

    def _stays(self, loaded: Loaded) -> bool:
        """Whether the state is kept in memory, and follows its collection, when there is nothing more to do.

        A query that somebody died of stays until it is proved innocent, also where it is to leave.
        """
        return loaded.follows and (not self._leaving or self._troubles.suspect)

    def _let_go(self) -> None:
        self._loaded, self._wanted, self._leaving = None, False, False
        self._left.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._opening.leave()

    def grown(self, *, expected: bool) -> bool:
        """Take in what the collection got if that is the query's concern, or a verdict is `expected`, with which it
        would have to; and say whether it does.

        Not at all if it is not in memory, or does not stay there.
        """
        loaded = self._loaded
        if loaded is None or not self._stays(loaded):
            return False
        if not (loaded.state.behind if expected else self._concerned(loaded.state)):
            return False
        self.wake()
        return True

    def catch_up(self, *, after: float) -> float:
        """About how many seconds it takes to take in what the collection got and was no concern of the query, or 0
        where there is nothing. That is done as soon as its totals are due, but `after` so many at the earliest."""
        loaded = self._loaded
        if loaded is None or not self._stays(loaded) or not loaded.state.behind:
            return 0.0
        due = loaded.saved_at + self._shared.limits.totals_seconds
        self._wake_after(max(after, due - self._shared.clock.monotonic()))
        return loaded.took

    def _concerned(self, state: QueryState) -> bool:
        try:
            return state.concerned()
        except Exception:
            # The query's trouble, and nobody else's: folding the items in says whether it is.
            log.exception("query %r cannot say whether new items concern it", self.query_id)
            return True

    async def _stop_tending(self, trouble: Broken | QueryFailed) -> None:
        """Stop the query, if it cannot be computed or tending raised before; else load it again."""
        self._loaded = None
        if isinstance(trouble, QueryFailed):
            await self._troubles.stop(trouble)
        else:
            log.error("query %r, tending: %s", self.query_id, trouble, exc_info=trouble.__cause__)
            if self._tending_raised:
                await self._troubles.stop(QueryFailed(Code.QUARANTINED, f"tending it raised {trouble}"))
            self._tending_raised = True
        self.wake()

    def _wake_after(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        self.wake()


def _away(settings: Query | None, revision: int, cursor: int) -> Away:
    follows = settings.view if settings is not None and settings.status == Status.OPEN else None
    return Away(revision, cursor, follows)


def wrong_partition(query_id: str, owner: int, here: int) -> Rejected:
    """Why a record of the query is not taken from this partition."""
    return Rejected(
        Code.WRONG_PARTITION,
        f"query {query_id!r} was opened on partition {owner}, and this came on {here}. Have every producer choose "
        "the partition by the murmur2 hash of the key, with librdkafka by partitioner=murmur2_random "
        "(docs/wire-format.md, Partitions)",
    )
