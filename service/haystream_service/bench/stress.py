"""What else a worker does while verdicts come: a burst of items, queries that open, a start with many idle ones.

Each is a phase of its own, after the steady load and on the same worker. Verdicts go on at their rate; the clock of
each runs as ever, and those that have no answer a while after the phase are counted.
"""

import asyncio
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from haystream.events import Item, Query
from haystream_service.bench import graphs
from haystream_service.bench.burst import Burst
from haystream_service.bench.traffic import Message, Traffic
from haystream_service.demo.play import NoAnswer
from haystream_service.local.services import WorkerProcess
from haystream_service.local.starting import started
from haystream_service.settings import Settings, variables
from haystream_service.store.redis import RedisStore
from haystream_service.wire import encode_query

OTHER, IDLE = "bench-other", "bench-idle"
"""The collections of a query that opens meanwhile, and of those that are idle."""
ITEMS_AN_EDGE = 3
IDLE_EDGES = 1000
PATIENCE_SECONDS = 30.0
"""For answers after a phase has ended."""
SETTLED_SECONDS = 300.0
"""How long the steady load waits, at most, for what a new graph has left to be done."""
LOOK_SECONDS = 0.25
MEMORY_SECONDS = 5.0
"""Between two looks at a worker's memory, which is on a page with all its metrics: verdicts wait for that one."""
AT_ONCE = 5000
OPENING_SECONDS = 30.0
"""For which there are items to judge, while a query opens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stress:
    """How much there is of each; 0 leaves the phase out."""

    burst: int = 0
    """Items on new pairs."""
    burst_seconds: float = 60.0
    """The phase ends then, although not all of them are folded in."""
    opening: int = 0
    """Items of the collection on which another query opens."""
    idle: int = 0
    """Queries that nobody touches when a worker starts."""

    @property
    def seconds(self) -> float:
        """For how long verdicts go on beside all of it, at most, if opening a query takes no longer than it may."""
        return bool(self.burst) * self.burst_seconds + 2 * bool(self.opening) * OPENING_SECONDS


@dataclass(frozen=True, slots=True)
class Phase:
    """What verdicts met in it. Memory of the worker in bytes, before, at its peak and afterwards."""

    name: str
    latencies: tuple[float, ...]
    unanswered: int
    seconds: float
    memory: tuple[int, int, int]
    done: int
    """Items folded in, or queries opened."""

    def as_json(self) -> dict[str, Any]:
        """Milliseconds, and MiB."""
        p50, p99 = (1e3 * np.percentile(self.latencies, [50, 99])).round(2).tolist() if self.latencies else (0, 0)
        return {
            "phase": self.name,
            "p50_ms": p50,
            "p99_ms": p99,
            "verdicts": len(self.latencies),
            "unanswered": self.unanswered,
            "seconds": round(self.seconds, 2),
            "done": self.done,
            "memory_mib": [size >> 20 for size in self.memory],
        }


@dataclass(slots=True)
class Rig:
    """A worker under a steady load of verdicts, and what measures it."""

    traffic: Traffic
    verdict: Callable[[], Message]
    verdicts_per_s: float
    memory: Callable[[], Awaitable[int]]

    async def phase(self, name: str, work: Callable[[], Awaitable[int]]) -> Phase:
        """Verdicts while the work is done."""
        before = peak = await self.memory()
        began = time.perf_counter()

        async def watched() -> int:
            nonlocal peak
            working = asyncio.ensure_future(work())
            while not (await asyncio.wait({working}, timeout=MEMORY_SECONDS))[0]:
                peak = max(peak, await self.memory())
            return working.result()

        working = asyncio.ensure_future(watched())
        unanswered = await self.traffic.during(
            working, self.verdict, verdicts_per_s=self.verdicts_per_s, patience=PATIENCE_SECONDS
        )
        seconds, after = time.perf_counter() - began, await self.memory()
        memory = before, max(peak, after), after
        return Phase(name, tuple(self.traffic.latencies), unanswered, seconds, memory, working.result())


async def burst(rig: Rig, store: RedisStore, stress: Stress, sender: Burst, query: str) -> Phase:
    """Items on new pairs, all at once, until the query has folded them in or time is up."""

    async def work() -> int:
        begin, give_up = await _folded_in(store, query), time.perf_counter() + stress.burst_seconds
        await sender.send()
        end = begin + stress.burst
        while (done := await _folded_in(store, query)) < end and time.perf_counter() < give_up:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_SECONDS)
        return min(done, end) - begin  # items of the steady traffic are folded in beside these

    return await rig.phase(f"{stress.burst:,} items on new pairs", work)


async def opening(rig: Rig, stress: Stress, collection: str, name: str, opened: Callable[[], bool]) -> Phase:
    """Another query opens; until its first ranking is there."""
    same = "the same collection" if collection == graphs.COLLECTION else f"{stress.opening:,} items of another"

    async def work() -> int:
        settings = encode_query(Query(name, collection=collection))
        await rig.traffic.send("queries", (name.encode(), settings))
        await rig.traffic.until(opened, "the first ranking of the other query")
        return 1

    return await rig.phase(f"a query opens on {same}", work)


async def preload(store: RedisStore, collection: str, items: Iterator[Item]) -> None:
    """Have the collection's log hold the items."""
    while some := [replace(item, collection=collection) for item in islice(items, AT_ONCE)]:
        await store.append_items(collection, some)


async def start_with_idle(
    settings: Settings,
    store: RedisStore,
    workers: Sequence[WorkerProcess],
    traffic: Traffic,
    stress: Stress,
    top: dict[bytes, Any],
) -> dict[str, Any]:
    """Seconds until a worker is ready that starts with so many queries that nobody has touched for a while."""
    rng = np.random.default_rng(0)
    await preload(store, IDLE, graphs.spread(graphs.preferential(IDLE_EDGES, rng), 2, rng))
    names = [b"idle%d" % number for number in range(stress.idle)]
    for name in names:
        await traffic.send("queries", (name, encode_query(Query(name.decode(), collection=IDLE))))
    await traffic.until(lambda: all(name in top for name in names), "the first rankings of idle queries")
    for worker in workers:
        await asyncio.to_thread(worker.stop)
    async with AsyncExitStack() as stack:
        seconds = []
        for idle_seconds in (0.0, 3600.0):
            again = WorkerProcess(variables(settings.model_copy(update={"idle_seconds": idle_seconds})))
            began = time.perf_counter()
            await started(stack, again)
            seconds.append(round(time.perf_counter() - began, 2))
            size = await resident([again])
            await asyncio.to_thread(again.stop)
            if idle_seconds == 0.0:
                memory = size >> 20
    return {"queries": stress.idle, "idle_s": seconds[0], "touched_s": seconds[1], "idle_memory_mib": memory}


async def settled(workers: Sequence[WorkerProcess]) -> None:
    """Return when what a graph that came at once has left to be done is done. Raises `NoAnswer`."""
    give_up = time.perf_counter() + SETTLED_SECONDS
    while await metric(workers, "haystream_tending_backlog_queries"):
        if time.perf_counter() > give_up:
            raise NoAnswer(f"not within {SETTLED_SECONDS:g} seconds: what opening the queries has left to be done")
        await asyncio.sleep(LOOK_SECONDS)


async def resident(workers: Sequence[WorkerProcess]) -> int:
    """The workers' memory in bytes."""
    return await metric(workers, "process_resident_memory_bytes")


async def metric(workers: Sequence[WorkerProcess], name: str) -> int:
    """The sum of a metric without labels over the workers; 0 of one that does not answer."""
    begin = f"{name} ".encode()

    def asked(worker: WorkerProcess) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{worker.port}/metrics", timeout=5.0) as answer:
                lines: list[bytes] = answer.read().splitlines()
        except OSError:
            return 0
        found = (line.split()[1] for line in lines if line.startswith(begin))
        return int(float(next(found, b"0")))

    return sum([await asyncio.to_thread(asked, worker) for worker in workers])


async def _folded_in(store: RedisStore, query: str) -> int:
    (head,) = await store.read_heads([query])
    return head.position.cursor if head else 0
