"""What a reader takes those for of whom a query's tables say nothing: Q⁻¹ on the graph that the tables are of."""

import asyncio
from collections import OrderedDict

from haystream.collection.graph import Graph
from haystream.engines.local.inverse.prior_inverse import GraphPrecision, prior_tolerance
from haystream.errors import QueryFailed
from haystream.events import Prior, View
from haystream.memory.arrays import Floats
from haystream_service.api.problems import Problem, unavailable
from haystream_service.store.base import Store
from haystream_service.store.snapshots import inverse_name, read_snapshot

MOST_KEPT = 2
"""Queries that follow their collection need one for each prior.correlation and tolerance; one that is paused needs
its own."""
PATIENCE_SECONDS = 2.0
"""A large graph is computed in the background, and whoever asked is told to come again."""

Inverse = tuple[Floats, Floats]
"""(Q⁻¹)_uu of participants, and (Q⁻¹)_uv of edges."""

_Key = tuple[float, float, int]
"""Correlation, tolerance and edges."""


class Priors:
    """Those of one view, which follow its graph as queries do: what the graph got since is computed, and no more.

    A worker's snapshot is where they start from, as far as there is one that is no newer than what is asked for.
    """

    def __init__(self, store: Store, view: View, tolerance: float) -> None:
        self._store = store
        self._view = view
        self._tolerance = tolerance
        self._kept: OrderedDict[_Key, GraphPrecision] = OrderedDict()
        """The last that was asked for last."""
        self._making: dict[_Key, asyncio.Task[Inverse]] = {}
        self._turn = asyncio.Lock()

    async def inverse(self, prior: Prior, graph: Graph) -> Inverse:
        """Those of that graph, which is the view's as of some moment and must not grow meanwhile.

        Raises a `Problem` where that takes long, or is too much work.
        """
        key = prior.correlation, prior_tolerance(prior, self._tolerance), graph.edges
        making = self._making.get(key)
        if making is None:
            making = self._making[key] = asyncio.ensure_future(self._make(key, graph))
            making.add_done_callback(lambda _: self._making.pop(key, None))
        await asyncio.wait([making], timeout=PATIENCE_SECONDS)
        if not making.done():
            raise unavailable(f"the prior on {graph.edges:,} pairs is being computed", seconds=2)
        try:
            return making.result()
        except QueryFailed as error:
            raise Problem(error.code, error.detail) from error

    async def _make(self, key: _Key, graph: Graph) -> Inverse:
        correlation, tolerance, edges = key
        async with self._turn:
            alike = (known for known in self._kept if known[:2] == (correlation, tolerance))
            earlier = [known for known in alike if known[2] <= edges]
            if earlier:
                precision = self._kept.pop(max(earlier))
            else:
                precision = GraphPrecision(graph, correlation, tolerance)
                name = inverse_name(correlation, tolerance, self._view.scope)
                snapshot = read_snapshot(await self._store.read_snapshot(self._view.collection, name) or b"")
                if snapshot is not None:
                    await asyncio.to_thread(precision.restore, snapshot)
            found = await asyncio.to_thread(precision.settled_on, graph)
            self._kept[key] = precision
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
            return found

    async def close(self) -> None:
        """Compute no more."""
        making = list(self._making.values())
        for each in making:
            each.cancel()
        await asyncio.gather(*making, return_exceptions=True)
