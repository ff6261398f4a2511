"""`haystream demo`: the servers that it starts or is given, and that it leaves nothing behind."""

import asyncio
import json
import os
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from haystream_service.demo.bus import MemoryBus
from haystream_service.demo.stage import stage
from haystream_service.errors import UserError
from haystream_service.local import ServerUnavailable, ValkeyServer
from haystream_service.local.starting import started


@pytest.mark.asyncio
@pytest.mark.usefixtures("no_java")
async def test_without_java_it_runs_in_memory_and_says_why():
    async with stage() as on:
        name_them = "or name running servers with HAYSTREAM_KAFKA and HAYSTREAM_REDIS"
        assert on.kafka == f"in memory (this process): no Java here; {name_them}"
        assert on.redis == "in memory (this process)"
        assert isinstance(on.bus, MemoryBus)


@pytest.mark.asyncio
async def test_named_servers_that_do_not_answer_are_named(monkeypatch):
    monkeypatch.setattr(ValkeyServer, "start", lambda self: self)
    monkeypatch.delenv("HAYSTREAM_REDIS", raising=False)
    monkeypatch.setenv("HAYSTREAM_KAFKA", "127.0.0.1:1")
    with pytest.raises(UserError, match=r"no Kafka answers at 127\.0\.0\.1:1 \(HAYSTREAM_KAFKA\)"):
        async with stage():
            pass


@pytest.mark.asyncio
async def test_a_start_that_is_cancelled_is_broken_off(monkeypatch):
    server = ValkeyServer()
    entered, stopped = asyncio.Event(), []
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def start(self: ValkeyServer) -> ValkeyServer:
        loop.call_soon_threadsafe(entered.set)
        asyncio.run_coroutine_threadsafe(ended.wait(), loop).result()
        raise ServerUnavailable("it was stopped while starting")

    def stop(self: ValkeyServer) -> None:
        stopped.append(self)
        loop.call_soon_threadsafe(ended.set)

    monkeypatch.setattr(ValkeyServer, "start", start)
    monkeypatch.setattr(ValkeyServer, "stop", stop)
    async with AsyncExitStack() as stack:
        starting = asyncio.ensure_future(started(stack, server))
        await entered.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    assert stopped[0] is server
    assert not server.data_dir.exists()


# ---- on real servers, as a process of its own ----

MARK = "DEMO_TEST_MARK"


class Demo:
    """A `haystream demo` process; whatever descends from it carries its mark in the environment."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        ours = {name: value for name, value in os.environ.items() if not name.startswith("HAYSTREAM_")}
        self._environment = {**ours, MARK: str(folder), "TMPDIR": str(folder)}

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from haystream_service.cli import main; main()", "demo", *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment,
        )

    def left(self) -> list[str]:
        """Processes and files that it has left behind."""
        processes = [p.parent.name for p in Path("/proc").glob("[0-9]*/environ") if self._is_ours(p)]
        return processes + [path.name for path in self._folder.glob("haystream-*")]

    def _is_ours(self, environ: Path) -> bool:
        try:
            return f"{MARK}={self._folder}".encode() in environ.read_bytes().split(b"\0")
        except OSError:  # it has just ended, or is not ours to look at
            return False


@pytest.mark.asyncio
@pytest.mark.kafka
@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.usefixtures("kafka", "valkey")
async def test_it_runs_on_real_servers_and_leaves_nothing(tmp_path):
    ours = Demo(tmp_path)
    process = await ours.start("--headless", "--json", "--seconds", "15", "--screenings", "100")
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    result = json.loads(out)
    for server in ("kafka", "redis"):
        assert "(started here)" in result["runs_on"][server]
    assert result["screened"] == result["verdicts"] > 0
    assert ours.left() == []


@pytest.mark.asyncio
@pytest.mark.kafka
@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.usefixtures("kafka", "valkey")
@pytest.mark.parametrize(
    ("number", "at", "times"), [(signal.SIGINT, b"starting", 3), (signal.SIGTERM, b"runs on", 1)]
)
async def test_a_signal_stops_everything_however_often_it_comes(tmp_path, number, at, times):
    ours = Demo(tmp_path)
    process = await ours.start("--headless")
    assert process.stderr is not None
    async for line in process.stderr:
        if at in line:
            break
    for _ in range(times):
        process.send_signal(number)
    out, err = await process.communicate()
    assert (process.returncode, out) == (130, b"")
    assert err.decode().splitlines()[-1] == "stopped"
    assert b"Traceback" not in err
    assert ours.left() == []
