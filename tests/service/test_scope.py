"""Queries with a scope in a worker: they share their graph, and what is outside costs them next to nothing."""

import asyncio
from dataclasses import replace

import pytest
from support.world import Process, World, item, verdict

from haystream.collection.collection import Collection
from haystream.events import Event, Item, Query, Status
from haystream.scope import Scope, scope
from haystream_service.worker import residents, slices
from haystream_service.worker.committing import Committing

pytestmark = pytest.mark.asyncio

NEVER = 1e9
WITHOUT_ANN = scope(nobody=["ann"])
ITEMS = [item(number) for number in range(60)]


def inside(asked: Scope | None) -> list[Item]:
    return [each for each in ITEMS if asked is None or asked.admits(each)]


OUTSIDE = [each for each in ITEMS if each not in inside(WITHOUT_ANN)]


async def test_queries_of_one_scope_share_one_graph_and_are_what_a_collection_of_just_its_items_makes(
    world: World,
) -> None:
    process = await world.process()
    scopes = {"q": WITHOUT_ANN, "r": WITHOUT_ANN, "s": scope(anybody=["bo"]), "t": None}
    events: list[Event] = [Query(name, scope=asked) for name, asked in scopes.items()]
    events += [*ITEMS, *(verdict(n, "qrst"[n % 4], item=n) for n in range(40))]
    world.say(*events)
    await process.settled()
    collections = {name: process.worker.state(name).collection for name in scopes}  # type: ignore[union-attr]
    assert collections["q"] is collections["r"]
    assert len({id(collection) for collection in collections.values()}) == 3
    for name, asked in scopes.items():
        assert set(collections[name].item_ids) == {each.item_id for each in inside(asked)}
    await world.check_equals_fold(events)
    await process.crash()
    heir = await world.process()
    await heir.settled()
    await world.check_equals_fold(events)


async def test_what_is_outside_is_neither_saved_nor_published(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await world.process()
    first, second, *_ = inside(WITHOUT_ANN)
    world.say(Query("q", scope=WITHOUT_ANN), first)
    await process.settled()
    saves: list[int] = []
    commit = Committing.commit

    async def counted(committing: Committing, *batch: object) -> None:
        saves.append(1)
        await commit(committing, *batch)  # type: ignore[arg-type]

    monkeypatch.setattr(Committing, "commit", counted)
    published = len(world.rankings("q"))
    world.say(*OUTSIDE)
    await process.settled()
    state = process.worker.state("q")
    assert state is not None
    assert state.collection.entries == 1 + len(OUTSIDE)
    assert (saves, len(world.rankings("q"))) == ([], published)
    world.say(second)
    await process.settled()
    assert len(world.rankings("q")) == published + 1
    stored = await world.store.load_query("q")
    assert stored is not None
    assert stored.position.cursor == 2 + len(OUTSIDE)


async def test_what_is_outside_brings_no_query_back_that_is_put_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(residents, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(residents, "LEAST_IDLE_SECONDS", 0.0)
    process = await world.process(queries_in_memory=1, refresh_seconds=0.02)
    first, second, *_ = inside(WITHOUT_ANN)
    events: list[Event] = [Query("q", scope=WITHOUT_ANN), first]
    world.say(*events)
    await process.wait(process.consumer.drained())
    world.say(Query("other"))
    await _put_away(process, "q")
    owner = process.worker._holder("q")
    assert owner is not None
    visits: list[int] = []
    visit = owner.visit

    async def counted() -> None:
        visits.append(1)
        await visit()

    monkeypatch.setattr(owner, "visit", counted)
    world.say(*OUTSIDE)
    await process.settled()
    await asyncio.sleep(0.2)  # some looks at who is behind
    assert visits == []
    world.say(second)
    await process.settled()
    while len(world.rankings("q")[-1].items) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await world.check_equals_fold([*events, Query("other"), *OUTSIDE, second])


async def _put_away(process: Process, name: str) -> None:
    while process.worker.state(name) is not None:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def test_of_a_scope_too_what_its_queries_share_outlives_the_process(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await world.process()
    monkeypatch.setattr("haystream_service.worker.snapshots.LEAST_EDGES", 1)
    world.say(Query("q", scope=WITHOUT_ANN), Query("r"), *ITEMS)
    await process.settled()
    await asyncio.sleep(0)
    assert WITHOUT_ANN is not None
    names = {name for _, name in world.store._snapshots}
    assert {name.endswith(f":{WITHOUT_ANN.key}") for name in names} == {True, False}
    await process.crash()


async def test_a_query_cannot_be_given_another_scope(world: World) -> None:
    process = await world.process()
    query = Query("q", scope=WITHOUT_ANN)
    world.say(query, *ITEMS, replace(query, scope=None), replace(query, scope=scope(anybody=["bo"]), top=1))
    await process.settled()
    assert [code for code, _ in world.dead_letters()] == ["scope_changed", "scope_changed"]
    world.say(replace(query, top=2))
    await process.settled()
    assert len(world.rankings("q")[-1].items) == 2


LABELLED = scope(labels=[("k", '"m"')])


def labelled(number: int, value: str) -> Item:
    return replace(item(number), labels=(("k", f'"{value}"'),))


CONTRADICTED = [labelled(n, "m") for n in range(12)], [labelled(n, "a") for n in (0, 5, 7)]
"""Items in the scope of all that are labelled m; and what is said later, by which three of them are not in it."""


@pytest.mark.parametrize("put_away", [False, True])
async def test_what_contradicts_takes_items_out_as_if_they_had_never_come(world: World, put_away: bool) -> None:
    """Also where the query was put away then; and that of its rows nothing stays, the fold's equality says."""
    first, later = CONTRADICTED
    limits = {"idle_seconds": 0.0, "refresh_seconds": 0.05} if put_away else {}
    process = await world.process(**limits)
    events: list[Event] = [Query("q", scope=LABELLED), Query("closed", scope=LABELLED), Query("all"), *first]
    events += [verdict(n, "q", item=n) for n in (0, 1, 2)] + [verdict(20, "closed", item=3)]
    world.say(*events)
    await process.settled()
    closed = Query("closed", scope=LABELLED, status=Status.CLOSED)
    world.say(closed)
    await process.settled()
    if put_away:
        await _put_away(process, "q")
    before = len(world.rankings("closed"))
    world.say(*later, verdict(3, "q", item=5))
    await process.settled()
    while {entry.item_id for entry in world.rankings("q")[-1].items} & {each.item_id for each in later}:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await process.settled()
    assert world.rankings("q")[-1].screened == 2
    assert len(world.rankings("closed")) == before
    await world.check_equals_fold([*events, closed, *later, verdict(3, "q", item=5)])
    more: list[Event] = [verdict(30, "closed", item=4), labelled(20, "m"), verdict(31, "q", item=20)]
    world.say(*more)
    await process.settled()
    await process.crash()
    heir = await world.process()
    await heir.settled()
    await world.check_equals_fold([*events, closed, *later, verdict(3, "q", item=5), *more])
    assert world.dead_letters() == []


async def test_of_a_log_with_many_contradictions_a_collection_is_made_afresh_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not once for each, as who reads no further than the first would do."""
    monkeypatch.setattr(slices, "ADDED_AT_ONCE", 5)
    afresh, made = Collection.afresh, list[Collection]()

    def noted(collection: Collection) -> Collection:
        made.append(afresh(collection))
        return made[-1]

    monkeypatch.setattr(Collection, "afresh", noted)
    process = await world.process()
    items: list[Event] = [labelled(n, "m") for n in range(60)]
    for n in range(0, 60, 2):
        items += [labelled(n, "a"), labelled(100 + n, "m"), labelled(101 + n, "m")]
    world.say(*items)
    await process.settled()
    queries: list[Event] = [Query("q", scope=LABELLED), Query("r", scope=LABELLED)]
    world.say(*queries)
    await process.settled()
    assert [len(collection.left_out) for collection in made] == [30]
    await world.check_equals_fold([*items, *queries])


async def test_what_is_said_later_brings_an_item_in(world: World) -> None:
    process = await world.process()
    bare = [item(n) for n in range(6)]
    events: list[Event] = [Query("q", scope=LABELLED), *bare, verdict(1, item=1), verdict(2, item=2)]
    world.say(*events)
    await process.settled()
    assert world.rankings("q")[-1].items == ()
    later = [labelled(n, "m") for n in (1, 3)]
    world.say(*later)
    await process.settled()
    newest = world.rankings("q")[-1]
    assert (newest.screened, [entry.item_id for entry in newest.items]) == (1, ["item-3"])
    await world.check_equals_fold([*events, *later])
