"""The worker: what it does with a record, whoever brings it."""

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from haystream.errors import Rejected
from haystream.events import Status
from haystream.footprint import bytes_of
from haystream.query_state import QueryState
from haystream_service.labelled_gauges import LABELLED_COLLECTIONS, show_largest
from haystream_service.metrics import Metrics
from haystream_service.store.base import Head, Store, StoreUnavailable
from haystream_service.wire import as_id, decode_lease, decode_query, decode_verdict
from haystream_service.worker.clock import Clock, SystemClock
from haystream_service.worker.endings import NO_BUGS, StateLost, StateNewer, shorter
from haystream_service.worker.followers import Followers
from haystream_service.worker.intake import Intake
from haystream_service.worker.mailbox import Mailbox
from haystream_service.worker.marks import check_kept, check_mark, mark, notes_progress, raised
from haystream_service.worker.query_owner import QueryOwner
from haystream_service.worker.records import NOTHING, Again, CaughtUp, Ends, Kind, Publisher, Record
from haystream_service.worker.residents import Residents
from haystream_service.worker.retry import Retry
from haystream_service.worker.shared import AssignedEnds, Limits, Shared
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
        retry = retry or Retry(metrics)
        self.written = Written(store, retry)
        self._shared = Shared(
            store=store,
            publisher=publisher,
            metrics=metrics,
            clock=clock or SystemClock(),
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
        self._rejected: dict[int, Mailbox[tuple[Record, Rejected]]] = {}
        """By partition, records that are no query's events, on their way to become dead letters."""
        self._partitions: set[int] | None = None
        self._loading: asyncio.Task[None] | None = None
        self._abandoned = False
        self._residents: Residents | None = None
        metrics.mailbox_events.labels("query").set_function(self._waiting)
        metrics.owned_queries.set_function(lambda: self._counted(owned=True, deleted=False))
        metrics.queries_in_memory.set_function(lambda: self._counted(owned=True, in_memory=True))
        metrics.queries_slim.set_function(lambda: sum(state.is_slim for state in self._states()))
        metrics.queries_put_away.set_function(lambda: self._counted(owned=True, in_memory=False, deleted=False))
        metrics.quarantined_queries.set_function(lambda: self._counted(stopped=True))
        metrics.mailbox_events.labels("collection").set_function(lambda: len(self._intake))
        metrics.growth_backlog.set_function(lambda: sum(state.lag for state in self._states()))
        metrics.tending_backlog.set_function(lambda: sum(state.unfinished for state in self._states()))
        for items, scoped in (("all", False), ("scope", True)):
            metrics.collections.labels(items).set_function(partial(self._followed, scoped=scoped))
        metrics.collection_items.set_function(lambda: sum(map(len, self._followers.collections())))
        metrics.collection_edges.set_function(lambda: sum(c.graph.edges for c in self._followers.collections()))

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
            from_now = {name: (NOTHING, offset) for name, offset in committed.items()}
            await shared.retry(lambda: shared.store.move_up_to(from_now))
        # Workers of an earlier version see this, and end.
        self._generation = await shared.retry(lambda: shared.store.begin(raised(found), instead_of=found))
        check_mark(self._generation, topics)
        await self.written.begin()

    # ---- records ----

    async def on_record(self, record: Record) -> None:
        """Take a record; it is acknowledged later. Never raises for a bad one.

        What is a query's waits for nothing here, nor does what is no event.
        """
        if self._abandoned and record.kind is not Kind.ITEM:
            return  # who is broken off amid a batch knows nothing of its query any more, nor perhaps the store
        try:
            match record.kind:
                case Kind.QUERY:
                    self._on_query(record)
                case Kind.VERDICT:
                    verdict = decode_verdict(record.value, record.key)
                    self._owner(verdict.query_id, record.partition).deliver(record, verdict)
                case Kind.LEASE:
                    fact = decode_lease(record.value, record.key)
                    self._owner(fact.query_id, record.partition).deliver(record, fact)
                case Kind.ITEM:
                    await self.on_items([record])
        except Rejected as error:
            self._reject(record, error)

    async def on_items(self, records: Sequence[Record]) -> None:
        """Return when these records of the items topic are in their logs, or dead letters, and acknowledged."""
        await self._intake.take(records)

    def _on_query(self, record: Record) -> None:
        try:
            query = decode_query(record.value, record.key)
        except Rejected as rejected:
            # A bad record stands under a query's key as well: the owner sees to it that the settings survive that.
            query_id = as_id(record.key)
            if query_id is None:
                raise
            self._owner(query_id, record.partition).deliver(record, rejected)
        else:
            self._owner(query.query_id, record.partition).deliver(record, query)

    def _reject(self, record: Record, error: Rejected) -> None:
        """Have the record made a dead letter and then acknowledged; its partition's others do not wait for that."""
        if record.partition not in self._rejected:
            self._rejected[record.partition] = Mailbox(
                self._tell_rejected, max_batch=self._shared.limits.max_batch, on_bug=self.fail
            )
        self._rejected[record.partition].post((record, error))

    async def _tell_rejected(self, rejected: Iterable[tuple[Record, Rejected]]) -> None:
        for record, error in rejected:
            await self._shared.reject(record, error)
            record.ack()

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
        await self._drop_rejected(self._rejected.keys() - self._partitions)
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
        await asyncio.gather(*(owner.suspend() for owner in owners), self._drop_rejected(revoked))

    async def _drop_rejected(self, partitions: Iterable[int]) -> None:
        """Forget what has no dead letter yet: it is not acknowledged, so who has the partition next gets it."""
        for mailbox in [self._rejected.pop(partition) for partition in partitions if partition in self._rejected]:
            async with mailbox.dropped():
                pass

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
        await self.revoke({owner.partition for owner in self._owners.values()} | self._rejected.keys())

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
            _, generation, policy = await asyncio.gather(store.ping(), store.generation(), store.drops())
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
        busy = len(self._intake) or not all(mailbox.idle for mailbox in self._rejected.values())
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
        shared, limits = self._shared, self._shared.limits
        lately = shared.clock.monotonic() - limits.idle_seconds
        long_ago = 1000 * (shared.clock.now() - limits.withdrawn_seconds)
        found: list[tuple[QueryOwner, Head]] = []
        for partition in partitions:
            query_ids = sorted(await shared.retry(partial(shared.store.query_ids, partition)))
            heads = await shared.retry(partial(shared.store.read_heads, query_ids))
            for query_id, head in zip(query_ids, heads, strict=True):
                if head is not None and head.partition in {partition, -1}:
                    await shared.check_same_topics(query_id, partition, head.position)
                    if not (head.withdrawn and head.touched < long_ago):
                        found.append((self._owner(query_id, partition), head))
        recent = 0
        for owner, head in sorted(found, key=lambda pair: -pair[1].touched):
            owner.put_down(head)
            if head.settings is None:
                owner.wake()  # and be told why
            elif owner.touched >= lately and head.settings.status == Status.OPEN:
                recent += 1
                if recent <= limits.queries_in_memory:
                    owner.wake()
        # Whoever opened a query may have died before all was applied that had come for it until then.
        early = await shared.retry(shared.store.unknown)
        left = {
            owner.query_id: owner.partition for owner, _ in found if early.get(owner.query_id) == owner.partition
        }
        for query_id, partition in (left | await shared.retry(shared.store.quarantined)).items():
            if partition in partitions:
                self._owner(query_id, partition).wake_listed()
        drained = [owner.mailbox.drained() for owner in self._owners.values()]
        await asyncio.gather(self._check_logs([(owner.query_id, head) for owner, head in found]), *drained)

    async def _check_logs(self, heads: Iterable[tuple[str, Head]]) -> None:
        """Raise `StateBack` where queries have seen more of a collection's log than there is; once.

        A log that goes back alone, as on a shard of its own, does not bring its topic's offsets back with it. And
        who had not noticed yet may have saved a query after the store had gone back.
        """
        of_log: dict[str, list[tuple[str, int]]] = {}
        for query_id, head in heads:
            if head.settings is not None and head.settings.status != Status.DELETED:
                of_log.setdefault(head.settings.collection, []).append((query_id, head.position.cursor))
        await asyncio.gather(*(self._check_log(name, queries) for name, queries in of_log.items()))

    async def _check_log(self, name: str, queries: Iterable[tuple[str, int]]) -> None:
        """The same of one collection, with what each of its queries has seen. No other waits where it is away."""
        shared, retry = self._shared, partial(self._shared.retry, until_mended=True)
        count = await retry(partial(shared.store.entry_count, name))
        ahead = [(query_id, cursor) for query_id, cursor in queries if cursor > count]
        if ahead and not await retry(partial(shared.store.is_deleted, name)):
            await shared.written.read_items_again({query_id: count for query_id, _ in ahead})
            raise shorter(name, count, *ahead[0])

    def _loaded(self, loading: asyncio.Task[None]) -> None:
        if not loading.cancelled() and (bug := loading.exception()) is not None:
            self.fail(bug)

    def weigh(self) -> None:
        """Bring the metric of what collections take up to date."""
        weights: Counter[str] = Counter()
        for collection in self._followers.collections():
            weights[collection.name] += bytes_of(collection)
        show_largest(self._shared.metrics.collection_memory, weights, limit=LABELLED_COLLECTIONS)

    def _waiting(self) -> int:
        return sum(map(len, self._mailboxes()))

    def _mailboxes(self) -> list[Mailbox[Any]]:
        return [*(owner.mailbox for owner in list(self._owners.values())), *self._rejected.values()]

    def _counted(self, **properties: bool) -> int:
        """The number of queries that have these properties of their owners."""
        owners = list(self._owners.values())
        return sum(all(getattr(owner, name) == value for name, value in properties.items()) for owner in owners)

    def _followed(self, *, scoped: bool) -> int:
        return sum((collection.scope is not None) == scoped for collection in self._followers.collections())

    def _states(self) -> list[QueryState]:
        return [state for owner in list(self._owners.values()) if (state := owner.state) is not None]

    def fail(self, bug: BaseException) -> None:
        """Tell `failed` of a bug, or of what only a person can mend."""
        if isinstance(bug, NO_BUGS):
            log.critical("%s. Nothing more is acknowledged", bug)
        else:
            log.critical("a bug; nothing more is acknowledged", exc_info=bug)
        if not self.failed.done():
            self.failed.set_exception(bug)
