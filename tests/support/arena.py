"""Two workers, each behind proxies of its own, on a Kafka and a Valkey that may be broken; and what they get."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from aiokafka.errors import KafkaError

from haystream.events import Event, Item, LeaseFact, Outcome, Query, Verdict
from haystream.models import DEFAULT_PRIORS
from haystream_service import sources
from haystream_service.local import KafkaServer, ValkeyServer, free_port
from haystream_service.local.services import WorkerProcess
from haystream_service.store.base import StoreUnavailable
from haystream_service.store.claims import ClaimRefused
from haystream_service.wire import decode_lease
from support.data import DATA
from support.forked import ForkedWorker
from support.pipeline import Pipeline, page, settings_on, until
from support.proxy import Proxy
from support.served import check_served

WORKERS = 2
ITEMS = 200
VERDICTS = 400
QUERIES = ("q", "r", "s")
TOP = 10
"""Every verdict has a ranking, and all are read in the end."""
PAUSE = 0.05
"""Seconds between two small batches: a stream lasts for longer than most faults."""
AT_ONCE = 2
STEADY_SECONDS = 5.0
"""Who is ready for so long without a break is ready again."""
LONG_SECONDS = 3600.0
SHORT = 60_000_000
"""Microseconds: a lease of less is waited for."""
CLAIM_SECONDS = 0.5
DECIDED = 1_700_000_000_000_000
RECORDED = DATA / "enron" / "multi.csv.gz"
"""Real mail between several people, where it is to be had."""


class ProxiedKafka(KafkaServer):
    """A broker with a listener more for each worker, which is told of it by the address of the worker's proxy."""

    def __init__(self, proxied: int = WORKERS) -> None:
        super().__init__(fast_start=True)
        self.proxies = [Proxy(free_port()) for _ in range(proxied)]

    def _properties(self) -> dict[str, str]:
        own = super()._properties()
        for number, proxy in enumerate(self.proxies):
            own["listeners"] += f",W{number}://127.0.0.1:{proxy.target}"
            own["advertised.listeners"] += f",W{number}://127.0.0.1:{proxy.port}"
            own["listener.security.protocol.map"] += f",W{number}:PLAINTEXT"
        return {**own, "inter.broker.listener.name": "PLAINTEXT"}


@dataclass(slots=True)
class Servers:
    """What lasts for several arenas."""

    kafka: ProxiedKafka
    valkey: ValkeyServer


class Arena:
    """The pair of workers and the ways to break what they live on. Made by `arena`."""

    def __init__(self, servers: Servers, pipeline: Pipeline) -> None:
        self.kafka = servers.kafka
        self.valkey = servers.valkey
        self.pipeline = pipeline
        self.workers: list[WorkerProcess] = []
        self.to_kafka = servers.kafka.proxies
        self.to_redis = [Proxy(servers.valkey.port) for _ in range(WORKERS)]
        self.said: list[Event] = []
        self.repeated: Counter[str] = Counter()
        self.claimed: list[LeaseFact] = []

    async def start_workers(self, skew: tuple[float, ...] = (0.0,) * WORKERS) -> None:
        """Both, ready, on machines whose dates are wrong by so many seconds."""
        for number, seconds in enumerate(skew):
            own = {
                "HAYSTREAM_KAFKA": f"127.0.0.1:{self.to_kafka[number].port}",
                "HAYSTREAM_REDIS": f"redis://127.0.0.1:{self.to_redis[number].port}/0",
                "HAYSTREAM_INSTANCE_ID": f"worker-{number}",
            }
            first = f"import time; now = time.time; time.time = lambda: now() + {seconds!r}"
            self.workers.append(ForkedWorker({**self.pipeline.environment(), **own}, first=first))
        await asyncio.gather(*(asyncio.to_thread(worker.start) for worker in self.workers))

    async def say(self, events: list[Event], *, pause: float = PAUSE) -> None:
        """Produce in small batches, and again what the broker did not acknowledge."""
        for start in range(0, len(events), AT_ONCE):
            some = events[start : start + AT_ONCE]
            while True:
                try:
                    await self.pipeline.say(*some)
                except (KafkaError, OSError):
                    self.repeated["batches said again"] += 1
                    await asyncio.sleep(pause)
                else:
                    break
            self.said += some
            await asyncio.sleep(pause)

    async def claim(self, rng: random.Random) -> None:
        """Claim, and now and then give back, for ever. Nobody publishes: that is left to the workers."""
        claims = self.pipeline.store.claims
        while True:
            with suppress(ClaimRefused, StoreUnavailable):
                leases = await claims.claim(rng.choice(QUERIES), "kim", 2, rng.choice((1.0, LONG_SECONDS)))
                self.claimed += leases
                if leases and rng.random() < 0.3:
                    await claims.release(leases[0].query_id, leases[0].lease_id, "kim")
            await asyncio.sleep(CLAIM_SECONDS)

    async def works(self) -> None:
        """Return when the first query has a newer revision than now."""
        before = await self._revision()

        async def moved() -> bool:
            return await self._revision() > before

        await until(moved, "the workers work on the stream")

    async def _revision(self) -> int:
        stored = await self.pipeline.store.load_query(QUERIES[0])
        return stored.revision if stored else 0

    async def readiness(self) -> list[int]:
        """The status of /readyz of each worker; 0 where there is no answer in the time that a probe has."""
        return list(await asyncio.gather(*(asyncio.to_thread(_status, worker) for worker in self.workers)))

    async def is_ready(self, wanted: Mapping[int, bool], seconds: float) -> list[str]:
        """Where /readyz still says something else after so long; nothing where it is as wanted sooner."""
        give_up = time.monotonic() + seconds
        while True:
            statuses = await self.readiness()
            wrong = [
                f"worker {n} answers {statuses[n]}" for n, ready in wanted.items() if (statuses[n] == 200) != ready
            ]
            if not wrong or time.monotonic() > give_up:
                return wrong
            await asyncio.sleep(0.2)

    async def recovered(self, mended: float) -> float:
        """Seconds from `mended` on, of the monotonic clock, until every worker is ready and stays so.

        One that its group gave up finds that out only when it gets through, and is ready for a moment before.
        """
        since = time.monotonic()

        async def steady() -> bool:
            nonlocal since
            if await self.readiness() != [200] * len(self.workers):
                since = time.monotonic()
            return time.monotonic() - since > STEADY_SECONDS

        await until(steady, "every worker is ready again")
        return since - mended

    async def check(self) -> None:
        """What is stored and published is what a fold of all that was said gives; nothing was refused."""
        await until(self._claims_rest, "all leases that ran out are over, and in Kafka")
        facts = [decode_lease(record.value, record.key) for record in await self.pipeline.records("leases")]
        check_served(self.claimed, facts, [event for event in self.said if isinstance(event, Verdict)])
        await self.pipeline.assert_is_the_fold([*self.said, *facts])
        assert await self.pipeline.records("dead-letters") == []

    async def _claims_rest(self) -> bool:
        claims = self.pipeline.store.claims
        live = [lease for query in QUERIES for lease in await claims.live(query)]
        out = [record for query in QUERIES for record in await claims.outbox(query, 1)]
        return not out and all(lease.until - lease.at > SHORT for lease in live)

    async def newest_is_last(self) -> list[str]:
        """The queries whose last published ranking is not their newest."""
        last: dict[str, int] = {}
        newest: Counter[str] = Counter()
        for ranking in await self.pipeline.rankings():
            last[ranking.query_id] = ranking.revision
            newest[ranking.query_id] = max(newest[ranking.query_id], ranking.revision)
        return sorted(query for query in last if last[query] != newest[query])


def _status(worker: WorkerProcess) -> int:
    try:
        return page(worker, "/readyz", timeout=PROBE_SECONDS)[0]
    except OSError:
        return 0


PROBE_SECONDS = 3.0
"""What the manifests give a probe (`timeoutSeconds`)."""


@asynccontextmanager
async def arena(servers: Servers, name: str) -> AsyncIterator[Arena]:
    """Proxies and topics; no workers yet. Everything is mended and stopped in the end."""
    settings = settings_on(
        servers.kafka, servers.valkey, name, partitions=3, item_publish_seconds=0.05, totals_seconds=0.05
    )
    async with AsyncExitStack() as stack:
        pipeline = await stack.enter_async_context(Pipeline(settings))
        made = Arena(servers, pipeline)
        for proxy in (*made.to_kafka, *made.to_redis):
            await proxy.start()
            stack.push_async_callback(proxy.close)
        stack.push_async_callback(_close, made)
        yield made


async def _close(made: Arena) -> None:
    await asyncio.gather(*(asyncio.to_thread(worker.close) for worker in made.workers))


def recorded(seed: int, *, verdicts: int = VERDICTS) -> tuple[list[Event], list[Event]]:
    """What is there at first, and the stream: items between several people, verdicts changed, early, taken back."""
    rng = random.Random(seed)
    items: list[Event] = list(_mail() or _made_up(rng))
    queries: list[Event] = [
        *(Query(name, top=TOP) for name in QUERIES[:-1]),
        Query(QUERIES[-1], prior=DEFAULT_PRIORS["relevance"], top=TOP),
    ]
    said: list[Event] = [verdict(rng, n, rng.choice(items)) for n in range(verdicts)]  # type: ignore[arg-type]
    stream = items[ITEMS // 2 :] + said
    rng.shuffle(stream)
    return queries + items[: ITEMS // 2], stream


def verdict(rng: random.Random, number: int, on: Item) -> Verdict:
    """Somebody's word on the item, for one of the queries, decided before or after another."""
    at = DECIDED + rng.randrange(10**9)
    return Verdict(f"v{number}", rng.choice(QUERIES), on.item_id, "zoe", rng.choice(list(Outcome)), at)


def _mail() -> list[Item]:
    """Recorded mail, those with several recipients first; empty where there are no data."""
    if not RECORDED.exists():
        return []
    wide = sorted(sources.table(RECORDED), key=lambda item: -len(item.participants))
    middle = [item for item in wide if len(item.participants) <= 8]
    return middle[: ITEMS // 2] + middle[-ITEMS // 2 :]


def _made_up(rng: random.Random) -> list[Item]:
    people = [f"p{n}" for n in range(30)]
    items = []
    for number in range(ITEMS):
        sender, *others = rng.sample(people, rng.choice((2, 2, 2, 4)))
        items.append(Item(f"item-{number}", "default", sender, tuple(sorted(others))))
    return items


@dataclass(slots=True)
class Struck:
    """What became of an arena in which something failed."""

    fault: str
    lies: list[str] = field(default_factory=list)
    """Where /readyz said something else than what was."""
    stale: list[str] = field(default_factory=list)
    """Queries whose last published ranking was not the newest."""
    recovery: float = 0.0
    """Seconds from when what was broken is let go on or started again, until all were ready to stay."""
    error: BaseException | None = None
    notes: dict[str, Any] = field(default_factory=dict)
