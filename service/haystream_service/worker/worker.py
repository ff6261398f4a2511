"""The worker: what it does with a record, whoever brings it."""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from haystream.errors import Rejected
from haystream.query.state import QueryState
from haystream_service.kafka.records import NO_OFFSET, Kind, Record
from haystream_service.metrics import Metrics
from haystream_service.store.base import Store, StoreUnavailable
from haystream_service.store.marks import (
    StateLost,
    StateNewer,
    check_kept,
    check_mark,
    mark,
    notes_progress,
    raised,
)
from haystream_service.wire import as_id
from haystream_service.worker.batch import decode
from haystream_service.worker.clock import Clock, StoreClock, SystemClock
from haystream_service.worker.endings import NO_BUGS, ShortOfMemory
from haystream_service.worker.followers import Followers
from haystream_service.worker.gauges import Gauges
from haystream_service.worker.intake import Intake
from haystream_service.worker.mailbox import Mailbox
from haystream_service.worker.query_owner import QueryOwner
from haystream_service.worker.rejections import Rejections
from haystream_service.worker.residents import Residents
from haystream_service.worker.retry import Retry
from haystream_service.worker.shared import AssignedEnds, Limits, Shared
from haystream_service.worker.taking_over import check_logs, take_over
from haystream_service.worker.transport import Again, CaughtUp, Ends, Publisher
from haystream_service.worker.written import Written

log = logging.getLogger(__name__)


class Worker:
    """Decodes records, hands them to the mailboxes of their queries and collections, and keeps those going.

    `caught_up` and `ends` are the transport's: the first returns when a partition of the queries topic was read
    to its end.
    `again` reads records once more.
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
        again: Again,
        metrics: Metrics,
        limits: Limits | None = None,
        clock: Clock | None = None,
        retry: Retry | None = None,
    ) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._generation: str | None = None
        retry, clock = retry or Retry(metrics), clock or SystemClock()
        self.written = Written(store, retry)
        self._shared = Shared(
            store=store,
            publisher=publisher,
            metrics=metrics,
            clock=clock,
            store_clock=StoreClock(clock),
            retry=retry,
            limits=limits or Limits(),
            caught_up=caught_up,
            ends=AssignedEnds(ends, retry),
            again=again,
            written=self.written,
            on_bug=self.fail,
            generation=lambda: self._generation,
        )
        self._intake = Intake(self._shared)
        self._followers = Followers(self._shared)
        self._owners: dict[tuple[str, int], QueryOwner] = {}
        """By query and partition: where producers choose partitions differently, several have records of it."""
        self._rejections = Rejections(self._shared)
        self._partitions: set[int] | None = None
        self._loading: asyncio.Task[None] | None = None
        self._abandoned = False
        self._residents: Residents | None = None
        self.gauges = Gauges(metrics, self._owners.values, self._followers)
        metrics.mailbox_events.labels("query").set_function(lambda: sum(map(len, self._mailboxes())))
        metrics.mailbox_events.labels("collection").set_function(lambda: len(self._intake))

    async def start(self, *, committed: Mapping[str, int] | None = None, topics: str = "") -> None:
        """Look at the store's mark, or leave one. Call it before anything else.

        `committed` holds the offsets of partitions that the worker's group has committed, by their names in the
        store; `topics` says which the records come from (`marks.described`), and the mark bears it.

        Raises:
            StateLost: there is no mark although the group has committed offsets, or it is of other topics.
            TopicsGrown: it is of these topics, with another number of partitions.
            StateNewer: it is a later version's.
        """
        shared = self._shared
        if committed and await shared.retry(shared.store.generation) is None:
            raise StateLost("the store is empty, but records were committed: run `haystream rebuild`")
        fresh = mark(topics)
        found = await shared.retry(lambda: shared.store.begin(fresh))
        check_mark(found, topics)
        if committed and not notes_progress(found):
            from_now = {name: (NO_OFFSET, offset) for name, offset in committed.items()}
            await shared.retry(lambda: shared.store.move_up_to(from_now))
        # Workers of an earlier version see this, and end.
        self._generation = await shared.retry(lambda: shared.store.begin(raised(found), instead_of=found))
        check_mark(self._generation, topics)
        await self.begin()

    async def begin(self) -> None:
        """Learn the store's history and its time: what `start` ends with, for whoever needs no mark."""
        shared = self._shared
        await self.written.begin()
        await shared.retry(self._ask_time)

    async def _ask_time(self) -> None:
        """Set the clock by the store's. Raises as `Store.ping`."""
        self._shared.store_clock.heard(await self._shared.store.ping())

    # ---- records ----

    async def on_record(self, record: Record) -> None:
        """Take a record; it is acknowledged later. Never raises for a bad one.

        What is a query's waits for nothing here, nor does what is no event.
        """
        if record.kind is Kind.ITEM:
            await self.on_items([record])
            return
        if self._abandoned:
            return  # who is broken off amid a batch knows nothing of its query any more, nor perhaps the store
        try:
            event = decode(record)
        except Rejected as rejected:
            query_id = as_id(record.key) if record.kind is Kind.QUERY else None
            if query_id is None:
                self._rejections.post(record, rejected)
            else:  # it stands under a query's key: the owner sees to it that the settings survive that
                self._owner(query_id, record.partition).deliver(record, rejected)
        else:
            self._owner(event.query_id, record.partition).deliver(record, event)

    async def on_items(self, records: Sequence[Record]) -> None:
        """Return when these records of the items topic are in their logs, or dead letters, and acknowledged."""
        await self._intake.take(records)

    # ---- partitions ----

    async def assign(self, partitions: Iterable[int]) -> None:
        """These partitions, and no others, are this worker's now: look at their queries, let go of the others.

        Those that were touched lately are loaded, and all rankings published once more, after this returns (a
        rebalance must not wait for it); `troubles` says when it is done.
        """
        self._partitions = set(partitions)
        self._shared.ends.assign(self._partitions)
        if self._residents is None:
            self._residents = Residents(
                self._shared, self._followers, lambda: list(self._owners.values()), forget=self._forget
            )
        for owner in [o for o in self._owners.values() if o.partition not in self._partitions]:
            del self._owners[owner.query_id, owner.partition]
            await owner.suspend()
            owner.release()
        await self._rejections.drop(self._rejections.mailboxes.keys() - self._partitions)
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
        await asyncio.gather(*(owner.suspend() for owner in owners), self._rejections.drop(revoked))

    async def drain(self) -> None:
        """Return when all queries and verdicts that were taken are saved, published and acknowledged."""
        if self._loading is not None:
            await asyncio.wait([self._loading])
        await asyncio.gather(*(mailbox.drained() for mailbox in self._mailboxes()))

    async def abandon(self) -> None:
        """Break off what is in hand, and take nothing more of queries: it will be delivered again, and is held
        against none of them."""
        self._abandoned = True
        if self._residents is not None:
            self._residents.close()
        await self.revoke({owner.partition for owner in self._owners.values()} | self._rejections.mailboxes.keys())

    async def close(self) -> None:
        """Stop where it is. What was not acknowledged will be delivered again."""
        await self.abandon()
        for owner in self._owners.values():
            owner.release()
        self._owners.clear()
        self._followers.close()
        self.failed.cancel()

    # ---- for others to see ----

    def troubles(self) -> list[str]:
        """Why it is not ready to work, but for its store; nothing where it is."""
        reasons = []
        if self.failed.done():
            failure = self.failed.exception()
            reasons.append(str(failure) if isinstance(failure, NO_BUGS) else "a bug stopped it")
        if self._partitions is None:
            reasons.append("no partitions are assigned yet")
        elif self._loading is not None and not self._loading.done():
            reasons.append("queries are being loaded")
        return reasons + self._shared.retry.troubles

    async def store_troubles(self) -> list[str]:
        """Why the store cannot be worked with; nothing where it can."""
        try:
            store = self._shared.store
            _, generation, policy = await asyncio.gather(self._ask_time(), store.generation(), store.drops())
            check_kept(self._generation, generation)
        except StoreUnavailable as error:
            self._shared.metrics.server_errors.labels("redis").inc()
            return [str(error)]
        except StateLost as lost:
            return [str(lost)]
        except StateNewer as newer:
            self.fail(newer)
            return [str(newer)]
        if policy is not None:
            return [
                f"Redis may drop keys for want of memory: set maxmemory-policy to noeviction instead of {policy}, "
                "and run `haystream rebuild` where it has dropped some (`evicted_keys` in INFO stats)"
            ]
        return []

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions that are assigned."""
        return frozenset(self._partitions or ())

    def revision(self, query_id: str) -> int | None:
        """The newest revision of a query that this worker owns and has saved; None of any other."""
        owner = self._holder(query_id)
        return owner.revision if owner else None

    def publish_again(self, query_id: str) -> None:
        """Publish the newest ranking of a query once more, if this worker owns it."""
        if (owner := self._holder(query_id)) is not None:
            owner.publish_again()

    def load_again(self, query_id: str) -> None:
        """Have a query that is in memory be what the store has of it, if this worker owns it."""
        if (owner := self._holder(query_id)) is not None:
            owner.load_again()

    def query_ids(self) -> set[str]:
        """The queries that this worker knows of, also where their partition is taken away, perhaps for a moment."""
        return {query_id for query_id, _ in self._owners}

    def idle(self) -> bool:
        """Whether all that was taken is in the store, ranked and tended: nothing is left to do by itself."""
        busy = len(self._intake) or not all(mailbox.idle for mailbox in self._rejections.mailboxes.values())
        return not busy and all(owner.idle() for owner in self._owners.values())

    def state(self, query_id: str) -> QueryState | None:
        """A query's state in this worker's memory, for tests and debugging."""
        owner = self._holder(query_id)
        return owner.state if owner else None

    # ---- parts ----

    def _holder(self, query_id: str) -> QueryOwner | None:
        """Whoever owns the query here: on a partition that does not own it, it is only refused."""
        owners = (self._owners.get((query_id, partition)) for partition in self._partitions or ())
        return next((owner for owner in owners if owner and owner.owned), None)

    def _owner(self, query_id: str, partition: int) -> QueryOwner:
        owner = self._owners.get((query_id, partition))
        if owner is None:
            owner = self._owners[query_id, partition] = QueryOwner(
                query_id, partition, self._shared, self._followers, on_unknown=self._forget
            )
        return owner

    def _forget(self, owner: QueryOwner) -> None:
        if self._owners.get((owner.query_id, owner.partition)) is owner:
            del self._owners[owner.query_id, owner.partition]
        owner.release()

    async def _load(self, partitions: Collection[int]) -> None:
        heads = await take_over(partitions, self._shared, self._owner)
        drained = [owner.mailbox.drained() for owner in self._owners.values()]
        await asyncio.gather(check_logs(heads, self._shared), *drained)

    def _loaded(self, loading: asyncio.Task[None]) -> None:
        if not loading.cancelled() and (bug := loading.exception()) is not None:
            self.fail(bug)

    def _mailboxes(self) -> list[Mailbox[Any]]:
        return [*(owner.mailbox for owner in list(self._owners.values())), *self._rejections.mailboxes.values()]

    def fail(self, bug: BaseException) -> None:
        """Tell `failed` of a bug, or of what only a person can mend."""
        if isinstance(bug, MemoryError):
            log.critical("where memory was wanted last", exc_info=bug)
            bug = ShortOfMemory(bug)
        if isinstance(bug, NO_BUGS):
            log.critical("%s. Nothing more is acknowledged", bug)
        else:
            log.critical("a bug; nothing more is acknowledged", exc_info=bug)
        if not self.failed.done():
            self.failed.set_exception(bug)
