"""The play: items stream in, and an analyst takes the top item, gives the true verdict, and so on."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

from haystream.events import Outcome, Query, Verdict
from haystream_service.demo.bus import Bus
from haystream_service.demo.progress import Progress, Screened
from haystream_service.errors import UserError
from haystream_service.sources import Source
from haystream_service.wire import NextItems, encode_item, encode_query
from haystream_service.wire.records import RankedItemRecord

QUERY_ID = "demo"
AGAIN_SECONDS = 0.05
"""Until somebody who was given nothing asks again."""
PATIENCE_SECONDS = 30.0
"""Seconds to wait for a ranking that is due: a cold worker needs a few, a working one milliseconds."""
STREAMING_SHARE = 0.5
"""The share of the time in which the items are sent: verdicts and new items are to come at the same time."""
MOST_ITEMS_A_SECOND = 1000.0
"""Items a second at most: verdicts would wait behind more. Of a source that is too large, the rest is not sent."""
READING_SHARE = 0.8
"""The share of the time in which the verdicts are given, if rankings come as fast as that."""
BURST_ITEMS = 200
"""Items sent between two looks at the clock, at most."""


class NoAnswer(UserError):  # noqa: N818 - it says what happened
    """No ranking came although one was due."""


async def play(
    bus: Bus,
    source: Source,
    *,
    seconds: float,
    screenings: int,
    on_progress: Callable[[Progress], None],
) -> Progress:
    """How it went, once the time is over, so many items are screened, or nothing is left to read.

    The time begins when the worker has answered the opening of the query. The ranking of a verdict that was
    given is waited for even beyond its end.

    Raises:
        NoAnswer: the query, or a verdict, got no ranking within `PATIENCE_SECONDS`; or no item was ever ranked.
    """
    progress = Progress(source, screenings)
    desk = Desk()
    async with _beside(desk.keep(bus)):
        await bus.send("queries", QUERY_ID, encode_query(Query(QUERY_ID)))
        await _due(desk.until(lambda _: True))
        progress.began = time.monotonic()
        analyst = Analyst(bus, desk, progress, on_progress)
        over = max(STREAMING_SHARE * seconds, len(source) / MOST_ITEMS_A_SECOND)
        async with _beside(_stream(bus, progress, on_progress, over=over)):
            await analyst.work(seconds)
    progress.ended = time.monotonic()
    if not progress.verdicts:
        raise NoAnswer(f"no item was ranked within {seconds:g} seconds")
    return progress


class Desk:
    """Where the rankings arrive. Only the newest lies there: a worker may publish an older one again."""

    def __init__(self) -> None:
        self.seen: dict[str, RankedItemRecord] = {}
        """By item, what the last ranking that had it said of it."""
        self._newest: NextItems | None = None
        self._came = asyncio.Event()

    async def keep(self, bus: Bus) -> None:
        """Take in rankings, for ever."""
        while True:
            ranking = await bus.next_ranking()
            if self._newest is None or ranking.revision > self._newest.revision:
                self._newest = ranking
                self.seen |= {item.item_id: item for item in ranking.items}
                self._came.set()

    async def until(self, wanted: Callable[[NextItems], bool]) -> NextItems:
        """The newest ranking, as soon as it is `wanted`."""
        while self._newest is None or not wanted(self._newest):
            self._came.clear()
            await self._came.wait()
        return self._newest


class Analyst:
    """Reads what is on top, and knows the truth."""

    def __init__(self, bus: Bus, desk: Desk, progress: Progress, on_progress: Callable[[Progress], None]) -> None:
        self._bus = bus
        self._desk = desk
        self._progress = progress
        self._on_progress = on_progress
        self._read: set[str] = set()

    async def work(self, seconds: float) -> None:
        """Read until the time is over, enough is screened, or nothing is left."""
        progress, began = self._progress, time.monotonic()
        pace = READING_SHARE * seconds / progress.screenings
        most = min(progress.screenings, len(progress.source))
        while progress.verdicts < most and (left := began + seconds - time.monotonic()) > 0:
            item_id = await self._next_item(left)
            if item_id is None:
                return
            await self._judge(item_id)
            self._on_progress(progress)
            await asyncio.sleep(began + pace * progress.verdicts - time.monotonic())

    async def _next_item(self, seconds: float) -> str | None:
        """An item that was not read yet, the best that can be had; None if the time ends before there is one."""
        try:
            return await asyncio.wait_for(self._taken(), seconds)
        except TimeoutError:
            return None

    async def _taken(self) -> str:
        while True:
            top = self._unread(await self._desk.until(lambda ranking: self._unread(ranking) is not None))
            assert top is not None
            if (item_id := await self._bus.take(QUERY_ID, top)) is not None:
                return item_id
            await asyncio.sleep(AGAIN_SECONDS)

    def _unread(self, ranking: NextItems) -> str | None:
        return next((item.item_id for item in ranking.items if item.item_id not in self._read), None)

    async def _judge(self, item_id: str) -> None:
        """Give the true verdict and wait for a ranking that knows it."""
        progress = self._progress
        relevant = progress.source.truth(item_id)
        outcome = Outcome.RELEVANT if relevant else Outcome.IRRELEVANT
        self._read.add(item_id)
        progress.verdicts += 1
        verdict_id, now = f"v{progress.verdicts:06}", int(time.time() * 1e6)
        verdict = Verdict(verdict_id, QUERY_ID, item_id, "demo", outcome, now)
        sent = time.monotonic()
        (ranking, came), _ = await asyncio.gather(self._answer(), self._bus.decide(verdict))
        progress.latencies.append(came - sent)
        progress.screened, progress.found = ranking.screened, ranking.found
        progress.expected_remaining = ranking.expected_remaining
        if (item := self._desk.seen.get(item_id)) is not None:
            progress.recent.append(Screened(item_id, item.participants, relevant, item.because))

    async def _answer(self) -> tuple[NextItems, float]:
        """The ranking that knows all verdicts, and when it came."""
        given = self._progress.verdicts
        ranking = await _due(self._desk.until(lambda ranking: ranking.screened >= given))
        return ranking, time.monotonic()


async def _stream(bus: Bus, progress: Progress, on_progress: Callable[[Progress], None], *, over: float) -> None:
    """Send all items, spread evenly over so many seconds, or as fast as they go."""
    began, source = time.monotonic(), progress.source
    items, size = iter(source), min(BURST_ITEMS, 1 + len(source) // BURST_ITEMS)
    while burst := list(islice(items, size)):
        await bus.send_items([(item.item_id, encode_item(item)) for item in burst])
        progress.items += len(burst)
        on_progress(progress)
        await asyncio.sleep(began + over * progress.items / len(source) - time.monotonic())


async def _due(ranking: Awaitable[NextItems]) -> NextItems:
    try:
        return await asyncio.wait_for(ranking, PATIENCE_SECONDS)
    except TimeoutError:
        raise NoAnswer(f"no ranking came for {PATIENCE_SECONDS:g} seconds") from None


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do the work beside the block, and no longer than that. If the work fails, so does the block, at once."""
    try:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(work)
            yield
            task.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
