"""The whole way on real servers: verdict produced to ranking consumed, and items taken in by one worker.

Beside it, in the same run and under the same traffic, a Faust agent that does nothing. Kafka, Valkey, the worker,
the agent and what drives them share the machine.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import ceil
from typing import Any

import numpy as np
import orjson

from haystream.events import Item, Outcome, Query, Verdict
from haystream_service.bench import graphs
from haystream_service.bench.burst import Burst
from haystream_service.bench.noop import LAST, NoopProcess
from haystream_service.bench.stress import (
    ITEMS_AN_EDGE,
    OTHER,
    Phase,
    Rig,
    Stress,
    burst,
    opening,
    preload,
    resident,
    settled,
    start_with_idle,
)
from haystream_service.bench.traffic import Message, Traffic
from haystream_service.demo.play import NoAnswer
from haystream_service.demo.stage import explained
from haystream_service.kafka.admin import ensure_topics
from haystream_service.local import KafkaServer, LocalServer, ValkeyServer
from haystream_service.local.services import WorkerProcess
from haystream_service.local.starting import started
from haystream_service.settings import Settings, variables
from haystream_service.settings import load as load_settings
from haystream_service.store.redis import RedisStore
from haystream_service.wire import encode_item, encode_query, encode_verdict
from haystream_service.worker.items import RECENT_SECONDS

LEAST_ITEMS_PER_EDGE = 2
UNREAD = 2.0
"""Items there are from the beginning for every verdict that is to come: a verdict finds an unread one at once."""
RELEVANT = 0.25
WARM_UP = 25
"""Verdicts before the clock counts: what has to be loaded and compiled is, then."""
LOOK_SECONDS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is sent."""

    verdicts_per_s: float
    items_per_s: float
    seconds: float
    flood: int
    """Items that wait in Kafka when the intake is measured."""
    new_edges: float
    """The share of the items that lie on a new edge; the others lie on one that is there."""
    seed: int
    queries: int = 1
    workers: int = 1


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds from verdict to answer, and items a second."""

    edges: int
    queries: int
    workers: int
    latencies: tuple[float, ...]
    items_per_s: float
    opened_s: float
    """From opening the query to its first ranking."""
    fresh: tuple[float, ...]
    """As `latencies`, of the same load right after opening: what a graph that came at once leaves to be done is
    done then, beside verdicts."""
    phases: tuple[Phase, ...] = ()
    """What verdicts met while something else went on."""
    start: dict[str, Any] | None = None
    """A start with many idle queries (`stress.start_with_idle`)."""


@dataclass(slots=True)
class Case:
    """A case's items and verdicts. Every verdict is on an item of its own: `screened` counts them."""

    pairs: graphs.Longs
    load: Load
    rng: np.random.Generator
    stress: Stress = field(default_factory=Stress)
    judged: Counter[bytes] = field(default_factory=Counter)
    top: dict[bytes, list[str]] = field(default_factory=dict)
    """The items of the last ranking that are not judged yet, by query."""
    _read: set[tuple[bytes, str]] = field(default_factory=set)
    _made: int = 0

    @property
    def queries(self) -> list[bytes]:
        """The ids."""
        return [b"q%d" % number for number in range(self.load.queries)]

    @property
    def items_per_edge(self) -> int:
        """Of those that are there from the beginning, in the mean."""
        verdicts = (2 * self.load.seconds + self.stress.seconds) * self.load.verdicts_per_s + 2 * WARM_UP
        return max(LEAST_ITEMS_PER_EDGE, ceil(UNREAD * verdicts / len(self.pairs)))

    def preloaded(self) -> Iterator[Item]:
        """What the collection holds from the beginning."""
        return graphs.spread(self.pairs, self.items_per_edge, self.rng)

    def items(self) -> Iterator[Message]:
        """New items, without end."""
        people = int(self.pairs.max()) + 1
        while True:
            self._made += 1
            if self.rng.random() < self.load.new_edges:
                sender, recipient = f"n{self._made}", f"p{self.rng.integers(people)}"
            else:
                sender, recipient = (f"p{end}" for end in self.pairs[self.rng.integers(len(self.pairs))])
            item = Item(f"n{self._made}", graphs.COLLECTION, sender, (recipient,))
            yield item.item_id.encode(), encode_item(item)

    def burst(self, settings: Settings) -> Burst:
        """Who sends the items on new pairs, not started."""
        people, count = int(self.pairs.max()) + 1, self.stress.burst
        return Burst(settings, count=count, people=people, seed=self.load.seed)

    def verdict(self) -> Message:
        """The next verdict, of the queries in turn: half on the best item that is known, half on a random one."""
        query = min(self.queries, key=self.judged.__getitem__)
        best = self.top.get(query, [])
        item = best.pop(0) if best and self.rng.random() < 0.5 else self._random()
        if self.judged[query] >= self.items_per_edge * len(self.pairs):
            raise NoAnswer("every item is judged: the worker takes longer than was provided for")
        while (query, item) in self._read:
            item = self._random()
        self._read.add((query, item))
        self.judged[query] += 1
        outcome = Outcome.RELEVANT if self.rng.random() < RELEVANT else Outcome.IRRELEVANT
        number, now = self.judged[query], int(time.time() * 1e6)
        return query, encode_verdict(Verdict(f"v{number}", query.decode(), item, "bench", outcome, now))

    def _random(self) -> str:
        return f"m{self.rng.integers(self.items_per_edge * len(self.pairs))}"

    def answered(self, query: bytes, value: bytes) -> int:
        """How many verdicts a ranking knows of."""
        ranking = orjson.loads(value)
        self.top[query] = [item["item_id"] for item in ranking["items"][:10]]
        return int(ranking["screened"])


@asynccontextmanager
async def servers() -> AsyncIterator[tuple[str, str]]:
    """A Kafka and a Valkey of its own: their addresses. Raises `ServerUnavailable`."""
    async with AsyncExitStack() as stack:
        kafka = await started(stack, KafkaServer())
        valkey = await started(stack, ValkeyServer())
        yield kafka.bootstrap, valkey.url


async def measure(kafka: str, redis: str, edges: int, load: Load, stress: Stress) -> Measured:
    """A worker with a query (or several of either) on a graph of so many edges."""
    settings = _settings(kafka, redis, f"bench-{edges}-{load.queries}-{load.workers}")
    rng = np.random.default_rng(load.seed)
    case = Case(graphs.preferential(edges, rng), load, rng, stress)
    store = RedisStore.connect(redis, prefix=settings.redis_prefix)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        stack.push_async_callback(store.wipe)
        await ensure_topics(settings)
        await preload(store, graphs.COLLECTION, case.preloaded())
        began = time.perf_counter()
        workers = [await started(stack, WorkerProcess(variables(settings)))]
        empty_s = round(time.perf_counter() - began, 2)
        while len(workers) < load.workers:
            workers.append(await started(stack, WorkerProcess(variables(settings))))
        for worker in workers:
            stack.enter_context(explained(worker))
        traffic = await stack.enter_async_context(Traffic(settings, case.answered))
        began = time.perf_counter()
        for query in case.queries:
            await traffic.send("queries", (query, encode_query(Query(query.decode()))))
        await traffic.until(lambda: len(case.top) == load.queries, "the first rankings")
        opened = time.perf_counter() - began
        await _drive(traffic, case.verdict, case.items(), load)
        fresh = tuple(traffic.latencies)
        await settled(workers)
        await _drive(traffic, case.verdict, case.items(), load)
        before = await store.item_count(graphs.COLLECTION)

        async def taken_in() -> None:
            count = before
            while count < before + load.flood:
                count = await store.item_count(graphs.COLLECTION)
                await asyncio.sleep(LOOK_SECONDS)

        latencies = tuple(traffic.latencies)
        rate = await _flood(traffic, workers, case.items(), load.flood, taken_in)
        rig = Rig(traffic, case.verdict, load.verdicts_per_s, partial(resident, workers))
        phases = [phase async for phase in _phases(settings, rig, store, stress, case)]
        start = None
        if stress.idle:
            start = {
                "empty_s": empty_s,
                **await start_with_idle(settings, store, workers, traffic, stress, case.top),
            }
    return Measured(edges, load.queries, load.workers, latencies, rate, opened, fresh, tuple(phases), start)


async def _phases(
    settings: Settings, rig: Rig, store: RedisStore, stress: Stress, case: Case
) -> AsyncIterator[Phase]:
    if stress.opening:
        pairs = graphs.preferential(stress.opening // ITEMS_AN_EDGE, case.rng)
        await preload(store, OTHER, graphs.spread(pairs, ITEMS_AN_EDGE, case.rng))
        for name, collection in (("other", OTHER), ("another", graphs.COLLECTION)):
            yield await opening(rig, stress, collection, name, partial(case.top.__contains__, name.encode()))
    if stress.burst:
        async with AsyncExitStack() as stack:
            sender = await started(stack, case.burst(settings))
            yield await burst(rig, store, stress, sender, case.queries[0].decode())


async def measure_noop(kafka: str, redis: str, load: Load, stress: Stress) -> Measured:
    """The no-op agent, under the same traffic."""
    settings = _settings(kafka, redis, "bench-noop")
    rng = np.random.default_rng(load.seed)
    case = Case(graphs.preferential(1000, rng), load, rng, stress)
    answers: Counter[bytes] = Counter()

    def answered(key: bytes, _: bytes) -> int:
        answers[key] += 1
        return answers[key]

    async with AsyncExitStack() as stack:
        partitions = (await ensure_topics(settings))["items"]
        agent = await started(stack, NoopProcess(kafka, settings.topic_prefix))
        traffic = await stack.enter_async_context(Traffic(settings, answered))
        await _drive(traffic, case.verdict, case.items(), load)

        async def all_read() -> None:
            last = answers[LAST] + partitions
            for partition in range(partitions):
                await traffic.send("items", (LAST, b""), partition=partition)
            await traffic.until(lambda: answers[LAST] == last, "the last items")

        latencies, phases = tuple(traffic.latencies), []
        rate = await _flood(traffic, [agent], case.items(), load.flood, all_read)
        if stress.burst:
            sender = await started(stack, case.burst(settings))
            phases.append(await _past_a_burst(traffic, case, sender, all_read))
    return Measured(0, load.queries, 1, latencies, rate, 0.0, (), tuple(phases))


async def _past_a_burst(
    traffic: Traffic, case: Case, sender: Burst, all_read: Callable[[], Awaitable[None]]
) -> Phase:
    """The no-op agent's verdicts while the same burst goes by it, until it has read that or time is up."""

    async def work() -> int:
        await sender.send()
        with suppress(TimeoutError):
            await asyncio.wait_for(all_read(), case.stress.burst_seconds)
        return sender.count

    async def unknown() -> int:
        return 0

    rig = Rig(traffic, case.verdict, case.load.verdicts_per_s, unknown)
    return await rig.phase(f"{sender.count:,} items on new pairs", work)


async def _drive(traffic: Traffic, verdict: Callable[[], Message], items: Iterator[Message], load: Load) -> None:
    """Warm up, then measure the latency under the load."""
    for count in (round(WARM_UP * load.items_per_s / load.verdicts_per_s), round(load.items_per_s * load.seconds)):
        some = islice(items, count)
        await traffic.steady(verdict, some, verdicts_per_s=load.verdicts_per_s, items_per_s=load.items_per_s)


async def _flood(
    traffic: Traffic,
    processes: Sequence[LocalServer],
    items: Iterator[Message],
    count: int,
    taken_in: Callable[[], Awaitable[None]],
) -> float:
    """Items a second that the processes take in when so many lie ready: they stand still while these are sent."""
    with ExitStack() as stack:
        for process in processes:
            stack.enter_context(process.frozen())
        for item in islice(items, count):
            await traffic.send("items", item)
        await traffic.flush()
        await asyncio.sleep(RECENT_SECONDS)  # until then items are taken in as if more verdicts were to come
    began = time.perf_counter()
    await taken_in()
    return count / (time.perf_counter() - began)


def percentiles(latencies: Sequence[float]) -> dict[str, float]:
    """p50, p95 and p99 in milliseconds."""
    values = 1e3 * np.percentile(latencies, [50, 95, 99])
    return dict(zip(("p50_ms", "p95_ms", "p99_ms"), np.round(values, 2).tolist(), strict=True))


def as_json(noop: Measured, sizes: Sequence[Measured], load: Load) -> dict[str, Any]:
    """The result as the contract has it; ratios are to the no-op agent."""
    base = percentiles(noop.latencies)
    results = []
    for size in sizes:
        latency = percentiles(size.latencies)
        results.append(
            {
                "edges": size.edges,
                "queries": size.queries,
                "workers": size.workers,
                **latency,
                "items_per_s": round(size.items_per_s),
                "p50_ratio": round(latency["p50_ms"] / base["p50_ms"], 2),
                "items_ratio": round(size.items_per_s / noop.items_per_s, 2),
                "opened_s": round(size.opened_s, 2),
                "fresh": percentiles(size.fresh),
                "verdicts": len(size.latencies),
                "phases": [phase.as_json() for phase in size.phases],
                **({"start": size.start} if size.start else {}),
            }
        )
    return {
        "results": results,
        "noop": {
            **base,
            "items_per_s": round(noop.items_per_s),
            "verdicts": len(noop.latencies),
            "phases": [phase.as_json() for phase in noop.phases],
        },
        "load": {
            "verdicts_per_s": load.verdicts_per_s,
            "items_per_s": load.items_per_s,
            "seconds": load.seconds,
            "flood": load.flood,
            "new_edges": load.new_edges,
        },
    }


def _settings(kafka: str, redis: str, name: str) -> Settings:
    return load_settings(environ={}, kafka=kafka, redis=redis, topic_prefix=name, redis_prefix=name, group=name)
