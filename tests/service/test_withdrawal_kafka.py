"""What is said of items later, on a real Kafka and a real store: live, after a kill and after a rebuild alike."""

import asyncio
from dataclasses import replace

import pytest
from support.pipeline import Pipeline, rebuild

from haystream.events import Event, Item, Outcome, Query, Verdict, Withdrawal

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]

ITEMS = [Item(f"m{n}", "default", f"p{n % 7}", (f"p{n % 5 + 7}",)) for n in range(40)]
VERDICTS = [Verdict(f"v{n}", "q", f"m{n}", "kim", list(Outcome)[n % 2], n) for n in range(0, 20, 3)]
FIRST: list[Event] = [Query("q", top=10), Withdrawal("m39", "default"), *ITEMS, *VERDICTS]
THEN: list[Event] = [
    *(replace(each, sent_at=1_000_000 * n, uri=f"mail:{each.item_id}") for n, each in enumerate(ITEMS[10:38])),
    replace(ITEMS[3], withdrawn=True),
    Withdrawal("m21", "default"),
    *(Withdrawal(f"m{n}", "default") for n in range(30, 34)),
]
LATE: list[Event] = [
    Verdict("late", "q", "m21", "kim", Outcome.RELEVANT, 99),
    Verdict("never", "q", "m39", "kim", Outcome.RELEVANT, 99),
]


async def test_what_is_withdrawn_is_gone_live_after_a_kill_and_after_a_rebuild(pipeline: Pipeline) -> None:
    worker = await pipeline.worker()
    await pipeline.say(*FIRST)
    await pipeline.assert_is_the_fold(FIRST)
    await pipeline.say(*THEN)
    await asyncio.to_thread(worker.kill)
    heir = await pipeline.worker()
    await pipeline.say(*LATE)
    everything = [*FIRST, *THEN, *LATE]
    await pipeline.assert_is_the_fold(everything)
    last = max(await pipeline.rankings("q"), key=lambda ranking: ranking.revision)
    told = {f"m{n}": f"mail:m{n}" for n in range(10, 38)}
    assert [item.uri for item in last.items] == [told.get(item.item_id) for item in last.items]
    assert not {item.item_id for item in last.items} & {"m3", "m21", "m30", "m31", "m32", "m33", "m39"}
    assert not await pipeline.records("dead-letters")
    await asyncio.to_thread(heir.stop)
    await rebuild(pipeline.settings, pipeline.store)
    await pipeline.assert_is_the_fold(everything)
