"""What the owner of queries does about their leases: ends those that have run out, publishes what nobody has."""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from haystream_service.kafka.records import BrokerUnavailable
from haystream_service.metrics import Metrics
from haystream_service.store.base import Store, StoreDamaged, StoreUnavailable
from haystream_service.store.claims import SECOND, Looked, publish_outbox
from haystream_service.worker.retry import Retry
from haystream_service.worker.transport import Publisher

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Between two looks at the leases. One ends some looks later than it says: all verdicts of before are read."""
LIST_SECONDS = 15.0
"""Between two looks at which queries have leases, and at those that could not be looked at."""
ABANDONED_SECONDS = 1.0
"""Whoever claims publishes at once: a fact that is in the outbox for so long was left there."""

NOTHING_SEEN = Looked(0, 0, 0, 0.0)


class Leasing:
    """Looks after the leases of this process's partitions.

    A lease is over when the store's clock says so: that clock said when the lease began, and whoever asks sees the
    same one. To end it and to put the fact into the outbox is one step; of two workers that both think that they
    own the query one does it, and a fact that both publish is one fact.

    A partition of the topic that is away holds up what is on it, and a query that the store does not answer for
    itself alone.
    """

    def __init__(
        self,
        store: Store,
        publisher: Publisher,
        partitions: Callable[[], Iterable[int]],
        *,
        metrics: Metrics,
        retry: Retry,
        behind: Callable[[int], float],
        load_again: Callable[[str], None],
    ) -> None:
        """`behind` says for how many seconds verdicts of a partition may have been in Kafka that are not in the
        store; `load_again` has the owner of a query look what the store has of it.
        """
        self._store = store
        self._publisher = publisher
        self._partitions = partitions
        self._behind = behind
        self._by: dict[str, int] = {}
        """By query in `_seen`, until when leases may have run out: all verdicts of before that are in the store.
        On the store's clock, as it was at the look before."""
        self._metrics = metrics
        self._retry = retry
        self._load_again = load_again
        self._listed: set[int] = set()
        """Partitions of which it is known which queries have leases."""
        self._seen: dict[int, dict[str, Looked]] = {}
        """By partition, the queries that have any, or facts to publish, with what the last look told."""
        self._failed: set[str] = set()
        """Queries that could not be looked at since their partition was listed."""
        self._looking: dict[int, asyncio.Task[None]] = {}
        """By partition, the look that has not ended."""

    async def run(self) -> None:
        """Look again and again, for ever."""
        loop = asyncio.get_running_loop()
        listed = float("-inf")
        try:
            while True:
                every = loop.time() - listed >= LIST_SECONDS
                if every:
                    listed = loop.time()
                await self.look(every=every)
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            for looking in self._looking.values():
                looking.cancel()

    async def look(self, *, every: bool = True) -> None:
        """Look at the queries that are known to have leases, or at every one that has.

        Returns when that is done; where a partition waits for a server, in a moment, and it goes on by itself.
        """
        partitions = set(self._partitions())
        self._listed &= set() if every else partitions
        self._seen = {partition: seen for partition, seen in self._seen.items() if partition in partitions}
        known = {query_id for seen in self._seen.values() for query_id in seen}
        self._by = {query_id: by for query_id, by in self._by.items() if query_id in known}
        begun = {
            partition: asyncio.create_task(self._retry(partial(self._look_at, partition)))
            for partition in sorted(partitions - self._looking.keys())
        }
        self._looking |= begun
        if begun:
            await asyncio.wait(begun.values(), timeout=LOOK_SECONDS)
        for partition, looking in list(self._looking.items()):
            if looking.done():
                del self._looking[partition]
                looking.result()
        seen = [look for queries in self._seen.values() for look in queries.values()]
        self._metrics.leases_live.set(sum(look.live for look in seen))
        self._metrics.outbox_records.set(sum(look.waiting for look in seen))
        self._metrics.outbox_age.set(max((0.0, *(look.age for look in seen))))

    async def _look_at(self, partition: int) -> None:
        """Return when all is done for the partition's leases; raise where some wait, once it is for the others."""
        if partition not in set(self._partitions()):
            return  # it is another's by now
        if partition not in self._listed:
            await self._list(partition)
        claims, seen = self._store.claims, self._seen[partition]
        left: list[str] = []
        waiting: list[StoreUnavailable] = []
        for query_id in sorted(seen.keys() - self._failed):
            with self._alone(query_id, waiting):
                # Whoever judged in time ended the lease, though nobody has read that yet: nobody else is served it.
                by = self._by.get(query_id, 0) if self._behind(partition) else None
                look = seen[query_id] = await claims.expire(query_id, by)
                if math.isfinite(behind := self._behind(partition)):
                    self._by[query_id] = look.now - math.ceil(behind * SECOND)
                self._metrics.leases_expired.inc(look.expired)
                if look.lost:  # no fact ends them, and the owner has them in memory still
                    self._load_again(query_id)
                # Where the store's clock was set back nobody can say how long a fact has been there.
                if look.expired or not 0.0 <= look.age < ABANDONED_SECONDS:
                    left.append(query_id)
                elif not look.live and not look.waiting:
                    del seen[query_id]
        for query_id in left:
            with self._alone(query_id, waiting):
                await publish_outbox(claims, self._publisher.publish_leases, query_id)
        if waiting:
            raise waiting[0]

    async def _list(self, partition: int) -> None:
        """Ask which of the partition's queries have leases."""
        queries = await self._store.claims.leased(partition)
        before = self._seen.get(partition, {})
        # One that had leases at the last look has to be looked at, whoever took it out of the list.
        queries |= {query_id for query_id, look in before.items() if look.live or look.waiting}
        self._seen[partition] = {query_id: before.get(query_id, NOTHING_SEEN) for query_id in queries}
        self._failed -= queries
        self._listed.add(partition)

    @contextmanager
    def _alone(self, query_id: str, waiting: list[StoreUnavailable]) -> Iterator[None]:
        """What is raised inside is this query's trouble alone; but what Kafka raises is its whole partition's."""
        try:
            yield
        except BrokerUnavailable:
            raise
        except StoreUnavailable as error:
            waiting.append(error)
        except StoreDamaged as damaged:
            self._failed.add(query_id)
            log.error("leases of query %r: %s", query_id, damaged, extra={"query": query_id})
        except Exception:
            self._failed.add(query_id)
            log.exception("leases of query %r cannot be looked at", query_id, extra={"query": query_id})
