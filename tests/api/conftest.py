"""The API beside a worker, in memory."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI
from support.queue_api import EVERYTHING, MemoryFacts, an_app, calling, listening, write_keys
from support.world import World

from haystream_service.api.access import Role
from haystream_service.api.tokens import KeyFile


@pytest.fixture
def keys(tmp_path: Path) -> KeyFile:
    """A token for each role on every collection; `kim` and `lee` are analysts; `nobody` has no role."""
    everything = [(role.value, [role], [EVERYTHING]) for role in Role]
    analysts = [(name, [Role.ANALYST], [EVERYTHING]) for name in ("kim", "lee")]
    elsewhere = [(f"{role.value}-elsewhere", [role], ["elsewhere"]) for role in Role]
    return write_keys(tmp_path / "keys.json", *everything, *analysts, *elsewhere, ("nobody", [], [EVERYTHING]))


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    """A worker on both partitions."""
    world = World()
    await world.process()
    yield world
    for process in world.processes:
        await process.crash()


@pytest.fixture
def app(world: World, keys: KeyFile) -> FastAPI:
    return an_app(world.store, MemoryFacts(world.broker), keys)


@pytest_asyncio.fixture
async def address(app: FastAPI) -> AsyncIterator[str]:
    async with listening(app) as address:
        yield address


@pytest_asyncio.fixture
async def lead(address: str) -> AsyncIterator[httpx.AsyncClient]:
    async with calling(address, "lead") as client:
        yield client


@pytest_asyncio.fixture
async def kim(address: str) -> AsyncIterator[httpx.AsyncClient]:
    async with calling(address, "kim") as client:
        yield client


@pytest_asyncio.fixture
async def ingest(address: str) -> AsyncIterator[httpx.AsyncClient]:
    async with calling(address, "ingest") as client:
        yield client
