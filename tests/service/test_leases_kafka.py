"""Leases on a real Kafka and a real store: what a claim leaves behind, whoever dies, and whatever is rebuilt."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

import pytest
from support.equality import assert_is_the_fold
from support.forked import ForkedWorker
from support.pipeline import Pipeline, Silent, rebuild, until

from haystream.events import Action, Event, Item, LeaseFact, Outcome, Query, Verdict
from haystream_service.kafka.records import BrokerUnavailable
from haystream_service.store.claims import ClaimCode, ClaimRefused, Outgoing
from haystream_service.wire import decode_lease, decode_verdict
from haystream_service.worker.rebuilding import Rebuild

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]

EVENTS: tuple[Event, ...] = (
    Query("q"),
    *(Item(f"m{n}", "default", f"p{n % 7}", (f"p{n % 5 + 7}",)) for n in range(60)),
)

DIES = """
import asyncio, os, signal, sys
from haystream_service.store.redis import RedisStore

async def claim():
    url, prefix = sys.argv[1:]
    for lease in await RedisStore.connect(url, prefix=prefix).claims.claim("q", "gone", 3, 600):
        print(lease.item_id, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(claim())
"""
"""Claims three items, says which, and is gone before anybody has published it."""


async def facts(pipeline: Pipeline) -> list[LeaseFact]:
    return [decode_lease(record.value, record.key) for record in await pipeline.records("leases")]


async def at_rest(pipeline: Pipeline) -> None:
    """Everything that was claimed is in the topic, and the state is what the topics say."""

    async def published() -> bool:
        return not await pipeline.store.claims.outbox("q", 1)

    await until(published, "an empty outbox")
    said = [*EVENTS, *await facts(pipeline)]
    said += [decode_verdict(record.value, record.key) for record in await pipeline.records("verdicts")]
    await pipeline.ranked(said)
    await assert_is_the_fold(pipeline.store, await pipeline.rankings(), said)


async def claimed(pipeline: Pipeline, analyst: str, count: int, seconds: float = 600) -> list[LeaseFact]:
    """As soon as there is something to claim."""
    while True:
        try:
            return await pipeline.store.claims.claim("q", analyst, count, seconds)
        except ClaimRefused as refused:
            assert refused.code in {ClaimCode.NOT_RANKED_YET, ClaimCode.UNKNOWN_QUERY}  # noqa: PT017
            await asyncio.sleep(0.02)


async def test_who_dies_between_claim_and_publish_neither_loses_an_item_nor_has_it_served_twice(
    pipeline: Pipeline,
) -> None:
    await pipeline.worker()
    await pipeline.say(*EVENTS)
    await pipeline.ranked(EVENTS)
    address = pipeline.settings.redis, pipeline.settings.redis_prefix
    died = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", DIES, *address],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    theirs = died.stdout.split()
    assert len(theirs) == 3
    others = {lease.item_id for _ in range(57) for lease in await claimed(pipeline, "kim", 1)}
    assert others == {f"m{n}" for n in range(60)} - set(theirs)
    await at_rest(pipeline)
    assert {fact.item_id for fact in await facts(pipeline) if fact.analyst == "gone"} == set(theirs)
    assert await pipeline.store.claims.claim("q", "kim", 1, 600) == []


async def test_what_runs_out_comes_back_and_a_verdict_ends_what_it_is_on(pipeline: Pipeline) -> None:
    await pipeline.worker()
    await pipeline.say(*EVENTS)
    await pipeline.ranked(EVENTS)
    (judged,) = await claimed(pipeline, "kim", 1)
    (forgotten,) = await claimed(pipeline, "joe", 1, seconds=0.5)
    await pipeline.say(Verdict("v", "q", judged.item_id, "kim", Outcome.RELEVANT, judged.at + 1))

    async def over() -> bool:
        return not await pipeline.store.claims.live("q")

    await until(over, "no lease left")
    await at_rest(pipeline)
    told = [(fact.lease_id, fact.action) for fact in await facts(pipeline)]
    assert (forgotten.lease_id, Action.EXPIRED) in told
    assert {action for lease_id, action in told if lease_id == judged.lease_id} == {Action.CLAIMED}
    first = [item.item_id for item in max(await pipeline.rankings("q"), key=lambda r: r.revision).items]
    assert forgotten.item_id in first
    assert judged.item_id not in first


class Away:
    """Kafka, where it takes no leases."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def publish_leases(self, records: Sequence[Outgoing]) -> None:
        self.asked.set()
        raise BrokerUnavailable("Kafka did not acknowledge")


SLOW_TO_LOAD = """
import asyncio
from haystream_service.store.redis import RedisStore
load = RedisStore.load_query

async def slowly(store, query_id):
    await asyncio.sleep(5.0)
    return await load(store, query_id)

RedisStore.load_query = slowly
"""
"""As a query that has very many verdicts."""


async def test_what_was_judged_while_nobody_worked_is_served_to_nobody_though_its_lease_ran_out(
    pipeline: Pipeline,
) -> None:
    worker = await pipeline.worker_after(EVENTS)
    worker.kill()
    (lease,) = await claimed(pipeline, "kim", 1, seconds=1)
    said = Verdict("v", "q", lease.item_id, "kim", Outcome.SKIPPED, lease.at + 1)
    await pipeline.say(said)
    await asyncio.sleep(1.0)  # its time is over, by the store's clock
    heir = ForkedWorker(pipeline.environment(), first=SLOW_TO_LOAD)
    starting = asyncio.create_task(asyncio.to_thread(heir.start))
    served: set[str] = set()
    try:
        while not starting.done():
            with suppress(ClaimRefused):
                for other in await pipeline.store.claims.claim("q", "bo", 1, 600):
                    served.add(other.item_id)
                    await pipeline.store.claims.release("q", other.lease_id, "bo")
            await asyncio.sleep(0.02)
        await starting
        assert lease.item_id not in served
        assert served
        await at_rest(pipeline)
    finally:
        await asyncio.to_thread(heir.close)


async def test_after_a_rebuild_that_is_interrupted_nobody_works_until_one_has_ended(pipeline: Pipeline) -> None:
    worker = await pipeline.worker()
    await pipeline.say(*EVENTS)
    await pipeline.ranked(EVENTS)
    await asyncio.to_thread(worker.stop)
    held = await claimed(pipeline, "kim", 3)
    away = Away()
    rebuilding = Rebuild(pipeline.settings, pipeline.store, away)  # type: ignore[arg-type]
    await rebuilding.check()
    waiting = asyncio.create_task(rebuilding.run(lambda *_: Silent()))
    await asyncio.wait_for(away.asked.wait(), 60)
    waiting.cancel()
    assert await pipeline.store.load_query("q") is not None
    assert await pipeline.store.generation() is None
    await rebuild(pipeline.settings, pipeline.store)
    await pipeline.worker()
    held += await claimed(pipeline, "joe", 57)
    assert {lease.item_id for lease in held} == {f"m{n}" for n in range(60)}
    await at_rest(pipeline)


async def test_a_rebuild_while_somebody_claims_loses_no_lease(pipeline: Pipeline) -> None:
    worker = await pipeline.worker()
    await pipeline.say(*EVENTS)
    await pipeline.ranked(EVENTS)
    held = await claimed(pipeline, "kim", 5)
    await at_rest(pipeline)
    await asyncio.to_thread(worker.stop)
    refusals: list[ClaimCode] = []
    done = asyncio.Event()

    async def claim() -> None:
        while not done.is_set():
            try:
                held.extend(await pipeline.store.claims.claim("q", "joe", 1, 600))
            except ClaimRefused as refused:
                refusals.append(refused.code)
            await asyncio.sleep(0.005)

    claiming = asyncio.create_task(claim())
    await rebuild(pipeline.settings, pipeline.store)
    done.set()
    await claiming
    assert set(refusals) <= {ClaimCode.REBUILDING, ClaimCode.NOT_RANKED_YET}
    assert ClaimCode.REBUILDING in refusals
    assert len({lease.item_id for lease in held}) == len(held), "an item was served to two"
    assert {lease.lease_id for lease in await pipeline.store.claims.live("q")} == {lease.lease_id for lease in held}
    await pipeline.worker()
    await at_rest(pipeline)
