"""Items: into their collection's log, and from there to the queries of the collection."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass
from functools import partial

from haystream.collection import Collection
from haystream.errors import Code, Rejected
from haystream.events import Item
from haystream_service.store.base import Appended
from haystream_service.wire import decode_item
from haystream_service.worker.exclusive import Exclusive
from haystream_service.worker.records import Record
from haystream_service.worker.shared import Shared
from haystream_service.worker.snapshots import Snapshots

CHUNK = 5000
"""Entries read from a log at once: about 1 MB, so that a cold start takes few round trips and little memory."""
ADDED_AT_ONCE = 250
"""Items added between two looks at the event loop: some 2 ms."""
DECODED_AT_ONCE = 100
"""Items decoded between two looks at the event loop: some 2 ms."""
READS = 1000
"""So many reads of a collection's log are remembered, with their times."""
WAIT_SECONDS = 2.0
"""How long a read waits for new items. It only bounds how soon a lost connection is noticed."""


@dataclass(frozen=True, slots=True, eq=False)
class NewItem:
    """An item with the record it came in."""

    record: Record
    item: Item


class Intake:
    """Takes items into the logs of their collections."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._in_hand = 0

    def __len__(self) -> int:
        """Items on their way."""
        return self._in_hand

    async def take(self, records: Sequence[Record]) -> None:
        """Return when every record is in its collection's log, or a dead letter, and acknowledged."""
        self._in_hand += len(records)
        try:
            by_collection = await self._decode(records)
            await asyncio.gather(*(self._append(name, some) for name, some in by_collection.items()))
        finally:
            self._in_hand -= len(records)

    async def _decode(self, records: Sequence[Record]) -> dict[str, list[NewItem]]:
        by_collection: dict[str, list[NewItem]] = {}
        for number, record in enumerate(records, start=1):
            try:
                item = decode_item(record.value, record.key)
            except Rejected as error:
                await self._shared.reject(record, error)
                record.ack()
            else:
                by_collection.setdefault(item.collection, []).append(NewItem(record, item))
            if number % DECODED_AT_ONCE == 0:
                await asyncio.sleep(0)
        return by_collection

    async def _append(self, collection: str, batch: Sequence[NewItem]) -> None:
        shared = self._shared
        items = [new.item for new in batch]
        answers = await shared.retry(lambda: shared.store.append_items(collection, items))
        came = min(new.record.timestamp for new in batch)
        shared.metrics.item_to_log.observe(max(0.0, shared.clock.now() - came))
        for new, answer in zip(batch, answers, strict=True):
            if answer is Appended.CONFLICT:
                detail = f"item {new.item.item_id!r} is known with other content, which stands"
                await shared.reject(new.record, Rejected(Code.ITEM_CONFLICT, detail))
            else:
                shared.count(new.record, "applied" if answer is Appended.ADDED else "known")
        shared.metrics.batch_events.labels("collection").observe(len(batch))
        for new in batch:
            new.record.ack()


class Follower:
    """A collection in this process's memory, kept up with its log for the queries that are owned here."""

    def __init__(self, name: str, shared: Shared) -> None:
        self.collection = Collection(name)
        self.exclusive = Exclusive()
        """For whoever works with the collection, or with the state of one of its queries."""
        self.snapshots = Snapshots(self.collection, shared, self.exclusive)
        self.listeners: dict[str, Callable[[], None]] = {}
        """By query: called when the collection has grown."""
        self._shared = shared
        self._reads: deque[tuple[int, float]] = deque(maxlen=READS)
        """How many items there were after each of the last reads, and when that was."""
        self._grown = asyncio.Event()
        # What it logs is not about the query that came first.
        self._task = asyncio.create_task(self._follow(), context=Context())

    async def reach(self, count: int) -> None:
        """Return when the collection holds the first `count` entries of its log."""
        while len(self.collection) < count:
            await self._grown.wait()

    def read_at(self, number: int) -> float | None:
        """When that item of the log (from 1 on) was read, on the monotonic clock; None where that is long ago."""
        if not self._reads or number <= self._reads[0][0]:
            return None
        return next((when for count, when in self._reads if number <= count), None)

    def close(self) -> None:
        """Follow no more."""
        self._task.cancel()

    async def _follow(self) -> None:
        try:
            while True:
                await self._read_on()
        except Exception as bug:  # noqa: BLE001 - a bug, whatever it is: told, never swallowed
            self._shared.on_bug(bug)

    async def _read_on(self) -> None:
        collection, store = self.collection, self._shared.store
        after = len(collection)
        items = await self._shared.retry(
            lambda: store.read_items(collection.name, after, limit=CHUNK, wait=WAIT_SECONDS)
        )
        for begin in range(0, len(items), ADDED_AT_ONCE):
            if begin:
                await asyncio.sleep(0)
            some = items[begin : begin + ADDED_AT_ONCE]
            await self.exclusive(partial(_add, collection, some), in_thread=False)
        if items:
            self._reads.append((len(collection), self._shared.clock.monotonic()))
            self._grown.set()
            self._grown = asyncio.Event()
            for listener in list(self.listeners.values()):
                listener()
        if 0 < len(items) < CHUNK:
            await asyncio.sleep(self._shared.limits.item_publish_seconds)  # a verdict's batch has none to take in


def _add(collection: Collection, items: Sequence[Item]) -> None:
    for item in items:
        collection.add(item)


class Followers:
    """The collections that are followed: those that have listeners, or had until a while ago."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._followers: dict[str, Follower] = {}
        self._leaving: dict[str, asyncio.TimerHandle] = {}
        """By collection that nobody listens to: what will let it go."""

    def join(self, name: str, query_id: str, listener: Callable[[], None]) -> Follower:
        """Follow the collection on behalf of a query, until `leave`."""
        follower = self._followers.get(name)
        if follower is None:
            follower = self._followers[name] = Follower(name, self._shared)
        if name in self._leaving:
            self._leaving.pop(name).cancel()
        follower.listeners[query_id] = listener
        return follower

    def leave(self, name: str, query_id: str) -> None:
        """The query needs the collection no more; after `idle_seconds` without a listener its memory is let go."""
        follower = self._followers.get(name)
        if follower is not None:
            follower.listeners.pop(query_id, None)
            if not follower.listeners and name not in self._leaving:
                loop, seconds = asyncio.get_running_loop(), self._shared.limits.idle_seconds
                self._leaving[name] = loop.call_later(seconds, self._let_go, name)

    def _let_go(self, name: str) -> None:
        del self._leaving[name]
        self._followers.pop(name).close()

    def collections(self) -> list[Collection]:
        """Those that are in memory."""
        return [follower.collection for follower in list(self._followers.values())]

    def close(self) -> None:
        """Follow nothing any more."""
        for leaving in self._leaving.values():
            leaving.cancel()
        self._leaving.clear()
        for follower in self._followers.values():
            follower.close()
        self._followers.clear()
