"""The one writer of a query: applies its events in batches, saves, publishes, and then acknowledges."""

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from haystream.errors import Code, Rejected
from haystream.events import Query, Verdict
from haystream.query import QueryState
from haystream_service.metrics import QueryNumbers
from haystream_service.store.base import Fenced
from haystream_service.worker.batch import Batch, Delivery
from haystream_service.worker.collections import Follower, Followers
from haystream_service.worker.folding import Folded, Loaded, fold, restore
from haystream_service.worker.mailbox import Mailbox
from haystream_service.worker.records import Kind, Record
from haystream_service.worker.shared import Shared, StateLost
from haystream_service.worker.tending import Tending

log = logging.getLogger(__name__)


class QueryOwner:
    """A query's mailbox and state in this process.

    The state in memory is a copy of the stored one that may be out of date: after a pause or a rebalance
    another process may have been the writer. Every save finds that out (`Fenced`), and then the state is
    loaded again and the batch, which was not acknowledged, applied to it.
    """

    def __init__(
        self,
        query_id: str,
        partition: int,
        shared: Shared,
        followers: Followers,
        *,
        on_unknown: Callable[["QueryOwner"], None],
    ) -> None:
        self.query_id = query_id
        self.partition = partition
        self._shared = shared
        self._followers = followers
        self._on_unknown = on_unknown
        self._loaded: Loaded | None = None
        self._follower: Follower | None = None
        self._tending = Tending(shared.clock)
        self._settings_came = asyncio.Event()
        self._finish_timer: asyncio.TimerHandle | None = None
        limits = shared.limits
        self.mailbox: Mailbox[Delivery] = Mailbox(
            self._handle, max_batch=limits.max_batch, size=limits.mailbox_size, on_bug=shared.on_bug
        )

    @property
    def state(self) -> QueryState | None:
        """The state in memory, for reading."""
        return self._loaded.state if self._loaded else None

    async def deliver(self, record: Record, event: Query | Verdict) -> None:
        """Leave an event; waits while too many verdicts do. Settings never wait: verdicts may wait for them."""
        delivery = Delivery(record, event)
        if isinstance(event, Query):
            self._settings_came.set()
            self.mailbox.post(delivery)
        else:
            await self.mailbox.put(delivery)

    def wake(self) -> None:
        """Load the query if it is not in memory, and take in what its collection got since."""
        self.mailbox.poke()

    async def suspend(self) -> None:
        """Forget what waits, and the state too if it was in the middle of a batch."""
        if await self.mailbox.drop():
            self._loaded = None

    def release(self) -> None:
        """Let go of everything; to be called when the mailbox is idle, or by the handler as its last act."""
        self._loaded = None
        if self._finish_timer is not None:
            self._finish_timer.cancel()
        if self._follower is not None:
            self._followers.leave(self._follower.collection.name, self.query_id)
        self._shared.metrics.queries.forget(self.query_id)

    def _finish(self, loaded: Loaded) -> None:
        """Publish again what was made with estimates; a batch that comes before does."""
        loaded.finished = True
        if self._finish_timer is None:
            limit = self._shared.limits.item_publish_seconds
            self._finish_timer = asyncio.get_running_loop().call_later(limit, self._finish_due)

    def _finish_due(self) -> None:
        self._finish_timer = None
        self.wake()

    async def _handle(self, deliveries: list[Delivery]) -> None:
        batch = Batch(deliveries)
        while True:
            try:
                await self._apply(batch)
            except Fenced as fenced:
                self._shared.metrics.fenced_writes.inc()
                log.warning("%s; loading it again", fenced)
                self._loaded = None
            else:
                break
        await self._tend()

    async def _tend(self) -> None:
        """Undo drift of the posterior for as long as nobody waits; the next batch saves what it changed."""
        loaded, follower = self._loaded, self._follower
        if loaded is None or follower is None:
            return
        unfinished = loaded.state.unfinished or loaded.owed
        if await self._tending.until_due(loaded.state, follower.exclusive, self.mailbox):
            if unfinished:
                self._finish(loaded)
            await follower.snapshots.keep(loaded.state.settings)

    async def _apply(self, batch: Batch) -> None:
        loaded = self._loaded = self._loaded or await self._load()
        if loaded is None:
            batch.deliveries += await self._settings_or_all_read(batch)
            loaded = self._loaded = await self._open(batch)
        folded = None
        if loaded is None:
            self._refuse_all(batch)
        else:
            folded = await self._fold(loaded, batch)
        await self._tell_rejected(batch)
        if loaded is None:
            self._acknowledge(batch)
            self._settings_came.clear()
            if not len(self.mailbox):
                self._on_unknown(self)
            return
        if folded is not None:
            await self._save_and_publish(loaded, folded)
        elif batch.known or not loaded.published:
            # The crash that brought these again may have come between the save and the publish.
            await self._publish_again()
        loaded.published = True
        self._acknowledge(batch)

    # ---- getting hold of the query ----

    async def _load(self) -> Loaded | None:
        shared = self._shared
        async with shared.loads:
            stored = await shared.retry(lambda: shared.store.load_query(self.query_id))
            if stored is None:
                # Nobody has opened it, or everything is gone: a verdict must not be refused for the latter.
                await shared.check_not_lost()
                return None
            await shared.check_same_topics(stored)
            follower = await self._follow(stored.settings, at_least=stored.position.cursor)
            facts = stored.settings, stored.verdicts, follower.collection, shared.limits.tolerance
            state = await follower.exclusive(lambda: restore(*facts), in_thread=True)
        self._show(state)
        return Loaded(state, stored.revision, stored.position)

    async def _follow(self, settings: Query, *, at_least: int = 0) -> Follower:
        """The query's collection, with all that its log holds now."""
        shared, name = self._shared, settings.collection
        count = await shared.retry(lambda: shared.store.item_count(name))
        if count < at_least:
            raise StateLost(f"collection {name!r} has {count} items and query {self.query_id!r} saw {at_least}")
        if self._follower is not None and self._follower.collection.name != name:
            self._followers.leave(self._follower.collection.name, self.query_id)  # of settings that were refused
        follower = self._follower = self._followers.join(name, self.query_id, self.wake)
        await follower.reach(count)
        await follower.snapshots.recall(settings)
        return follower

    async def _settings_or_all_read(self, batch: Batch) -> list[Delivery]:
        """Wait for the query's settings, as long as they may still come; what came meanwhile."""
        if not batch.deliveries or batch.of(Kind.QUERY):
            return []
        shared = self._shared
        waits = [
            asyncio.ensure_future(shared.retry(lambda: shared.caught_up(self.partition))),
            asyncio.ensure_future(self._settings_came.wait()),
        ]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in done:
                wait.result()
        finally:
            for wait in waits:
                wait.cancel()
        more: list[Delivery] = []
        while taken := self.mailbox.take():
            more += taken
        return more

    async def _open(self, batch: Batch) -> Loaded | None:
        """The new query that the first good settings in the batch ask for."""
        for delivery in batch.of(Kind.QUERY):
            settings = cast(Query, delivery.event)
            follower = await self._follow(settings)
            try:
                return Loaded(QueryState(settings, follower.collection, tolerance=self._shared.limits.tolerance))
            except Rejected as error:
                batch.rejected[delivery] = error
        return None

    # ---- one batch ----

    async def _fold(self, loaded: Loaded, batch: Batch) -> Folded | None:
        """Apply what is in the batch, and what the collection got since."""
        assert self._follower is not None
        folded = await self._follower.exclusive(
            lambda: fold(loaded, batch, partition=self.partition, clock=self._shared.clock),
            in_thread=loaded.heavy(batch),
        )
        if folded is not None:
            self._shared.metrics.engine_settle.observe(folded.settle_seconds)
            self._shared.metrics.touched_participants.observe(folded.touched)
        return folded

    def _refuse_all(self, batch: Batch) -> None:
        for delivery in batch.deliveries:
            unknown = Rejected(Code.UNKNOWN_QUERY, f"nobody has opened query {self.query_id!r}")
            batch.rejected.setdefault(delivery, unknown)

    async def _tell_rejected(self, batch: Batch) -> None:
        # Before the save: what the saved position says was read is then sure to have its dead letter.
        for delivery, error in batch.rejected.items():
            if delivery not in batch.told:
                await self._shared.reject(delivery.record, error)
                batch.told.add(delivery)

    async def _save_and_publish(self, loaded: Loaded, folded: Folded) -> None:
        shared, change = self._shared, folded.change
        await shared.retry(lambda: shared.store.save_query(change))
        loaded.revision, loaded.saved = change.revision, change.position
        await self._publish(change.ranking)
        self._show(loaded.state)

    async def _publish(self, value: bytes) -> None:
        shared = self._shared
        await shared.retry(lambda: shared.publisher.publish_ranking(self.query_id, value))
        shared.metrics.rankings_published.inc()

    async def _publish_again(self) -> None:
        shared = self._shared
        # From the store: this process's copy of the query may be older than that.
        value = await shared.retry(lambda: shared.store.read_ranking(self.query_id))
        if value is not None:
            await self._publish(value)

    def _acknowledge(self, batch: Batch) -> None:
        metrics, now = self._shared.metrics, self._shared.clock.now()
        if batch.deliveries:
            metrics.batch_events.labels("query").observe(len(batch.deliveries))
        for delivery in batch.deliveries:
            record = delivery.record
            if delivery not in batch.rejected:
                self._shared.count(record, "applied" if delivery in batch.applied else "known")
                if record.kind is Kind.VERDICT:
                    metrics.verdict_to_ranking.observe(max(0.0, now - record.timestamp))
            record.ack()

    def _show(self, state: QueryState) -> None:
        numbers = QueryNumbers(state.screened, state.found, state.engine.discrepancy(), state.drift)
        self._shared.metrics.queries.report(self.query_id, numbers)
