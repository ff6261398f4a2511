"""What is done with the queries of partitions that were assigned."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from haystream.errors import QueryFailed
from haystream.events import Status
from haystream_service.store.base import Head, Span, Spans
from haystream_service.worker.endings import shorter
from haystream_service.worker.listing import list_anew, told_complete
from haystream_service.worker.query_owner import QueryOwner
from haystream_service.worker.shared import Shared

log = logging.getLogger(__name__)

Heads = list[tuple[QueryOwner, Head]]
"""Owners, and what is saved of their queries."""


async def take_over(
    partitions: Collection[int], shared: Shared, owner_of: Callable[[str, int], QueryOwner]
) -> Heads:
    """The queries of these partitions, each put down with its owner. Those that were touched lately are woken, and
    those that something is noted of."""
    heads, gone = await _heads(partitions, shared, owner_of)
    lately, recent = shared.clock.monotonic() - shared.limits.idle_seconds, 0
    for owner, head in sorted(heads, key=lambda pair: -pair[1].touched):
        owner.put_down(head)
        if head.settings is None:
            owner.wake()  # and be told why
        elif owner.touched >= lately and head.settings.status == Status.OPEN:
            recent += 1
            if recent <= shared.limits.queries_in_memory:
                owner.wake()
    # Whoever opened a query may have died before all was applied that had come for it until then.
    early = await shared.retry(shared.store.unknown)
    left = {owner.query_id: owner.partition for owner, _ in heads if early.get(owner.query_id) == owner.partition}
    await _note_to_be_read_again(gone, shared)
    for query_id, partition in (left | gone | await shared.retry(shared.store.quarantined)).items():
        if partition in partitions:
            owner_of(query_id, partition).wake_listed()
    return heads


async def _heads(
    partitions: Collection[int], shared: Shared, owner_of: Callable[[str, int], QueryOwner]
) -> tuple[Heads, dict[str, int]]:
    """What is saved of all queries but those that were deleted long ago, with their owners; and the partition of
    each that is listed and of which the store has nothing. Raises `TopicsReplaced`."""
    long_ago = 1000 * (shared.store_clock.now() - shared.limits.withdrawn_seconds)
    found: Heads = []
    gone: dict[str, int] = {}
    for partition, listed in (await _listed(partitions, shared)).items():
        for query_id, head in listed.items():
            if head is None:
                gone[query_id] = partition
            elif head.partition in {partition, -1}:
                try:
                    await shared.check_same_topics(query_id, partition, head.position)
                except QueryFailed:  # whoever loads it is told why
                    head = Head.unreadable()
                if not (head.withdrawn and head.touched < long_ago):
                    found.append((owner_of(query_id, partition), head))
            else:
                text = "query %r is in Redis' list of partition %d, and its `meta` says that it is of partition %d"
                log.warning(text, query_id, partition, head.partition, extra={"query": query_id})
    return found, gone


async def _listed(partitions: Collection[int], shared: Shared) -> dict[int, dict[str, Head | None]]:
    """What is saved of the queries in the lists of these partitions. Where lists are gone they are made anew."""
    store, retry = shared.store, shared.retry

    async def read(partition: int) -> dict[str, Head | None]:
        query_ids = sorted(await retry(partial(store.query_ids, partition)))
        return dict(zip(query_ids, await retry(partial(store.read_heads, query_ids)), strict=True))

    found = {partition: await read(partition) for partition in partitions}
    suspect = set()
    for partition, heads in found.items():
        if not heads or len(heads) < await retry(partial(store.read_listed, partition), until_mended=True):
            suspect.add(partition)
    if suspect:
        await list_anew(suspect, store, retry)
        found |= {partition: await read(partition) for partition in suspect}
    for partition, heads in found.items():
        owned = {query_id: head for query_id, head in heads.items() if head and head.partition == partition}
        await told_complete(partial(store.complete_lists, partition, owned), retry)
    return found


async def _note_to_be_read_again(gone: Mapping[str, int], shared: Shared) -> None:
    """Note of these queries that all that the topics have of them has to be read once more.

    Somebody deleted what was saved; or whoever opened one died before he saved it, and then it comes again anyway.
    """
    for query_id, partition in gone.items():
        log.error("Redis lists query %r and has nothing of it: it is read from Kafka again", query_id)
        ends = await shared.ends(partition)
        all_of_it = Spans(*(Span(0, end - 1) if end else None for end in ends))
        await shared.retry(partial(shared.store.pass_over, query_id, all_of_it), until_mended=True)


async def check_logs(heads: Heads, shared: Shared) -> None:
    """Raise `StateBack` where queries have seen more of a collection's log than there is; once.

    A log that goes back alone, as on a shard of its own, does not bring its topic's offsets back with it. And
    who had not noticed yet may have saved a query after the store had gone back.
    """
    of_log: dict[str, list[tuple[str, int]]] = {}
    for owner, head in heads:
        if head.settings is not None and head.settings.status != Status.DELETED:
            of_log.setdefault(head.settings.collection, []).append((owner.query_id, head.position.cursor))
    await asyncio.gather(*(_check_log(name, queries, shared) for name, queries in of_log.items()))


async def _check_log(name: str, queries: Iterable[tuple[str, int]], shared: Shared) -> None:
    """The same of one collection, with what each of its queries has seen. No other waits where it is away."""
    retry = partial(shared.retry, until_mended=True)
    count = await retry(partial(shared.store.entry_count, name))
    ahead = [(query_id, cursor) for query_id, cursor in queries if cursor > count]
    if ahead and not await retry(partial(shared.store.is_deleted, name)):
        await shared.written.read_items_again(name)
        raise shorter(name, count, *ahead[0])
