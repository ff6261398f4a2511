"""`haystream up`: Kafka, Valkey, a worker and the API on this machine, until somebody ends it."""

import asyncio
import fcntl
import os
import re
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from shlex import quote
from sysconfig import get_path

from haystream_service.api.access import Role
from haystream_service.api.tokens import KeyFile, new_key, read_keys, write_keys
from haystream_service.commands.signals import stop_on_signals
from haystream_service.console import notes
from haystream_service.errors import UserError
from haystream_service.local import KafkaServer, LocalServer, ValkeyServer
from haystream_service.local.services import ApiProcess, WorkerProcess
from haystream_service.local.starting import started
from haystream_service.settings import load, variables

LOOK_SECONDS = 0.2
"""Between two looks whether all of it runs."""


def run(folder: Path) -> None:
    """Start, say where everything is, stop at Ctrl-C or SIGTERM; ends the process with the exit code.

    Raises `UserError` and `ServerUnavailable`.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {folder}: {error.strerror}") from None
    sys.exit(asyncio.run(serve(folder.resolve())))


async def serve(folder: Path) -> int:
    """The exit code: 0 once it was told to stop, 1 once a server has ended by itself.

    Raises `UserError` and `ServerUnavailable`.
    """
    async with AsyncExitStack() as stack:
        stack.enter_context(_alone_in(folder))
        stop_on_signals()
        servers: list[LocalServer] = []
        starting = asyncio.ensure_future(_start(folder, stack, servers))
        try:
            while not (reports := [report for server in servers if (report := server.exit_report())]):
                if starting.done():
                    starting.result()  # raises what kept it from starting
                await asyncio.sleep(LOOK_SECONDS)
            notes.print(*reports, sep="\n", markup=False)
            return 1
        except asyncio.CancelledError:
            return 0
        finally:
            notes.print("stopping ...")
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)


async def _start(folder: Path, stack: AsyncExitStack, servers: list[LocalServer]) -> None:
    """Start all of it, and say where it is. Those that run are in the list."""
    token, keys, env = folder / "token", folder / "keys.json", folder / "env"
    await asyncio.to_thread(_have_token, token, keys)
    notes.print("starting Kafka, Valkey, a worker and the API; the first time takes a minute or more ...")
    earlier = await asyncio.to_thread(_ports_of, env)
    valkey = ValkeyServer(data_dir=folder / "valkey", earlier_port=earlier.get("REDIS"))
    servers.append(await started(stack, valkey))
    kafka = KafkaServer(data_dir=folder / "kafka", earlier_port=earlier.get("KAFKA"))
    servers.append(await started(stack, kafka))
    settings = variables(load(environ={}, kafka=kafka.bootstrap, redis=valkey.url))
    api = ApiProcess(settings, keys, earlier_port=earlier.get("API"))
    stack.push_async_callback(asyncio.to_thread, api.close)  # which may never be started
    where = {**settings, "HAYSTREAM_API": api.address, "HAYSTREAM_API_TOKEN_FILE": str(token)}
    lines = f'export PATH={quote(get_path("scripts"))}:"$PATH"\n'
    lines += "".join(f"export {name}={quote(value)}\n" for name, value in where.items())
    await asyncio.to_thread(env.write_text, lines)
    # Before the worker: it may wait for what somebody has to do in that other terminal.
    notes.print(f"in another terminal: . {quote(str(env))}", markup=False)
    servers.append(await started(stack, WorkerProcess(settings)))
    servers.append(await started(stack, api))
    notes.print(f"the API is at {api.address}/docs, for the token in {token}", markup=False)
    notes.print("Ctrl-C stops all of it; what was done stays in that folder")


def _ports_of(env: Path) -> dict[str, int]:
    """The ports of the last start, by setting: a terminal that has its settings still finds everything there."""
    lines = env.read_text(errors="replace") if env.exists() else ""
    found = re.findall(r"^export HAYSTREAM_(KAFKA|REDIS|API)=\S*127\.0\.0\.1:(\d+)", lines, re.MULTILINE)
    return {setting: int(port) for setting, port in found}


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Nobody else runs in the folder meanwhile. Raises `UserError` where somebody does."""
    try:
        lock = (folder / "lock").open("a+")
    except OSError as error:
        raise UserError(f"cannot write in {folder}: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise UserError(f"{folder} is in use by process {lock.read().strip()}") from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def _have_token(token: Path, keys: Path) -> None:
    """Have a token that the keys know: that of an earlier start, or a new one beside the keys that are there."""
    if keys.exists() and token.exists() and KeyFile(keys).caller(token.read_text().strip()) is not None:
        return
    key, line = new_key("me", [Role.INGEST, Role.ANALYST, Role.LEAD], ["*"])
    write_keys(keys, [*(read_keys(keys) if keys.exists() else []), line])
    token.touch(mode=0o600)
    token.write_text(key + "\n")
