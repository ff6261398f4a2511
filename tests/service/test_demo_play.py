"""`haystream demo`: the analyst who is played, on the in-memory stage and against scripted workers."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from haystream_service.demo import play as playing
from haystream_service.demo import stage as staging
from haystream_service.demo.bus import Bus, MemoryBus
from haystream_service.demo.play import NoAnswer, play
from haystream_service.demo.progress import Progress
from haystream_service.errors import UserError
from haystream_service.local.services import WorkerProcess
from haystream_service.sources import Source, synthetic
from haystream_service.wire import NextItems
from haystream_service.wire.records import EstimateRecord, RankedItemRecord
from haystream_service.worker.memory_broker import MemoryBroker

pytestmark = pytest.mark.usefixtures("no_pace")

LONG = 3600.0
TINY = synthetic(seed=3, edges=56, items_per_edge=0.3)


async def played(bus: Bus, source: Source, *, seconds: float = LONG, screenings: int = 1000) -> Progress:
    return await play(bus, source, seconds=seconds, screenings=screenings, on_progress=lambda _: None)


# ---- on the in-memory stage ----


@pytest_asyncio.fixture
async def in_memory() -> AsyncIterator[Bus]:
    async with AsyncExitStack() as stack:
        yield await staging._in_memory(stack)


@pytest.mark.asyncio
async def test_it_finds_more_than_random(in_memory):
    source = synthetic(seed=3, edges=200, items_per_edge=20)  # relevant: 4 % of its items
    seen: list[int] = []
    progress = await play(
        in_memory, source, seconds=LONG, screenings=120, on_progress=lambda p: seen.append(p.verdicts)
    )
    assert progress.verdicts == progress.screened == len(progress.latencies) == 120
    assert progress.random_found == 120 * source.relevant / len(source)
    assert progress.times_random == progress.found / progress.random_found
    assert progress.times_random >= 2
    assert set(range(1, 121)) <= set(seen)
    last = progress.recent[-1]
    assert last.relevant == source.truth(last.item_id)
    assert last.because


@pytest.mark.asyncio
async def test_it_stops_when_nothing_is_left(in_memory):
    progress = await played(in_memory, TINY)
    assert progress.items == progress.verdicts == progress.screened == len(progress.latencies) == len(TINY)
    assert progress.found == TINY.relevant
    assert progress.elapsed == progress.elapsed < LONG


# ---- against scripted workers ----


class ScriptedBus(Bus):
    """A worker that answers a verdict with the items that it always answers with. `sent`: what it was told."""

    def __init__(
        self, item_ids: tuple[str, ...], *, deaf_to: str = "", stale: bool = False, one_in: int = 1
    ) -> None:
        self._asked, self._one_in = 0, one_in
        self._items = tuple(
            RankedItemRecord(item_id=i, rank=n, score=0.5, mean=0.5, sd=0.1, participants=("a", "b"), because=())
            for n, i in enumerate(item_ids, start=1)
        )
        self._deaf_to = deaf_to
        self._stale = stale
        self._rankings: asyncio.Queue[NextItems] = asyncio.Queue()
        self.sent: list[tuple[str, str]] = []

    async def send(self, topic: str, key: str, value: bytes) -> None:
        self.sent.append((topic, json.loads(value).get("item_id", "")))
        verdicts = sum(topic == "verdicts" for topic, _ in self.sent)
        if topic != self._deaf_to:
            if self._stale:  # published again by one who is behind
                self._rankings.put_nowait(self._ranking(-1, verdicts + 1000))
            self._rankings.put_nowait(self._ranking(verdicts, verdicts))

    async def send_items(self, items: list[tuple[str, bytes]]) -> None:
        self.sent += [("items", item_id) for item_id, _ in items]

    async def next_ranking(self) -> NextItems:
        return await self._rankings.get()

    async def take(self, query_id: str, top: str) -> str | None:
        self._asked += 1
        return top if self._asked % self._one_in == 0 else None

    def _ranking(self, revision: int, screened: int) -> NextItems:
        return NextItems.model_construct(
            revision=revision,
            screened=screened,
            found=0,
            expected_remaining=EstimateRecord(mean=1.0, sd=1.0),
            items=self._items if screened < 1000 else (),
        )


@pytest.mark.asyncio
async def test_no_item_is_read_twice():
    wanted = tuple(item.item_id for item in TINY)
    bus = ScriptedBus(wanted)
    await played(bus, TINY)
    assert [item_id for topic, item_id in bus.sent if topic == "verdicts"] == list(wanted)


@pytest.mark.asyncio
async def test_who_is_given_nothing_asks_again():
    wanted = tuple(item.item_id for item in TINY)
    bus = ScriptedBus(wanted, one_in=2)
    await played(bus, TINY)
    assert [item_id for topic, item_id in bus.sent if topic == "verdicts"] == list(wanted)


@pytest.mark.asyncio
async def test_older_rankings_are_not_looked_at(monkeypatch):
    wanted = tuple(item.item_id for item in TINY)
    bus = ScriptedBus(wanted, stale=True)
    # The stale ones come first at the opening too, where the first ranking of all is taken for what it is.
    progress = await played(bus, TINY)
    assert progress.screened == len(TINY)


@pytest.mark.asyncio
async def test_it_stops_at_so_many_screenings():
    bus = ScriptedBus(tuple(item.item_id for item in TINY))
    assert (await played(bus, TINY, screenings=3)).verdicts == 3


@pytest.mark.asyncio
@pytest.mark.parametrize("topic", ["queries", "verdicts"])
async def test_a_ranking_that_does_not_come_is_said(monkeypatch, topic):
    monkeypatch.setattr(playing, "PATIENCE_SECONDS", 0.01)
    bus = ScriptedBus(tuple(item.item_id for item in TINY), deaf_to=topic)
    with pytest.raises(UserError, match=r"no ranking came for 0\.01 seconds"):
        await played(bus, TINY)


@pytest.mark.asyncio
async def test_items_that_are_never_ranked_are_said():
    with pytest.raises(NoAnswer, match=r"no item was ranked within 0\.01 seconds"):
        await played(ScriptedBus(()), TINY, seconds=0.01)


@pytest.mark.asyncio
async def test_what_fails_beside_the_analyst_ends_the_play(monkeypatch):
    bus = ScriptedBus(())

    async def fail(items: list[tuple[str, bytes]]) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(bus, "send_items", fail)
    with pytest.raises(ZeroDivisionError):
        await played(bus, TINY)


@pytest.mark.asyncio
async def test_a_bug_of_the_worker_ends_the_play():
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    failed.set_exception(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        await played(MemoryBus(MemoryBroker(), failed), TINY)


def test_the_end_of_the_workers_log_is_kept():
    worker = WorkerProcess({})
    try:
        worker.log.write_text("first\nit broke\n")
        ended = r"no answer; the haystream worker has ended\n(.*\n)?it broke"
        with pytest.raises(NoAnswer, match=ended), staging.explained(worker):
            raise NoAnswer("no answer")
    finally:
        worker.close()
