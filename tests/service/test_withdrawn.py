"""A query that was deleted: its readers are told once, and whoever starts later has nothing to do for it."""

import asyncio
from typing import Any

import pytest
from support.world import DayAhead, Process, World, item, lease, verdict
from typing_extensions import override

from haystream.events import Query, Status
from haystream_service.settings import Settings
from haystream_service.store.base import Deletion, Head, Position, StoredQuery
from haystream_service.store.memory import MemoryStore
from haystream_service.wire import encode_query
from haystream_service.worker import residents
from haystream_service.worker.batch import Batch, Delivery
from haystream_service.worker.clock import Clock
from haystream_service.worker.committing import Committing
from haystream_service.worker.holding import Loaded
from haystream_service.worker.memory_broker import MemoryPublisher
from haystream_service.worker.opening import Opening
from haystream_service.worker.rankings import OwnRankings
from haystream_service.worker.retry import Retry

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


class Slow(MemoryStore):
    """Notes that readers were told once it `may`; `asked` when it is to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.may = asyncio.Event(), asyncio.Event()
        self.may.set()

    @override
    async def note_withdrawn(self, query_id: str) -> None:
        self.asked.set()
        await self.may.wait()
        await super().note_withdrawn(query_id)


def told(world: World) -> int:
    """How often readers were told that a query is gone."""
    return [message.value for message in world.broker.messages("next-items")].count(None)


async def settled(
    world: World, *events: Query, withdrawn_seconds: float = 0.0, clock: Clock | None = None
) -> Process:
    """A process, when all is taken in. What was deleted so many seconds ago is no concern of it."""
    process = await world.process(withdrawn_seconds=withdrawn_seconds, clock=clock)
    await process.settled()  # else it may find at its start what it has just deleted itself
    world.say(*events)
    await process.settled()
    return process


async def deleted(world: World) -> None:
    """The query is deleted by a process that is gone."""
    process = await settled(world, Query("q"), Query("r"), GONE)
    assert told(world) == 1
    await process.crash()


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
    heir = await settled(world, withdrawn_seconds=3600.0)
    assert told(world) == 2
    assert heir.worker.revision("q") is not None


async def test_how_long_ago_that_was_is_no_matter_of_the_date_that_a_machine_has(world: World) -> None:
    await deleted(world)
    heir = await settled(world, withdrawn_seconds=3600.0, clock=DayAhead())
    assert heir.worker.revision("q") is not None


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
    await (await settled(world, withdrawn_seconds=3600.0)).crash()
    assert told(world) == 1
    await settled(world)
    assert told(world) == 1


async def test_of_one_that_an_earlier_version_deleted_readers_are_told_once_more(world: World) -> None:
    world.store = Forgetful()
    await deleted(world)
    (head,) = await world.store.read_heads(["q"])
    assert isinstance(head, Head)
    assert not head.withdrawn
    await settled(world)
    assert told(world) == 2


async def test_a_ranking_that_lands_while_the_store_is_away_is_withdrawn_too(world: World) -> None:
    world.store = store = Slow()
    await deleted(world)
    store.asked.clear()
    store.may.clear()
    heir = await world.process(withdrawn_seconds=3600.0)
    await heir.wait(store.asked.wait())
    assert told(world) == 2
    heir.worker.publish_again("q")  # as when a ranking of the query is seen behind that
    store.may.set()
    await heir.settled()
    assert told(world) == 3


async def test_a_ranking_that_lands_amid_its_deletion_is_withdrawn_too(world: World) -> None:
    world.store = store = Slow()
    process = await settled(world, Query("q"), withdrawn_seconds=3600.0)
    store.may.clear()
    world.say(GONE)
    await process.wait(store.asked.wait())
    assert told(world) == 1
    process.worker.publish_again("q")
    store.may.set()
    await process.settled()
    assert told(world) == 2


async def test_what_was_accepted_before_a_deletion_and_is_read_again_gets_no_dead_letter(world: World) -> None:
    """As where somebody sets the group's offsets back."""
    process = await world.process(max_batch=1)
    world.say(Query("q"), item(1), verdict(1))
    await process.settled()
    world.say(GONE, verdict(2), Query("q", top=7))
    await process.settled()
    assert [code for code, _ in world.dead_letters()] == ["query_deleted"] * 2
    await process.crash()
    world.broker.committed.clear()
    heir = await world.process(max_batch=1)
    await heir.settled()
    assert [code for code, _ in world.dead_letters()] == ["query_deleted"] * 4  # what came later, once more


async def test_what_came_in_one_batch_with_the_deletion_gets_no_dead_letter_when_it_is_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a crash between the deletion and the commit of offsets. Settings that lie behind it are too late."""
    process = await settled(world, Query("q"), item(1), item(2))
    await process.crash()
    load, asked, may = world.store.load_query, asyncio.Event(), asyncio.Event()

    async def late(query_id: str) -> StoredQuery | None:
        asked.set()
        await may.wait()
        return await load(query_id)

    deletions: list[Batch] = []
    delete = Committing.delete

    async def noting(committing: Committing, batch: Batch, deletion: Delivery) -> Deletion:
        deletions.append(batch)
        return await delete(committing, batch, deletion)

    monkeypatch.setattr(Committing, "delete", noting)
    with monkeypatch.context() as slow:
        slow.setattr(world.store, "load_query", late)
        process = await world.process()
        world.say(verdict(1))
        await process.wait(asked.wait())
        together = [Query("q", top=5), verdict(2), lease(1, item=2), GONE, Query("q", top=7)]
        world.say(*together)
        for _ in range(200):
            await asyncio.sleep(0)
        may.set()
        await process.settled()
    (batch,) = deletions
    assert len(batch.deliveries) == len(together)
    assert [code for code, _ in world.dead_letters()] == ["query_deleted"]
    await process.crash()
    world.broker.committed.clear()
    await (await world.process()).settled()
    assert [code for code, _ in world.dead_letters()] == ["query_deleted"] * 2
    assert {payload for _, payload in world.dead_letters()} == {encode_query(Query("q", top=7))}


@pytest.mark.parametrize(("withdrawn_seconds", "left"), [(0.0, {"r"}), (3600.0, {"q", "r"})])
async def test_what_is_long_gone_and_what_another_process_has_takes_no_memory(
    world: World, monkeypatch: pytest.MonkeyPatch, withdrawn_seconds: float, left: set[str]
) -> None:
    monkeypatch.setattr(residents, "LOOK_SECONDS", 0.01)
    process = await settled(world, Query("q"), Query("r"), GONE, withdrawn_seconds=withdrawn_seconds)
    worker = process.worker
    rankings = OwnRankings(Settings(), worker, Retry(process.metrics))
    for query_id in ("q", "r", "another process has it"):
        rankings.landed(query_id, 0, 7)

    async def let_go() -> None:
        while worker.query_ids() != left:  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    await process.wait(let_go())
    assert (rankings.begins(), len(rankings)) == ({0: 7}, len(left))
    await worker.revoke({0, 1})
    assert (rankings.begins(), len(rankings)) == ({}, len(left))  # they may come back as they are
    await worker.assign(())
    assert (rankings.begins(), len(rankings)) == ({}, 0)


async def test_a_query_that_is_found_deleted_while_it_is_loaded_stays_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await world.process(idle_seconds=0.0)
    world.say(Query("q"), *(item(number) for number in range(4)))
    await process.settled()
    while process.worker.state("q") is not None:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    loaded, may, load = asyncio.Event(), asyncio.Event(), Opening._load

    async def slow(opening: Opening, *given: Any) -> Loaded:
        found = await load(opening, *given)
        loaded.set()
        await may.wait()
        return found

    monkeypatch.setattr(Opening, "_load", slow)
    world.say(verdict(1))
    await process.wait(loaded.wait())
    (owner,) = process.worker._owners.values()
    await world.store.delete_query("q", owner.partition, revision=100, read=Position())  # by an earlier owner
    (head,) = await world.store.read_heads(["q"])
    assert head is not None
    owner.put_down(head)
    may.set()
    await process.settled()
    assert process.worker.state("q") is None
    assert [code for code, _ in world.dead_letters()] == ["query_deleted"]
