"""What several files here ask for."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from support.world import World

from haystream_service.demo import play
from haystream_service.local import KafkaServer, ServerUnavailable, ValkeyServer


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    for process in world.processes:
        await process.crash()


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(self: KafkaServer) -> KafkaServer:
        raise ServerUnavailable("no Java here\nmore about it")

    monkeypatch.setattr(KafkaServer, "start", missing)
    monkeypatch.setattr(ValkeyServer, "start", lambda self: self)
    for variable in ("HAYSTREAM_KAFKA", "HAYSTREAM_REDIS"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def no_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A demo as fast as it goes: nothing is spread over the time."""
    monkeypatch.setattr(play, "STREAMING_SHARE", 0.0)
    monkeypatch.setattr(play, "READING_SHARE", 0.0)
    monkeypatch.setattr(play, "MOST_ITEMS_A_SECOND", float("inf"))
