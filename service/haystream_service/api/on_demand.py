"""The graphs of collections, and all that computes on them, loaded when a request first needs them.

Claims, verdicts and rankings are handed on as they are: a replica that is asked for nothing else never loads the
compiler, the loops that it compiles, and the linear algebra, which take more memory and time than all of the rest.
"""

import asyncio
from typing import TYPE_CHECKING

from haystream.events import Query, View
from haystream.posterior.rows import Posterior
from haystream_service.store.base import Store

if TYPE_CHECKING:
    from haystream.collection.collection import Collection
    from haystream.collection.graph import Graph
    from haystream_service.api.graphs import Graphs


class GraphsOnDemand:
    """What `graphs.Graphs` answers."""

    def __init__(self, store: Store, tolerance: float) -> None:
        self._store = store
        self._tolerance = tolerance
        self._graphs: Graphs | None = None

    async def posterior(self, settings: Query) -> "tuple[Graph, Posterior] | None":
        """The query's posterior and the graph that numbers it; None where nothing is saved yet.

        Raises a `Problem` while that cannot be said (`Graphs.posterior`).
        """
        return await (await self._loaded()).posterior(settings)

    async def in_scope(self, view: View) -> "Collection | None":
        """The items in the view's scope; None where all are. Raises a `Problem` as `posterior` does."""
        return None if view.scope is None else await (await self._loaded()).in_scope(view)

    async def _loaded(self) -> "Graphs":
        if self._graphs is None:
            graphs = await asyncio.to_thread(_load)
            self._graphs = self._graphs or graphs(self._store, self._tolerance)
        return self._graphs

    async def close(self) -> None:
        """Read no more."""
        if self._graphs is not None:
            await self._graphs.close()


def _load() -> "type[Graphs]":
    """The class, whose import takes long: not in the event loop, which serves others meanwhile."""
    from haystream_service.api.graphs import Graphs

    return Graphs
