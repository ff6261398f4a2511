"""What readers of next-items see last is the newest, whatever lands on it."""

import asyncio

import pytest
from aiokafka import ConsumerRecord
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from support.pipeline import Pipeline, until

from haystream.events import Item, Outcome, Query, Verdict
from haystream_service.wire import decode_ranking

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]


async def published(pipeline: Pipeline, query_id: str) -> list[ConsumerRecord]:
    return [record for record in await pipeline.records("next-items") if record.key == query_id.encode()]


def verdict(number: int, query_id: str) -> Verdict:
    when = 1_700_000_000_000_000 + number
    return Verdict(f"v{number}", query_id, f"item-{number}", "zoe", Outcome.RELEVANT, when)


async def test_an_older_ranking_that_lands_late_is_written_over(pipeline: Pipeline) -> None:
    queries = ("q", "r", "s")
    worker = await pipeline.worker()
    await pipeline.say(*map(Query, queries), *(Item(f"item-{n}", "default", "ann", ("bo",)) for n in range(4)))
    await pipeline.drained()

    async def older_lands(query_id: str, value: bytes | None) -> None:
        newest = (await pipeline.store.read_ranking(query_id)) or b""
        assert value is None or decode_ranking(value).revision < decode_ranking(newest).revision
        await pipeline.say_raw("next-items", query_id.encode(), value)

        async def written_over() -> bool:
            last = (await published(pipeline, query_id))[-1].value
            stored = await pipeline.store.read_ranking(query_id)
            return bool(last) and last == stored

        await until(written_over, f"the newest ranking of {query_id} is the last one")

    for number, query_id in enumerate(queries):
        first = (await published(pipeline, query_id))[0].value
        await pipeline.say(verdict(number, query_id))
        await pipeline.drained()
        await older_lands(query_id, first)
    await older_lands("q", None)
    # Another process has not published what it finds there, and owns it all the same.
    await asyncio.to_thread(worker.restart)
    for query_id in queries:
        await older_lands(query_id, (await published(pipeline, query_id))[0].value)


async def test_rankings_are_published_again_where_their_topic_was_made_anew(
    pipeline: Pipeline, admin: AIOKafkaAdminClient
) -> None:
    queries, settings = ("q", "r", "s"), pipeline.settings
    events = [*map(Query, queries), *(Item(f"item-{n}", "default", "ann", ("bo",)) for n in range(4))]
    events += [verdict(number, query_id) for number, query_id in enumerate(queries)]
    worker = await pipeline.worker_after(events)
    topic = settings.topic("next-items")
    await admin.delete_topics([topic])

    async def made() -> bool:
        answer = await admin.create_topics([NewTopic(topic, settings.partitions, 1)])
        return bool(answer.topic_errors[0][1] == 0)

    await until(made, "the topic is there again")

    async def there() -> bool:
        last = {query_id: await published(pipeline, query_id) for query_id in queries}
        return all([found and found[-1].value == await pipeline.store.read_ranking(q) for q, found in last.items()])

    await until(there, "every query's newest ranking is in it", patience=60.0)
    assert "the topic was made anew" in worker.log.read_text()
