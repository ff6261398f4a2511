"""What queries begin as copies of is made anew when nobody waits, so that who opens next need not wait for it."""

import asyncio
from unittest import mock

import pytest
from support.world import Process, World

from haystream.engines.local.changes.growth import Growth
from haystream.events import Event, Item, Query
from haystream.query.originals import Original
from haystream_service.worker import originals

pytestmark = pytest.mark.asyncio


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Original]:
    """All that were made; one is outdated by ten items, and it is looked for one all the time."""
    monkeypatch.setattr("haystream.query.originals.MOST_ITEMS", 10)
    monkeypatch.setattr(originals, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(originals, "REST_FACTOR", 0.0)
    monkeypatch.setattr(originals, "UNUSED_REST_FACTOR", 0.0)
    every: list[Original] = []
    whole = Original.make

    def make(self, *arguments):
        whole(self, *arguments)
        every.append(self)

    monkeypatch.setattr(Original, "make", make)
    return every


def ring(begin: int, end: int) -> list[Event]:
    return [Item(f"r{n}", "default", f"p{n % 40}", (f"p{(n + 1) % 40}",)) for n in range(begin, end)]


async def up_to_date(process: Process, query_id: str) -> None:
    """Return when one that opens would find what it begins with."""
    state = process.worker.state(query_id)
    assert state is not None
    kept = state.kept_original()
    assert kept is not None
    while kept.due or kept.lags:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def told(process: Process, caplog: pytest.LogCaptureFixture, what: str) -> None:
    """Return when all that was said is folded in, and the log says that."""
    await process.settled()
    while what not in caplog.text:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def test_it_is_made_ahead_as_the_collection_grows(world: World, made: list[Original]) -> None:
    process = await world.process()
    world.say(*ring(0, 100))
    world.say(Query("q"))
    await process.settled()
    assert len(made) == 1
    world.say(*ring(100, 140))
    await process.settled()
    await process.wait(up_to_date(process, "q"))
    assert len(made) == 2
    world.say(Query("another"))
    await process.settled()
    assert len(made) == 2
    await world.check_equals_fold([Query("q"), Query("another"), *ring(0, 140)])


async def test_another_is_made_ahead_soon_only_once_somebody_has_begun_with_the_last(
    world: World, made: list[Original], monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await world.process()
    world.say(*ring(0, 100))
    world.say(Query("q"))
    await process.settled()
    monkeypatch.setattr(originals, "UNUSED_REST_FACTOR", 1e9)
    world.say(*ring(100, 120))
    await process.settled()
    await process.wait(up_to_date(process, "q"))
    assert len(made) == 2
    world.say(*ring(120, 135))
    await process.settled()
    assert len(made) == 2
    world.say(Query("another"))
    await process.settled()
    await process.wait(up_to_date(process, "q"))
    assert len(made) == 3
    await world.check_equals_fold([Query("q"), Query("another"), *ring(0, 135)])


async def test_who_opens_begins_with_one_that_is_a_little_old(
    world: World, made: list[Original], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(originals.OriginalMaker, "make_ahead", lambda *_: None)
    process = await world.process()
    world.say(*ring(0, 100))
    world.say(Query("q"))
    await process.settled()
    for begin, query_id, count in ((100, "soon", 1), (115, "late", 2)):
        world.say(*ring(begin, begin + 15))
        await process.settled()
        world.say(Query(query_id))
        await process.settled()
        assert len(made) == count
    await world.check_equals_fold([*map(Query, ("q", "soon", "late")), *ring(0, 130)])


async def test_where_it_cannot_be_made_the_worker_goes_on(
    world: World, made: list[Original], caplog: pytest.LogCaptureFixture
) -> None:
    process = await world.process()
    world.say(*ring(0, 100))
    world.say(Query("q"))
    await process.settled()

    with mock.patch.object(Original, "make", side_effect=ArithmeticError("no such thing")):
        world.say(*ring(100, 140))
        await told(process, caplog, "no such thing")
        world.say(*ring(140, 150))
        await process.settled()
    assert caplog.text.count("ArithmeticError: no such thing") == 1
    await world.check_equals_fold([Query("q"), *ring(0, 150)])


async def test_where_there_is_no_memory_for_it_it_is_made_later(
    world: World, made: list[Original], caplog: pytest.LogCaptureFixture
) -> None:
    process = await world.process()
    world.say(*ring(0, 100))
    world.say(Query("q"))
    await process.settled()
    with mock.patch.object(Original, "make", side_effect=MemoryError("none for an array")):
        world.say(*ring(100, 140))
        await told(process, caplog, "none for an array")
    world.say(*ring(140, 150))
    await process.settled()
    await process.wait(up_to_date(process, "q"))
    assert len(made) == 2
    await world.check_equals_fold([Query("q"), *ring(0, 150)])


async def test_what_comes_is_taken_in_ahead_for_who_opens_next(world: World, made: list[Original]) -> None:
    process = await world.process()
    world.say(*ring(0, 100))
    world.say(Query("q"))
    await process.settled()
    for number in range(100, 108):
        world.say(*ring(number, number + 1))
        await process.settled()
        await process.wait(up_to_date(process, "q"))
    with mock.patch.object(Growth, "follow", autospec=True, side_effect=Growth.follow) as followed:
        world.say(Query("another"))
        await process.settled()
        followed.assert_not_called()
    assert len(made) == 1
    await world.check_equals_fold([Query("q"), Query("another"), *ring(0, 108)])
