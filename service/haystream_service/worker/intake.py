"""Items, from records into the logs of their collections."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from haystream.errors import Code, Rejected
from haystream.events import ItemFact
from haystream_service.kafka.records import Kind, Record, partition_name
from haystream_service.store.base import Appended
from haystream_service.wire import decode_item
from haystream_service.worker.shared import Shared

DECODED_AT_ONCE = 100
"""Items decoded between two looks at the event loop: some 2 ms."""


@dataclass(frozen=True, slots=True, eq=False)
class NewFact:
    """What a record says of an item, with the record."""

    record: Record
    fact: ItemFact


class Intake:
    """Takes items into the logs of their collections."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._in_hand = 0

    def __len__(self) -> int:
        """Items on their way."""
        return self._in_hand

    async def take(self, records: Sequence[Record]) -> None:
        """Return when every record is in its collection's log, or a dead letter, and acknowledged."""
        self._in_hand += len(records)
        try:
            by_collection = await self._decode(records)
            await asyncio.gather(*(self._append(name, some) for name, some in by_collection.items()))
        finally:
            self._in_hand -= len(records)

    async def _decode(self, records: Sequence[Record]) -> dict[str, list[NewFact]]:
        by_collection: dict[str, list[NewFact]] = {}
        for number, record in enumerate(records, start=1):
            try:
                fact = decode_item(record.value, record.key, at=(record.partition, record.offset))
            except Rejected as error:
                await self._shared.reject(record, error)
                record.ack()
            else:
                by_collection.setdefault(fact.collection, []).append(NewFact(record, fact))
            if number % DECODED_AT_ONCE == 0:
                await asyncio.sleep(0)
        return by_collection

    async def _append(self, collection: str, batch: Sequence[NewFact]) -> None:
        shared = self._shared
        facts = [new.fact for new in batch]
        append = partial(shared.store.append_items, collection, facts)
        answers = await shared.retry(append, until_mended=True)
        came = min(new.record.timestamp for new in batch)
        shared.metrics.item_to_log.observe(max(0.0, shared.clock.now() - came))
        for new, answer in zip(batch, answers, strict=True):
            if answer is Appended.CONFLICT:
                detail = f"item {new.fact.item_id!r} is known with other participants, who stand"
                await shared.reject(new.record, Rejected(Code.ITEM_CONFLICT, detail))
            elif answer is Appended.DELETED:
                await shared.reject(new.record, collection_deleted(collection))
            else:
                shared.count(new.record, "applied" if answer is Appended.ADDED else "known")
                if answer is Appended.ADDED and new.fact.withdrawn:
                    shared.metrics.items_withdrawn.inc()
        shared.metrics.batch_events.labels("collection").observe(len(batch))
        added = [fact for fact, answer in zip(facts, answers, strict=True) if answer is Appended.ADDED]
        if added:
            shared.written.appended(collection, added[-1])
        else:  # what is known may be somebody else's, who has not looked for it yet
            await shared.written.counted(partition_name(Kind.ITEM, batch[-1].record.partition), append)
        for new in batch:
            new.record.ack()


def collection_deleted(name: str) -> Rejected:
    """Why nothing is taken for the collection."""
    return Rejected(Code.COLLECTION_DELETED, f"collection {name!r} was deleted")
