"""Analysts at once over HTTP, some of whom die, while a replica, the worker and Valkey are killed: nobody is served
what somebody else has, nothing is lost, and the state is the fold of what the topics say."""

import asyncio
import random
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from support.equality import assert_is_the_fold
from support.forked import ForkedApi
from support.pipeline import Pipeline, settings_on, until
from support.queue_api import EVERYTHING, write_keys

from haystream.events import Action, Event, Item, LeaseFact, Outcome, Query
from haystream_service.api.access import Role
from haystream_service.client import Haystream
from haystream_service.local import KafkaServer, ValkeyServer
from haystream_service.settings import Settings, variables
from haystream_service.wire import decode_lease, decode_verdict

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]

LEASE_SECONDS = 3.0
DIES = 0.1
"""How often an analyst forgets what she has taken, and begins anew."""
EVENTS: tuple[Event, ...] = (
    Query("q"),
    *(Item(f"m{n}", "default", f"p{n % 17}", (f"p{17 + n % 13}",)) for n in range(3000)),
)


@pytest.fixture
def settings(own_kafka: KafkaServer, own_valkey: ValkeyServer, topic_prefix: str) -> Settings:
    return settings_on(own_kafka, own_valkey, topic_prefix, instance_id=topic_prefix)


def work(address: str, analyst: str, over: float) -> tuple[int, int]:
    """Take items and decide until the time is over: how many were taken, and how many decided."""
    rng, taken, decided = random.Random(analyst), 0, 0
    client = Haystream(address, analyst, timeout=20)
    with client:
        while time.monotonic() < over:
            for lease in client.next("q", count=rng.choice((1, 1, 3)), seconds=LEASE_SECONDS):
                taken += 1
                time.sleep(rng.uniform(0, 0.3))
                if rng.random() < DIES:
                    client._leases.clear()  # as a new process: what she had runs out
                    break
                outcome = rng.choice((Outcome.RELEVANT, Outcome.IRRELEVANT, Outcome.SKIPPED))
                client.decide("q", lease.item_id, outcome)
                decided += 1
    return taken, decided


def check_nobody_had_what_another_had(facts: list[LeaseFact]) -> None:
    """From the topic alone: of the leases of an item, none begins before the one before it is over."""
    leases: defaultdict[str, list[LeaseFact]] = defaultdict(list)
    for fact in facts:
        leases[fact.lease_id].append(fact)
    spans: defaultdict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for told in leases.values():
        ended = [fact.at for fact in told if fact.action in {Action.RELEASED, Action.EXPIRED}]
        begun = min(fact.at for fact in told)
        end = min(ended) if ended else max(fact.until for fact in told)
        spans[told[0].item_id].append((begun, end, told[0].lease_id))
    for item_id, all_of_it in spans.items():
        all_of_it.sort()
        for (_, end, one), (begin, _, other) in pairwise(all_of_it):
            assert begin >= end, f"{item_id} was {one}'s and {other}'s at once"


async def test_nobody_is_served_what_somebody_else_has(
    settings: Settings, own_valkey: ValkeyServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    everything = request.config.getoption("--faults") == "all"
    analysts, seconds = (50, 40.0) if everything else (6, 6.0)
    names = [f"analyst-{n}" for n in range(analysts)]
    keys = tmp_path / "keys.json"
    write_keys(keys, *((name, [Role.ANALYST], [EVERYTHING]) for name in names))
    async with Pipeline(settings) as pipeline:
        worker = await pipeline.worker()
        await pipeline.say(*EVENTS)
        await pipeline.ranked(EVENTS)
        replicas = [ForkedApi(variables(settings), keys) for _ in range(2)]
        try:
            for replica in replicas:
                await asyncio.to_thread(replica.start)
            over = time.monotonic() + seconds
            loop = asyncio.get_running_loop()
            with ThreadPoolExecutor(analysts) as pool:
                working = [
                    loop.run_in_executor(pool, work, replicas[n % 2].address, name, over)
                    for n, name in enumerate(names)
                ]
                for victim in (replicas[0], worker, own_valkey):
                    await asyncio.sleep(seconds / 6)
                    victim.kill()
                    await asyncio.to_thread(victim.start)
                done = await asyncio.gather(*working)
        finally:
            for replica in replicas:
                await asyncio.to_thread(replica.close)

        async def none_left() -> bool:
            return not await pipeline.store.claims.live("q") and not await pipeline.store.claims.outbox("q", 1)

        await until(none_left, "every lease over, and its facts in the topic")
        facts = [decode_lease(record.value, record.key) for record in await pipeline.records("leases")]
        verdicts = [decode_verdict(record.value, record.key) for record in await pipeline.records("verdicts")]
        check_nobody_had_what_another_had(facts)
        said = [*EVENTS, *facts, *verdicts]
        await pipeline.ranked(said)
        await assert_is_the_fold(pipeline.store, await pipeline.rankings(), said)
        assert await pipeline.records("dead-letters") == []
        assert len({verdict.verdict_id for verdict in verdicts}) == sum(decided for _, decided in done) > 0
        assert sum(taken for taken, _ in done) > sum(decided for _, decided in done)
