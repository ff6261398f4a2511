"""Which queries are in memory: they are put away, come back, and are what they would be had they stayed."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from support.world import Process, World, item, story, verdict

from haystream.events import Event, Item, Query, Status
from haystream.query.state import QueryState
from haystream_service.store.base import Head
from haystream_service.store.memory import MemoryStore
from haystream_service.worker import residents
from haystream_service.worker.exclusive import Exclusive
from haystream_service.worker.memory_broker import MemoryConsumer

pytestmark = pytest.mark.asyncio

NEVER = 1e9


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residents, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(residents, "LEAST_IDLE_SECONDS", 0.0)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queries whose state was made, from now on."""
    names: list[str] = []
    init = QueryState.__init__

    def noting(state: QueryState, settings: Query, *args: Any, **options: Any) -> None:
        names.append(settings.query_id)
        init(state, settings, *args, **options)

    monkeypatch.setattr(QueryState, "__init__", noting)
    return names


async def come_true(process: Process, condition: Callable[[], bool]) -> None:
    async def waiting() -> None:
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    await process.wait(waiting())


async def gone(process: Process, *names: str) -> None:
    await come_true(process, lambda: not any(process.worker.state(name) for name in names))
    assert all(process.worker.revision(name) for name in names)


async def test_an_untouched_query_is_put_away_and_its_next_verdict_brings_it_back(world: World) -> None:
    process = await world.process(idle_seconds=0.0, refresh_seconds=NEVER)
    events = story(3, opened_first=True)
    for begin in range(0, len(events), 10):
        world.say(*events[begin : begin + 10])
        await process.wait(process.consumer.drained())
        await gone(process, "q", "r")
    last: list[Event] = [item(50), verdict(70, "q", item=50), verdict(71, "r", item=50)]
    world.say(last[0])
    await process.wait(process.consumer.drained())
    world.say(*last[1:])
    await process.wait(process.consumer.drained())
    await world.check_equals_fold([*events, *last])
    assert world.dead_letters() == []


async def test_of_too_many_queries_those_longest_untouched_are_put_away(world: World) -> None:
    process = await world.process(queries_in_memory=2, refresh_seconds=NEVER)
    names = ["a", "b", "c", "d"]
    for name in (*names, "a", "d", "c"):
        world.say(Query(name) if not world.rankings(name) else verdict(1, name))
        await process.wait(process.consumer.drained())
    await gone(process, "a", "b")
    assert process.worker.state("c")
    assert process.worker.state("d")


async def test_where_memory_is_short_queries_are_put_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    holds = 0
    monkeypatch.setattr(residents, "resident_bytes", lambda: holds)
    process = await world.process(memory_bytes=100, refresh_seconds=NEVER)
    world.say(Query("a"), Query("b"))
    await process.settled()
    await asyncio.sleep(0.05)  # some looks
    assert process.worker.state("a")
    assert process.worker.state("b")
    holds = 101
    await gone(process, "a", "b")


async def test_who_has_followed_its_collection_for_long_and_is_not_touched_is_put_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(residents, "FOLLOWED_SECONDS", 0.0)
    process = await world.process(refresh_seconds=0.1)
    events: list[Event] = [Query("q"), item(1), item(2)]
    world.say(*events)
    await process.settled()
    events.append(verdict(1, "q"))
    world.say(events[-1])
    await process.settled()
    await asyncio.sleep(0.3)  # it is untouched, and has nothing to follow
    assert process.worker.state("q")
    events.append(item(3))
    world.say(events[-1])
    await process.wait(process.consumer.drained())
    await gone(process, "q")
    assert len(world.rankings("q")[-1].items) == 2
    events.append(item(4))
    world.say(events[-1])
    await come_true(process, lambda: len(world.rankings("q")[-1].items) == 3)
    await gone(process, "q")
    await world.check_equals_fold(events)


async def test_new_items_reach_queries_that_are_put_away_and_they_stay_there(world: World) -> None:
    process = await world.process(idle_seconds=0.0, refresh_seconds=0.05)
    events: list[Event] = [Query("q"), Query("r"), Query("closed", status=Status.CLOSED), item(1), verdict(1, "r")]
    world.say(*events)
    await process.wait(process.consumer.drained())
    await gone(process, "q", "r", "closed")
    for number in (2, 3):
        events.append(item(number))
        world.say(events[-1])
        await come_true(process, lambda n=number: len(world.rankings("q")[-1].items) == n)
        await come_true(process, lambda n=number: len(world.rankings("r")[-1].items) == n - 1)
    await gone(process, "q", "r")
    await world.check_equals_fold(events)
    assert len(world.rankings("closed")) == 1


async def test_a_query_that_is_touched_while_it_is_back_for_new_items_stays(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await world.process(idle_seconds=0.0, refresh_seconds=0.05)
    world.say(Query("q"), item(1))
    await process.wait(process.consumer.drained())
    await gone(process, "q")
    settle = QueryState.settle
    said: list[Event] = []

    def settling(state: QueryState) -> None:
        if not said:
            said.append(verdict(1))
            world.say(*said)
        settle(state)

    monkeypatch.setattr(QueryState, "settle", settling)
    world.say(item(2))
    await come_true(process, lambda: world.rankings("q")[-1].screened == 1)
    await gone(process, "q")  # as it is idle again
    await world.check_equals_fold([Query("q"), item(1), item(2), *said])


async def test_a_start_loads_what_was_touched_lately_and_publishes_the_rest_as_it_is_stored(
    world: World, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await world.process(refresh_seconds=NEVER)
    names = [f"q{n}" for n in range(6)]
    world.say(*(Query(name) for name in names), item(1), Query("q5", status=Status.PAUSED))
    await first.settled()
    await first.crash()
    asked: list[set[int]] = []
    ends = MemoryConsumer.ends

    async def counted(consumer: MemoryConsumer, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        asked.append(set(partitions))
        return await ends(consumer, partitions)

    monkeypatch.setattr(MemoryConsumer, "ends", counted)
    for limits, loaded in (
        ({"idle_seconds": 0.0}, []),
        ({"queries_in_memory": 2}, ["q3", "q4"]),
        ({}, names[:5]),
    ):
        made.clear()
        asked.clear()
        before = {name: len(world.rankings(name)) for name in names}
        process = await world.process(refresh_seconds=NEVER, **limits)
        await process.wait(process.worker.drain())
        assert len(made) == len(loaded)
        assert set(made) <= set(names[:5])
        assert asked == [{0, 1}]
        for name in names:
            assert len(world.rankings(name)) == before[name] + 1
            assert world.rankings(name)[-1].revision == process.worker.revision(name)
        await process.crash()


async def test_what_was_saved_between_two_assignments_is_no_reason_to_ask_for_a_rebuild(world: World) -> None:
    """The ends of an assignment are old when a query comes back; what the query has seen since is newer."""
    process = await world.process(idle_seconds=0.0, refresh_seconds=NEVER)
    events: list[Event] = [Query("q"), item(1), item(2)]
    world.say(*events)
    await process.wait(process.consumer.drained())
    for number in (1, 2):
        await gone(process, "q")
        events.append(verdict(number))
        world.say(events[-1])
        await process.wait(process.consumer.drained())
    await world.check_equals_fold(events)


async def test_what_was_read_of_a_query_before_it_was_put_away_does_not_count(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start reads what is stored of all queries, for as long as the store takes; their records come meanwhile."""
    first = await world.process(refresh_seconds=NEVER)
    events: list[Event] = [Query("q", status=Status.PAUSED), item(1)]
    world.say(*events)
    await first.settled()
    await first.crash()
    read_heads, answered = MemoryStore.read_heads, asyncio.Event()

    async def late(store: MemoryStore, query_ids: Sequence[str]) -> list[Head | None]:
        heads = await read_heads(store, query_ids)
        if heads:
            await answered.wait()
        return heads

    monkeypatch.setattr(MemoryStore, "read_heads", late)
    process = await world.process(idle_seconds=0.0, refresh_seconds=0.05)
    opened = Query("q")
    world.say(opened)
    await process.wait(process.consumer.drained())
    await gone(process, "q")
    answered.set()
    await process.wait(process.worker.drain())
    later = item(2)
    world.say(later)
    await come_true(process, lambda: len(world.rankings("q")[-1].items) == 2)
    await world.check_equals_fold([*events, opened, later])


async def test_work_on_a_collection_that_was_let_go_is_done_without_its_thread() -> None:
    """A cancellation gets lost where what is waited for is there already: who followed it may come once more."""
    exclusive = Exclusive()
    exclusive.close()
    assert await exclusive(lambda: 1, in_thread=True) == 1


MANY = 600
"""People of a collection whose queries can be made slim (`copies.give_back`)."""


def between(number: int, u: int, v: int) -> Item:
    return Item(f"i{number}", "default", f"p{u}", (f"p{v}",))


def many_people() -> list[Event]:
    return [between(n, n, (7 * n + 1) % MANY) for n in range(MANY) if n != (7 * n + 1) % MANY]


async def test_a_query_that_nothing_is_done_in_is_made_slim_and_is_what_it_would_be(world: World) -> None:
    process = await world.process(slim_seconds=0.1, totals_seconds=0.05, refresh_seconds=NEVER)
    events: list[Event] = []
    names = "first", "q", "r"
    for some in (many_people(), [Query("first")], [Query("q"), Query("r")]):
        events += some
        world.say(*some)
        await process.settled()
    for number in range(12):
        more: list[Event] = [verdict(2 * number, "q", item=3 * number), verdict(2 * number + 1, "r", item=number)]
        if number % 4 == 3:
            more.append(between(1000 + number, number, number + 300))
        world.say(*more)
        events += more
        await process.wait(process.consumer.drained())
        await come_true(process, lambda: all(map(slim_and_up_to_date, map(process.worker.state, names))))
    await process.settled()  # the followers have read all that was said, too
    await world.check_equals_fold(events)
    assert world.dead_letters() == []


def slim_and_up_to_date(state: QueryState | None) -> bool:
    return state is not None and state.is_slim and not state.behind


def is_slim(process: Process, name: str) -> bool:
    state = process.worker.state(name)
    return state is not None and state.is_slim


async def test_where_memory_is_short_queries_are_made_slim_before_any_is_put_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds = 0
    monkeypatch.setattr(residents, "resident_bytes", lambda: holds)
    process = await world.process(memory_bytes=100, slim_seconds=NEVER, refresh_seconds=NEVER)
    names = [f"q{number}" for number in range(10)]
    for some in (many_people(), [Query("first")], map(Query, names)):
        world.say(*some)
        await process.settled()
    await asyncio.sleep(0.05)  # some looks
    assert not any(is_slim(process, name) for name in names)
    there = []

    def short() -> int:
        if holds > 100:
            there.append(
                (sum(is_slim(process, n) for n in names), sum(map(bool, map(process.worker.state, names))))
            )
        return holds

    monkeypatch.setattr(residents, "resident_bytes", short)
    holds = 101
    await gone(process, *names, "first")
    while_fat = [in_memory for slim, in_memory in there if slim < in_memory]
    assert len(while_fat) >= len(names) // 2  # two at a look
    assert set(while_fat) == {len(names)}
    world.say(verdict(1, "q3", item=5))
    await process.wait(process.consumer.drained())
    assert process.worker.revision("q3")


async def test_what_making_a_query_slim_raises_is_its_own_trouble(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await world.process(slim_seconds=0.05, refresh_seconds=NEVER)
    events: list[Event] = [Query("q"), item(1), item(2)]

    failed: list[str] = []

    def fails(state: QueryState) -> None:
        failed.append(state.settings.query_id)
        raise ZeroDivisionError

    with monkeypatch.context() as bug:
        bug.setattr(QueryState, "slim", fails)
        world.say(*events)
        await process.settled()
        await come_true(process, lambda: bool(failed))
    events.append(verdict(1, "q"))
    world.say(events[-1])
    await process.wait(process.consumer.drained())
    await world.check_equals_fold(events)
    assert world.dead_letters() == []
