"""What an analyst waits for over HTTP: a claim, what the item says, a verdict; beside a route that does nothing.

Kafka, Valkey, a worker, one replica of the API and the analysts share this machine. Analysts think between two
items, so what is measured is what one of them waits for, not how many a replica could serve.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import numpy as np
import orjson
from aiohttp import ClientSession, ClientTimeout

from haystream.events import Item
from haystream_service.api.access import Role
from haystream_service.api.tokens import new_key, write_keys
from haystream_service.bench.samples import Samples, Timing
from haystream_service.errors import UserError
from haystream_service.local import KafkaServer, ValkeyServer
from haystream_service.local.services import ApiProcess, WorkerProcess
from haystream_service.local.starting import started
from haystream_service.settings import load, variables
from haystream_service.sources import synthetic
from haystream_service.wire import encode_item

QUERY = "/v1/queries/bench"
ITEMS_AT_ONCE = 5000
ITEMS_PER_EDGE = 5.0
LEAST_ITEMS = 20_000
FILLED_SECONDS = 1800.0
"""For all items to be ranked: a million edges take minutes."""
WARM_UP_SECONDS = 2.0
TEXT = "What an ordinary mail says is two thousand characters. " * 36
DO_NOTHING = "GET /v1/me (does nothing)"
CLAIM = "claim"
READ = "what the item says"
DECIDE = "verdict, acknowledged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Desks:
    """Who works, and how fast."""

    analysts: tuple[int, ...]
    seconds: float
    """How long, with each number of analysts."""
    think: float
    """Seconds in the mean between an analyst's verdict and the next claim."""
    seed: int


@dataclass(frozen=True, slots=True)
class Answered:
    """How long so many analysts waited, by what they waited for, and what that took."""

    edges: int
    analysts: int
    timings: dict[str, Timing]
    cpu_ms: dict[str, float]
    """By process, milliseconds of CPU time for each item that was claimed, read and judged."""


Clocks = Mapping[str, Callable[[], float]]
"""By process, the CPU time that it has taken, in seconds."""


async def measure(edges: int, desks: Desks, tell: Callable[[str], None]) -> list[Answered]:
    """Everything is started, filled, measured and stopped."""
    async with _running(max(desks.analysts)) as (address, tokens, clocks):
        async with _session(address, tokens[0]) as lead:
            tell(f"{edges:,} edges: sending items")
            await _fill(lead, edges, desks.seed)
            found = []
            for analysts in desks.analysts:
                tell(f"{edges:,} edges: {analysts} analysts for {desks.seconds:g} s")
                timings, cpu_ms = await _work(address, tokens[1 : analysts + 1], desks, clocks)
                found.append(Answered(edges, analysts, timings, cpu_ms))
        return found


@asynccontextmanager
async def _running(analysts: int) -> AsyncIterator[tuple[str, list[str], Clocks]]:
    """Where the API is, a lead's token and one for each analyst, and what tells the processes' CPU time."""
    async with AsyncExitStack() as stack:
        keys = Path(stack.enter_context(TemporaryDirectory())) / "keys.json"
        lead = new_key("lead", [Role.LEAD, Role.INGEST], ["*"])
        made = [lead, *(new_key(f"analyst-{n}", [Role.ANALYST], ["*"]) for n in range(analysts))]
        await asyncio.to_thread(write_keys, keys, [line for _, line in made])
        kafka, valkey = await started(stack, KafkaServer()), await started(stack, ValkeyServer())
        settings = variables(load(environ={}, kafka=kafka.bootstrap, redis=valkey.url))
        worker = await started(stack, WorkerProcess(settings))
        api = await started(stack, ApiProcess(settings, keys))
        servers = {"API": api, "worker": worker, "Kafka": kafka, "Valkey": valkey}
        clocks: dict[str, Callable[[], float]] = {name: server.cpu_seconds for name, server in servers.items()}
        clocks["analysts"] = time.process_time
        yield api.address, [token for token, _ in made], clocks


async def _fill(lead: ClientSession, edges: int, seed: int) -> None:
    """A query on a network of about so many edges, ranked."""
    source = synthetic(seed=seed, edges=edges, items_per_edge=max(ITEMS_PER_EDGE, LEAST_ITEMS / edges))
    total = len(source)
    sending = iter(source)
    while items := list(islice(sending, ITEMS_AT_ONCE)):
        body = b"\n".join(map(_saying, items))
        async with lead.post("/v1/collections/default/items", data=body) as answer:
            answer.raise_for_status()
    async with lead.put(QUERY, json={}, params={"wait": 30}) as answer:
        answer.raise_for_status()
    give_up = time.monotonic() + FILLED_SECONDS
    while not await _ranked(lead, total):
        if time.monotonic() > give_up:
            raise UserError(f"{total:,} items were not ranked within {FILLED_SECONDS:g} s")
        await asyncio.sleep(0.5)
    await asyncio.sleep(WARM_UP_SECONDS)


def _saying(item: Item) -> bytes:
    """The item with a text of its own."""
    return orjson.dumps({**orjson.loads(encode_item(item)), "text": f"{item.item_id}: {TEXT}"})


async def _ranked(lead: ClientSession, total: int) -> bool:
    async with lead.get(f"{QUERY}/progress") as progress, lead.get(f"{QUERY}/ranking") as ranking:
        there = progress.ok and ranking.ok and (await progress.json())["items"] >= total
        return there and bool((await ranking.json())["items"])


async def _work(
    address: str, tokens: list[str], desks: Desks, clocks: Clocks
) -> tuple[dict[str, Timing], dict[str, float]]:
    """What the analysts waited for, and the CPU time of an item; a warm-up counts for neither."""
    samples = Samples()
    began = time.monotonic()
    counted, over = began + WARM_UP_SECONDS, began + WARM_UP_SECONDS + desks.seconds

    async def analyst(number: int, token: str) -> None:
        rng = np.random.default_rng((desks.seed, number))
        async with _session(address, token) as client:
            await asyncio.sleep(rng.uniform(0, desks.think))
            while time.monotonic() < over:
                timed = Samples() if time.monotonic() < counted else samples
                await _asked(client, timed, DO_NOTHING, "GET", "/v1/me")
                claimed = await _asked(client, timed, CLAIM, "POST", f"{QUERY}/claims", json={"seconds": 3600})
                for lease in claimed.get("leases", ()):
                    await _asked(client, timed, READ, "GET", f"/v1/collections/default/items/{lease['item_id']}")
                    body = {
                        "item_id": lease["item_id"],
                        "outcome": "relevant" if rng.random() < 0.1 else "irrelevant",
                        "decided_at": datetime.now(UTC).isoformat(),
                    }
                    path = f"{QUERY}/verdicts/{uuid4().hex}"
                    await _asked(client, timed, DECIDE, "PUT", path, json=body)
                await asyncio.sleep(rng.uniform(0.5, 1.5) * desks.think)

    async def taken() -> dict[str, float]:
        await asyncio.sleep(counted - time.monotonic())
        return {name: clock() for name, clock in clocks.items()}

    analysts = (analyst(number, token) for number, token in enumerate(tokens))
    taking = asyncio.ensure_future(taken())
    await asyncio.gather(*analysts)
    before = await taking
    timings = samples.timings()
    judged = timings[DECIDE].samples if DECIDE in timings else 1
    return timings, {name: round(1e3 * (clock() - before[name]) / judged, 3) for name, clock in clocks.items()}


async def _asked(
    client: ClientSession, samples: Samples, name: str, method: str, path: str, **request: Any
) -> dict[str, Any]:
    """The answer's body, timed under that name; one that is no success, under `refused`."""
    began = time.perf_counter()
    async with client.request(method, path, **request) as answer:
        body = await answer.read()
    samples.add(name if answer.ok else f"{name}, refused", time.perf_counter() - began)
    found: dict[str, Any] = orjson.loads(body)
    return found


def _session(address: str, token: str) -> ClientSession:
    return ClientSession(address, headers={"Authorization": f"Bearer {token}"}, timeout=ClientTimeout(60))
