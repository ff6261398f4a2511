"""The play: items stream in, and an analyst takes the top item, gives the true verdict, and so on."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from haystream.events import Outcome, Query, Verdict
from haystream_service.errors import UserError
from haystream_service.sources import Source
from haystream_service.wire import encode_item, encode_query, encode_verdict

QUERY_ID = "demo"
PATIENCE = 30.0
"""Seconds to wait for a ranking before giving up: a cold worker needs a few, a working one milliseconds."""
BURST = 200
"""Items sent between two looks at the clock."""


class Bus(Protocol):
    """The way to the worker and back."""

    async def send(self, topic: str, key: str, value: bytes) -> None:
        """Write to a topic; returns when the broker has it."""
        ...

    async def send_items(self, items: list[tuple[str, bytes]]) -> None:
        """Write (item_id, value) pairs to the items topic; returns when the broker has them."""
        ...

    async def next_ranking(self) -> dict[str, Any]:
        """The next value of next-items."""
        ...


@dataclass(slots=True)
class Progress:
    """How the play goes; the screen draws it, the summary reads it."""

    source: Source
    screenings: int
    """How many to do at most."""
    items: int = 0
    """Sent so far."""
    verdicts: int = 0
    screened: int = 0
    found: int = 0
    expected_remaining: tuple[float, float] = (0.0, 0.0)
    elapsed: float = 0.0
    latencies: list[float] = field(default_factory=list)
    """Seconds from sending a verdict to holding the ranking that knows it."""
    recent: deque[tuple[str, tuple[str, ...], bool]] = field(default_factory=lambda: deque(maxlen=8))
    """The last items screened: id, participants, whether relevant."""
    because: list[dict[str, Any]] = field(default_factory=list)
    """Why the last item was on top."""

    @property
    def random_found(self) -> float:
        """What so many screenings find in random order, on average: the share of relevant items in the source."""
        return self.screened * self.source.relevant / max(len(self.source), 1)

    def percentiles(self) -> dict[str, float]:
        """p50, p95, p99 of the latency in milliseconds."""
        values = 1e3 * np.percentile(self.latencies, [50, 95, 99]) if self.latencies else np.full(3, np.nan)
        return dict(zip(("p50", "p95", "p99"), np.round(values, 2).tolist(), strict=True))


async def play(
    bus: Bus,
    source: Source,
    *,
    seconds: float,
    screenings: int,
    on_progress: Callable[[Progress], None],
) -> Progress:
    """Run until the time is over, enough is screened, or nothing is left to read."""
    progress = Progress(source, screenings)
    began = time.monotonic()
    await bus.send("queries", QUERY_ID, encode_query(Query(QUERY_ID)))
    stream = asyncio.create_task(_stream(bus, source, progress, over=0.15 * seconds))
    try:
        await _analyse(bus, source, progress, began, seconds, stream, on_progress)
    finally:
        stream.cancel()
        await asyncio.gather(stream, return_exceptions=True)
    return progress


async def _stream(bus: Bus, source: Source, progress: Progress, *, over: float) -> None:
    """Send all items, spread evenly over so many seconds, or as fast as they go."""
    began = time.monotonic()
    batch: list[tuple[str, bytes]] = []
    for item in source:
        batch.append((item.item_id, encode_item(item)))
        if len(batch) == BURST or progress.items + len(batch) == len(source):
            await bus.send_items(batch)
            progress.items += len(batch)
            batch.clear()
            await asyncio.sleep(max(0.0, began + over * progress.items / len(source) - time.monotonic()))


async def _analyse(
    bus: Bus,
    source: Source,
    progress: Progress,
    began: float,
    seconds: float,
    stream: "asyncio.Task[None]",
    on_progress: Callable[[Progress], None],
) -> None:
    judged: set[str] = set()
    ranking: dict[str, Any] = {"items": [], "screened": 0}
    pace = 0.8 * seconds / progress.screenings
    while progress.verdicts < progress.screenings and progress.elapsed < seconds:
        item = next((item for item in ranking["items"] if item["item_id"] not in judged), None)
        if item is None:
            if stream.done() and progress.items == len(source) == len(judged):
                return
            ranking = await _next(bus)
        else:
            judged.add(item["item_id"])
            ranking = await _judge(bus, source, progress, item)
            on_progress(progress)
            await asyncio.sleep(max(0.0, began + pace * progress.verdicts - time.monotonic()))
        progress.elapsed = time.monotonic() - began
        if stream.done():
            stream.result()


async def _judge(bus: Bus, source: Source, progress: Progress, item: dict[str, Any]) -> dict[str, Any]:
    """Give the true verdict and wait for the ranking that knows it."""
    relevant = source.truth(item["item_id"])
    outcome = Outcome.RELEVANT if relevant else Outcome.IRRELEVANT
    progress.verdicts += 1
    verdict = Verdict(
        f"v{progress.verdicts:06}", QUERY_ID, item["item_id"], "demo", outcome, int(time.time() * 1e6)
    )
    sent = time.monotonic()
    await bus.send("verdicts", QUERY_ID, encode_verdict(verdict))
    ranking = await _next(bus)
    while ranking["screened"] < progress.verdicts:
        ranking = await _next(bus)
    progress.latencies.append(time.monotonic() - sent)
    progress.screened, progress.found = ranking["screened"], ranking["found"]
    remaining = ranking["expected_remaining"]
    progress.expected_remaining = remaining["mean"], remaining["sd"]
    progress.recent.append((item["item_id"], tuple(item["participants"]), relevant))
    progress.because = item["because"]
    return ranking


async def _next(bus: Bus) -> dict[str, Any]:
    try:
        return await asyncio.wait_for(bus.next_ranking(), PATIENCE)
    except TimeoutError:
        raise UserError(f"no ranking came for {PATIENCE:g} seconds: is the worker running?") from None
