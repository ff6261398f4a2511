"""How a batch is made to last: dead letters, save, publish, acknowledge, in this order."""

import logging
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial

import orjson

from haystream.errors import Code, QueryFailed, Rejected
from haystream.events import LeaseFact
from haystream.query.state import QueryState
from haystream_service.kafka.records import NO_OFFSET, OWNED, Kind, partition_name
from haystream_service.labelled_gauges import QueryNumbers
from haystream_service.store.base import Change, Deletion, Fenced, Position, StoreDamaged
from haystream_service.store.claims import publish_outbox
from haystream_service.wire import decode_ranking, encode_query
from haystream_service.worker.batch import NOTHING_READ, Batch, Delivery
from haystream_service.worker.endings import StateBack
from haystream_service.worker.folding import Folded
from haystream_service.worker.holding import Loaded, query_deleted
from haystream_service.worker.retry import FREE_PERMIT
from haystream_service.worker.shared import Shared

log = logging.getLogger(__name__)

READ_WHOLE = 1 << 16
"""Bytes of a ranking that is decoded before it is published again: to decode a longer one nobody else would have a
turn for too long."""


class Committing:
    """Commits the batches of one query. A crash between any two steps leads to redelivery, and so to the same."""

    def __init__(self, query_id: str, partition: int, shared: Shared) -> None:
        self._query_id = query_id
        self._partition = partition
        self._counted = partition_name(Kind.QUERY, partition)
        self._shared = shared

    async def commit(self, loaded: Loaded | None, batch: Batch, folded: Folded | None) -> None:
        """Return when all that the batch changed is saved, published and acknowledged.

        May raise `Fenced`, and `QueryFailed` where what was computed cannot be stored.

        `loaded` is None where nobody opened the query, `folded` where the batch changed nothing, and its `change`
        where that can wait.
        """
        # Before the save: what the saved position says was read is then sure to have its dead letter.
        await self._tell_rejected(batch)
        if loaded is not None:
            await self._restate(loaded, batch)  # likewise: what is saved as read is not looked at again
            change = folded.change if folded is not None else None
            await self._keep(batch, with_quiet=change is None)
            if change is not None:
                await self._save_and_publish(loaded, change)
            elif batch.known or not loaded.published:
                # The crash that brought these again may have come between the save and the publish.
                loaded.lacking = not await self.publish_again() or loaded.lacking
            loaded.published = True
            # Whoever saved it: what comes is known by that.
            self._shared.written.saved(self._query_id, loaded.revision)
        self._acknowledge(batch)

    async def delete(self, batch: Batch, deletion: Delivery) -> Deletion:
        """Return when nothing is left of the query, readers are told, and the batch is acknowledged.

        Where another partition owns the query, nothing is done: that is in the answer.
        """
        shared = self._shared
        left = await shared.retry(
            lambda: shared.store.delete_query(
                self._query_id,
                self._partition,
                revision=int(shared.store_clock.now() * 1000),
                # All of the batch: what is read again once this is done is known then, as what came before it is.
                read=batch.position_after(NOTHING_READ, cursor=0),
            ),
            until_mended=True,  # what is stopped can still be deleted: it would be tried again at once
        )
        if left.partition == self._partition:
            for delivery in batch.of(Kind.QUERY):  # of other topics nobody can say what was there sooner
                if delivery.record.offset > deletion.record.offset and not delivery.deletes:
                    batch.rejected.setdefault(delivery, query_deleted(self._query_id))
            await self._tell_rejected(batch)
            await self.withdraw()
            claims, publish = shared.store.claims, shared.publisher.publish_leases
            try:
                await shared.retry(lambda: publish_outbox(claims, publish, self._query_id))
            except StoreDamaged as damaged:  # what was in it is gone, and the query with it
                log.error("query %r: %s", self._query_id, damaged)
            # What else came in the same batch counted until then: a dead letter would only keep it.
            batch.applied.update(delivery for delivery in batch.deliveries if delivery not in batch.rejected)
            shared.written.saved(self._query_id, left.revision)
            self._acknowledge(batch)
        return left

    async def withdraw(self, *, permit: AbstractAsyncContextManager[object] = FREE_PERMIT) -> None:
        """Tell readers that there is no ranking any more, in each try under the permit, and note that they know."""
        shared = self._shared
        await shared.retry(lambda: shared.publisher.withdraw_ranking(self._query_id), permit=permit)
        with suppress(StoreDamaged):  # then they are told again at the next start
            await shared.retry(lambda: shared.store.note_withdrawn(self._query_id))

    def show(self, state: QueryState) -> None:
        """Bring the query's metrics up to date."""
        numbers = QueryNumbers(state.screened, state.found, state.engine.readings.discrepancy(), state.drift)
        self._shared.metrics.queries.report(self._query_id, numbers)

    async def publish_again(self, *, permit: AbstractAsyncContextManager[object] = FREE_PERMIT) -> bool:
        """Publish the ranking that was saved last once more, in each try under the permit; False where the store
        has none, or something else in its place."""
        shared = self._shared

        async def published() -> bool:
            # From the store: this process's copy of the query may be older than that.
            value = await shared.store.read_ranking(self._query_id)
            if value is None or not is_ranking(value, self._query_id):
                return False
            with shared.timed("publish"):
                await shared.publisher.publish_ranking(self._query_id, value)
            return True

        there = await shared.retry(published, permit=permit)
        if there:
            shared.metrics.rankings_published.inc()
        else:
            log.error("query %r: what Redis has in place of its ranking is none; it is made anew", self._query_id)
        return there

    async def go_back(self, fenced: Fenced) -> None:
        """Have records of the query read again from where the store has gone back to. Raises `StateBack`."""
        shared, store = self._shared, self._shared.store
        await shared.check_not_lost()
        [head] = await shared.retry(lambda: store.read_heads([self._query_id]))  # its verdicts may be gone, too
        position = head.position if head is not None else Position()
        seen = zip(OWNED, position.offsets, strict=True)
        ends = {partition_name(kind, self._partition): offset + 1 for kind, offset in seen}
        noted = await shared.retry(lambda: store.read_up_to(ends))
        moves = {name: (noted.get(name, NO_OFFSET), min(noted.get(name, 0), end)) for name, end in ends.items()}
        await shared.retry(lambda: store.move_up_to(moves))
        await shared.retry(shared.written.end)
        raise StateBack(f"{fenced}: the store has gone back to an earlier state; reading again from there")

    async def _tell_rejected(self, batch: Batch) -> None:
        for delivery, error in batch.rejected.items():
            told_then = delivery.again and error.code in {Code.QUARANTINED, Code.UNKNOWN_QUERY}
            if delivery not in batch.told and not told_then:
                await self._shared.reject(delivery.record, error)
                batch.told.add(delivery)

    async def _keep(self, batch: Batch, *, with_quiet: bool) -> None:
        """Store what no change has in it: leases of which all was known, perhaps by somebody who has not looked yet
        whether what he wrote is there; and what changes nothing that is ranked.
        """
        shared, without = self._shared, batch.applied - (batch.quiet if with_quiet else set())
        leases = (d for d in batch.of(Kind.LEASE) if d not in without and d not in batch.rejected)
        facts = [delivery.event for delivery in leases if isinstance(delivery.event, LeaseFact)]
        if facts:
            keep = partial(shared.store.keep_leases, self._query_id, self._partition, facts)
            await shared.written.counted(self._counted, keep)

    async def _restate(self, loaded: Loaded, batch: Batch) -> None:
        """Write the settings that hold once more where a record that is none came after them.

        A topic that is compacted keeps the last record of a key, whatever it says.
        """
        shared, hidden_by = self._shared, batch.hides_settings
        if hidden_by is not None:
            settings = encode_query(loaded.state.settings)
            await shared.retry(
                lambda: shared.publisher.restate_settings(self._query_id, self._partition, settings, hidden_by)
            )

    async def _save_and_publish(self, loaded: Loaded, change: Change) -> None:
        shared, claimable = self._shared, self._shared.generation() is not None
        try:
            with shared.timed("save"):
                whole = await shared.retry(lambda: shared.store.save_query(change, claimable=claimable))
        except ValueError as error:
            raise QueryFailed(Code.NOT_FINITE, f"what was computed cannot be stored: {error}") from error
        loaded.revision, loaded.saved = change.revision, change.position
        loaded.unsaved_settings = False
        loaded.lacking = loaded.lacking or not whole
        with shared.timed("publish"):
            await shared.retry(lambda: shared.publisher.publish_ranking(self._query_id, change.ranking))
        shared.metrics.rankings_published.inc()
        self.show(loaded.state)

    def _acknowledge(self, batch: Batch) -> None:
        metrics, now = self._shared.metrics, self._shared.clock.now()
        if batch.deliveries:
            metrics.batch_events.labels("query").observe(len(batch.deliveries))
        for delivery in batch.deliveries:
            record = delivery.record
            if delivery not in batch.rejected:
                self._shared.count(record, "applied" if delivery in batch.applied else "known")
                if record.kind is Kind.VERDICT and not delivery.again:
                    metrics.verdict_to_ranking.observe(max(0.0, now - record.timestamp))
            record.ack()


def is_ranking(value: bytes, query_id: str) -> bool:
    """Whether that is a ranking of the query, as readers of next-items take one; of a long one, whether it begins
    and ends as one."""
    if len(value) > READ_WHOLE:
        return value.startswith(b'{"query_id":%b,"revision":' % orjson.dumps(query_id)) and value.endswith(b"}")
    try:
        return decode_ranking(value).query_id == query_id
    except Rejected:
        return False
