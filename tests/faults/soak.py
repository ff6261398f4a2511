"""A running pair of workers under traffic, and one fault after the other, drawn from a seed: `make soak`.

No test by its name, so that only who asks for it waits for it. In the end the state has to be what a fold of all
that was said gives; what was injected and how long it took to be ready again is printed.
"""

import asyncio
import random
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from statistics import median
from uuid import uuid4

import pytest
from support.arena import QUERIES, Arena, Servers, arena, recorded, verdict
from support.faults import FAULTS, HEALTHY, Fault

from haystream.events import Event, Item, Query

EVENTS_A_SECOND = 12.0
CALM_SECONDS = 5.0
"""Between the end of one fault and the next, on average."""


@dataclass(slots=True)
class Soaked:
    """What was done to the workers, and what they made of it."""

    seed: int
    seconds: float = 0.0
    injected: Counter[str] = field(default_factory=Counter)
    recoveries: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    events: int = 0
    differences: str = "0"
    older_last: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"seed {self.seed}, {self.seconds:.0f} s, {self.events} events, differences: {self.differences}"]
        lines.append(f"queries whose newest ranking is not the last: {len(self.older_last)}")
        for name, count in sorted(self.injected.items()):
            took = self.recoveries[name]
            lines.append(f"{count:4} × {name}: ready again after {median(took):.1f} s, at most {max(took):.1f} s")
        return "\n".join(lines)


@pytest.mark.timeout(0)
def test_soak(servers: tuple[Servers, bool], request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("soak_seed")
    soaked = Soaked(random.randrange(10**6) if seed is None else seed)
    made, own_disk = servers
    print(f"\nsoak: seed {soaked.seed}", flush=True)  # noqa: T201 - whoever waits wants to see it
    faults = [f for f in FAULTS if f is not HEALTHY and not f.twice and not any(f.skew)]
    faults = [f for f in faults if own_disk or not f.name.startswith("disk")]
    try:
        asyncio.run(_soak(made, soaked, faults, request.config.getoption("soak_seconds")))
    except AssertionError as error:
        soaked.differences = "\n".join(
            filter(None, (str(error) or "some", made.kafka.exit_report(), made.valkey.exit_report()))
        )
        raise
    finally:
        print(soaked, flush=True)  # noqa: T201
    assert soaked.older_last == []


async def _soak(servers: Servers, soaked: Soaked, faults: list[Fault], seconds: float) -> None:
    rng = random.Random(soaked.seed)
    began = time.monotonic()
    async with arena(servers, f"soak-{uuid4().hex[:8]}") as ring:
        first, stream = recorded(soaked.seed, verdicts=0)
        await ring.start_workers((0.0, 1.5))
        await ring.say(first, pause=0.0)
        await ring.pipeline.drained()
        enough = asyncio.Event()
        traffic = asyncio.create_task(_talk(ring, rng, first, stream, enough))
        while time.monotonic() < began + seconds:
            fault = rng.choice(faults)
            soaked.injected[fault.name] += 1
            async with fault.strike(ring):
                await asyncio.sleep(rng.uniform(1.0, fault.seconds))
                mended = time.monotonic()
            soaked.recoveries[fault.name].append(await ring.recovered(mended))
            print(  # noqa: T201
                f"{time.monotonic() - began:6.0f} s  {fault.name}: "
                f"ready again after {soaked.recoveries[fault.name][-1]:.1f} s, {len(ring.said)} events",
                flush=True,
            )
            await asyncio.sleep(rng.expovariate(1 / CALM_SECONDS))
            if traffic.done():
                traffic.result()
        enough.set()
        await traffic
        soaked.seconds, soaked.events = time.monotonic() - began, len(ring.said)
        await ring.recovered(time.monotonic())
        await ring.check()
        soaked.older_last = await ring.newest_is_last()


async def _talk(
    ring: Arena, rng: random.Random, first: list[Event], stream: list[Event], enough: asyncio.Event
) -> None:
    """Verdicts of all kinds, items as long as there are new ones, now and then other settings."""
    known = [event for event in (*first, *stream) if isinstance(event, Item)]
    settings = {event.query_id: event for event in first if isinstance(event, Query)}
    coming, number = list(stream), 0
    while not enough.is_set():
        said: list[Event] = [verdict(rng, number := number + 1, rng.choice(known))]
        if coming and rng.random() < 0.1:
            said.append(coming.pop())
        if rng.random() < 0.005:
            query = settings[rng.choice(QUERIES)]
            watched = {person: rng.uniform(0.2, 0.4) for person in rng.choice(known).participants[:2]}
            said.append(replace(query, prior=replace(query.prior, participants=watched)))
        await ring.say(said, pause=rng.expovariate(EVENTS_A_SECOND))
