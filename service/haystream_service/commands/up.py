"""`haystream up`: Kafka, Valkey, a worker and the API on this machine, until somebody ends it."""

import asyncio
import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from shlex import quote

from haystream_service.api.access import Role
from haystream_service.api.tokens import KeyFile, new_key, read_keys, write_keys
from haystream_service.commands.console import notes
from haystream_service.demo.stage import ApiProcess, WorkerProcess, started
from haystream_service.errors import UserError
from haystream_service.local import KafkaServer, ValkeyServer
from haystream_service.settings import load, variables


def run(folder: Path) -> None:
    """Start, say where everything is, stop at Ctrl-C or SIGTERM. Raises `UserError` and `ServerUnavailable`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {folder}: {error.strerror}") from None
    asyncio.run(serve(folder.resolve()))


async def serve(folder: Path) -> None:
    """Return when everything has run until it was told to stop. Raises `UserError` and `ServerUnavailable`."""
    token, keys = folder / "token", folder / "keys.json"
    async with AsyncExitStack() as stack:
        stack.enter_context(_alone_in(folder))
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await asyncio.to_thread(_have_token, token, keys)
        notes.print("starting Kafka, Valkey, a worker and the API; the first time takes a minute or more ...")
        valkey = await started(stack, ValkeyServer(data_dir=folder / "valkey"))
        kafka = await started(stack, KafkaServer(data_dir=folder / "kafka"))
        settings = variables(load(environ={}, kafka=kafka.bootstrap, redis=valkey.url))
        await started(stack, WorkerProcess(settings))
        api = await started(stack, ApiProcess(settings, keys))
        where = {**settings, "HAYSTREAM_API": api.address, "HAYSTREAM_API_TOKEN_FILE": str(token)}
        lines = "".join(f"export {name}={quote(value)}\n" for name, value in where.items())
        await asyncio.to_thread((folder / "env").write_text, lines)
        notes.print(f"the API is at {api.address}/docs, for the token in {token}", markup=False)
        notes.print(f"in another terminal: . {quote(str(folder / 'env'))}", markup=False)
        notes.print("Ctrl-C stops all of it; what was done stays in that folder")
        await stop.wait()
        notes.print("stopping ...")


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
