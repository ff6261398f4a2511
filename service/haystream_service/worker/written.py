"""Whether what this process has written lately is still there.

A store may go back by less than what is noted of it (`progress`): a replica that lags by a tenth of a second
becomes the master, a machine loses power. What was written and acknowledged in that time is gone then, and no
record brings it again. So each second a process looks whether what it wrote since the last look is there.

Who finds that it is not begins a new *history* of the store, by which all others know: they have read what is no
more, and may have saved what they made of it. All processes end then, and what a query saved in another history is
written anew when it is loaded.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from haystream.errors import Rejected
from haystream.events import ItemFact, Status
from haystream.facts.merging import merge
from haystream_service.kafka.records import NO_OFFSET, Kind
from haystream_service.store.base import HISTORY, NONE_SAID, UNREADABLE, Store, StoreDamaged
from haystream_service.worker.retry import Retry

MOST_HISTORIES = 1 << 53
"""They are drawn at random: that one comes again would have it taken for the other."""


class Written:
    """What a process wrote since it last looked."""

    def __init__(self, store: Store, retry: Retry) -> None:
        self._store = store
        self._retry = retry
        self._saved: dict[str, int] = {}
        """By query, the revision that was saved last."""
        self._appended: list[tuple[str, ItemFact]] = []
        self._counts: dict[str, int] = {}
        """By partition, how often anything else was written for it, as far as this process knows."""
        self._gone = ""
        self._reading_again = asyncio.Lock()
        """Held while it is said that items are to be read again."""
        self.history = NONE_SAID
        """The store's, when this process began; a number that says nothing."""

    async def begin(self) -> None:
        """Learn the store's history. Call it before anything else."""
        await self._retry(self._begin)

    async def _begin(self) -> None:
        new = _new()
        self.history = (await self._store.move_up_to({HISTORY: (NO_OFFSET, new)})).get(HISTORY, new)

    async def end(self) -> None:
        """Have a new history begin, unless somebody else has begun one. Raises what the store does."""
        await self._store.move_up_to({HISTORY: (self.history, _new())})

    async def read_items_again(self, collection: str) -> None:
        """Have all items read from the beginnings of their topic, by whoever has its partitions or gets them, in a
        new history; and the collection's queries say that they have seen no more of its log than there is.

        All of them, whoever owns them: each would end the process that loads it once more.
        """
        async with self._reading_again:
            await self._retry(self._read_items_again, until_mended=True)
            await self._retry(partial(self._lower_cursors, collection), until_mended=True)
            await self._retry(self.end)

    async def until_said(self) -> None:
        """Return when all is said of what is to be read again.

        Half of it ends this process, which sees within a second that less is noted than it had noted: then its heir
        would find the cursors as they were, and end once more.
        """
        async with self._reading_again:
            return

    async def _lower_cursors(self, collection: str) -> None:
        entries = await self._store.entry_count(collection)
        query_ids = list(await self._store.query_ids())
        for query_id, head in zip(query_ids, await self._store.read_heads(query_ids), strict=True):
            if head is None or head.settings is None or head.settings.status == Status.DELETED:
                continue
            if head.settings.collection == collection and head.position.cursor > entries:
                await self._store.lower_cursor(query_id, entries)

    async def _read_items_again(self) -> None:
        moved: Mapping[str, object] | None = None
        while moved is None or moved:
            noted = await self._store.read_up_to()
            moves = {name: (at, 0) for name, at in noted.items() if name.startswith(f"{Kind.ITEM}/") and at > 0}
            moved = await self._store.move_up_to(moves)

    def saved(self, query_id: str, revision: int) -> None:
        """The query is in the store with that revision, or a later one; to be called before what it has is
        acknowledged.
        """
        self._saved[query_id] = revision

    def appended(self, collection: str, fact: ItemFact) -> None:
        """A batch of facts is in the collection's log, this one the last of them; likewise."""
        self._appended.append((collection, fact))

    async def counted(self, name: str, write: Callable[[], Awaitable[object]]) -> None:
        """Write what cannot be looked for, and may be written twice, and count that in the store.

        It is written before it is counted, and once more: where the store goes back in between, the first is lost
        and nothing tells of it; after that, the count is lost with it. `name` is of a partition of this process's,
        so that nobody else counts there.
        """
        await self._retry(write, until_mended=True)
        before = self._counts.get(name, 0)
        count = await self._retry(partial(self._store.count, name), until_mended=True)
        await self._retry(write, until_mended=True)
        if count <= before:
            self._gone = _lacks(name)
        self._counts[name] = max(count, self._counts.get(name, 0))

    def lately(self) -> "Lately":
        """What was written since `there` was last called."""
        written = dict(self._saved), list(self._appended), dict(self._counts)
        return Lately(self._store, *written, self.history, self._gone)

    def there(self, lately: "Lately") -> None:
        """All of that is there, and need not be looked for again."""
        self._saved = {q: revision for q, revision in self._saved.items() if lately.saved.get(q) != revision}
        del self._appended[: len(lately.appended)]


@dataclass(frozen=True, slots=True)
class Lately:
    """Some of what a process wrote."""

    store: Store
    saved: Mapping[str, int]
    appended: Sequence[tuple[str, ItemFact]]
    counts: Mapping[str, int]
    history: int
    gone: str

    async def missing(self) -> str:
        """What is to be said where something is not there any more, else nothing. Raises `StoreUnavailable`."""
        # At once: whoever is asked slowly is not away.
        items = map(self._items, sorted({collection for collection, _ in self.appended}))
        history, gone = await asyncio.gather(
            self.store.read_up_to([HISTORY]), asyncio.gather(self._revisions(), self._counts(), *items)
        )
        if history.get(HISTORY) != self.history:
            return "another worker has found that out"
        return next(filter(None, gone), self.gone)

    async def _revisions(self) -> str:
        found = await self.store.read_revisions(list(self.saved))
        for (query_id, revision), stored in zip(self.saved.items(), found, strict=True):
            if stored is None or UNREADABLE < stored < revision:
                return f"it lacks revision {revision} of query {query_id!r}"
        return ""

    async def _counts(self) -> str:
        found = await self.store.read_counts(list(self.counts))
        for (partition, count), stored in zip(self.counts.items(), found, strict=True):
            if stored < count:
                return _lacks(partition)
        return ""

    async def _items(self, collection: str) -> str:
        facts = [fact for of, fact in self.appended if of == collection]
        with suppress(StoreDamaged):  # of which others tell
            known = await self.store.find_items(collection, [fact.item_id for fact in facts])
            if not all(map(_has, known, facts)) and not await self.store.is_deleted(collection):
                return f"it lacks items of collection {collection!r}"
        return ""


def _new() -> int:
    return 1 + secrets.randbelow(MOST_HISTORIES)


def _has(known: ItemFact | None, fact: ItemFact) -> bool:
    """Whether what is known of an item is all that the fact says."""
    try:
        return known is not None and merge(known, fact) == known
    except Rejected:  # somebody else said something else first, of what is there now
        return False


def _lacks(partition: str) -> str:
    return f"it lacks what was written for {partition}"
