"""A query that was deleted: its readers are told once, and whoever starts later has nothing to do for it."""

import asyncio

import pytest
from support.world import Process, World, item, verdict
from typing_extensions import override

from haystream.events import Query, Status
from haystream_service.store.base import Head
from haystream_service.store.memory import MemoryStore
from haystream_service.worker import worker
from haystream_service.worker.memory import MemoryPublisher

pytestmark = pytest.mark.asyncio

GONE = Query("q", status=Status.DELETED)


class Mute(MemoryPublisher):
    """A publisher whose word that a query is gone does not come through; `asked` once it was to be said."""

    def __init__(self, world: World) -> None:
        super().__init__(world.broker)
        self.asked = asyncio.Event()

    @override
    async def withdraw_ranking(self, query_id: str) -> None:
        self.asked.set()
        await asyncio.Event().wait()


class Forgetful(MemoryStore):
    """What an earlier version left: nothing says whether readers were told."""

    @override
    async def note_withdrawn(self, query_id: str) -> None:
        pass


def told(world: World) -> int:
    """How often readers were told that a query is gone."""
    return [message.value for message in world.broker.messages("next-items")].count(None)


async def settled(world: World, *events: Query) -> Process:
    process = await world.process()
    await process.settled()  # else it may find at its start what it has just deleted itself
    world.say(*events)
    await process.settled()
    return process


@pytest.fixture
def long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """What happened before now is long ago."""
    monkeypatch.setattr(worker, "WITHDRAWN_SECONDS", -3600.0)


async def deleted(world: World) -> None:
    """The query is deleted by a process that is gone."""
    process = await settled(world, Query("q"), Query("r"), GONE)
    assert told(world) == 1
    await process.crash()


@pytest.mark.usefixtures("long_ago")
async def test_of_one_deleted_long_ago_nobody_takes_notice_until_something_comes_for_it(world: World) -> None:
    await deleted(world)
    heir = await settled(world)
    assert told(world) == 1
    assert (heir.worker.revision("q"), heir.worker.revision("r") is not None) == (None, True)
    world.say(item(1), verdict(1))
    await heir.settled()
    assert [code for code, _ in world.dead_letters()] == ["query_deleted"]


async def test_one_deleted_lately_is_watched(world: World) -> None:
    await deleted(world)
    heir = await settled(world)
    assert told(world) == 2
    assert heir.worker.revision("q") is not None


@pytest.mark.usefixtures("long_ago")
async def test_whose_readers_were_never_told_they_are_told_though_its_deletion_does_not_come_again(
    world: World,
) -> None:
    process = await settled(world, Query("q"))
    await process.crash()
    publisher = Mute(world)
    dies = await world.process(publisher=publisher)
    world.say(GONE)
    await dies.wait(publisher.asked.wait())  # the deletion is saved by now
    await dies.crash()
    for partition in range(world.broker.partitions):  # as where its record is compacted away
        world.broker.committed["queries", partition] = world.broker.end(("queries", partition))
    await (await settled(world)).crash()
    assert told(world) == 1
    await settled(world)
    assert told(world) == 1


@pytest.mark.usefixtures("long_ago")
async def test_of_one_that_an_earlier_version_deleted_readers_are_told_once_more(world: World) -> None:
    world.store = Forgetful()
    await deleted(world)
    (head,) = await world.store.read_heads(["q"])
    assert isinstance(head, Head)
    assert not head.withdrawn
    heir = await settled(world)
    assert told(world) == 2
    assert heir.worker.revision("q") is not None
