"""`haystream up`: what it keeps in its folder, and when it ends. Its servers are processes that do nothing."""

import asyncio
import gc
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from sysconfig import get_path
from typing import ClassVar

import pytest
from support.shell import sourced

from haystream_service.api.access import Role
from haystream_service.api.tokens import KeyFile, read_keys
from haystream_service.commands import up
from haystream_service.commands.api import run_key
from haystream_service.errors import UserError
from haystream_service.local import LocalServer, jars, kafka, process, starting, valkey

pytestmark = pytest.mark.asyncio


class StandIn(LocalServer):
    """A process that is there and does nothing."""

    made: ClassVar[dict[str, "StandIn"]]

    def __init__(self, *_: object, data_dir: Path | None = None, earlier_port: int | None = None) -> None:
        super().__init__(data_dir=data_dir, start_seconds=60, earlier_port=earlier_port)
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.url, self.address = f"redis://{self.bootstrap}/0", f"http://{self.bootstrap}"
        self.made[self.name] = self

    def command(self) -> list[str]:
        return ["sleep", "1000"]

    def answers(self) -> bool:
        return True

    def signal(self, number: signal.Signals) -> None:
        self._signal(number)


@pytest.fixture(autouse=True)
def servers(monkeypatch: pytest.MonkeyPatch) -> dict[str, StandIn]:
    """Those of the last start, by name."""
    monkeypatch.setattr(StandIn, "made", {}, raising=False)
    for name in ("ValkeyServer", "KafkaServer", "WorkerProcess", "ApiProcess"):
        monkeypatch.setattr(up, name, type(name, (StandIn,), {"name": name}))
    return StandIn.made


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[asyncio.Task[int]]:
    """It, once everything runs; it is told to stop at the end."""
    StandIn.made.clear()
    serving = asyncio.create_task(up.serve(folder))
    while "ApiProcess" not in StandIn.made or not StandIn.made["ApiProcess"].running:
        assert not serving.done(), serving
        await asyncio.sleep(0.01)
    try:
        yield serving
    finally:
        if not serving.done():
            os.kill(os.getpid(), signal.SIGTERM)
            assert await serving == 0


async def test_keys_that_were_added_are_there_at_the_next_start(tmp_path: Path) -> None:
    async with running(tmp_path):
        run_key(tmp_path / "keys.json", "kim", ["analyst"], [], revoke=False, json=False)
    before = read_keys(tmp_path / "keys.json"), (tmp_path / "token").read_text()
    async with running(tmp_path):
        assert (read_keys(tmp_path / "keys.json"), (tmp_path / "token").read_text()) == before
    assert [key.subject for key in before[0]] == ["me", "kim"]


@pytest.mark.parametrize("lost", ["token", "keys.json"])
async def test_a_token_that_is_lost_or_unknown_is_made_anew(tmp_path: Path, lost: str) -> None:
    async with running(tmp_path):
        pass
    (tmp_path / lost).unlink()
    async with running(tmp_path):
        me = KeyFile(tmp_path / "keys.json").caller((tmp_path / "token").read_text().strip())
    assert me is not None
    assert (me.subject, me.roles) == ("me", {Role.INGEST, Role.ANALYST, Role.LEAD})


def contents(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.iterdir() if file.is_file()}


async def test_a_folder_that_is_in_use_is_left_alone(tmp_path: Path, servers: dict[str, StandIn]) -> None:
    async with running(tmp_path):
        first, before = dict(servers), contents(tmp_path)
        with pytest.raises(UserError, match=f"{tmp_path} is in use by process {os.getpid()}"):
            await up.serve(tmp_path)
        assert servers == first
        assert contents(tmp_path) == before
    async with running(tmp_path):
        assert servers != first


@pytest.mark.parametrize("name", ["ValkeyServer", "KafkaServer", "WorkerProcess", "ApiProcess"])
async def test_a_server_that_ends_by_itself_ends_it(
    tmp_path: Path, servers: dict[str, StandIn], capfd: pytest.CaptureFixture[str], name: str
) -> None:
    async with running(tmp_path) as serving:
        servers[name].log.write_text("the last that it said\n")
        servers[name].signal(signal.SIGKILL)
        assert await serving == 1
    assert f"{name} ended by itself with code -9\nthe last that it said\n" in capfd.readouterr().err
    assert not any(server.running for server in servers.values())


async def test_a_start_that_does_not_end_says_what_it_waits_for_and_is_broken_off(
    tmp_path: Path,
    servers: dict[str, StandIn],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(starting, "TELL_SECONDS", 0.01)
    monkeypatch.setattr(up.WorkerProcess, "answers", lambda self: False)
    monkeypatch.setattr(up.WorkerProcess, "waits_for", lambda self: "the topics have grown")
    serving, said = asyncio.create_task(up.serve(tmp_path)), ""
    while (
        f"in another terminal: . {tmp_path}/env" not in said
        or "WorkerProcess is not ready yet: the topics have grown\n" not in said
    ):
        assert not serving.done(), serving
        await asyncio.sleep(0.01)
        said += capfd.readouterr().err
    os.kill(os.getpid(), signal.SIGINT)
    assert await serving == 0
    said = sourced(tmp_path / "env", "echo $HAYSTREAM_KAFKA $HAYSTREAM_REDIS $HAYSTREAM_API")
    assert said.split() == [
        servers["KafkaServer"].bootstrap,
        servers["ValkeyServer"].url,
        servers["ApiProcess"].address,
    ]
    assert not any(server.running for server in servers.values())
    gc.collect()
    await asyncio.sleep(0)
    assert "never retrieved" not in caplog.text


async def test_a_server_that_ends_while_others_start_ends_it(
    tmp_path: Path, servers: dict[str, StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up.WorkerProcess, "answers", lambda self: False)
    serving = asyncio.create_task(up.serve(tmp_path))
    while "WorkerProcess" not in servers:
        assert not serving.done(), serving
        await asyncio.sleep(0.01)
    servers["KafkaServer"].signal(signal.SIGKILL)
    assert await serving == 1
    assert not any(server.running for server in servers.values())


@pytest.mark.parametrize("says_what_helps", [kafka.NO_JAVA, jars.NO_MAVEN, valkey.NO_VALKEY])
async def test_no_setting_helps_that_it_does_not_read(says_what_helps: str) -> None:
    assert "HAYSTREAM_" not in says_what_helps


async def test_another_terminal_has_all_of_it_in_a_line(tmp_path: Path, servers: dict[str, StandIn]) -> None:
    folder = tmp_path / "it's here"
    folder.mkdir()
    async with running(folder):
        said = sourced(folder / "env", 'command -v haystream && echo "$HAYSTREAM_API $HAYSTREAM_API_TOKEN_FILE"')
    assert said.splitlines() == [
        f"{get_path('scripts')}/haystream",
        f"{servers['ApiProcess'].address} {folder}/token",
    ]


async def test_the_next_start_is_where_the_last_was_unless_somebody_is_there(
    tmp_path: Path, servers: dict[str, StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start() -> dict[str, str]:
        held: dict[int, socket.socket] = {}
        monkeypatch.setattr(process, "_held", held)  # as in a process of its own
        async with running(tmp_path):
            said = sourced(tmp_path / "env", "env -0").split("\0")
        for holder in held.values():
            holder.close()
        return dict(line.split("=", 1) for line in said if line.startswith("HAYSTREAM_"))

    last = await start()
    assert await start() == last
    with socket.create_server(("127.0.0.1", servers["KafkaServer"].port)):
        now = await start()
    assert {name for name in last if now[name] != last[name]} == {"HAYSTREAM_KAFKA"}
