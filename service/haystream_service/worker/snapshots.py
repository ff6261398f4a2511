"""What a collection's queries share of their priors, kept in the store between one start and the next."""

import asyncio
import logging
from contextvars import Context
from functools import partial

from haystream.collection.collection import Collection
from haystream.engines.local.inverse.prior_inverse import GraphPrecision, prior_tolerance, shared_precision
from haystream.events import Query
from haystream_service.store.base import StoreDamaged, StoreUnavailable
from haystream_service.store.snapshots import inverse_name, read_snapshot, write_snapshot
from haystream_service.worker.exclusive import Exclusive, Turn
from haystream_service.worker.shared import Shared

log = logging.getLogger(__name__)

LEAST_EDGES = 1000
"""Below this, computing it again takes less time than asking for it."""
GROWTH_FACTOR = 1.05
"""A new snapshot is taken when the graph has grown by this factor since the last one: a start then has to compute
what the last twentieth of the edges touch."""
AGAIN_SECONDS = 60.0
"""A store that did not take a snapshot is not asked for so long."""

SCOPE_SECONDS = 30 * 86_400
"""Snapshots of scopes are let go then: of scopes there may be many, and when the last query of one is gone nobody
notices."""


class Snapshots:
    """Reads and writes the snapshots of one collection. They can be lost at no cost but time."""

    def __init__(self, collection: Collection, shared: Shared, exclusive: Exclusive) -> None:
        self._collection = collection
        self._shared = shared
        self._exclusive = exclusive
        self._edges: dict[str, int] = {}
        """By name: how many edges the stored snapshot knows of."""
        self._keeping: dict[str, asyncio.Task[None]] = {}
        """By name: those that are being stored."""
        self._next_try = float("-inf")

    async def recall(self, settings: Query) -> None:
        """Give the prior that the query uses what was computed of it before. Call it before the query settles."""
        if not _has_one(settings) or self._collection.graph.edges < LEAST_EDGES:
            return
        shared, name = self._shared, self._name(settings)
        if name in self._edges:
            return
        self._edges[name] = 0
        raw = await shared.retry(lambda: shared.store.read_snapshot(self._collection.name, name))
        snapshot = read_snapshot(raw or b"")
        if snapshot is None:
            return
        restore = partial(self._precision(settings).restore, snapshot)
        if await self._exclusive(restore, in_thread=True, turn=Turn.GROWTH):
            self._edges[name] = len(snapshot.on_edge)

    def keep(self, settings: Query) -> None:
        """Begin to store what was computed of the query's prior, if the store has much less.

        To be called when the query has nothing left to do. Nobody waits for it: a store that does not take a
        snapshot, as it is large, may well take what a verdict changes.
        """
        if not _has_one(settings) or self._collection.graph.edges < LEAST_EDGES:
            return
        name, edges = self._name(settings), self._collection.graph.edges
        if name in self._keeping or edges < GROWTH_FACTOR * self._edges.get(name, 0):
            return
        precision = self._precision(settings)
        if not (precision.waiting or precision.amiss) and self._shared.clock.monotonic() >= self._next_try:
            self._keeping[name] = asyncio.create_task(self._keep(settings, name), context=Context())

    async def _keep(self, settings: Query, name: str) -> None:
        shared, precision = self._shared, self._precision(settings)
        try:
            snapshot = await self._exclusive(
                precision.snapshot, in_thread=False, turn=Turn.REST, who=settings.query_id
            )
            if len(snapshot.on_edge) <= self._edges.get(name, 0):
                return  # what was made in place of a precision that nobody has any more knows nothing yet
            raw = write_snapshot(snapshot)
            seconds = None if self._collection.scope is None else SCOPE_SECONDS
            await shared.store.save_snapshot(self._collection.name, name, raw, seconds=seconds)
            self._edges[name] = len(snapshot.on_edge)
        except (StoreUnavailable, StoreDamaged) as error:
            self._next_try = shared.clock.monotonic() + AGAIN_SECONDS
            log.warning("a snapshot of collection %r is not stored: %s", self._collection.name, error)
        except Exception:
            # Queries are none the worse for it.
            self._next_try = float("inf")
            log.exception("a snapshot of collection %r", self._collection.name)
        finally:
            del self._keeping[name]

    def close(self) -> None:
        """Store no more."""
        for task in self._keeping.values():
            task.cancel()

    def _tolerance(self, settings: Query) -> float:
        return prior_tolerance(settings.prior, self._shared.limits.tolerance)

    def _precision(self, settings: Query) -> GraphPrecision:
        return shared_precision(self._collection, settings.prior.correlation, self._tolerance(settings))

    def _name(self, settings: Query) -> str:
        return inverse_name(settings.prior.correlation, self._tolerance(settings), self._collection.scope)


def _has_one(settings: Query) -> bool:
    return settings.engine == "local" and settings.prior.covariance is None
