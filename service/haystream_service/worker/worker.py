"""The worker: what it does with a record, whoever brings it."""

import asyncio
import logging
from collections.abc import Iterable
from uuid import uuid4

from haystream.errors import Rejected
from haystream.query import QueryState
from haystream_service.metrics import Metrics
from haystream_service.store.base import Store, StoreUnavailable
from haystream_service.wire import decode_item, decode_query, decode_verdict
from haystream_service.worker.collections import Followers, Intake
from haystream_service.worker.queries import QueryOwner
from haystream_service.worker.records import CaughtUp, Clock, Ends, Publisher, Record, SystemClock
from haystream_service.worker.retry import Retry
from haystream_service.worker.shared import Limits, Shared, StateLost, TopicsReplaced

log = logging.getLogger(__name__)

NO_BUGS = (StateLost, TopicsReplaced)
"""What ends a worker as a bug does, but is said in a line: a person has to mend it."""


class Worker:
    """Decodes records, hands them to the mailboxes of their queries and collections, and keeps those going.

    `caught_up` and `ends` are the transport's: the first returns when a partition of the queries topic was read
    to its end.
    `failed` is a future that gets the first bug's exception. Then nothing more is acknowledged, and the
    process ought to end: what was not acknowledged is delivered again to the next one.
    """

    def __init__(
        self,
        store: Store,
        publisher: Publisher,
        *,
        caught_up: CaughtUp,
        ends: Ends,
        metrics: Metrics,
        limits: Limits | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._generation: str | None = None
        self._shared = Shared(
            store=store,
            publisher=publisher,
            metrics=metrics,
            clock=clock or SystemClock(),
            retry=Retry(metrics),
            limits=limits or Limits(),
            caught_up=caught_up,
            ends=ends,
            on_bug=self.fail,
            generation=lambda: self._generation,
        )
        self._intake = Intake(self._shared)
        self._followers = Followers(self._shared)
        self._owners: dict[str, QueryOwner] = {}
        self._partitions: set[int] | None = None
        self._loading: asyncio.Task[None] | None = None
        metrics.mailbox_events.labels("query").set_function(self._waiting)
        metrics.mailbox_events.labels("collection").set_function(lambda: len(self._intake))

    async def start(self, *, begun_before: bool = False) -> None:
        """Look at the store's mark, or leave one. Call it before anything else.

        Raises:
            StateLost: there is no mark although the worker's group has `begun_before`.
        """
        shared = self._shared
        if begun_before and await shared.retry(shared.store.generation) is None:
            raise StateLost("the store is empty, but records were committed: run `haystream rebuild`")
        fresh = uuid4().hex
        self._generation = await shared.retry(lambda: shared.store.begin(fresh))

    # ---- records ----

    async def on_query(self, record: Record) -> None:
        """Take a record of the queries topic; it is acknowledged later. Never raises for a bad one."""
        try:
            query = decode_query(record.value, record.key)
        except Rejected as error:
            await self._refuse(record, error)
        else:
            await self._owner(query.query_id, record.partition).deliver(record, query)

    async def on_item(self, record: Record) -> None:
        """Take a record of the items topic; it is acknowledged later. Never raises for a bad one."""
        try:
            item = decode_item(record.value, record.key)
        except Rejected as error:
            await self._refuse(record, error)
        else:
            await self._intake.put(record, item)

    async def on_verdict(self, record: Record) -> None:
        """Take a record of the verdicts topic; it is acknowledged later. Never raises for a bad one."""
        try:
            verdict = decode_verdict(record.value, record.key)
        except Rejected as error:
            await self._refuse(record, error)
        else:
            await self._owner(verdict.query_id, record.partition).deliver(record, verdict)

    # ---- partitions ----

    async def assign(self, partitions: Iterable[int]) -> None:
        """These partitions, and no others, are this worker's now: load their queries, let go of the others.

        Loading goes on after this returns (a rebalance must not wait for it); `ready` says when it is done.
        """
        self._partitions = set(partitions)
        for owner in [o for o in self._owners.values() if o.partition not in self._partitions]:
            del self._owners[owner.query_id]
            await owner.suspend()
            owner.release()
        if self._loading is not None:
            self._loading.cancel()
        self._loading = asyncio.create_task(self._load(sorted(self._partitions)))
        self._loading.add_done_callback(self._loaded)

    async def revoke(self, partitions: Iterable[int]) -> None:
        """These partitions are taken away, perhaps only for a moment: nothing that waits is acknowledged.

        The queries' states are kept until `assign` says who has them; a stale one is found out at its save.
        """
        revoked = set(partitions)
        self._partitions = (self._partitions or set()) - revoked
        if self._loading is not None:
            self._loading.cancel()
        owners = [owner for owner in self._owners.values() if owner.partition in revoked]
        await asyncio.gather(self._intake.drop(), *(owner.suspend() for owner in owners))

    async def drain(self) -> None:
        """Return when everything that was taken is saved, published and acknowledged."""
        if self._loading is not None:
            await asyncio.wait([self._loading])
        owners = list(self._owners.values())
        await asyncio.gather(self._intake.drained(), *(owner.mailbox.drained() for owner in owners))

    async def close(self) -> None:
        """Stop where it is. What was not acknowledged will be delivered again."""
        await self.revoke({owner.partition for owner in self._owners.values()})
        for owner in self._owners.values():
            owner.release()
        self._owners.clear()
        self._followers.close()
        self.failed.cancel()

    # ---- for others to see ----

    async def ready(self) -> list[str]:
        """Why it is not ready to work; nothing where it is."""
        reasons = []
        if self.failed.done():
            failure = self.failed.exception()
            reasons.append(str(failure) if isinstance(failure, NO_BUGS) else "a bug stopped it")
        if self._partitions is None:
            reasons.append("no partitions are assigned yet")
        elif self._loading is not None and not self._loading.done():
            reasons.append("queries are being loaded")
        try:
            if await self._shared.store.generation() != self._generation:
                reasons.append("the store was emptied: run `haystream rebuild`")
        except StoreUnavailable as error:
            reasons.append(str(error))
        return reasons

    def state(self, query_id: str) -> QueryState | None:
        """A query's state in this worker's memory, for tests and debugging."""
        owner = self._owners.get(query_id)
        return owner.state if owner else None

    # ---- parts ----

    def _owner(self, query_id: str, partition: int) -> QueryOwner:
        owner = self._owners.get(query_id)
        if owner is None:
            owner = self._owners[query_id] = QueryOwner(
                query_id, partition, self._shared, self._followers, on_unknown=self._forget
            )
        return owner

    def _forget(self, owner: QueryOwner) -> None:
        # Anybody can name a query: one that nobody opened takes no memory.
        if self._owners.get(owner.query_id) is owner:
            del self._owners[owner.query_id]
        owner.release()

    async def _load(self, partitions: Iterable[int]) -> None:
        shared = self._shared
        for partition in partitions:
            query_ids = await shared.retry(lambda p=partition: shared.store.query_ids(p))  # type: ignore[misc]
            for query_id in sorted(query_ids):
                self._owner(query_id, partition).wake()
        owners = list(self._owners.values())
        await asyncio.gather(*(owner.mailbox.drained() for owner in owners))

    def _loaded(self, loading: asyncio.Task[None]) -> None:
        if not loading.cancelled() and (bug := loading.exception()) is not None:
            self.fail(bug)

    async def _refuse(self, record: Record, error: Rejected) -> None:
        await self._shared.reject(record, error)
        record.ack()

    def _waiting(self) -> int:
        return sum(len(owner.mailbox) for owner in list(self._owners.values()))

    def fail(self, bug: BaseException) -> None:
        """Tell `failed` of a bug, or of what only a person can mend."""
        if isinstance(bug, NO_BUGS):
            log.critical("%s. Nothing more is acknowledged", bug)
        else:
            log.critical("a bug; nothing more is acknowledged", exc_info=bug)
        if not self.failed.done():
            self.failed.set_exception(bug)
