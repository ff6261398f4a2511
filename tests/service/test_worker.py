"""The worker on the in-memory transport and store: the guarantees, without a server."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace
from typing import Any, TypeVar

import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry
from support.equality import EXACT, assert_is_the_fold

from haystream.events import Event, Item, Outcome, Policy, Prior, Query, Status, Verdict
from haystream_service.metrics import Metrics
from haystream_service.store.base import Store, StoreUnavailable
from haystream_service.store.memory import MemoryStore
from haystream_service.wire import (
    decode_dead_letter,
    decode_ranking,
    encode_item,
    encode_query,
    encode_verdict,
)
from haystream_service.wire.records import NextItems
from haystream_service.worker.memory import MemoryBroker, MemoryConsumer, MemoryPublisher
from haystream_service.worker.queries import QueryOwner
from haystream_service.worker.records import BrokerUnavailable
from haystream_service.worker.shared import Limits, StateLost, TopicsReplaced
from haystream_service.worker.worker import Worker

pytestmark = pytest.mark.asyncio

PEOPLE = ("ann", "bo", "cy", "dee", "eve")
T = TypeVar("T")


class Process:
    """One worker with its consumer, as a process would run them."""

    def __init__(self, world: "World", *, store: Store | None = None, publisher: Any = None) -> None:
        self.world = world
        self.consumer = MemoryConsumer(world.broker)
        self.metrics = Metrics(CollectorRegistry(), labelled_queries=10)
        self.worker = Worker(
            store or world.store,
            publisher or MemoryPublisher(world.broker),
            caught_up=self.consumer.caught_up,
            ends=self.consumer.ends,
            metrics=self.metrics,
            limits=Limits(item_publish_seconds=0.0, max_batch=20, tolerance=EXACT),
        )

    async def start(self, partitions: set[int]) -> "Process":
        await self.worker.start()
        await self.consumer.assign(self.worker, partitions)
        return self

    async def crash(self) -> None:
        """Gone between two instructions: whatever it does next reaches nobody."""
        await self.consumer.stop()
        await self.worker.close()

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """The result; a bug of the worker instead, where it comes first."""
        wanted = asyncio.ensure_future(awaitable)
        done, _ = await asyncio.wait({wanted, self.worker.failed}, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        if self.worker.failed in done:
            self.worker.failed.result()
        assert done, "nothing happened for 30 seconds"
        return wanted.result()

    async def settled(self) -> None:
        """Everything that is in the topics is acknowledged, and every ranking is up to date."""
        await self.wait(self.consumer.drained())
        await self.wait(self._caught_up())

    async def _caught_up(self) -> None:
        # What intake has put into a collection's log reaches its queries by way of the follower, a little later.
        while True:
            await self.worker.drain()
            if not any([await self._behind(owner) for owner in self.worker._owners.values()]):
                return
            await asyncio.sleep(0)

    async def _behind(self, owner: QueryOwner) -> bool:
        loaded = owner._loaded
        if loaded is None:
            return False
        return loaded.saved.cursor < await self.world.store.item_count(loaded.state.settings.collection)


class World:
    """The broker and the store, which outlive processes."""

    def __init__(self) -> None:
        self.broker = MemoryBroker(partitions=2)
        self.store = MemoryStore()
        self.processes: list[Process] = []

    async def process(self, partitions: tuple[int, ...] = (0, 1), **parts: Any) -> Process:
        process = Process(self, **parts)
        self.processes.append(process)
        return await process.start(set(partitions))

    def say(self, *events: Event) -> None:
        for event in events:
            match event:
                case Query():
                    self.broker.produce("queries", event.query_id.encode(), encode_query(event))
                case Item():
                    self.broker.produce("items", event.item_id.encode(), encode_item(event))
                case Verdict():
                    self.broker.produce("verdicts", event.query_id.encode(), encode_verdict(event))

    def rankings(self, query_id: str) -> list[NextItems]:
        key = query_id.encode()
        return [decode_ranking(m.value) for m in self.broker.messages("next-items") if m.key == key]

    def dead_letters(self) -> list[tuple[str, bytes]]:
        letters = [decode_dead_letter(message.value) for message in self.broker.messages("dead-letters")]
        return [(letter.error.code.value, payload) for letter, payload in letters]

    async def check_equals_fold(self, events: list[Event]) -> None:
        """What is stored and published is what an offline fold gives."""
        published = [decode_ranking(message.value) for message in self.broker.messages("next-items")]
        await assert_is_the_fold(self.store, published, events)


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    for process in world.processes:
        await process.crash()


def item(number: int, collection: str = "default") -> Item:
    rng = random.Random(number)
    sender, *recipients = rng.sample(PEOPLE, rng.choice((2, 2, 3)))
    return Item(f"item-{number}", collection, sender, tuple(sorted(recipients)))


def verdict(number: int, query_id: str = "q", *, item: int | None = None, outcome: str = "relevant") -> Verdict:
    of = number if item is None else item
    return Verdict(f"v{number}", query_id, f"item-{of}", "zoe", Outcome(outcome), 1_700_000_000_000_000 + number)


def story(seed: int, *, opened_first: bool = False) -> list[Event]:
    """Two queries, forty items, verdicts of every kind, some changed their mind."""
    rng = random.Random(seed)
    events: list[Event] = [Query("q"), Query("r", prior=Prior(mean=0.4), policy=Policy("bayes-ucb"))]
    events += [item(n) for n in range(40)]
    for number in range(60):
        query_id, outcome = rng.choice("qr"), rng.choice([o.value for o in Outcome])
        events.append(replace(verdict(number, query_id, item=rng.randrange(40), outcome=outcome)))
    rng.shuffle(events)
    # Over time, a verdict for a query that is not open yet would be refused.
    return sorted(events, key=lambda event: not isinstance(event, Query)) if opened_first else events


async def test_from_items_and_verdicts_to_a_ranking(world: World) -> None:
    process = await world.process()
    events: list[Event] = [Query("q"), *(item(n) for n in range(10)), verdict(3)]
    world.say(*events)
    await process.settled()
    await world.check_equals_fold(events)
    last = world.rankings("q")[-1]
    assert (last.screened, last.found, len(last.items)) == (1, 1, 9)
    assert "item-3" not in {ranked.item_id for ranked in last.items}


@pytest.mark.parametrize("seed", range(5))
async def test_any_order_with_every_event_twice_is_the_fold(world: World, seed: int) -> None:
    events = story(seed)
    again = random.Random(seed + 100).sample(events, len(events))
    process = await world.process()
    world.say(*events, *again)
    await process.settled()
    await world.check_equals_fold(events)
    assert world.dead_letters() == []


async def test_a_query_opened_later_gets_the_items_that_are_there(world: World) -> None:
    process = await world.process()
    world.say(*(item(n) for n in range(10)))
    await process.settled()
    world.say(Query("late"))
    await process.settled()
    assert len(world.rankings("late")[-1].items) == 10


async def test_new_items_reach_a_query_that_nobody_speaks_of(world: World) -> None:
    process = await world.process()
    world.say(Query("q"))
    await process.settled()
    world.say(item(1))
    await process.wait(world.broker.wait_for("next-items", lambda m: len(decode_ranking(m.value).items) == 1))
    assert (await world.store.load_query("q")).position.cursor == 1


async def test_a_verdict_before_its_query_and_its_item_waits_for_both(world: World) -> None:
    events: list[Event] = [verdict(1), verdict(2), Query("q"), item(1), item(2)]
    world.say(*events)
    process = await world.process()
    await process.settled()
    await world.check_equals_fold(events)
    assert world.dead_letters() == []


async def test_a_verdict_for_a_query_that_nobody_opened_is_a_dead_letter(world: World) -> None:
    process = await world.process()
    world.say(Query("q"), verdict(1, "nobody"), verdict(2, "q"))
    await process.settled()
    assert world.dead_letters() == [("unknown_query", encode_verdict(verdict(1, "nobody")))]
    assert world.rankings("nobody") == []
    assert process.worker.state("nobody") is None
    # Opened after all, it starts without the refused verdict, and takes new ones.
    world.say(Query("nobody"), verdict(2, "nobody"), item(2))
    await process.settled()
    assert max(r.screened for r in world.rankings("nobody")) == 1


async def test_bad_events_become_dead_letters_and_the_rest_goes_on(world: World) -> None:
    process = await world.process()
    world.say(Query("q"), item(1), verdict(1))
    await process.settled()
    bad = [
        ("queries", b"q", b"{", "malformed_json"),
        ("queries", b"q", b'{"query_id":"q","prior":{"mean":1.5}}', "out_of_range"),
        ("queries", b"q", encode_query(Query("q", collection="elsewhere")), "collection_changed"),
        ("items", b"item-1", encode_item(replace(item(1), sender="zed")), "item_conflict"),
        ("items", b"i", b'{"item_id":"i","sender":"a","recipients":["a"]}', "too_few_participants"),
        ("verdicts", b"q", encode_verdict(verdict(1, outcome="irrelevant")), "verdict_conflict"),
        ("verdicts", b"x", encode_verdict(verdict(2)), "key_mismatch"),
        ("verdicts", b"q", None, "malformed_json"),
    ]
    for topic, key, value, _ in bad:
        world.broker.produce(topic, key, value)
    world.say(item(3), verdict(3))
    await process.settled()
    assert sorted(world.dead_letters()) == sorted((code, value or b"") for _, _, value, code in bad)
    await world.check_equals_fold([Query("q"), item(1), verdict(1), item(3), verdict(3)])


async def test_a_query_that_no_engine_serves_is_a_dead_letter_with_its_verdicts_kept_waiting(world: World) -> None:
    process = await world.process()
    unsupported = encode_query(Query("q")).replace(b'"relevance"', b'"rates"')
    world.broker.produce("queries", b"q", unsupported)
    await process.settled()
    assert world.dead_letters() == [("unsupported", unsupported)]
    world.say(Query("q"))
    await process.settled()
    assert len(world.rankings("q")) == 1


@pytest.mark.parametrize("status", [Status.PAUSED, Status.CLOSED])
async def test_a_query_that_is_not_open_offers_nothing_but_counts(world: World, status: Status) -> None:
    process = await world.process()
    world.say(Query("q"), item(1), item(2))
    await process.settled()
    world.say(Query("q", status=status))
    await process.settled()
    assert world.rankings("q")[-1].items == ()
    world.say(verdict(1))
    await process.settled()
    assert (world.rankings("q")[-1].items, world.rankings("q")[-1].found) == ((), 1)
    world.say(Query("q"))
    await process.settled()
    assert [ranked.item_id for ranked in world.rankings("q")[-1].items] == ["item-2"]


async def test_revisions_grow_across_restarts(world: World) -> None:
    world.say(Query("q"), item(1), item(2))
    for number in (1, 2):
        process = await world.process()
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
        self.left = fatal
        self.reached = asyncio.Event()

    async def publish_ranking(self, query_id: str, value: bytes) -> None:
        self.left -= 1
        if self.left <= 0:
            self.reached.set()
            await asyncio.Event().wait()
        await super().publish_ranking(query_id, value)


@pytest.mark.parametrize("fatal", [1, 2, 3])
async def test_a_crash_between_save_and_publish_loses_no_ranking(world: World, fatal: int) -> None:
    publisher = CrashingPublisher(world.broker, fatal)
    doomed = await world.process(publisher=publisher)
    events: list[Event] = [Query("q"), item(1), verdict(1), item(2), verdict(2)]
    for event in events:
        world.say(event)
        await asyncio.sleep(0)
    await doomed.wait(publisher.reached.wait())
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
    assert await process.worker.ready() == []
    await world.store.wipe()
    assert any("emptied" in reason for reason in await process.worker.ready())
    world.say(verdict(1))
    with pytest.raises(StateLost):
        await process.settled()
    assert world.dead_letters() == []
    await process.crash()
    # A new process does not begin either, as the group has committed offsets.
    with pytest.raises(StateLost):
        await Process(world).worker.start(begun_before=True)


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
    assert any("run `haystream rebuild`" in reason for reason in await second.worker.ready())
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
    assert await process.worker.ready() == ["a bug stopped it"]
    assert all(offset == 0 for offset in world.broker.committed.values())
    await process.crash()
    heir = await world.process()
    await heir.settled()
    assert len(world.rankings("q")) == 1


async def test_the_queries_of_assigned_partitions_are_loaded_and_those_of_others_let_go(world: World) -> None:
    first = await world.process()
    names = [f"q{n}" for n in range(6)]
    world.say(*(Query(name) for name in names))
    await first.settled()
    assert all(first.worker.state(name) for name in names)
    await first.consumer.assign(first.worker, {1})
    await first.wait(first.worker.drain())
    owned = await world.store.query_ids(1)
    assert 0 < len(owned) < 6
    assert {name for name in names if first.worker.state(name)} == owned


async def test_what_was_published_of_a_graph_that_grew_at_once_is_published_again_when_it_is_finished(
    world: World,
) -> None:
    """More participants than are solved at once: the others start from estimates."""
    process = await world.process()
    ring = [Item(f"r{n}", "default", f"p{n}", (f"p{(n + 1) % 200}", f"p{(n + 7) % 200}")) for n in range(200)]
    world.say(Query("q"), *ring)
    await process.settled()
    await world.check_equals_fold([Query("q"), *ring])
    (owner,) = process.worker._owners.values()
    assert owner.state is not None
    assert not owner.state.unfinished
