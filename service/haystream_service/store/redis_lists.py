"""Lists of queries in Redis or Valkey, by partition: who is saved, has leases, is stopped, or not opened."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import compress

from haystream.events import Status
from haystream_service.store.base import Head
from haystream_service.store.facts import MOST_PARTITIONS
from haystream_service.store.redis_calls import RedisPart, answers_of
from haystream_service.store.shapes import read_number, read_text

NOTES_AT_ONCE = 500
METAS_AT_ONCE = 200
"""Between two turns of the event loop: some milliseconds."""


class RedisLists(RedisPart):
    """The lists that a `RedisStore` keeps of queries."""

    async def _partitions(self) -> list[int]:
        members = await self._members(self._keys.partitions)
        with self._reading(self._keys.partitions):
            return [read_number(member, "a partition", most=MOST_PARTITIONS) for member in members]

    async def _members(self, key: str) -> set[str]:
        async with self._answering(key):
            members = await self._redis.smembers(key)
        with self._reading(key):
            return {read_text(member, "a member") for member in members}

    async def _list(self, query_id: str, partition: int, key: str) -> None:
        """Put the query into that set of its partition."""
        async with self._answering(key, self._keys.partitions):
            await self._redis.sadd(key, query_id)
            await self._redis.sadd(self._keys.partitions, partition)

    async def list_sizes(self, partition: int) -> tuple[int, ...]:
        """As `Queries.list_sizes`."""
        keys = self._lists(partition)
        async with self._answering(*keys), self._redis.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.scard(key)
            return tuple(await answers_of(pipeline))

    async def list_anew(self, partitions: Collection[int]) -> int:
        """As `Queries.list_anew`."""
        listed = 0
        async for found in self._matching(self._keys.every_meta):
            for start in range(0, len(found), METAS_AT_ONCE):
                listed += await self._list_some(found[start : start + METAS_AT_ONCE], partitions)
        return listed

    async def _list_some(self, metas: Sequence[bytes], partitions: Collection[int]) -> int:
        query_ids, listed = list[str](), 0
        for meta in metas:
            with suppress(UnicodeDecodeError):  # else it is no key of ours
                query_ids.append(self._keys.query_of(meta.decode()))
        async with self._answering(), self._redis.pipeline(transaction=False) as pipeline:
            for query_id in query_ids:
                pipeline.hmget(self._keys.query(query_id, "meta"), "partition", "leased", "fingerprint")
                pipeline.exists(self._keys.query(query_id, "note"))
            said = await answers_of(pipeline, of_another_type=True)
        members = defaultdict[tuple[int, str], list[str]](list)
        for query_id, meta, stopped in zip(query_ids, said[::2], said[1::2], strict=True):
            for partition in partitions:
                # A query of which nothing can be read is in all of them: whoever loads it is told why.
                if isinstance(meta, Exception) or meta[0] == b"%d" % partition:
                    belongs = True, isinstance(meta, Exception) or _may_have_leases(*meta[1:]), stopped
                    for key in compress(self._lists(partition), belongs):
                        members[partition, key].append(query_id)
        for (partition, key), some in members.items():
            async with self._answering(key, self._keys.partitions):
                listed += await self._redis.sadd(key, *some)
                await self._redis.sadd(self._keys.partitions, partition)
        return listed

    async def complete_lists(self, partition: int, heads: Mapping[str, Head]) -> int:
        """As `Queries.complete_lists`."""
        _, leased, stopped = self._lists(partition)
        query_ids, noted = list(heads), list[bool]()
        for start in range(0, len(query_ids), NOTES_AT_ONCE):
            async with self._answering(), self._redis.pipeline(transaction=False) as pipeline:
                for query_id in query_ids[start : start + NOTES_AT_ONCE]:
                    pipeline.exists(self._keys.query(query_id, "note"))
                noted += map(bool, await answers_of(pipeline))
        members = {
            leased: [query_id for query_id, head in heads.items() if head.leased and not _is_deleted(head)],
            stopped: list(compress(query_ids, noted)),
        }
        lacked = 0
        for key, some in members.items():
            for start in range(0, len(some), NOTES_AT_ONCE):
                async with self._answering(key):
                    lacked += await self._redis.sadd(key, *some[start : start + NOTES_AT_ONCE])
        return lacked

    def _lists(self, partition: int) -> tuple[str, str, str]:
        """The lists of queries that are saved, ever had leases, are stopped or were."""
        return self._keys.partition(partition), self._keys.leased(partition), self._keys.quarantined(partition)

    async def _forget(self, query_id: str, partition: int) -> None:
        """Take the query out of the lists of those that are stopped, or not opened."""
        stopped, *unknown = (
            named(partition) for named in (self._keys.quarantined, self._keys.unknown, self._keys.unknown_leases)
        )
        async with self._answering(stopped, *unknown), self._redis.pipeline(transaction=False) as pipeline:
            pipeline.srem(stopped, query_id)
            for key in unknown:
                pipeline.hdel(key, query_id)
            await answers_of(pipeline)


def _may_have_leases(leased: bytes | None, fingerprint: bytes | None) -> bool:
    """Whether a query is to be in the list of those that have leases, by what its `meta` says.

    One that was deleted is not, whoever kept leases of it after that: it is taken out again, again and again.
    """
    return leased is not None and fingerprint != b"deleted"


def _is_deleted(head: Head) -> bool:
    return head.settings is not None and head.settings.status == Status.DELETED
