"""The faults: what breaks, who cannot work meanwhile, and for how long."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from redis.asyncio import Redis

from haystream_service.local import LocalServer, ValkeyServer
from support.arena import Arena
from support.proxy import Proxy

SHORT, LONG = 6.0, 16.0
"""Seconds: less and more than a consumer group's session, after which a member is given up."""

Strike = Callable[[Arena], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault. `strike` is a context in which it lasts."""

    name: str
    strike: Strike
    dark: tuple[int, ...] = ()
    """The workers that cannot work while it lasts."""
    seconds: float = SHORT
    skew: tuple[float, ...] = (0.0, 0.0)
    """By how much each worker's clock is wrong."""
    twice: bool = False
    """Whether every record comes twice."""


@asynccontextmanager
async def nothing(arena: Arena) -> AsyncIterator[None]:
    """All goes well."""
    yield


def killed(*victims: Callable[[Arena], LocalServer]) -> Strike:
    """SIGKILL; started again in the same place in the end."""

    @asynccontextmanager
    async def strike(arena: Arena) -> AsyncIterator[None]:
        for victim in victims:
            victim(arena).kill()
        try:
            yield
        finally:
            await asyncio.gather(*(asyncio.to_thread(victim(arena).start) for victim in victims))

    return strike


def frozen(victim: Callable[[Arena], LocalServer]) -> Strike:
    """SIGSTOP, and SIGCONT in the end."""

    @asynccontextmanager
    async def strike(arena: Arena) -> AsyncIterator[None]:
        with victim(arena).frozen():
            yield

    return strike


def cut(proxy: Callable[[Arena], Proxy]) -> Strike:
    """No byte gets through, and in the end all that was sent meanwhile does."""

    @asynccontextmanager
    async def strike(arena: Arena) -> AsyncIterator[None]:
        proxy(arena).cut()
        try:
            yield
        finally:
            proxy(arena).heal()

    return strike


def slow(proxy: Callable[[Arena], Proxy], seconds: float) -> Strike:
    """Every byte comes so much later, in each direction."""

    @asynccontextmanager
    async def strike(arena: Arena) -> AsyncIterator[None]:
        proxy(arena).delay = seconds
        try:
            yield
        finally:
            proxy(arena).delay = 0.0

    return strike


@asynccontextmanager
async def resets(arena: Arena) -> AsyncIterator[None]:
    """All connections are closed, again and again."""

    async def again() -> None:
        while True:
            for proxy in (*arena.to_kafka, *arena.to_redis):
                proxy.reset()
            await asyncio.sleep(1.0)

    task = asyncio.create_task(again())
    try:
        yield
    finally:
        task.cancel()


def configured(name: str, value: str) -> Strike:
    """Valkey is told something that it cannot serve with."""

    @asynccontextmanager
    async def strike(arena: Arena) -> AsyncIterator[None]:
        async with Redis.from_url(arena.valkey.url) as redis:
            before = (await redis.config_get(name))[name]
            await redis.config_set(name, value)
            try:
                yield
            finally:
                await redis.config_set(name, before)

    return strike


@asynccontextmanager
async def full(arena: Arena) -> AsyncIterator[None]:
    """The disk under Valkey has no byte left."""
    ballast = arena.valkey.data_dir / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        room = os.statvfs(arena.valkey.data_dir)
        os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize)
        while True:
            file.write(bytes(1 << 12))
    try:
        yield
    finally:
        ballast.unlink()


@contextmanager
def small_disk(path: Path, megabytes: int = 512) -> Iterator[bool]:
    """A file system of that size at the path; False where it cannot be had."""
    path.mkdir(parents=True, exist_ok=True)
    options = ["-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(path)]
    try:
        mounted = subprocess.run(["mount", *options], capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(path)], check=False)


def _worker(arena: Arena) -> LocalServer:
    return arena.workers[0]


def _other(arena: Arena) -> LocalServer:
    return arena.workers[1]


def _kafka(arena: Arena) -> LocalServer:
    return arena.kafka


def _valkey(arena: Arena) -> ValkeyServer:
    return arena.valkey


HEALTHY = Fault("healthy", nothing)
FAULTS = (
    HEALTHY,
    Fault("worker killed", killed(_worker), dark=(0,)),
    Fault("both workers killed", killed(_worker, _other), dark=(0, 1)),
    Fault("worker frozen", frozen(_worker), dark=(0,), seconds=LONG),
    Fault("Kafka killed", killed(_kafka), dark=(0, 1)),
    Fault("Kafka frozen", frozen(_kafka), dark=(0, 1), seconds=LONG),
    Fault("Valkey killed", killed(_valkey), dark=(0, 1)),
    Fault("Valkey frozen", frozen(_valkey), dark=(0, 1), seconds=LONG),
    Fault("one worker cut off from Kafka", cut(lambda arena: arena.to_kafka[0]), dark=(0,), seconds=2 * LONG),
    Fault("one worker cut off from Valkey", cut(lambda arena: arena.to_redis[0]), dark=(0,), seconds=LONG),
    Fault("Kafka slow for one worker", slow(lambda arena: arena.to_kafka[0], 0.3)),
    Fault("Valkey slow for one worker", slow(lambda arena: arena.to_redis[0], 0.3)),
    Fault("connections reset", resets),
    Fault("Valkey without memory", configured("maxmemory", "1"), dark=(0, 1)),
    Fault("Valkey without replicas", configured("min-replicas-to-write", "1"), dark=(0, 1)),
    Fault("disk full under Valkey", full, dark=(0, 1)),
    Fault("everything comes twice", nothing, twice=True),
    Fault("clocks a day apart", killed(_other), dark=(1,), skew=(-3600.0, 86400.0)),
)
SAMPLE = ("healthy", "worker frozen")
"""What is tried where time is short, beside `tests/faults/test_kill.py`."""
