"""Stores to hold to the contract: each as it is (`good`), and behind a line that keeps breaking (`flaky`)."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing
from itertools import count
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
import pytest_asyncio
from support.cluster import ClusterServer

from haystream_service.local import ServerUnavailable
from haystream_service.store.base import Store, StoreUnavailable
from haystream_service.store.memory import MemoryStore
from haystream_service.store.redis import RedisStore

TRIES = 50
EVERY = 7
"""Every seventh command is lost. A prime, so that no sequence of commands meets a fault in the same place."""


class Persistent:
    """Tries every call again until the store answers, as the worker does."""

    def __init__(self, store: Store, fault: Callable[[], str] = lambda: "") -> None:
        self._store = store
        self._fault = fault

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **options: Any) -> Any:
            for _ in range(TRIES):
                try:
                    fault = self._fault()
                    if fault == "before":
                        raise StoreUnavailable("the command never arrived")
                    answer = await getattr(self._store, name)(*args, **options)
                    if fault == "after":
                        raise StoreUnavailable("the answer was lost")
                except StoreUnavailable:
                    continue
                else:
                    return answer
            raise AssertionError(f"{name} got no answer in {TRIES} tries")

        return call


def faults() -> Callable[[], str]:
    """Alternately `before` (the command is not carried out) and `after` (it is, but the answer is lost)."""
    calls = count(1)

    def fault() -> str:
        at = next(calls)
        return "" if at % EVERY else ("before", "after")[at // EVERY % 2]

    return fault


@asynccontextmanager
async def breaking(url: str) -> AsyncIterator[str]:
    """The server behind a proxy that breaks connections: alternately before a command and after it."""
    address = urlsplit(url)
    fault = faults()
    open_connections: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        their_reader, their_writer = await asyncio.open_connection(address.hostname, address.port)
        open_connections.update((writer, their_writer))
        lost = False

        async def forward() -> None:
            nonlocal lost
            while data := await reader.read(1 << 16):
                now = fault()
                if now == "before":
                    break
                lost = now == "after"
                their_writer.write(data)
                await their_writer.drain()

        async def back() -> None:
            while (data := await their_reader.read(1 << 16)) and not lost:
                writer.write(data)
                await writer.drain()

        try:
            tasks = [asyncio.ensure_future(forward()), asyncio.ensure_future(back())]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for end in (writer, their_writer):
                end.close()
                open_connections.discard(end)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield urlunsplit(address._replace(netloc=f"127.0.0.1:{port}"))
    finally:
        server.close()
        for end in [*open_connections]:
            end.close()
        await server.wait_closed()


@pytest.fixture(scope="session")
def cluster_url() -> Iterator[str]:
    """A cluster of one node."""
    with closing(ClusterServer()) as server:
        try:
            server.start()
        except ServerUnavailable as missing:
            if os.environ.get("CI") == "true":
                pytest.fail(str(missing), pytrace=False)
            pytest.skip(str(missing))
        yield server.url


PARAMETERS = [
    pytest.param("memory-good"),
    pytest.param("memory-flaky"),
    pytest.param("redis-good", marks=pytest.mark.redis),
    pytest.param("redis-flaky", marks=pytest.mark.redis),
    pytest.param("cluster-good", marks=pytest.mark.redis),
]


@pytest_asyncio.fixture(params=PARAMETERS)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Persistent]:
    kind, condition = request.param.split("-")
    if kind == "memory":
        yield Persistent(MemoryStore(), faults() if condition == "flaky" else lambda: "")
        return
    prefix = request.getfixturevalue("redis_prefix")
    url = request.getfixturevalue("redis_url" if kind == "redis" else "cluster_url")
    if condition == "good":
        real = RedisStore.connect(url, prefix=prefix, cluster=kind == "cluster")
        yield Persistent(real)
        await real.wipe()
        await real.close()
        return
    async with breaking(url) as broken:
        real = RedisStore.connect(broken, prefix=prefix)
        persistent = Persistent(real)
        yield persistent
        await persistent.wipe()
        await real.close()
