"""The worker where processes crash, wake up late, and servers fail: nothing is lost, nothing counts twice."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest
from support.world import Process, World, item, story, verdict

from haystream.events import Event, Query
from haystream_service.kafka.records import SOURCES, BrokerUnavailable, Kind, Record
from haystream_service.store.base import Head, StoredQuery, StoreUnavailable
from haystream_service.store.marks import StateLost
from haystream_service.store.memory import MemoryStore
from haystream_service.wire import decode_ranking, encode_query, encode_verdict
from haystream_service.worker.endings import TopicsReplaced
from haystream_service.worker.memory_broker import MemoryBroker, MemoryPublisher

pytestmark = pytest.mark.asyncio


async def test_revisions_grow_across_restarts(world: World) -> None:
    world.say(Query("q"), item(1), item(2))
    for number in (1, 2):
        process = await world.process()
        await process.settled()
        world.say(verdict(number))
        await process.settled()
        await process.crash()
    revisions = [ranking.revision for ranking in world.rankings("q")]
    assert revisions == sorted(revisions)
    assert len(set(revisions)) >= 3


class CrashingPublisher(MemoryPublisher):
    """Is cut off when it should publish the nth ranking: the process dies between the save and the publish."""

    def __init__(self, broker: MemoryBroker, fatal: int) -> None:
        super().__init__(broker)
        self.broker = broker
        self.left = fatal
        self.reached = asyncio.Event()

    async def publish_ranking(self, query_id: str, value: bytes) -> None:
        self.left -= 1
        if self.left <= 0:
            self.reached.set()
            await asyncio.Event().wait()
        await super().publish_ranking(query_id, value)

    async def published_or_reached(self, screened: int) -> None:
        """Return when a ranking after so many verdicts is published, or the process is cut off."""
        answer = self.broker.wait_for("next-items", lambda m: decode_ranking(m.value).screened == screened)
        ways = [asyncio.ensure_future(answer), asyncio.ensure_future(self.reached.wait())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()


@pytest.mark.parametrize("fatal", [1, 2, 3])
async def test_a_crash_between_save_and_publish_loses_no_ranking(world: World, fatal: int) -> None:
    publisher = CrashingPublisher(world.broker, fatal)
    doomed = await world.process(publisher=publisher)
    events: list[Event] = []
    # What comes while it is busy is one batch with one ranking: only what waits for an answer is sure of its own.
    for screened, said in enumerate(([Query("q")], [item(1), verdict(1)], [item(2), verdict(2)])):
        events += said
        world.say(*said)
        await doomed.wait(publisher.published_or_reached(screened))
    assert publisher.reached.is_set()
    await doomed.crash()
    heir = await world.process()
    await heir.settled()
    await world.check_equals_fold(events)
    assert world.broker.messages("next-items")[-1].value == await world.store.read_ranking("q")


async def test_a_ranking_saved_for_new_items_is_published_after_a_crash(world: World) -> None:
    world.say(Query("q"))
    first = await world.process()
    await first.settled()
    await first.crash()
    publisher = CrashingPublisher(world.broker, 2)  # the first publishes again what it loads
    doomed = await world.process(publisher=publisher)
    await doomed.settled()
    world.say(item(1))
    await doomed.wait(publisher.reached.wait())
    await doomed.crash()
    heir = await world.process()
    await heir.wait(world.broker.wait_for("next-items", lambda m: len(decode_ranking(m.value).items) == 1))


class Withheld(MemoryPublisher):
    """Dead letters wait until `let` is set; `asked` once one was to be written."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self.asked, self.let = asyncio.Event(), asyncio.Event()

    async def publish_dead_letter(self, key: bytes | None, value: bytes) -> None:
        self.asked.set()
        await self.let.wait()
        await super().publish_dead_letter(key, value)


BAD = b"no json"


async def rejecting(world: World) -> tuple[Process, Withheld, tuple[str, int]]:
    """A worker that has a record in hand whose dead letter does not come through, and where that record lies."""
    publisher = Withheld(world.broker)
    process = await world.process(publisher=publisher)
    world.say(Query("q"), item(1), item(2))
    await process.settled()
    world.broker.produce("verdicts", b"q", BAD)
    (partition,) = (p for p in range(world.broker.partitions) if world.broker.end(("verdicts", p)))
    await process.wait(publisher.asked.wait())
    return process, publisher, ("verdicts", partition)


async def test_nobody_waits_for_a_dead_letter_and_nothing_behind_it_is_committed(world: World) -> None:
    process, publisher, where = await rejecting(world)
    world.say(verdict(1))
    await process.wait(world.broker.wait_for("next-items", lambda m: decode_ranking(m.value).screened == 1))
    draining = asyncio.create_task(process.worker.drain())
    for _ in range(20):
        await asyncio.sleep(0)
    assert world.broker.committed.get(where, 0) == 0
    assert not draining.done()
    assert not process.worker.idle()
    publisher.let.set()
    await process.settled()
    await draining
    assert world.dead_letters() == [("malformed_json", BAD)]
    assert world.broker.committed[where] == 2


async def test_a_dead_letter_that_waits_when_its_partition_goes_is_left_to_who_gets_it(world: World) -> None:
    process, publisher, where = await rejecting(world)
    await process.consumer.assign(process.worker, {0, 1} - {where[1]})
    publisher.let.set()
    await process.worker.drain()
    assert world.dead_letters() == []
    heir = await world.process((where[1],))
    await heir.settled()
    assert world.dead_letters() == [("malformed_json", BAD)]
    assert world.broker.committed[where] == 1


async def test_a_dead_letter_is_there_once_where_its_partition_goes_and_comes_back(world: World) -> None:
    process, publisher, where = await rejecting(world)
    await process.consumer.assign(process.worker, {0, 1})
    publisher.let.set()
    await process.settled()
    assert world.dead_letters() == [("malformed_json", BAD)]
    assert world.broker.committed[where] == 1


async def test_a_crash_loses_no_dead_letter(world: World) -> None:
    process, _, where = await rejecting(world)
    await process.crash()
    heir = await world.process()
    await heir.settled()
    assert world.dead_letters() == [("malformed_json", BAD)]
    assert world.broker.committed[where] == 1


async def test_a_fenced_zombie_loads_again_and_loses_nothing(world: World) -> None:
    zombie = await world.process()
    events: list[Event] = [Query("q"), *(item(n) for n in range(8)), verdict(1), verdict(2)]
    world.say(*events)
    await zombie.settled()
    # It is paused; its partitions go to another, which works on from the same offsets.
    await zombie.consumer.stop()
    heir = await world.process()
    more: list[Event] = [verdict(3), verdict(4, item=1, outcome="irrelevant")]
    world.say(*more)
    await heir.settled()
    await heir.consumer.stop()
    # Now the zombie wakes up with its old state, and gets the partitions back.
    last: list[Event] = [verdict(5), Query("q", top=3)]
    world.say(*last)
    await zombie.consumer.assign(zombie.worker, {0, 1})
    await zombie.settled()
    await world.check_equals_fold([*events, *more, *last])
    assert zombie.metrics.fenced_writes._value.get() >= 1


async def test_two_workers_share_the_partitions_and_hand_them_over(world: World) -> None:
    events = story(7, opened_first=True)
    first = await world.process((0, 1))
    world.say(*events[:40])
    await first.consumer.caught_up(0)
    await first.consumer.assign(first.worker, {0})
    second = await world.process((1,))
    world.say(*events[40:80])
    await second.consumer.caught_up(1)
    await first.consumer.assign(first.worker, set())
    await second.consumer.assign(second.worker, {0, 1})
    world.say(*events[80:])
    await second.settled()
    await world.check_equals_fold(events)
    assert world.dead_letters() == []


@pytest.mark.parametrize("seed", range(4))
async def test_crashes_in_the_middle_of_everything(world: World, seed: int) -> None:
    rng = random.Random(seed)
    events = story(seed, opened_first=True)
    pending = list(events)
    while pending:
        process = await world.process()
        for _ in range(rng.randrange(5, 25)):
            if pending:
                world.say(pending.pop(0))
            for _ in range(rng.randrange(6)):
                await asyncio.sleep(0)
        await process.crash()
    last = await world.process()
    await last.settled()
    await world.check_equals_fold(events)


class Flaky:
    """Fails every third call, before or after it was carried out; waiting reads are left alone."""

    def __init__(self, inner: Any, error: type[Exception]) -> None:
        self._inner, self._error, self._calls = inner, error, 0

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any, **options: Any) -> Any:
            self._calls += 1
            fault = self._calls % 6
            if fault == 2:
                raise self._error("before")
            answer = await getattr(self._inner, name)(*args, **options)
            if fault == 5:
                raise self._error("after")
            return answer

        return call


async def test_servers_that_fail_now_and_then_change_nothing(world: World) -> None:
    process = await world.process(
        store=Flaky(world.store, StoreUnavailable),
        publisher=Flaky(MemoryPublisher(world.broker), BrokerUnavailable),
    )
    events = story(11)
    world.say(*events)
    await process.settled()
    await world.check_equals_fold(events)
    retries = process.metrics.server_retries
    assert retries.labels("redis")._value.get() > 0
    assert retries.labels("kafka")._value.get() > 0


async def test_an_emptied_store_stops_the_worker_and_refuses_nothing(world: World) -> None:
    process = await world.process()
    world.say(Query("q"), item(1))
    await process.settled()
    assert process.worker.troubles() + await process.worker.store_troubles() == []
    await world.store.wipe()
    assert any("emptied" in reason for reason in process.worker.troubles() + await process.worker.store_troubles())
    world.say(verdict(1))
    with pytest.raises(StateLost):
        await process.settled()
    assert world.dead_letters() == []
    await process.crash()
    # A new process does not begin either, as the group has committed offsets.
    with pytest.raises(StateLost):
        await Process(world).worker.start(committed={"query/0": 1})


@pytest.mark.parametrize("said", [[Query("q")], [Query("q"), verdict(1)]], ids=["queries", "verdicts"])
async def test_topics_that_were_made_anew_are_found_out_and_nothing_is_taken_for_known(
    world: World, said: list[Event], caplog: pytest.LogCaptureFixture
) -> None:
    first = await world.process()
    world.say(*said, Query("other"))
    await first.settled()
    await first.crash()
    world.broker = MemoryBroker(partitions=2)  # empty topics, over the same store
    world.say(Query("other"), *([Query("q")] if len(said) > 1 else []))
    second = await world.process()
    with pytest.raises(TopicsReplaced, match="run `haystream rebuild`"):
        await second.wait(second.worker.drain())
    assert any(
        "run `haystream rebuild`" in reason
        for reason in second.worker.troubles() + await second.worker.store_troubles()
    )
    assert "Nothing more is acknowledged" in caplog.text
    assert "Traceback" not in caplog.text


async def test_a_bug_is_never_acknowledged(world: World) -> None:
    class Broken(MemoryPublisher):
        async def publish_ranking(self, query_id: str, value: bytes) -> None:
            raise ZeroDivisionError

    process = await world.process(publisher=Broken(world.broker))
    world.say(Query("q"))
    with pytest.raises(ZeroDivisionError):
        await process.settled()
    assert process.worker.troubles() + await process.worker.store_troubles() == ["a bug stopped it"]
    assert all(offset == 0 for offset in world.broker.committed.values())
    await process.crash()
    heir = await world.process()
    await heir.settled()
    assert len(world.rankings("q")) == 1


async def test_a_verdict_that_comes_again_before_its_query_is_not_refused(world: World) -> None:
    """Settings that were dropped in a rebalance are still to come, though they had come once."""

    class SlowStore(MemoryStore):
        asked, go = asyncio.Event(), asyncio.Event()

        async def load_query(self, query_id: str) -> StoredQuery | None:
            self.asked.set()
            await self.go.wait()
            return await super().load_query(query_id)

    acknowledged: list[str] = []

    def record(kind: Kind, value: bytes) -> Record:
        return Record(kind, SOURCES[kind], 1, 0, 0.0, b"q", value, lambda: acknowledged.append(kind))

    store = world.store = SlowStore()
    process = Process(world)
    worker = process.worker
    await worker.start()
    await worker.assign({1})
    world.broker.produce("queries", b"q", encode_query(Query("q")))  # so that not all are read
    await worker.on_record(record(Kind.QUERY, encode_query(Query("q"))))
    await process.wait(store.asked.wait())
    await worker.revoke({1})  # and the same process gets it back, and the verdicts are read before the queries
    await worker.assign({1})
    store.go.set()
    await worker.on_record(record(Kind.VERDICT, encode_verdict(verdict(1))))
    for _ in range(50):
        await asyncio.sleep(0)
    assert world.dead_letters() == []
    assert acknowledged == []
    await worker.close()


async def test_a_query_that_was_read_slowly_has_not_gone_back(world: World) -> None:
    """While a worker reads it the owner before saves once more, and what the assignment reads is of after that."""

    class Reordered(MemoryStore):
        slow, late, asked, saved, go = False, False, asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def load_query(self, query_id: str) -> StoredQuery | None:
            answer = await super().load_query(query_id)
            if self.slow:
                self.slow = False
                self.asked.set()
                await self.go.wait()
            return answer

        async def read_heads(self, query_ids: Sequence[str]) -> list[Head | None]:
            if self.late:
                await self.saved.wait()
            return await super().read_heads(query_ids)

    store = world.store = Reordered()
    first = await world.process()
    world.say(Query("q"), item(1), item(2))
    await first.settled()
    store.slow = store.late = True
    heir = Process(world)
    await heir.worker.start()
    assigned = asyncio.ensure_future(heir.worker.assign({1}))
    await asyncio.sleep(0)
    world.say(verdict(1))
    value = encode_verdict(verdict(1))
    await heir.worker.on_record(Record(Kind.VERDICT, "verdicts", 1, 0, 0.0, b"q", value, lambda: None))
    await heir.wait(store.asked.wait())
    await first.settled()
    await first.crash()
    store.saved.set()
    await heir.wait(assigned)
    for _ in range(20):
        await asyncio.sleep(0)
    store.go.set()
    await heir.wait(heir.worker.drain())
    await world.check_equals_fold([Query("q"), item(1), item(2), verdict(1)])
    await heir.worker.close()


async def test_what_comes_for_a_query_that_was_broken_off_is_left_to_who_comes_next(world: World) -> None:
    """Nothing is refused by what a process in its last seconds, and a store that went back, no longer know."""
    process = await world.process()
    events: list[Event] = [Query("q"), *(item(n) for n in range(3))]
    world.say(*events)
    await process.settled()
    await process.worker.abandon()
    for owner in process.worker._owners.values():
        owner.release()
    saved = dict(world.store._saved)
    world.store._saved.clear()
    world.say(verdict(1))
    await asyncio.sleep(0.2)
    assert world.dead_letters() == []
    await process.crash()
    world.store._saved.update(saved)
    await (await world.process()).settled()
    assert world.dead_letters() == []
    await world.check_equals_fold([*events, verdict(1)])
