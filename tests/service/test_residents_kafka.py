"""Queries that are put away, on real servers: what they are is the same, and a start does not load them."""

import asyncio
from dataclasses import replace

import pytest
from support.pipeline import Pipeline, page, until

from haystream.events import Event, Item, Outcome, Query, Status, Verdict
from haystream_service.local.services import WorkerProcess

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]

QUERIES = 30


def item(number: int) -> Item:
    return Item(f"item-{number}", "default", f"p{number % 7}", (f"p{number % 5 + 7}",))


def verdict(number: int, query_id: str) -> Verdict:
    when = 1_700_000_000_000_000 + number
    return Verdict(f"v{number}", query_id, f"item-{number}", "zoe", Outcome.RELEVANT, when)


def gauges(worker: WorkerProcess) -> tuple[int, int]:
    """Queries in memory and put away, by the worker's metrics."""
    lines = dict(line.rsplit(" ", 1) for line in page(worker, "/metrics")[1].splitlines() if line[0] != "#")
    return tuple(int(float(lines[f"haystream_queries_{name}"])) for name in ("in_memory", "put_away"))  # type: ignore[return-value]


async def test_queries_are_put_away_start_there_and_come_back(pipeline: Pipeline) -> None:
    options = {"idle_seconds": "0.5", "refresh_seconds": "0.5", "totals_seconds": "0.1"}
    queries = [Query(f"q{n}", top=5) for n in range(QUERIES)]
    events: list[Event] = [*queries, *(item(n) for n in range(40)), *(verdict(n, f"q{n}") for n in range(10))]
    worker = await pipeline.worker(**options)
    await pipeline.say(*events)
    await pipeline.assert_is_the_fold(events)

    async def all_away() -> bool:
        return gauges(worker) == (0, QUERIES)

    await until(all_away, "every query is put away")
    more: list[Event] = [item(40), replace(queries[3], status=Status.PAUSED), verdict(12, "q12"), verdict(20, "q3")]
    await pipeline.say(*more)
    await pipeline.assert_is_the_fold([*events, *more])
    await until(all_away, "and again, with new items taken in")

    await asyncio.to_thread(worker.stop)
    before = {query.query_id: len(await pipeline.rankings(query.query_id)) for query in queries[:3]}
    await pipeline.say(item(41))
    worker = await pipeline.worker(**{**options, "refresh_seconds": "3600"})
    assert gauges(worker) == (0, QUERIES)
    for query_id, count in before.items():
        assert len(await pipeline.rankings(query_id)) == count + 1
    await pipeline.say(last := verdict(13, "q3"))
    await pipeline.drained()
    assert [r.screened for r in await pipeline.rankings("q3")][-1] == 3
    await asyncio.to_thread(worker.stop)

    worker = await pipeline.worker(**options)
    await pipeline.assert_is_the_fold([*events, *more, item(41), last])
    assert await pipeline.records("dead-letters") == []
