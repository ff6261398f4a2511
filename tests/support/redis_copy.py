"""All that a Redis holds, to be put back later: it is as it was then."""

import asyncio

from redis.asyncio import Redis

from haystream_service.settings import Settings
from support.pipeline import until


class Copy:
    """All that a Redis holds at one time, to be put back later, in one step."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._keys: dict[bytes, bytes] = {}

    async def take(self) -> None:
        self._keys = {key: await self._redis.dump(key) async for key in self._redis.scan_iter()}

    async def put_back(self, *, but: str | None = None) -> None:
        """Put it back; all keys `but` those of a pattern, which stay as they are now."""
        stay = {key: await self._redis.dump(key) async for key in self._redis.scan_iter(but)} if but else {}
        async with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.flushall()
            for key, value in (self._keys | stay).items():
                pipeline.restore(key, 0, value)
            await pipeline.execute()


async def noted(redis: Redis, settings: Settings) -> None:
    """Return when the store says that it has all that the topics have."""
    key = f"{settings.redis_prefix}:up-to"

    async def all_of_it() -> bool:
        before = await redis.hgetall(key)
        await asyncio.sleep(2.5)
        return bool(before) and before == await redis.hgetall(key)

    await until(all_of_it, "what was acknowledged is noted")


async def copied(redis: Redis, settings: Settings) -> Copy:
    """A copy of what it holds once it says that it has all that the topics have."""
    await noted(redis, settings)
    copy = Copy(redis)
    await copy.take()
    return copy
