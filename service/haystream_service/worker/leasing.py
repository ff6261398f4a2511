"""What the owner of queries does about their leases: ends those that have run out, publishes what nobody has."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from haystream_service.metrics import Metrics
from haystream_service.store.base import Store, StoreDamaged
from haystream_service.store.claims import Looked, publish_outbox
from haystream_service.worker.records import Publisher
from haystream_service.worker.retry import Retry

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Between two looks at the leases: by so much later than it says does a lease end, at most."""
LIST_SECONDS = 15.0
"""Between two looks at which queries were ever claimed from, and at the leases of those that had none."""
ABANDONED_SECONDS = 1.0
"""Whoever claims publishes at once: a fact that is in the outbox for so long was left there."""


class Leasing:
    """Looks after the leases of this process's partitions.

    A lease is over when the store's clock says so: that clock said when the lease began, and whoever asks sees the
    same one. To end it and to put the fact into the outbox is one step; of two workers that both think that they
    own the query one does it, and a fact that both publish is one fact.
    """

    def __init__(
        self,
        store: Store,
        publisher: Publisher,
        partitions: Callable[[], Iterable[int]],
        *,
        metrics: Metrics,
        retry: Retry,
    ) -> None:
        self._store = store
        self._publisher = publisher
        self._partitions = partitions
        self._metrics = metrics
        self._retry = retry
        self._seen: dict[str, Looked] = {}
        """By query, what the last look told."""

    async def run(self) -> None:
        """Look again and again, for ever."""
        loop = asyncio.get_running_loop()
        listed = float("-inf")
        while True:
            every = loop.time() - listed >= LIST_SECONDS
            if every:
                listed = loop.time()
            await self.look(every=every)
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self, *, every: bool = True) -> None:
        """Look at the queries that have leases, or at every one that was ever claimed from."""
        claims, partitions = self._store.claims, list(self._partitions())
        if every:
            listed = [await self._retry(lambda p=p: claims.leased(p)) for p in partitions]  # type: ignore[misc]
            nothing = Looked(0, 0, 0, 0.0)
            self._seen = {query_id: self._seen.get(query_id, nothing) for ids in listed for query_id in sorted(ids)}
        for query_id, seen in list(self._seen.items()):
            if every or seen.live or seen.waiting:
                self._seen[query_id] = await self._look_at(query_id)
        self._metrics.leases_live.set(sum(seen.live for seen in self._seen.values()))
        self._metrics.outbox_records.set(sum(seen.waiting for seen in self._seen.values()))
        self._metrics.outbox_age.set(max((0.0, *(seen.age for seen in self._seen.values()))))

    async def _look_at(self, query_id: str) -> Looked:
        claims = self._store.claims
        try:
            seen = await self._retry(lambda: claims.expire(query_id))
            if seen.expired:
                self._metrics.leases_expired.inc(seen.expired)
            # Where the store's clock was set back nobody can say how long a fact has been there.
            if seen.expired or not 0.0 <= seen.age < ABANDONED_SECONDS:
                await self._retry(lambda: publish_outbox(claims, self._publisher.publish_leases, query_id))
        except StoreDamaged as damaged:
            log.error("leases of query %r: %s", query_id, damaged, extra={"query": query_id})
            return self._seen[query_id]
        except Exception:  # one query's trouble, whatever it is, must not keep those of all others
            log.exception("leases of query %r cannot be looked at", query_id, extra={"query": query_id})
            return self._seen[query_id]
        return seen
