"""The one writer of a query: its mailbox, its state in memory, and what is done when nobody waits."""

import asyncio
import logging
from collections.abc import Callable

from haystream.errors import QueryFailed, Rejected
from haystream.events import LeaseFact, Query, Status, Verdict
from haystream.query.state import QueryState
from haystream_service.kafka.records import Kind, Record
from haystream_service.logs import ABOUT
from haystream_service.store.base import Fenced, Head, Note, StoreDamaged
from haystream_service.worker.alarm import Alarm
from haystream_service.worker.batch import Batch, Delivery
from haystream_service.worker.committing import Committing
from haystream_service.worker.endings import ShortOfMemory
from haystream_service.worker.exclusive import Turn
from haystream_service.worker.folding import PACE_AT_ONCE, Folded, Pace, fold, offers_others
from haystream_service.worker.followers import Followers, Stale
from haystream_service.worker.gathering import gather
from haystream_service.worker.holding import (
    Away,
    Deleted,
    Elsewhere,
    Held,
    Loaded,
    Wanted,
    query_deleted,
    wrong_partition,
)
from haystream_service.worker.mailbox import Mailbox
from haystream_service.worker.opening import Opening
from haystream_service.worker.shared import Shared
from haystream_service.worker.tending import Tending
from haystream_service.worker.troubles import CALM_SECONDS, Broken, Troubles, computing

log = logging.getLogger(__name__)

LEAST_SECONDS = 0.001
"""A timer may end early by the rounding of its time: set to nothing then, it would end at once, again and again."""


class QueryOwner:
    """A query's mailbox in this process, and what it has of the query (`Held`).

    Where another process has been the writer meanwhile, a save finds that out (`Fenced`); then the state is loaded
    again and the batch, which was not acknowledged, applied to it.
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
        self.held: Held = None
        """What is had of the query; only the owner changes it."""
        self._wanted = Wanted.NOT
        self.touched = float("-inf")
        """When something came for it, on the monotonic clock."""
        self._left = asyncio.Event()
        """Set when the query is put away, stays, or cannot be had: a visit is over then."""
        self._opening = Opening(query_id, partition, shared, followers, listener=self)
        self._committing = Committing(query_id, partition, shared)
        self._tending = Tending(query_id, shared.clock)
        self._troubles = Troubles(query_id, partition, shared)
        self._alarm = Alarm(self.wake)
        # What the next batch begins with:
        self._stale_shown = False
        """Whether readers may see an older ranking than the newest, or one of a query that was deleted."""
        self._lacking = False
        """Whether the store has less of the query than the state in memory."""
        self._trouble: Broken | QueryFailed | ShortOfMemory | None = None
        """What was raised as the query was tended, or made slim."""
        self.mailbox: Mailbox[Delivery] = Mailbox(
            self._handle, rest=self._tend, max_batch=shared.limits.max_batch, on_bug=shared.on_bug
        )

    @property
    def loaded(self) -> Loaded | None:
        """The query, where it is in memory."""
        return self.held if isinstance(self.held, Loaded) else None

    @property
    def state(self) -> QueryState | None:
        """The state in memory, for reading."""
        return self.held.state if isinstance(self.held, Loaded) else None

    @property
    def revision(self) -> int | None:
        """The revision that was saved last, as far as this process knows; None where the query is not its own."""
        match self.held:
            case Loaded(revision=0) | Elsewhere() | None:
                return None
            case held:
                return held.revision

    def publish_again(self) -> None:
        """Publish the newest ranking once more, as after a load."""
        if isinstance(self.held, Loaded):
            self.held.published = False
        self._stale_shown = True
        self.mailbox.poke()

    def load_again(self) -> None:
        """Have a state that is in memory be made anew of what the store has: it has lost something of it."""
        if isinstance(self.held, Loaded):
            self._lacking = True
            self.wake()

    def idle(self) -> bool:
        """Whether there is nothing left to do but to wait for what comes: all is saved, published and tended."""
        loaded = self.loaded
        if loaded is None:
            return self.mailbox.idle
        unsaved = loaded.finished or loaded.owed or loaded.unsaved_items
        return self.mailbox.idle and not unsaved and not loaded.state.unfinished

    @property
    def owned(self) -> bool:
        """Whether this process is the query's writer, whether or not it has it in memory."""
        return not (self.held is None or isinstance(self.held, Elsewhere))

    @property
    def stopped(self) -> bool:
        """Whether the query is in quarantine."""
        return self._troubles.stopped is not None

    @property
    def long_gone(self) -> bool:
        """Whether the query was deleted long ago, readers know, and nothing came for it since."""
        untouched = self._shared.clock.monotonic() - self.touched
        known = isinstance(self.held, Deleted) and not self._stale_shown and self.mailbox.idle
        return known and untouched >= self._shared.limits.withdrawn_seconds

    def deliver(self, record: Record, event: Query | Verdict | LeaseFact | Rejected) -> None:
        """Leave an event, or why a record under the query's key is none."""
        if isinstance(event, Query):
            self._opening.settings_came.set()
        self.touched = self._shared.clock.monotonic()
        if self._wanted is Wanted.FOR_A_VISIT:
            self._wanted = Wanted.TO_STAY
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
        if isinstance(self.held, Loaded):
            self.wake()
            return
        clock = self._shared.store_clock
        self.touched = max(self.touched, clock.monotonic() - max(0.0, clock.now() - head.touched / 1000))
        if head.settings is not None and head.settings.status == Status.DELETED:
            self._be_deleted(Deleted(head.revision, head.position))
            self.publish_again()
            return
        if self.held is None or (isinstance(self.held, Away) and self.held.revision < head.revision):
            outdated = head.unfinished or head.position.of_another(self._shared.written.history)
            self.held = Away.of(head.settings, head.revision, head.position.cursor, outdated=outdated)
        self.mailbox.poke()

    def put_away(self) -> None:
        """Have the query let go of its state as soon as that is saved and tended, unless something comes for it."""
        if isinstance(self.held, Loaded) and self._wanted is not Wanted.FOR_A_VISIT:
            self._wanted = Wanted.FOR_A_VISIT
            self.wake()

    async def slim(self, turn: Turn) -> bool:
        """Have the query give up memory for what it can compute again (`QueryState.slim`); False if there is none,
        or it has something to do."""
        loaded, follower = self.loaded, self._opening.follower
        if loaded is None or follower is None or not self.idle():
            return False
        loaded.slimmed = True
        try:
            with computing():
                await follower.exclusive(loaded.state.slim, in_thread=True, turn=turn, who=self.query_id)
        except (Broken, QueryFailed, ShortOfMemory) as trouble:
            self._trouble = trouble  # the mailbox deals with it: a batch may have come meanwhile
            self.mailbox.poke()
            return False
        return loaded is self.held and loaded.state.is_slim

    async def visit(self) -> None:
        """Return when the query has come back, has taken in its collection's new items, and is put away again.

        Or when something came for it, so that it stays.
        """
        self._wanted = Wanted.FOR_A_VISIT
        self._left.clear()
        self.wake()
        await self._left.wait()

    def wake(self) -> None:
        """Load the query if it is not in memory, and take in what its collection got since."""
        if self._wanted is Wanted.NOT:
            self._wanted = Wanted.TO_STAY
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
                if isinstance(self.held, Loaded | Away):
                    self.held = None
                await self._troubles.abandon()
        self._left.set()
        self._opening.settings_came.clear()  # if they had, they come again

    def release(self) -> None:
        """Let go of everything; to be called when the mailbox is idle, or by the handler as its last act."""
        ours = not isinstance(self.held, Elsewhere)
        self._let_go(None)
        if ours:
            self._shared.metrics.queries.forget(self.query_id)

    # ---- one batch ----

    async def _handle(self, deliveries: list[Delivery]) -> None:
        ABOUT.set(self.query_id)
        if self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            await self._stop_tending(trouble)
        if self._lacking:
            self._forget_state()
        if isinstance(self.held, Deleted) and self._stale_shown:
            self._stale_shown = False  # from now on it is told anew whether one lands after that
            await self._committing.withdraw(permit=self._shared.shows)
        if not deliveries:
            if isinstance(self.held, Deleted):
                return
            away = isinstance(self.held, Away) and self._wanted is Wanted.NOT
            if away and await self._published_stored():
                return
        shared = self._shared
        if self.loaded is not None and len(self.loaded.state.leases):  # until then what is offered is the ranking
            await gather(deliveries, self.mailbox, shared.clock, pace=shared.limits.item_publish_seconds)
        batch = Batch(deliveries)
        for delivery in batch.of(Kind.VERDICT):
            shared.metrics.stage.labels("queue").observe(max(0.0, shared.clock.now() - delivery.record.timestamp))
        while not await self._tried(batch):
            self._forget_state()
        if self.loaded is None or self._wanted is not Wanted.FOR_A_VISIT:
            self._left.set()

    async def _published_stored(self) -> bool:
        """Whether the ranking of the query, which is put away, is published once more; else it has to be made anew,
        or the query is stopped."""
        try:
            self._lacking = not await self._committing.publish_again(permit=self._shared.shows)
            return not self._lacking
        except StoreDamaged as damaged:
            await self._troubles.damaged(damaged)
            return False

    def _forget_state(self) -> None:
        """Have the state loaded again when it is next needed."""
        if isinstance(self.held, Loaded):
            self.held = None

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
        except ShortOfMemory as short:
            self._forget_state()
            await self._troubles.short_of_memory(short)
            return False
        if loaded is None:
            return True
        await self._troubles.went_well(loaded.saved)
        if loaded.lacking:
            log.warning("query %r: Redis has less of it than was saved; loading it again", self.query_id)
            self.load_again()
        if (due := loaded.put_off) is not None:
            self._alarm.set(max(LEAST_SECONDS, due - self._shared.clock.monotonic()))
        if self._troubles.suspect:
            self._alarm.set(CALM_SECONDS)
            self._left.set()
        return True

    async def _taken_in(self, batch: Batch) -> Loaded | None:
        """The query in memory, with the batch folded in, saved and published; None where it is not taken in."""
        passed = None
        if (self.held is None or isinstance(self.held, Away)) and batch.deletion is None:
            passed = await self._get_hold(batch)
        if batch.deletion is not None and not isinstance(self.held, Elsewhere):
            await self._delete(batch, batch.deletion)
            return None
        loaded = self.loaded
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
        """Load or open the query, if it can be, and add to the batch what was passed over; the note of that."""
        found, passed = await self._opening.get_hold(
            batch, self.mailbox, self._troubles, seen=lambda: self.revision
        )
        if isinstance(self.held, Deleted):  # an assignment found that out meanwhile: what was read is older
            self._opening.leave()
            return None
        self.held = found
        if isinstance(found, Deleted):
            self._be_deleted(found)
            self.publish_again()  # from then on it is seen if a ranking lands after that
        elif isinstance(found, Loaded) and found.revision:
            found.finished = found.finished or self._lacking
            self._lacking = False
            self._committing.show(found.state)
        if not isinstance(found, Loaded) or self._wanted is Wanted.TO_STAY:
            self._wanted = Wanted.NOT  # it has come, or cannot
        return passed

    async def _refuse(self, batch: Batch) -> None:
        """Reject a batch for a query that is stopped, deleted, another partition's, or not opened by anybody."""
        if self._troubles.stopped is not None:
            self._opening.leave()
            await self._troubles.pass_over(batch)
            self._alarm.set(self._shared.limits.release_seconds)
        elif isinstance(self.held, Elsewhere):
            batch.reject_all(wrong_partition(self.query_id, self.held.partition, self.partition))
        elif isinstance(self.held, Deleted):
            batch.reject_all(query_deleted(self.query_id), after=self.held.read)
        else:
            await self._troubles.pass_over_unknown(batch)
        await self._committing.commit(None, batch, None)
        self._opening.settings_came.clear()
        # Anybody can name a query: one that nobody opened takes no memory.
        if self._troubles.stopped is None and self.held is None and not len(self.mailbox):
            self._on_unknown(self)

    async def _delete(self, batch: Batch, deletion: Delivery) -> None:
        """Delete the query, whether or not it can be computed, and let go of it; or refuse, if it is another's."""
        self._stale_shown = False  # as in `_handle`
        left = await self._committing.delete(batch, deletion)
        if left.partition != self.partition:
            self.held = Elsewhere(left.partition)
            await self._refuse(batch)
            return
        self._troubles = Troubles(self.query_id, self.partition, self._shared)
        self._be_deleted(Deleted(left.revision, left.position))

    def _be_deleted(self, deleted: Deleted) -> None:
        self._let_go(deleted)
        self._shared.metrics.queries.forget(self.query_id)

    async def _fold(self, loaded: Loaded, batch: Batch) -> Folded | None:
        """Apply what is in the batch, and what the collection got since."""
        follower = self._opening.follower
        assert follower is not None
        limits, clock = self._shared.limits, self._shared.store_clock
        loaded.worked, loaded.slimmed = clock.monotonic(), False
        pace = Pace(limits.item_publish_seconds, limits.totals_seconds) if self._stays(loaded) else PACE_AT_ONCE
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
        while await self._tend_once() and await self._tending.until_quiet(self.mailbox):
            pass

    async def _tend_once(self) -> bool:
        """Do so until nothing is left to do, or the mailbox is due; True if the query stays in memory then, and
        there may be more to do later."""
        ABOUT.set(self.query_id)
        loaded, follower = self.loaded, self._opening.follower
        if loaded is None or follower is None:
            return False
        state = loaded.state
        unfinished = state.unfinished or loaded.owed
        try:
            with computing():
                done = await self._tending.until_due(state, follower.exclusive, self.mailbox)
        except (Broken, QueryFailed, ShortOfMemory) as trouble:
            self._trouble = trouble  # the mailbox deals with it: here is what holds the state
            self.mailbox.poke()
            return False
        if not done:
            return False
        self._troubles.tending_went_well()
        if (unfinished or state.tended) and not loaded.finished:
            self._have_saved(loaded, soon=unfinished or offers_others(loaded))
        follower.snapshots.keep(state.settings)
        follower.originals.make_ahead(state)
        if not (self._stays(loaded) or loaded.finished or self._troubles.suspect or self.mailbox.due):
            self._let_go(Away.of(state.settings, loaded.revision, loaded.cursor))
            return False
        return True

    def _have_saved(self, loaded: Loaded, *, soon: bool) -> None:
        """Have what was made with estimates, or late, or was told of when nobody waited, saved and published once
        it is all done; a batch that comes before does. `soon`: what is published is not as exact as promised, or
        has other items."""
        state, limits, stays = loaded.state, self._shared.limits, self._stays(loaded)
        # One that leaves does not follow its collection any more: where that has grown, this stays undone until it
        # is brought back. Nobody brings back one that is not open: that one takes in what came, and then goes on.
        cut_short = state.unfinished and bool(state.behind) and not loaded.follows
        if stays or cut_short or not state.unfinished:
            loaded.finished = True
            pace = limits.item_publish_seconds if soon and not cut_short else limits.totals_seconds
            self._alarm.set(pace if stays or cut_short else 0.0)

    def _stays(self, loaded: Loaded) -> bool:
        """Whether the state is kept in memory, and follows its collection, when there is nothing more to do.

        A query that somebody died of stays until it is proved innocent, also where it is to leave.
        """
        return loaded.follows and (self._wanted is not Wanted.FOR_A_VISIT or self._troubles.suspect)

    def _let_go(self, held: Away | Deleted | None) -> None:
        """Have no more of the query than that."""
        self.held, self._wanted = held, Wanted.NOT
        self._left.set()
        self._alarm.cancel()
        self._opening.leave()

    def grown(self, *, expected: bool) -> bool:
        """Take in what the collection got if that is the query's concern, or a verdict is `expected`, with which it
        would have to; and say whether it does.

        Not at all if it is not in memory, or does not stay there.
        """
        loaded = self.loaded
        if loaded is None or not self._stays(loaded):
            return False
        if not (loaded.state.behind if expected else self._concerned(loaded.state)):
            return False
        self.wake()
        return True

    def catch_up(self, *, after: float) -> float:
        """About how many seconds it takes to take in what the collection got and was no concern of the query, or 0
        where there is nothing. That is done as soon as its totals are due, but `after` so many at the earliest."""
        loaded = self.loaded
        if loaded is None or not self._stays(loaded) or not loaded.state.behind:
            return 0.0
        due = loaded.saved_at + self._shared.limits.totals_seconds
        self._alarm.set(max(after, due - self._shared.clock.monotonic()))
        return loaded.took

    def _concerned(self, state: QueryState) -> bool:
        try:
            return state.concerned()
        except Exception:
            # The query's trouble, and nobody else's: folding the items in says whether it is.
            log.exception("query %r cannot say whether new items concern it", self.query_id)
            return True

    async def _stop_tending(self, trouble: Broken | QueryFailed | ShortOfMemory) -> None:
        """Load the query again, where memory is wanted later; or stop it, if it cannot be computed or tending
        raised before."""
        self._forget_state()
        await self._troubles.tending_raised(trouble)
        self.wake()
