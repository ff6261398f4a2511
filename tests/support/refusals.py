"""Ways in which a Valkey that answers refuses to serve: inflicted, and undone again."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from haystream_service.local import ValkeyServer
from haystream_service.local.process import HOST, free_port

USER = "haystream"
PERMISSIONS = ("+@read", "+@write", "+@scripting", "+@connection", "+time")
"""All that a worker's user needs, on keys under its prefix. docs/operations.md names the same."""


async def allow(server: ValkeyServer, prefix: str, password: str) -> None:
    """Make, or change, the worker's user. Connections that were let in before stay."""
    async with Redis(port=server.port) as admin:
        await admin.execute_command(
            "ACL", "SETUSER", USER, "reset", "on", f">{password}", f"~{prefix}:*", *PERMISSIONS
        )


@asynccontextmanager
async def memory_full(server: ValkeyServer, password: Path) -> AsyncIterator[str]:
    async with _configured(server, "maxmemory", "1", "0"):
        yield "OOM"


@asynccontextmanager
async def replicas_missing(server: ValkeyServer, password: Path) -> AsyncIterator[str]:
    async with _configured(server, "min-replicas-to-write", "1", "0"):
        yield "NOREPLICAS"


@asynccontextmanager
async def demoted(server: ValkeyServer, password: Path) -> AsyncIterator[str]:
    """A replica, as after a failover, of a primary that it does not reach: it keeps its data, and shows them."""
    async with Redis(port=server.port) as admin:
        await admin.execute_command("REPLICAOF", HOST, free_port())
        try:
            yield "READONLY"
        finally:
            await admin.execute_command("REPLICAOF", "NO", "ONE")


@asynccontextmanager
async def demoted_and_silent(server: ValkeyServer, password: Path) -> AsyncIterator[str]:
    """The same, but it shows no data that may be old."""
    async with _configured(server, "replica-serve-stale-data", "no", "yes"), demoted(server, password):
        yield "(MASTERDOWN|READONLY)"


@asynccontextmanager
async def disk_failing(server: ValkeyServer, password: Path) -> AsyncIterator[str]:
    """A disk to which no snapshot can be written."""
    in_the_way = server.data_dir / "dump.rdb" / "x"
    async with _configured(server, "save", "3600 1", ""), Redis(port=server.port) as admin:
        in_the_way.mkdir(parents=True)
        await _save(admin, "err")
        try:
            yield "MISCONF"
        finally:
            in_the_way.rmdir()
            in_the_way.parent.rmdir()
            await _save(admin, "ok")


@asynccontextmanager
async def busy(server: ValkeyServer, password: Path) -> AsyncIterator[str]:
    """A script of somebody else that does not end."""
    async with (
        _configured(server, "busy-reply-threshold", "10", "5000"),
        Redis(port=server.port) as admin,
        Redis(port=server.port) as other,
    ):
        running = asyncio.create_task(other.eval("while true do end", 0))
        try:
            while True:
                try:
                    await admin.ping()
                except ResponseError:
                    break
            yield "BUSY"
        finally:
            await admin.script_kill()
            await asyncio.gather(running, return_exceptions=True)


@asynccontextmanager
async def command_gone(server: ValkeyServer, command: str) -> AsyncIterator[None]:
    """The worker's user lacks a single command: scripts are refused where they come to it."""
    async with Redis(port=server.port) as admin:
        await admin.execute_command("ACL", "SETUSER", USER, f"-{command}")
        try:
            yield
        finally:
            await admin.execute_command("ACL", "SETUSER", USER, f"+{command}")


@asynccontextmanager
async def permission_gone(server: ValkeyServer, password: Path) -> AsyncIterator[str]:
    async with Redis(port=server.port) as admin:
        await admin.execute_command("ACL", "SETUSER", USER, "-@write")
        try:
            yield "NOPERM"
        finally:
            await admin.execute_command("ACL", "SETUSER", USER, *PERMISSIONS)


@asynccontextmanager
async def password_changed(server: ValkeyServer, password: Path) -> AsyncIterator[str]:
    """Another password on the server; in the end the file has it, too."""
    async with Redis(port=server.port) as admin:
        await admin.execute_command("ACL", "SETUSER", USER, "resetpass", ">another")
        await admin.execute_command("CLIENT", "KILL", "USER", USER)
        try:
            yield "WRONGPASS"
        finally:
            await asyncio.to_thread(password.write_text, "another\n")


REFUSALS: dict[str, Callable[[ValkeyServer, Path], AbstractAsyncContextManager[str]]] = {
    each.__name__: each
    for each in (
        memory_full,
        replicas_missing,
        demoted,
        demoted_and_silent,
        disk_failing,
        busy,
        permission_gone,
        password_changed,
    )
}
"""By name: given the server and the file of the worker's password, a pattern of Valkey's code inside."""


@asynccontextmanager
async def _configured(server: ValkeyServer, name: str, inside: str, after: str) -> AsyncIterator[None]:
    async with Redis(port=server.port) as admin:
        await admin.config_set(name, inside)
        try:
            yield
        finally:
            await admin.config_set(name, after)


async def _save(admin: Any, wanted: str) -> None:
    """Take a snapshot, of which the server then says that."""
    while True:
        with suppress(RedisError):  # one is being taken
            await admin.bgsave(schedule=False)
        await asyncio.sleep(0.05)
        status = await admin.info("persistence")
        if not status["rdb_bgsave_in_progress"] and status["rdb_last_bgsave_status"] == wanted:
            return
