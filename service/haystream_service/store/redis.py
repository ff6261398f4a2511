"""The live state in Redis or Valkey, one server or a cluster. `keys` has the layout; the scripts write.

A write is one script, so nobody comes in between, and a save is a compare-and-set.
What this does not prevent, and what repairs it:

- **A script is refused in the middle** (a permission was taken away, a key holds something of another type). What
  it has done until then stays. Scripts are written so that whoever sends them again makes it whole: what says that
  it is done comes last.
- **A reply is lost after the write.** The caller gets `StoreUnavailable` and tries again; items are
  idempotent by id, a save is recognised by its revision and fingerprint.
- **A query is put in its partition's set, then never saved** (the process died between the two). The set
  names a query that is not there: `load_query` answers None and the worker passes over it.
- **A zombie saves between two saves of the owner.** One of the two is fenced, loads again and applies its
  batch to what the other wrote. Facts are sets: nothing is lost or counted twice.
- **A replica that lags is promoted, or the machine loses power with `appendfsync everysec`.** The last
  writes are gone although they were acknowledged. `up-to` has gone back with them, or the owner is fenced by an
  earlier revision: workers end, and begin again where the store is (`worker/progress.py`). Killing the server's
  process loses nothing when its append-only file is on.
- **The data are gone altogether.** The generation mark is gone with them: workers stop and say so until
  `haystream rebuild` has run.
- **`wipe` runs while somebody writes.** Keys may come into being behind the scan. `haystream rebuild`
  therefore refuses to start while the consumer group has members.

A table is limited by Redis to 512 MiB: 16 million edges a query.
"""

from collections.abc import Callable
from typing import Self

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from typing_extensions import override

from haystream_service.settings import Settings
from haystream_service.store.base import Store, StoreRefused
from haystream_service.store.claims import SECOND
from haystream_service.store.connection import redis_client
from haystream_service.store.keys import Keys
from haystream_service.store.redis_calls import RedisCalls, Script
from haystream_service.store.redis_claims import RedisClaims
from haystream_service.store.redis_log import RedisLogs
from haystream_service.store.redis_marks import RedisMarks
from haystream_service.store.redis_notes import RedisNotes
from haystream_service.store.redis_queries import RedisQueries


class RedisStore(RedisLogs, RedisQueries, RedisNotes, RedisMarks, Store):
    """A `Store` in Redis 7+ or Valkey. A call that takes more than `timeout` seconds is given up.

    `answered` is told the name of each script that Redis has answered, and the seconds that took.
    """

    _probe = Script("probe.lua")

    def __init__(
        self,
        client: Redis | RedisCluster,
        *,
        prefix: str = "haystream",
        timeout: float = 5.0,
        answered: Callable[[str, float], None] = lambda *_: None,
    ) -> None:
        calls = RedisCalls(client, Keys(prefix), timeout, answered)
        super().__init__(calls)
        self._claims = RedisClaims(calls)

    @classmethod
    def open(
        cls,
        settings: Settings,
        *,
        timeout: float = 5.0,
        answered: Callable[[str, float], None] = lambda *_: None,
    ) -> Self:
        """The store that the settings name; connects at the first call.

        The client neither waits nor tries again by itself: `timeout` and the callers do that, and count it.
        A blocking read takes a connection of its own from the pool, so it holds up nobody.
        """
        client = redis_client(settings, connect_seconds=timeout)
        return cls(client, prefix=settings.redis_prefix, timeout=timeout, answered=answered)

    @classmethod
    def connect(cls, url: str, *, prefix: str = "haystream", timeout: float = 5.0, cluster: bool = False) -> Self:
        """A store on the server (or one node of the cluster) at `url`, as `open` does it."""
        client = redis_client(Settings(redis=url, redis_cluster=cluster), connect_seconds=timeout)
        return cls(client, prefix=prefix, timeout=timeout)

    @property
    @override
    def claims(self) -> RedisClaims:
        return self._claims

    @override
    async def list_sizes(self, partition: int) -> tuple[int, ...]:
        saved, leased, stopped = await super().list_sizes(partition)
        return saved, leased + self._claims.taken_out[partition], stopped

    @override
    async def wipe(self) -> None:
        await self._unlink(self._keys.everything)

    @override
    async def ping(self) -> float:
        seconds, microseconds = await self._run(self._probe, [self._keys.probe], [])
        return int(seconds) + int(microseconds) / SECOND

    @override
    async def drops(self) -> str | None:
        try:
            async with self._answering():
                found = await self._redis.info("memory")
        except StoreRefused:
            return None  # it is no right that a worker needs
        servers = [found] if "maxmemory_policy" in found else found.values()
        policies = (server["maxmemory_policy"] for server in servers if server["maxmemory"])
        # By the others nothing goes that has no time to go by, and all that has can be made anew.
        return next((policy for policy in policies if policy.startswith("allkeys")), None)

    @override
    async def close(self) -> None:
        async with self._answering():
            await self._redis.aclose()
