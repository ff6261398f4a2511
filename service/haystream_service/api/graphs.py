"""Who is who in a query's posterior: the graph of its collection, as far as this replica has read its log."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

from haystream.collection.collection import Collection
from haystream.collection.graph import Graph
from haystream.engines.local.solves.budget import DEFAULT_TOLERANCE
from haystream.errors import Code
from haystream.events import Item, ItemFact, Query, View
from haystream.posterior.rows import Posterior
from haystream.posterior.tables import read
from haystream_service.api.priors import Priors
from haystream_service.api.problems import Problem, unavailable
from haystream_service.store.base import HISTORY, Position, Store

ITEMS_AT_ONCE = 500
"""Between two turns of the event loop: some 5 ms."""
MOST_GRAPHS = 8
"""So many are kept whatever their size."""
MOST_KEPT = 2_000_000
"""Participants, pairs and items of all that are kept, where these are more: each takes some hundred bytes."""
LEAST_SIZE = 10_000
"""What one counts for at least."""
READERS = 4
"""So many of those that are far behind are read on at once: each has to finish some time."""
FAR_BEHIND_ENTRIES = 10_000
"""Entries: some 0.1 s."""
PATIENCE_SECONDS = 2.0
"""A long log is read on in the background, and whoever asked is told to come again."""


class _Known:
    """What the first entries of a log make of a view. Of a whole collection only the graph is kept."""

    def __init__(self, view: View, most: int | None, history: int | None) -> None:
        self.view = view
        self.most = most
        """Entries that are read; None: all."""
        self.history = history
        """The store's, from before the first was read; None where it had none."""
        self.cursor = 0
        self.last: ItemFact | None = None
        """The entry that was read last."""
        self.reading: asyncio.Task[None] | None = None
        self.scoped = None if view.scope is None else Collection(*view)
        self.priors: Priors | None = None
        """Of its graph, once somebody has asked for any."""
        self._whole = Graph()

    @property
    def graph(self) -> Graph:
        """Who is who."""
        return self._whole if self.scoped is None else self.scoped.graph

    @property
    def size(self) -> int:
        """How much memory it takes, in participants, pairs and items."""
        items = 0 if self.scoped is None else len(self.scoped)
        return max(LEAST_SIZE, len(self.graph) + self.graph.edges + items)

    @property
    def busy(self) -> bool:
        """Whether it is being read on."""
        return self.reading is not None and not self.reading.done()

    @property
    def left_at(self) -> int:
        """Where it was last numbered anew: what was saved before that has other rows."""
        return 0 if self.scoped is None else self.scoped.left_at

    def take(self, entries: Sequence[ItemFact]) -> None:
        """Read on."""
        self.cursor += len(entries)
        self.last = entries[-1] if entries else self.last
        if self.scoped is not None:
            self.scoped.add_all(entries)
        else:
            self._whole.intern(pair for entry in entries if isinstance(entry, Item) for pair in entry.pairs())

    def reaches(self, count: int) -> bool:
        """Whether so many entries are read, and what they make is not stale."""
        return self.cursor >= count and not (self.scoped is not None and self.scoped.outgrown)

    def begin_anew(self) -> bool:
        """Begin from the beginning where it is stale; whether it was."""
        if self.scoped is None or not self.scoped.outgrown:
            return False
        self.scoped, self.cursor, self.last, self.priors = self.scoped.afresh(), 0, None, None
        return True


class Graphs:
    """The graphs of collections and scopes, the last few that were asked for."""

    def __init__(self, store: Store, tolerance: float = DEFAULT_TOLERANCE) -> None:
        self._store = store
        self._tolerance = tolerance
        self._known: OrderedDict[tuple[View, int | None], _Known] = OrderedDict()
        self._readers = asyncio.Semaphore(READERS)

    async def posterior(self, settings: Query) -> tuple[Graph, Posterior] | None:
        """The query's posterior and the graph that numbers it; None where nothing is saved yet.

        Raises a `Problem` while the collection's log is being read for the first time, or its prior computed, and
        while rows are numbered as in a log that the store has no more.
        """
        position = await self._position(settings)
        tables = await self._store.read_tables(settings.query_id)
        if tables is None:
            return None
        known = await self._read_up(settings.view)
        if position.of_another(known.history):
            went_back = f"Redis went back: query {settings.query_id!r} is saved anew"
            why = (await self._store.read_note(settings.query_id)).quarantine
            if why is not None:  # to come again helps nobody before a person has done something
                raise Problem(
                    Code.QUARANTINED, f"{went_back} once it is released, which is stopped: {why.code}: {why.detail}"
                )
            raise unavailable(f"{went_back} soon", seconds=2)
        if position.cursor < known.left_at:
            known = await self._read_up(settings.view, position.cursor)
            if (await self._position(settings)).cursor != position.cursor:
                raise unavailable(f"query {settings.query_id!r} is being saved anew", seconds=1)
        graph, known.priors = known.graph, known.priors or Priors(self._store, settings.view, self._tolerance)
        saved = await asyncio.to_thread(graph.as_now().as_of, tables.size.edges)
        inverse = await known.priors.inverse(tables.prior, saved)
        return graph, await asyncio.to_thread(read, tables, saved, inverse)

    async def in_scope(self, view: View) -> Collection | None:
        """The items in the view's scope; None where all are. Raises a `Problem` as `posterior` does."""
        return None if view.scope is None else (await self._read_up(view)).scoped

    async def _position(self, settings: Query) -> Position:
        """How much of its log the query, as it is saved, has taken in, and of which."""
        (head,) = await self._store.read_heads([settings.query_id])
        return Position() if head is None else head.position

    async def _read_up(self, view: View, most: int | None = None) -> _Known:
        """What the log says now, or what its first entries did."""
        key, name = (view, most), view.collection
        history = (await self._store.read_up_to([HISTORY])).get(HISTORY)
        count = await self._store.entry_count(name)
        before = self._known.get(key)
        if before is not None and not await self._continues(before, history) and self._known.get(key) is before:
            self._forget(key)
        known = self._known.setdefault(key, _Known(view, most, history))
        self._known.move_to_end(key)
        self._make_room()
        wanted = count if most is None else min(count, most)
        if not known.reaches(wanted):
            if known.reading is None or known.reading.done():
                known.reading = asyncio.ensure_future(self._read_in_turn(known, wanted))
            await asyncio.wait([known.reading], timeout=PATIENCE_SECONDS)
            if known.reading.done() and not known.reading.cancelled():
                known.reading.result()
        if not known.reaches(wanted):
            raise unavailable(f"collection {name!r} is being read: {known.cursor} of {wanted} items", seconds=2)
        return known

    async def _continues(self, known: _Known, history: int | None) -> bool:
        """Whether the log is still the one that was read.

        One that was made anew, or went back and grew again, may have as many entries in another order. That begins
        a new history of the store, unless workers were stopped while an older copy was put in its place.
        """
        if known.history != history:
            return False
        cursor, last = known.cursor, known.last
        return last is None or await self._store.read_items(known.view.collection, cursor - 1, limit=1) == [last]

    async def _read_in_turn(self, known: _Known, wanted: int) -> None:
        if wanted - known.cursor <= FAR_BEHIND_ENTRIES:
            await self._read(known)
            return
        async with self._readers:
            await self._read(known)

    async def _read(self, known: _Known) -> None:
        name, most = known.view.collection, known.most
        while True:
            limit = ITEMS_AT_ONCE if most is None else min(ITEMS_AT_ONCE, most - known.cursor)
            entries = await self._store.read_items(name, known.cursor, limit=limit) if limit else []
            known.take(entries)
            if not entries and not known.begin_anew():
                return
            await asyncio.sleep(0)

    def _make_room(self) -> None:
        """Let go of what was not asked for the longest. What is being read is not: whoever asked will ask again."""
        if len(self._known) <= MOST_GRAPHS:
            return
        size = sum(known.size for known in self._known.values())
        for key, known in list(self._known.items())[:-MOST_GRAPHS]:
            if size > MOST_KEPT and not known.busy:
                size -= known.size
                self._forget(key)

    def _forget(self, key: tuple[View, int | None]) -> None:
        known = self._known.pop(key)
        if known.reading is not None:
            known.reading.cancel()

    async def close(self) -> None:
        """Read no more."""
        for key, known in list(self._known.items()):
            self._forget(key)
            if known.reading is not None:
                await asyncio.gather(known.reading, return_exceptions=True)
            if known.priors is not None:
                await known.priors.close()
