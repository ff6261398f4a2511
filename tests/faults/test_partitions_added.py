"""Partitions that are added to topics in use, and the way to more of them."""

import asyncio

import pytest
from aiokafka import AIOKafkaProducer, ConsumerRecord
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from support.pipeline import Pipeline, Silent, page, until

from haystream.events import Event, Item, Outcome, Query, Verdict
from haystream_service.errors import UserError
from haystream_service.kafka import admin as kafka_admin
from haystream_service.kafka.records import RESTATES, restates
from haystream_service.kafka.stretches import whole
from haystream_service.local import ServerUnavailable
from haystream_service.wire import decode_ranking
from haystream_service.worker.repartitioning import Repartition

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]

QUERIES = tuple(f"q{n}" for n in range(6))
EVENTS: tuple[Event, ...] = (
    *map(Query, QUERIES),
    *(Item(f"m{n}", "default", f"p{n % 5}", (f"p{n % 5 + 1 + n % 2}",)) for n in range(30)),
    *(
        Verdict(f"v{n}", QUERIES[n % 6], f"m{n % 30}", "zoe", list(Outcome)[n % 3], 1_700_000_000_000_000 + n)
        for n in range(60)
    ),
)

LATER = 1_800_000_000_000_000


async def test_partitions_added_in_place_are_refused_and_the_copy_keeps_every_query(
    pipeline: Pipeline, admin: AIOKafkaAdminClient
) -> None:
    settings = pipeline.settings
    worker = await pipeline.worker()
    await pipeline.say(*EVENTS)
    await pipeline.assert_is_the_fold(EVENTS)
    names = ("queries", "items", "verdicts", "leases")
    await admin.create_partitions({settings.topic(name): NewPartitions(total_count=4) for name in names})

    async def ended() -> bool:
        return not worker.running

    await until(ended, "the worker ends")
    reason = f"{settings.topic('queries')} had 2 partitions and has 4"
    assert reason in worker.log.read_text()
    worker.kill()  # what is left of the process
    starting = asyncio.create_task(asyncio.to_thread(worker.start))

    async def says_why() -> bool:
        return worker.running and reason in page(worker, "/readyz")[1]

    await until(says_why, "the next one waits, and says why")
    later: list[Event] = [
        Verdict(f"w{n}", q, "m29", "zoe", Outcome.RELEVANT, 1_800_000_000_000_000) for n, q in enumerate(QUERIES)
    ]
    await pipeline.say(*later)  # by producers who choose among four
    worker.kill()
    with pytest.raises(ServerUnavailable):
        await starting
    code, _, said = await pipeline.program("rebuild", "--yes")
    assert code != 0
    assert reason in said
    wider = f"{settings.topic_prefix}-4"
    code, _, said = await pipeline.program("repartition", "--to", wider, "--partitions", "4", "--yes")
    assert code == 0, said
    assert f"{len(EVENTS) + len(later)} records copied" in said
    code, _, said = await pipeline.program("repartition", "--to", wider, "--partitions", "4", "--yes")
    assert (code, "hold records already" in said) == (2, True), said

    async with Pipeline(settings.model_copy(update={"topic_prefix": wider, "partitions": 4})) as grown:
        code, _, said = await grown.program("rebuild", "--yes")
        assert code == 0, said
        await grown.worker()
        more: list[Event] = [
            Verdict(f"x{n}", q, "m28", "zoe", Outcome.IRRELEVANT, 1_900_000_000_000_000)
            for n, q in enumerate(QUERIES)
        ]
        await grown.say(*more)
        await grown.assert_is_the_fold([*EVENTS, *later, *more])
        assert await grown.records("dead-letters") == []
        assert {record.partition for record in await grown.records("queries")} > {0}


async def test_of_rankings_with_added_partitions_the_revision_tells_the_newest_and_a_new_topic_has_no_other(
    pipeline: Pipeline, admin: AIOKafkaAdminClient
) -> None:
    """As growing.md says: those from before lie where they lay."""
    settings = pipeline.settings
    worker = await pipeline.worker()
    await pipeline.say(*EVENTS)
    await pipeline.drained()
    topic, count = settings.topic("next-items"), 5
    await admin.create_partitions({topic: NewPartitions(total_count=count)})

    async def grown() -> bool:
        return len(await kafka_admin.partitions_of(settings, "next-items")) == count

    await until(grown, "the broker tells of the new partitions")
    await asyncio.to_thread(worker.restart)  # else it is told within five minutes
    await pipeline.say(*(Verdict(f"w{n}", q, "m29", "zoe", Outcome.RELEVANT, LATER) for n, q in enumerate(QUERIES)))
    await pipeline.drained()

    async def stored() -> dict[str, bytes | None]:
        return {query_id: await pipeline.store.read_ranking(query_id) for query_id in QUERIES}

    async def places(partitions: int) -> int:
        """On how many a query has rankings, at most; 0 while the newest has not the greatest revision."""
        found = await _by_query(pipeline, partitions=partitions)
        newest = {query_id: max(records, key=_revision).value for query_id, records in found.items()}
        each = [len({record.partition for record in records}) for records in found.values()]
        return max(each) if newest == await stored() else 0

    async def newest_are_there() -> bool:
        return await places(count) == 2

    await until(newest_are_there, "the newest ranking is that with the greatest revision, beside older ones")
    worker.kill()
    await admin.delete_topics([topic])

    async def gone() -> bool:
        return not await kafka_admin.partitions_of(settings, "next-items")

    await until(gone, "the topic is gone")
    await asyncio.to_thread(worker.start)

    async def all_are_there() -> bool:
        return await places(settings.partitions) == 1

    await until(all_are_there, "every query's ranking is in the new topic, and on one partition")


async def _by_query(pipeline: Pipeline, *, partitions: int) -> dict[str, list[ConsumerRecord]]:
    """What next-items holds in so many partitions."""
    found: dict[str, list[ConsumerRecord]] = {}
    for record in await pipeline.records("next-items", partitions=partitions):
        found.setdefault(record.key.decode(), []).append(record)
    return found


def _revision(record: ConsumerRecord) -> int:
    return decode_ranking(record.value).revision


async def test_topics_of_which_only_one_has_grown_are_refused_with_the_way_out(
    pipeline: Pipeline, admin: AIOKafkaAdminClient
) -> None:
    settings = pipeline.settings
    await admin.create_partitions({settings.topic("verdicts"): NewPartitions(total_count=3)})

    async def grown() -> bool:
        return len(await kafka_admin.partitions_of(settings, "verdicts")) == 3

    await until(grown, "the broker tells of the new partition")
    with pytest.raises(UserError, match=r"verdicts has 3.*haystream repartition"):
        await kafka_admin.ensure_topics(settings)


async def test_a_copy_keeps_times_and_headers_and_where_settings_name_an_earlier_record(pipeline: Pipeline) -> None:
    settings = pipeline.settings
    said = [
        *((q.encode(), b"settings", 1_000 + n, []) for n, q in enumerate(QUERIES)),
        *((q.encode(), b"{", 2_000 + n, []) for n, q in enumerate(QUERIES)),
    ]
    producer = AIOKafkaProducer(bootstrap_servers=settings.kafka)
    await producer.start()
    topic, bad = settings.topic("queries"), dict[bytes, int]()
    for key, value, time, headers in said:
        bad[key] = (await producer.send_and_wait(topic, value, key=key, timestamp_ms=time, headers=headers)).offset
    for n, (key, offset) in enumerate(bad.items()):
        headers = [(RESTATES, str(offset).encode()), ("by", b"the worker")]
        await producer.send_and_wait(topic, b"settings", key=key, timestamp_ms=3_000 + n, headers=headers)
    await producer.stop()

    wider = settings.model_copy(update={"topic_prefix": f"{settings.topic_prefix}-5", "partitions": 5})
    repartition = Repartition(settings, wider)

    async def checked() -> bool:
        try:
            await repartition.check()
        except UserError as error:
            assert "does not answer" in str(error) or "did not" in str(error)  # noqa: PT017 - a coordinator is made
            return False
        return True

    await until(checked, "the new topics are there")
    assert await repartition.run(lambda *_: Silent()) == 3 * len(QUERIES)
    copied = [record async for record in whole(wider, "queries")]
    for n, q in enumerate(QUERIES):
        first, second, third = (record for record in copied if record.key == q.encode())
        assert [first.timestamp, second.timestamp, third.timestamp] == [1_000 + n, 2_000 + n, 3_000 + n]
        assert first.partition == second.partition == third.partition
        assert (second.value, restates(third.headers)) == (b"{", second.offset)
        assert dict(third.headers)["by"] == b"the worker"
    assert len({record.partition for record in copied}) > 2
