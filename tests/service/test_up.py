"""`haystream up`: what it keeps in its folder, and when it ends. Its servers are processes that do nothing."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from haystream_service.api.access import Role
from haystream_service.api.tokens import KeyFile, read_keys
from haystream_service.commands import up
from haystream_service.commands.api import run_key
from haystream_service.errors import UserError
from haystream_service.local import LocalServer

pytestmark = pytest.mark.asyncio


class StandIn(LocalServer):
    """A process that is there and does nothing."""

    made: ClassVar[dict[str, "StandIn"]]
    bootstrap, url, address = "127.0.0.1:1", "redis://127.0.0.1:1/0", "http://127.0.0.1:1"

    def __init__(self, *_: object, data_dir: Path | None = None) -> None:
        super().__init__(data_dir=data_dir, start_seconds=60)
        self.made[self.name] = self

    def command(self) -> list[str]:
        return ["sleep", "1000"]

    def answers(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def servers(monkeypatch: pytest.MonkeyPatch) -> dict[str, StandIn]:
    """Those of the last start, by name."""
    monkeypatch.setattr(StandIn, "made", {}, raising=False)
    for name in ("ValkeyServer", "KafkaServer", "WorkerProcess", "ApiProcess"):
        monkeypatch.setattr(up, name, type(name, (StandIn,), {"name": name}))
    return StandIn.made


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[asyncio.Task[None]]:
    """It, once everything runs; it is told to stop at the end."""
    (folder / "env").unlink(missing_ok=True)
    serving = asyncio.create_task(up.serve(folder))
    while not (folder / "env").exists():
        assert not serving.done(), serving
        await asyncio.sleep(0.01)
    try:
        yield serving
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        await serving


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
