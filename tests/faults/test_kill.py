"""kill -9 amid a stream of verdicts: of the worker, of Kafka, of Valkey. Nothing is lost or counted twice."""

import asyncio
import random

import pytest
from support.pipeline import Pipeline, is_ready, page, settings_on, until

from haystream.events import Event, Item, Outcome, Query, Verdict
from haystream.models import DEFAULT_PRIORS
from haystream_service.local import KafkaServer, LocalServer, ValkeyServer
from haystream_service.settings import Settings

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]

QUERIES = ("q", "r", "s")
ITEMS = 300
VERDICTS = 1200
KILLS = 3


@pytest.fixture
def settings(own_kafka: KafkaServer, own_valkey: ValkeyServer, topic_prefix: str) -> Settings:
    given = {"partitions": 3, "item_publish_seconds": 0.05, "totals_seconds": 0.05, "instance_id": topic_prefix}
    return settings_on(own_kafka, own_valkey, topic_prefix, **given)


def story(seed: int) -> tuple[list[Event], list[Event]]:
    """What is there at first, and the stream: items and verdicts of all kinds, some changed or taken back."""
    rng = random.Random(seed)
    people = [f"p{n}" for n in range(30)]
    items: list[Event] = []
    for number in range(ITEMS):
        sender, *others = rng.sample(people, rng.choice((2, 2, 2, 4)))
        items.append(Item(f"item-{number}", "default", sender, tuple(sorted(others))))
    queries: list[Event] = [Query("q"), Query("r"), Query("s", prior=DEFAULT_PRIORS["relevance"])]
    verdicts: list[Event] = [
        Verdict(
            f"v{number}",
            rng.choice(QUERIES),
            f"item-{rng.randrange(ITEMS)}",
            "zoe",
            rng.choice(list(Outcome)),
            1_700_000_000_000_000 + number,
        )
        for number in range(VERDICTS)
    ]
    half = ITEMS // 2
    stream = items[half:] + verdicts
    rng.shuffle(stream)
    return queries + items[:half], stream


async def _strike(pipeline: Pipeline, stream: list[Event], victim: LocalServer) -> None:
    """Produce the stream, and kill the victim a few times on the way; it comes back in the same place."""
    pieces = [stream[n::KILLS] for n in range(KILLS)]
    for piece in pieces:
        half = len(piece) // 2
        before = (await pipeline.store.load_query(QUERIES[0])).revision  # type: ignore[union-attr]
        saying = asyncio.create_task(_say_in_small(pipeline, piece[:half]))

        async def moving(before: int = before) -> bool:
            stored = await pipeline.store.load_query(QUERIES[0])
            return stored is not None and stored.revision > before

        await until(moving, "the worker works on the stream")
        victim.kill()
        rest = asyncio.create_task(_say_in_small(pipeline, piece[half:]))
        await asyncio.to_thread(victim.start)
        await saying
        await rest


async def _say_in_small(pipeline: Pipeline, events: list[Event]) -> None:
    for start in range(0, len(events), 5):
        await pipeline.say(*events[start : start + 5])


@pytest.mark.parametrize("victim", ["worker", "kafka", "valkey"])
async def test_the_state_is_the_fold_whoever_is_killed(
    pipeline: Pipeline, own_kafka: KafkaServer, own_valkey: ValkeyServer, victim: str
) -> None:
    first, stream = story(1)
    worker = await pipeline.worker()
    await pipeline.say(*first)
    await pipeline.drained()
    struck: LocalServer = {"worker": worker, "kafka": own_kafka, "valkey": own_valkey}[victim]
    await _strike(pipeline, stream, struck)
    await pipeline.assert_is_the_fold([*first, *stream])
    assert await pipeline.records("dead-letters") == []

    await until(lambda: is_ready(worker), "the worker is ready again")


async def test_nothing_is_committed_before_it_is_saved(pipeline: Pipeline, own_valkey: ValkeyServer) -> None:
    first, stream = story(2)
    worker = await pipeline.worker()
    await pipeline.say(*first)
    await pipeline.drained()
    with own_valkey.frozen():
        await pipeline.say(*stream)

        async def has_given_up_once() -> bool:
            # By then the records were in hand for ten times the commit interval.
            return 'server_errors_total{server="redis"} 0.0' not in page(worker, "/metrics")[1]

        await until(has_given_up_once, "a save that got no answer")
        worker.kill()
    await asyncio.to_thread(worker.start)
    await pipeline.assert_is_the_fold([*first, *stream])


async def test_a_zombie_is_fenced_and_loses_nothing(pipeline: Pipeline) -> None:
    first, stream = story(3)
    zombie = await pipeline.worker(instance_id="zombie")
    await pipeline.say(*first, *stream[:200])
    await pipeline.drained()
    with zombie.frozen():
        # Its partitions go to another, which works on; then it wakes up with what it had.
        await pipeline.worker(instance_id="heir")
        await _say_in_small(pipeline, stream[200:600])
        await pipeline.drained()
    await _say_in_small(pipeline, stream[600:])
    await pipeline.assert_is_the_fold([*first, *stream])
    assert await pipeline.records("dead-letters") == []
