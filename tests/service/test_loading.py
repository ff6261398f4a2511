"""Queries are loaded and shown a few at a time; those whose part of the store is away keep no others from it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.world import Process, World, item, verdict

from haystream.events import Query
from haystream_service.store.base import StoreDamaged, StoreUnavailable
from haystream_service.worker.shared import LOADS_AT_ONCE, SHOWS_AT_ONCE

pytestmark = pytest.mark.asyncio

FAR = [f"far-{number}" for number in range(SHOWS_AT_ONCE + 1)]
"""More than are loaded, or shown, at once."""
assert len(FAR) > LOADS_AT_ONCE


async def opened(world: World) -> None:
    """All queries are opened by a process that is gone; the far ones were touched last, so they come first."""
    first = await world.process()
    for query in (Query("near"), *(Query(name, collection="far") for name in FAR)):
        world.say(query)
        await first.settled()
    world.say(*(item(number) for number in range(3)), item(9, "far"))
    await first.settled()
    await first.crash()


def put_away(
    world: World, monkeypatch: pytest.MonkeyPatch, call: str, raises: type[Exception] = StoreUnavailable
) -> asyncio.Event:
    """What is asked about the far queries, or their collection, by that call is not answered before this is set."""
    whole: Callable[..., Awaitable[Any]] = getattr(world.store, call)
    back = asyncio.Event()

    async def answered(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("far") and not back.is_set():
            raise raises(f"the part of the store that has {name!r} is away")
        return await whole(name, *rest, **more)

    monkeypatch.setattr(world.store, call, answered)
    return back


async def come_true(process: Process, condition: Callable[[], bool]) -> None:
    async def waiting() -> None:
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    await process.wait(waiting())


async def judged(world: World, process: Process) -> None:
    """Return when a verdict for the query whose part of the store answers is in a ranking."""
    world.say(verdict(1, "near"))
    await process.wait(
        world.broker.wait_for("next-items", lambda m: m.key == b"near" and b'"screened":1' in m.value)
    )


@pytest.mark.parametrize("call", ["load_query", "read_items", "begin_attempt", "end_attempts"])
async def test_who_cannot_be_loaded_keeps_nobody_from_it(
    world: World, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    await opened(world)
    put_away(world, monkeypatch, call)
    await judged(world, await world.process())


async def test_who_cannot_be_shown_keeps_nobody_from_his_verdict(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await opened(world)
    put_away(world, monkeypatch, "read_ranking")
    process = await world.process(idle_seconds=0.0)
    await come_true(process, lambda: process.worker.revision("near") is not None)
    await judged(world, process)


@pytest.mark.parametrize("raises", [StoreUnavailable, StoreDamaged])
async def test_a_log_that_cannot_be_looked_at_keeps_no_query_of_another_collection_from_being_loaded(
    world: World, monkeypatch: pytest.MonkeyPatch, raises: type[Exception]
) -> None:
    await opened(world)
    back = put_away(world, monkeypatch, "entry_count", raises)
    process = await world.process()
    await come_true(process, lambda: process.worker.state("near") is not None)
    assert "queries are being loaded" in process.worker.troubles()
    back.set()
    await process.wait(process.worker.drain())
    assert process.worker.troubles() == []


async def test_who_opens_on_a_collection_that_is_away_keeps_nobody_from_a_turn_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever a process died of is computed beside nobody: it is not to wait for who waits for a server."""
    await opened(world)
    put_away(world, monkeypatch, "is_deleted")
    (head,) = await world.store.read_heads(["near"])
    assert head is not None
    where = f"{head.position.queries_offset},{head.position.verdicts_offset}"
    await world.store.begin_attempt("near", f"{where} of a process that is gone")
    process = await world.process(idle_seconds=0.0)
    world.say(Query("new", collection="far"))
    await come_true(process, lambda: any("'far'" in trouble for trouble in process.worker.troubles()))
    await judged(world, process)
