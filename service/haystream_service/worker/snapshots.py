"""What a collection's queries share of their priors, kept in the store between one start and the next."""

from functools import partial

from haystream.collection import Collection
from haystream.engines.local.prior_inverse import shared_precision
from haystream.events import Query
from haystream_service.store.snapshots import inverse_name, read_snapshot, write_snapshot
from haystream_service.worker.exclusive import Exclusive, Turn
from haystream_service.worker.shared import Shared

LEAST_EDGES = 1000
"""Below this, computing it again takes less time than asking for it."""
GROWN = 1.05
"""A new snapshot is taken when the graph has grown by this factor since the last one: a start then has to compute
what the last twentieth of the edges touch."""

SCOPE_SECONDS = 30 * 86_400
"""Snapshots of scopes are let go then: of scopes there may be many, and when the last query of one is gone nobody
notices."""


class Snapshots:
    """Reads and writes the snapshots of one collection. They can be lost at no cost but time."""

    def __init__(self, collection: Collection, shared: Shared, exclusive: Exclusive) -> None:
        self._collection = collection
        self._shared = shared
        self._exclusive = exclusive
        self._edges: dict[float, int] = {}
        """By correlation: how many edges the stored snapshot knows of."""
        self._keeping: set[float] = set()
        """Correlations whose snapshot is being stored: many queries ask for that at once."""

    async def recall(self, settings: Query) -> None:
        """Give the prior that the query uses what was computed of it before. Call it before the query settles."""
        correlation = settings.prior.correlation
        if correlation in self._edges or not _has_one(settings) or self._collection.graph.edges < LEAST_EDGES:
            return
        shared, tolerance = self._shared, self._shared.limits.tolerance
        name = self._name(correlation)
        self._edges[correlation] = 0
        raw = await shared.retry(lambda: shared.store.read_snapshot(self._collection.name, name))
        snapshot = read_snapshot(raw or b"")
        if snapshot is None:
            return
        precision = shared_precision(self._collection, correlation, tolerance)
        if await self._exclusive(partial(precision.restore, snapshot), in_thread=True, turn=Turn.GROWTH):
            self._edges[correlation] = len(snapshot.on_edge)

    async def keep(self, settings: Query) -> None:
        """Store what was computed of the query's prior, if the store has much less. Call it when nothing waits."""
        correlation, graph = settings.prior.correlation, self._collection.graph
        if not _has_one(settings) or graph.edges < max(LEAST_EDGES, GROWN * self._edges.get(correlation, 0)):
            return
        if correlation not in self._keeping:
            self._keeping.add(correlation)
            try:
                await self._keep(settings)
            finally:
                self._keeping.remove(correlation)

    async def _keep(self, settings: Query) -> None:
        correlation = settings.prior.correlation
        shared, tolerance = self._shared, self._shared.limits.tolerance
        name = self._name(correlation)
        precision = shared_precision(self._collection, correlation, tolerance)
        if precision.waiting:
            return
        snapshot = await self._exclusive(precision.snapshot, in_thread=False, turn=Turn.REST, who=settings.query_id)
        raw = write_snapshot(snapshot)
        seconds = None if self._collection.scope is None else SCOPE_SECONDS
        await shared.retry(lambda: shared.store.save_snapshot(self._collection.name, name, raw, seconds=seconds))
        self._edges[correlation] = len(snapshot.on_edge)

    def _name(self, correlation: float) -> str:
        return inverse_name(correlation, self._shared.limits.tolerance, self._collection.scope)


def _has_one(settings: Query) -> bool:
    return settings.engine == "local" and settings.prior.covariance is None
