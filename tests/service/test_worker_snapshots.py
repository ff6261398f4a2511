"""The worker keeps what it computed of a collection's prior, and the next process starts from it."""

import asyncio
from typing import Any

import pytest
from support.world import World

from haystream.engines.local.inverse.prior_inverse import GraphPrecision, shared_precisions
from haystream.events import Event, Item, Outcome, Query, Verdict
from haystream_service.store.base import StoreUnavailable
from haystream_service.store.memory import MemoryStore
from haystream_service.worker import snapshots

pytestmark = pytest.mark.asyncio


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What every `restore` answered, with collections of any size having snapshots."""
    monkeypatch.setattr(snapshots, "LEAST_EDGES", 1)
    answers: list[bool] = []
    whole = GraphPrecision.restore

    def restore(self, snapshot):
        answers.append(whole(self, snapshot))
        return answers[-1]

    monkeypatch.setattr(GraphPrecision, "restore", restore)
    return answers


def ring(begin: int, end: int) -> list[Event]:
    return [Item(f"r{n}", "default", f"p{n}", (f"p{(n + 1) % 200}",)) for n in range(begin, end)]


async def test_a_new_process_starts_from_what_the_last_one_computed(world: World, restored: list[bool]) -> None:
    first = await world.process()
    world.say(Query("q"), *ring(0, 200))
    await first.settled()
    assert restored == []
    await first.crash()
    world.say(*ring(200, 230))  # of which the snapshot knows nothing
    second = await world.process()
    await second.settled()
    assert restored == [True]
    await world.check_equals_fold([Query("q"), *ring(0, 230)])


async def test_a_snapshot_that_makes_no_sense_costs_time_and_nothing_else(
    world: World, restored: list[bool]
) -> None:
    first = await world.process()
    world.say(Query("q"), *ring(0, 200))
    await first.settled()
    await first.crash()
    ((where, raw),) = world.store._snapshots.items()
    for spoiled in (b"", raw[:-1], b"inv9" + raw[4:]):
        world.store._snapshots[where] = spoiled
        process = await world.process()
        await process.settled()
        await process.crash()
    assert restored == []
    another = raw[:12] + bytes(16) + raw[28:]
    world.store._snapshots[where] = another
    last = await world.process()
    await last.settled()
    assert restored == [False]
    await world.check_equals_fold([Query("q"), *ring(0, 200)])


class Unstoring(MemoryStore):
    """Takes no snapshots: the first ones are refused, and those after them get no answer."""

    def __init__(self, refused: int) -> None:
        super().__init__()
        self.asked = 0
        self._refused = refused

    async def save_snapshot(self, *_: Any, **__: Any) -> None:
        self.asked += 1
        if self.asked > self._refused:
            await asyncio.Event().wait()
        raise StoreUnavailable("no answer")


@pytest.mark.parametrize("refused", [0, 1])
async def test_a_snapshot_that_is_not_stored_keeps_nobody_waiting(
    world: World, restored: list[bool], refused: int
) -> None:
    store = world.store = Unstoring(refused)
    process = await world.process()
    events = [Query("q"), *ring(0, 200)]
    world.say(*events)
    await process.settled()
    for number in range(5):
        events.append(Verdict(f"v{number}", "q", f"r{number}", "zoe", Outcome.RELEVANT, 1_700_000_000_000_000))
        world.say(events[-1])
        await process.settled()
    assert store.asked == 1
    assert process.worker.troubles() == []
    await world.check_equals_fold(events)


async def test_what_is_made_in_place_of_a_prior_that_nobody_has_any_more_replaces_no_snapshot(
    world: World, restored: list[bool]
) -> None:
    process = await world.process()
    world.say(Query("q"), *ring(0, 200))
    await process.settled()
    stored = dict(world.store._snapshots)
    assert stored
    (owner,) = process.worker._owners.values()
    follower, state = owner._opening.follower, owner.state
    assert follower is not None
    assert state is not None
    shared_precisions(follower.collection).clear()
    follower.collection.add_all([item for item in ring(200, 230) if isinstance(item, Item)])
    follower.snapshots.keep(state.settings)
    await asyncio.gather(*follower.snapshots._keeping.values())
    assert world.store._snapshots == stored
