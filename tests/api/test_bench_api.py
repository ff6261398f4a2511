"""`haystream bench api`: what its analysts ask for, and how it is told."""

import itertools

import httpx
import pytest
from support.world import World, item

from haystream_service.bench import queue
from haystream_service.bench.queue import CLAIM, DECIDE, DO_NOTHING, READ, Answered, Desks
from haystream_service.commands.bench_api import _processes, _table

pytestmark = pytest.mark.asyncio


async def test_analysts_claim_and_decide_until_the_time_is_over(
    address: str, lead: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "WARM_UP_SECONDS", 0.1)
    world.say(*(item(n) for n in range(200)))
    await lead.put(queue.QUERY, json={})
    await world.processes[0].settled()
    desks = Desks(analysts=(2,), seconds=1.0, think=0.05, seed=0)
    ticks = itertools.count(step=2)
    timings, cpu_ms = await queue._work(address, ["kim", "lee"], desks, {"API": lambda: float(next(ticks))})
    assert {DO_NOTHING, CLAIM, READ, DECIDE} <= timings.keys()
    assert all(timing.samples for timing in timings.values())
    given = world.broker.messages("verdicts")
    assert len(given) >= timings[DECIDE].samples
    assert cpu_ms == {"API": pytest.approx(2000 / timings[DECIDE].samples, abs=1e-3)}
    answered = [Answered(1000, 2, timings, cpu_ms)]
    assert _table(answered).row_count == len(timings)
    assert _processes(answered).row_count == 1
