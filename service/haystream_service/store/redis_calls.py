"""How the stores in Redis ask it: scripts by their hash, one timeout a call, errors as `StoreUnavailable`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from functools import partial
from hashlib import sha1
from importlib.resources import files
from time import perf_counter
from typing import Any, cast

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.exceptions import NoScriptError, ReadOnlyError, RedisClusterException, RedisError

from haystream_service.store.base import StoreUnavailable
from haystream_service.store.damage import damage, unreadable
from haystream_service.store.keys import Keys
from haystream_service.store.refusals import is_of_another_type, is_of_what_was_found, unavailable
from haystream_service.store.shapes import Unreadable

KEYS_A_SCAN = 1000
ASKED_AT_ONCE = 100
"""So many calls of a process are with Redis at once; others wait for their turn, as part of their time. Each has a
connection, which stays when it is over, and Redis takes so many of all processes. Not counted is who waits for what
is to come: that takes a connection for as long as it waits. In a cluster none is counted: calls to a server that is
silent would keep those to others waiting.
"""


class Script:
    """A Lua script of this package, run by its hash; it is sent where the server does not know that.

    One about `leases` has the functions of `lease_functions.lua`.
    """

    def __init__(self, name: str, *, leases: bool = False) -> None:
        self.name = name.removesuffix(".lua")
        here = files(__package__)
        parts = [here.joinpath(name).read_bytes()]
        if leases:
            parts = [b"#!lua\n", here.joinpath("lease_functions.lua").read_bytes(), *parts]
        self.text = b"".join(parts)
        self.hash = sha1(self.text, usedforsecurity=False).hexdigest()


class RedisCalls:
    """A client, the names of its keys, and how it is asked.

    `answered` is told the name of each script that Redis has answered, and the seconds that took.
    """

    def __init__(
        self, client: Redis | RedisCluster, keys: Keys, timeout: float, answered: Callable[[str, float], None]
    ) -> None:
        # The two clients share every command used here, but no base class that says so.
        self.redis = cast(Any, client)
        self.keys = keys
        self._timeout = timeout
        self._answered = answered
        self._turns = asyncio.Semaphore(ASKED_AT_ONCE) if isinstance(client, Redis) else nullcontext()

    async def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        """What the script answers."""
        async with self.answering(*keys):
            began = perf_counter()  # the wait for a turn is none of Redis'
            try:
                answer = await self.redis.evalsha(script.hash, len(keys), *keys, *arguments)
            except NoScriptError:
                answer = await self.redis.eval(script.text, len(keys), *keys, *arguments)
        self._answered(script.name, perf_counter() - began)
        return answer

    @asynccontextmanager
    async def answering(self, *keys: str, extra: float = 0.0) -> AsyncIterator[None]:
        """Turns every way in which a server does not answer, or not in time, into `StoreUnavailable`.

        `keys` are those that are asked for: where one holds something of another type, that is said of it. `extra`
        are seconds for which Redis may wait itself before it answers.
        """
        turn = nullcontext() if extra else self._turns
        try:
            try:
                async with asyncio.timeout(self._timeout + extra), turn:
                    yield
            except RedisError as error:
                if is_of_what_was_found(error):
                    raise unreadable(self.keys, keys, error) from error
                if not is_of_another_type(error):
                    raise
                async with asyncio.timeout(self._timeout):
                    raise await damage(self.redis, self.keys, keys, str(error)) from error
        except TimeoutError:
            raise StoreUnavailable(f"no answer from Redis within {self._timeout + extra:g} s") from None
        except (RedisError, RedisClusterException, OSError) as error:
            if (try_again := unavailable(error)) is None:
                raise
            if isinstance(error, ReadOnlyError) and isinstance(self.redis, Redis):
                # A replica now, to which this connection leads for ever: the address may be another's by now.
                await self.redis.connection_pool.disconnect(inuse_connections=False)
            raise try_again from error

    @contextmanager
    def reading(self, *keys: str) -> Iterator[None]:
        """Turns what cannot be what we wrote under these keys into `StoreDamaged`, or `SharedDamaged`.

        Nothing else: what else is raised inside is a bug, or says what this version does not take.
        """
        try:
            yield
        except Unreadable as error:
            raise unreadable(self.keys, keys, error) from error

    async def unlink(self, pattern: str) -> None:
        """Take away every key that matches, in the background of the server."""
        async for batch in self.matching(pattern):
            # One key a command: a cluster takes no two keys of different slots in one.
            async with self.answering(), self.redis.pipeline(transaction=False) as pipeline:
                for key in batch:
                    pipeline.execute_command("UNLINK", key)
                await answers_of(pipeline)

    async def matching(self, pattern: str) -> AsyncIterator[list[bytes]]:
        """Every key that matches, some at a time. It takes as long as there are keys of anybody's."""
        # One timeout a step: how many there are until something matches depends on how much others have there.
        step = partial(self.redis.scan, match=pattern, count=KEYS_A_SCAN)
        async with self.answering():
            left, keys = await step()  # of a cluster, one of each of its servers
        yield keys
        on_cluster = isinstance(left, dict)
        for name, cursor in left.items() if on_cluster else [("", left)]:
            while cursor:
                here = {"target_nodes": self._server(name)} if on_cluster else {}
                async with self.answering():
                    left, keys = await step(cursor=cursor, **here)
                cursor = left[name] if on_cluster else left
                yield keys

    def _server(self, name: str) -> Any:
        """The server of a cluster that has that name. Asked for none, redis-py would ask all of them."""
        server = self.redis.get_node(node_name=name)
        if server is None:
            raise StoreUnavailable(f"the cluster has no server {name} any more, which was asked for its keys")
        return server


class RedisPart:
    """A part of a `RedisStore`, which asks as all of them do."""

    def __init__(self, calls: RedisCalls) -> None:
        self._redis, self._keys = calls.redis, calls.keys
        self._run, self._answering, self._unlink = calls.run, calls.answering, calls.unlink
        self._reading, self._matching = calls.reading, calls.matching


async def answers_of(pipeline: Any, *, of_another_type: bool = False) -> list[Any]:
    """The answer of each command of a pipeline; raises the first that is an error.

    With `of_another_type` that of a key which holds something else is among the answers instead. Raised by the
    pipeline, an answer's code would be hidden in the middle of its text.
    """
    answers: list[Any] = await pipeline.execute(raise_on_error=False)
    for answer in answers:
        if isinstance(answer, Exception) and not (of_another_type and is_of_another_type(answer)):
            raise answer
    return answers
