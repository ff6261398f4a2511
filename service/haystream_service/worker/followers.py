"""Collections in memory: each follows its log, and lets its queries know what came."""

import asyncio
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Protocol

from haystream.collection.collection import Collection
from haystream.events import ItemFact, View
from haystream.query.watchers import Watchers
from haystream_service.worker.endings import another_entry
from haystream_service.worker.exclusive import Exclusive, Turn
from haystream_service.worker.expected import Expected
from haystream_service.worker.originals import OriginalMaker
from haystream_service.worker.shared import Shared
from haystream_service.worker.slices import Slices
from haystream_service.worker.snapshots import Snapshots

ENTRIES_A_READ = 1000
"""Entries read from a log at once: about 100 kB. The event loop stands still while they are parsed, some 1 ms."""
ADDED_IN_BULK = 500
"""Entries added at once in a thread, which the event loop may have to wait for: some 2 ms."""
ASKED_AT_ONCE = 20
"""Queries that are asked in one turn whether what was let in concerns them: a millisecond or two."""
STUCK_SECONDS = 1.0
"""A query that has not taken in a slice after so long is not waited for: it takes in several at once, later."""
REST_FACTOR = 3.0
"""What trickles in is let in only after queries had so many times as long for verdicts as they took for what came
before: a hundred of them take a third of a second."""
LONGEST_REST_SECONDS = 1.0
"""Where that took so long because the process stood still, or a query is stuck, there is nothing to rest from."""
TOTALS_REST_FACTOR = 4.0
"""What was no concern of the queries is taken in by one of them after the other, and the next one waits for so many
times as long as that takes: for all of them a fifth of a core, however many there are."""
READS_REMEMBERED = 1000
"""So many reads of a collection's log are remembered, with their times."""
WAIT_SECONDS = 2.0
"""How long a read waits for new items. It only bounds how soon a lost connection is noticed."""


class Stale(Exception):  # noqa: N818 - a state, not a failure
    """A query's collection has to be made afresh, and the query with it: load it again."""


class Listener(Protocol):
    """A query that hears of what its collection gets, nobody being at work on it."""

    def grown(self, *, expected: bool) -> bool:
        """Take in what it got if that is the query's concern, or a verdict is `expected`; whether it does."""
        ...

    def catch_up(self, *, after: float) -> float:
        """About how many seconds it takes to take in what waits as it was no concern, or 0 where nothing does. To
        be done `after` so many, or later."""
        ...


class Follower:
    """A collection in this process's memory, kept up with its log for the queries that are owned here.

    Once the collection is stale (`Collection.outgrown`) its queries are to go over to another follower's, and it is
    followed no further; where none is in memory yet, only as far as they ask for, so that all that is outgrown by
    then is known at once, and the log read twice and not once for each such item.
    """

    def __init__(self, collection: Collection, shared: Shared) -> None:
        self.collection = collection
        self.exclusive = Exclusive()
        """For whoever works with the collection, or with the state of one of its queries."""
        self.originals = OriginalMaker(shared, self.exclusive)
        self.snapshots = Snapshots(self.collection, shared, self.exclusive)
        self.listeners: dict[str, Listener] = {}
        """By query."""
        self.expected = Expected()
        self.followed_by: set[str] = set()
        """The queries that are in memory: at their pace it grows."""
        self._shared = shared
        self._coming: asyncio.Task[list[ItemFact]] | None = None
        """The read of what comes next, where there is more for sure and nobody in memory has to keep up."""
        self._reads: deque[tuple[int, float]] = deque(maxlen=READS_REMEMBERED)
        """How many entries were read after each of the last reads, and when that was."""
        self._grown = asyncio.Event()
        self._slices = Slices(self.collection)
        self._behind: set[str] = set()
        """The queries that are to take in the slice that was let in last."""
        self._slowest = 0.0
        self._caught_up = asyncio.Event()
        self._totals: asyncio.TimerHandle | None = None
        """What has queries take in what was no concern of them, where anything came since it last did."""
        self._totals_over = float("-inf")
        """When the last query is to have taken in what was no concern of it, on the loop's clock."""
        self._closed = False
        self._ended = False
        self._last: ItemFact | None = None
        """The last entry that was added."""
        # What it logs is not about the query that came first.
        self._task = asyncio.create_task(shared.telling_bugs(self._follow), context=Context())

    async def reach(self, count: int) -> None:
        """Return when the first `count` entries of the log are read, or it is followed no further."""
        while self.collection.entries < count and not (self._ended or self.left_behind):
            await self._grown.wait()

    @property
    def stale(self) -> bool:
        """Whether the collection has to be made afresh."""
        return bool(self.collection.outgrown)

    @property
    def left_behind(self) -> bool:
        """Whether it is stale, and queries in memory have to leave it."""
        return self.stale and bool(self.followed_by)

    def left(self, query_id: str) -> None:
        """The query is in memory no more."""
        self.listeners.pop(query_id, None)
        self.took(query_id, 0.0)
        self.followed_by.discard(query_id)
        self.expected.forget(query_id)

    def took(self, query_id: str, seconds: float) -> None:
        """The query has taken in all that there is, in so many seconds."""
        self.followed_by.add(query_id)
        self._slowest = max(self._slowest, seconds)
        self._behind.discard(query_id)
        if not self._behind:
            self._caught_up.set()

    def read_at(self, number: int) -> float | None:
        """When that entry of the log (from 1 on) was read, on the monotonic clock; None where that is long ago."""
        if not self._reads or number <= self._reads[0][0]:
            return None
        return next((when for count, when in self._reads if number <= count), None)

    def close(self) -> None:
        """Follow no more."""
        self._closed = True  # a cancellation that comes as what is waited for is there gets lost in `wait_for`
        self._task.cancel()
        if self._totals is not None:
            self._totals.cancel()
        if self._coming is not None:
            self._coming.cancel()
        self.originals.close()
        self.snapshots.close()
        self.exclusive.close()

    async def _follow(self) -> None:
        while not self._closed and not self.left_behind:
            await self._read_on()
        self._ended = True
        self._grown.set()

    async def _read_on(self) -> None:
        collection = self.collection
        after = collection.entries
        items = await (self._coming or self._read(after))
        await self._check_continues(after)  # where nothing came, too: it may be gone
        # Redis takes about as long to find entries as it takes to add them: it looks for the next ones meanwhile.
        ahead = len(items) == ENTRIES_A_READ and not self.followed_by and not self._closed
        self._coming = asyncio.create_task(self._read(after + ENTRIES_A_READ)) if ahead else None
        read_at, left = self._shared.clock.monotonic(), deque(items)
        while left and not self._closed and not self.left_behind:
            known = collection.changed
            # Reading a whole log keeps the interpreter busy: in a thread it lets others have it in between.
            in_bulk = not self.followed_by
            some = _first(left, ADDED_IN_BULK) if in_bulk else self._slices.next(left)
            await self.exclusive(partial(collection.add_all, some), in_thread=in_bulk, turn=Turn.GROWTH)
            self._last = some[-1]
            self._reads.append((collection.entries, read_at))
            self._grown.set()
            self._grown = asyncio.Event()
            if collection.changed > known:
                await self._until_caught_up()
            else:
                await asyncio.sleep(0)
        if 0 < len(items) < ENTRIES_A_READ:
            # Until then a verdict's batch has none to take in.
            took = self._shared.clock.monotonic() - read_at
            rest = min(REST_FACTOR * took, LONGEST_REST_SECONDS)
            await asyncio.sleep(max(self._shared.limits.item_publish_seconds, rest))

    async def _read(self, after: int) -> list[ItemFact]:
        store, name = self._shared.store, self.collection.name
        read = partial(store.read_items, name, after, limit=ENTRIES_A_READ, wait=WAIT_SECONDS)
        return await self._shared.retry(read, until_mended=True)

    async def _check_continues(self, after: int) -> None:
        """Raise `StateBack` unless the log is still the one that was read so far, up to `after`.

        One that went back, or is gone, may have got as many entries again, and others: whoever wrote what it lost
        may not see that, where it was said once more since.
        """
        shared, name, last = self._shared, self.collection.name, self._last
        if last is None:
            return
        read = partial(shared.store.read_items, name, after - 1, limit=1)
        if await shared.retry(read, until_mended=True) != [last] and not await shared.retry(
            partial(shared.store.is_deleted, name), until_mended=True
        ):
            await shared.written.read_items_again(name)
            raise another_entry(name, after)

    async def _until_caught_up(self) -> None:
        """Return when every query has taken in what was let in; one that is stuck is not waited for."""
        self._slowest = 0.0
        self._behind.clear()
        if self._totals is None:
            loop, seconds = asyncio.get_running_loop(), self._shared.limits.totals_seconds
            self._totals = loop.call_at(max(loop.time() + seconds, self._totals_over), self._totals_are_due)
        to_ask = Watchers.of(self.collection).to_ask
        asked = await self.exclusive(to_ask, in_thread=False, turn=Turn.GROWTH)
        expected = set(self.expected.queries(self._shared.clock.monotonic()))
        self._ask(expected, expected=True)
        rest = deque(query_id for query_id in asked if query_id not in expected)
        while rest:
            some = [rest.popleft() for _ in range(min(ASKED_AT_ONCE, len(rest)))]
            await self.exclusive(partial(self._ask, some, expected=False), in_thread=False, turn=Turn.GROWTH)
        if not self._behind:
            await asyncio.sleep(0)
            return
        self._caught_up.clear()  # some may have caught up before others were asked
        with suppress(TimeoutError):
            async with asyncio.timeout(STUCK_SECONDS):
                await self._caught_up.wait()
        self._slices.adapt(self._slowest)

    def _ask(self, query_ids: Iterable[str], *, expected: bool) -> None:
        """Let some queries know that the collection has grown."""
        for query_id in query_ids:
            listener = self.listeners.get(query_id)
            if listener is not None and listener.grown(expected=expected):
                self._behind.add(query_id)

    def _totals_are_due(self) -> None:
        """Have all queries take in what was no concern of them, one after the other."""
        self._totals, after = None, 0.0
        for listener in list(self.listeners.values()):
            took = listener.catch_up(after=after)
            after += (1.0 + TOTALS_REST_FACTOR) * min(took, LONGEST_REST_SECONDS)
        self._totals_over = asyncio.get_running_loop().time() + after


def _first(left: deque[ItemFact], most: int) -> list[ItemFact]:
    """The entries that come next, taken out of `left`."""
    return [left.popleft() for _ in range(min(most, len(left)))]


class Followers:
    """The collections that are followed, each scope apart: those that have listeners, or had until a while ago."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._followers: dict[View, Follower] = {}
        self._stale: set[Follower] = set()
        """Those that queries have still to leave for others."""
        self._leaving: dict[View, asyncio.TimerHandle] = {}
        """By what nobody listens to: what will let it go."""

    def join(
        self, view: View, query_id: str, listener: Listener, *, instead_of: Follower | None = None
    ) -> Follower:
        """Follow the collection on behalf of a query, until `leave`; one that is stale is made afresh.

        Where nobody has it in memory it is read to where it was asked for before: then it is `instead_of` that.
        """
        follower = self._followers.get(view)
        if view in self._leaving:
            self._leaving.pop(view).cancel()
        if follower is None or (follower.stale and (follower is instead_of or follower.left_behind)):
            collection = Collection(*view)
            if follower is not None:
                collection = follower.collection.afresh()
                self._stale.add(follower)
                self._close_if_left(follower)
            follower = self._followers[view] = Follower(collection, self._shared)
        follower.listeners[query_id] = listener
        return follower

    def leave(self, follower: Follower, query_id: str) -> None:
        """The query needs the collection no more; after `idle_seconds` without a listener its memory is let go."""
        follower.left(query_id)
        view = View(follower.collection.name, follower.collection.scope)
        if follower in self._stale:
            self._close_if_left(follower)
        elif self._followers.get(view) is follower and not follower.listeners and view not in self._leaving:
            loop, seconds = asyncio.get_running_loop(), self._shared.limits.idle_seconds
            self._leaving[view] = loop.call_later(seconds, self._let_go, view)

    def _close_if_left(self, stale: Follower) -> None:
        if not stale.listeners:
            self._stale.discard(stale)
            _forget(stale)

    def _let_go(self, view: View) -> None:
        del self._leaving[view]
        _forget(self._followers.pop(view))

    def changed(self, view: View, entries: int) -> int:
        """The last entry of the log that came for queries of the view, as far as is known; else the log's last."""
        follower = self._followers.get(view)
        return entries if follower is None else follower.collection.changed

    def collections(self) -> list[Collection]:
        """Those that are in memory."""
        return [follower.collection for follower in list(self._followers.values())]

    def close(self) -> None:
        """Follow nothing any more."""
        for leaving in self._leaving.values():
            leaving.cancel()
        self._leaving.clear()
        for follower in (*self._followers.values(), *self._stale):
            follower.close()
        self._followers.clear()
        self._stale.clear()


def _forget(follower: Follower) -> None:
    """Follow no more, and give memory back at once: what queries share refers to the collection, and it to that."""
    follower.close()
    follower.collection.shared.clear()
