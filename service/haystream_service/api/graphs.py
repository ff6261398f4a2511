"""Who is who in a query's posterior: the graph of its collection, as far as this replica has read its log."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field

from haystream.events import Prior
from haystream.graph import Graph
from haystream.posterior_tables import Posterior, Tables, read
from haystream_service.api.problems import unavailable
from haystream_service.store.base import Store

ITEMS_AT_ONCE = 500
"""Between two turns of the event loop: some 5 ms."""
MOST_GRAPHS = 8
PATIENCE_SECONDS = 2.0
"""A long log is read on in the background, and whoever asked is told to come again."""


@dataclass(eq=False)
class _Known:
    graph: Graph = field(default_factory=Graph)
    cursor: int = 0
    reading: "asyncio.Task[None] | None" = None


class Graphs:
    """The graphs of collections, the last few that were asked for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def posterior(
        self, query_id: str, collection: str, prior: Prior
    ) -> tuple[Graph, Tables, Posterior] | None:
        """The query's posterior and the graph that numbers it; None where nothing is saved yet.

        Raises a `Problem` while the collection's log is being read for the first time.
        """
        tables = await self._store.read_tables(query_id)
        if tables is None:
            return None
        graph = await self._graph(collection)
        return graph, tables, await asyncio.to_thread(read, tables, prior, graph)

    async def _graph(self, collection: str) -> Graph:
        """The collection's graph, with all the items that are in the log now."""
        count = await self._store.item_count(collection)
        known = self._known.setdefault(collection, _Known())
        self._known.move_to_end(collection)
        if len(self._known) > MOST_GRAPHS:
            self._forget(next(iter(self._known)))
        if known.cursor > count:  # the log was deleted, or made anew
            self._forget(collection)
            known = self._known[collection] = _Known()
        if known.cursor < count:
            if known.reading is None or known.reading.done():
                known.reading = asyncio.ensure_future(self._read(collection, known))
            await asyncio.wait([known.reading], timeout=PATIENCE_SECONDS)
            if known.reading.done():
                known.reading.result()
        if known.cursor < count:
            raise unavailable(
                f"collection {collection!r} is being read: {known.cursor} of {count} items", seconds=2
            )
        return known.graph

    async def _read(self, collection: str, known: _Known) -> None:
        while items := await self._store.read_items(collection, known.cursor, limit=ITEMS_AT_ONCE):
            for item in items:
                for pair in item.pairs():
                    known.graph.intern(pair)
            known.cursor += len(items)
            await asyncio.sleep(0)

    def _forget(self, collection: str) -> None:
        known = self._known.pop(collection)
        if known.reading is not None:
            known.reading.cancel()

    async def close(self) -> None:
        """Read no more."""
        for collection in list(self._known):
            reading = self._known[collection].reading
            self._forget(collection)
            if reading is not None:
                await asyncio.gather(reading, return_exceptions=True)
