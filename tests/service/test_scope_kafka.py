"""Scopes on a real Kafka and a real store: live and after a rebuild it is what `replay` says."""

import asyncio
from dataclasses import replace

import pytest
from support.pipeline import Pipeline, rebuild

from haystream.events import Event, Item, Outcome, Query, Verdict
from haystream.scope import scope

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]

DECIDED = 1_700_000_000_000_000
IN_MAY = scope(since=500, before=800, nobody=["p3"])
LABELLED = scope(labels=[("k", '"m"')])
ITEMS = [
    Item(
        f"m{n}",
        "default",
        f"p{n % 7}",
        (f"p{n % 5 + 7}",),
        sent_at=None if n % 4 == 3 else 20 * n,
        labels=(("k", '"m"' if n % 3 else '"z"'),),
    )
    for n in range(60)
]
LATER = [
    *(replace(item, sent_at=600) for item in ITEMS[3:20:4]),  # they come in
    *(replace(item, sent_at=100) for item in ITEMS[30:36:4]),  # in fact they were sent before
    *(replace(item, labels=(("k", '"a"'),)) for item in ITEMS[1:8:3]),
]
EVENTS: tuple[Event, ...] = (
    Query("q", scope=IN_MAY),
    Query("r", scope=IN_MAY),
    Query("s", scope=LABELLED),
    Query("all"),
    *ITEMS,
    *(
        Verdict(
            f"v{n}", ("q", "r", "s", "all")[n % 4], f"m{n}", "zoe", list(Outcome)[n % 3], 1_700_000_000_000_000 + n
        )
        for n in range(60)
    ),
)


async def test_live_and_after_a_rebuild_it_is_what_replay_says(pipeline: Pipeline) -> None:
    worker = await pipeline.worker()
    await pipeline.say(*EVENTS)
    await pipeline.assert_is_the_fold(EVENTS)
    await pipeline.say(*LATER)
    said = [*EVENTS, *LATER]
    await pipeline.assert_is_the_fold(said)
    more = Verdict("last", "q", "m31", "zoe", Outcome.RELEVANT, DECIDED + 1000)
    await pipeline.say(more)
    said.append(more)
    await pipeline.assert_is_the_fold(said)
    await asyncio.to_thread(worker.stop)
    await rebuild(pipeline.settings, pipeline.store)
    await pipeline.assert_is_the_fold(said)
