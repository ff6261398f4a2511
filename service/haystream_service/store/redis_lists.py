"""Lists of queries in Redis or Valkey, by partition: who is saved, has leases, is stopped, or not opened."""

from haystream_service.store.redis_calls import RedisPart, answers_of


class RedisLists(RedisPart):
    """The lists that a `RedisStore` keeps of queries."""

    async def _partitions(self) -> list[int]:
        members = await self._members(self._keys.partitions)
        with self._reading(self._keys.partitions):
            return list(map(int, members))

    async def _members(self, key: str) -> set[str]:
        async with self._answering(key):
            members = await self._redis.smembers(key)
        with self._reading(key):
            return {member.decode() for member in members}

    async def _list(self, query_id: str, partition: int, key: str) -> None:
        """Put the query into that set of its partition."""
        async with self._answering(key, self._keys.partitions):
            await self._redis.sadd(key, query_id)
            await self._redis.sadd(self._keys.partitions, partition)

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
