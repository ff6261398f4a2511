"""A settle that takes long: the process goes on, and nobody else touches what it works on."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from unittest import mock

import numpy as np
import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry
from support.equality import EXACT, assert_is_the_fold
from support.held_work import HeldWork
from support.world import say

from haystream.collection.collection import Collection
from haystream.events import Event, Item, Outcome, Query, Verdict
from haystream.query.state import QueryState
from haystream_service.metrics import Metrics
from haystream_service.store.memory import MemoryStore
from haystream_service.wire import decode_ranking
from haystream_service.worker import exclusive as module
from haystream_service.worker.clock import Clock, SystemClock
from haystream_service.worker.exclusive import PAUSES, RECENT_SECONDS, Exclusive, Turn
from haystream_service.worker.followers import STUCK_SECONDS
from haystream_service.worker.holding import LIGHT_EVENTS
from haystream_service.worker.memory_broker import MemoryBroker, MemoryConsumer, MemoryPublisher
from haystream_service.worker.shared import Limits
from haystream_service.worker.worker import Worker

pytestmark = pytest.mark.asyncio


class SlowSettle:
    """While `slow`, `QueryState.settle` takes until `go` is set, wherever it runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slow = False
        self.go = threading.Event()
        self.entered = asyncio.Event()
        self.threads: list[threading.Thread] = []
        loop, settle = asyncio.get_running_loop(), QueryState.settle

        def slowly(state: QueryState) -> None:
            self.threads.append(threading.current_thread())
            if self.slow:
                loop.call_soon_threadsafe(self.entered.set)
                assert self.go.wait(30)
            settle(state)

        monkeypatch.setattr(QueryState, "settle", slowly)


class StillClock(SystemClock):
    """The machine's, but that no work takes any time, however busy the machine is."""

    def monotonic(self) -> float:
        return 0.0


class Running:
    """A worker on its broker and store."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.broker, self.store = MemoryBroker(), MemoryStore()
        self.consumer = MemoryConsumer(self.broker)
        self.worker = Worker(
            self.store,
            MemoryPublisher(self.broker),
            caught_up=self.consumer.caught_up,
            ends=self.consumer.ends,
            again=self.consumer.again,
            metrics=Metrics(CollectorRegistry(), labelled_queries=1),
            limits=Limits(item_publish_seconds=0.0, totals_seconds=0.0, tolerance=EXACT),
            clock=clock,
        )

    def say(self, *events: Event) -> None:
        say(self.broker, *events)

    async def settled(self) -> None:
        async with asyncio.timeout(30):
            await self.consumer.drained()
            await self.worker.drain()

    async def is_the_fold_of(self, *events: Event) -> None:
        published = [decode_ranking(message.value) for message in self.broker.messages("next-items")]
        await assert_is_the_fold(self.store, published, list(events))


@asynccontextmanager
async def run(clock: Clock | None = None) -> AsyncIterator[Running]:
    running = Running(clock)
    await running.worker.start()
    await running.consumer.assign(running.worker, {0})
    yield running
    await running.consumer.stop()
    await running.worker.close()


@pytest_asyncio.fixture
async def running() -> AsyncIterator[Running]:
    async with run() as running:
        yield running


def items(begin: int, end: int) -> list[Item]:
    return [Item(f"m{n}", "default", f"p{n}", (f"p{n + 1}",)) for n in range(begin, end)]


def verdict(number: int) -> Verdict:
    return Verdict(f"v{number}", "q", f"m{number}", "zoe", Outcome.RELEVANT, 1_700_000_000_000_000 + number)


async def test_who_gets_no_thread_is_told_and_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under `ulimit -v`, or where a process may have no more of them."""
    exclusive, done = Exclusive(), list[str]()
    with monkeypatch.context() as patched:
        none = RuntimeError("can't start new thread")
        patched.setattr(threading.Thread, "start", mock.Mock(side_effect=none))
        with pytest.raises(MemoryError, match="can't start new thread"):
            await exclusive(partial(done.append, "lost"), in_thread=True)
    async with asyncio.timeout(30):
        await exclusive(partial(done.append, "in the loop"), in_thread=False)
        await exclusive(partial(done.append, "in a thread"), in_thread=True)
    assert done == ["in the loop", "in a thread"]
    exclusive.close()


async def test_a_long_settle_stops_neither_the_loop_nor_intake_and_the_collection_stands_still(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    settling = SlowSettle(monkeypatch)
    running.say(Query("q"), Query("elsewhere", collection="b"))
    await running.settled()
    settling.slow = True
    few, many = items(0, 2), items(2, 3 * LIGHT_EVENTS)  # many, and in one batch
    running.say(*many)
    await settling.entered.wait()
    settling.slow = False  # for everybody else
    collection = running.worker.state("q").collection  # type: ignore[union-attr]
    before = len(collection)
    running.say(*few, Item("x", "b", "ann", ("bo",)), Verdict("w", "elsewhere", "x", "zoe", Outcome.RELEVANT, 1))
    async with asyncio.timeout(30):
        await running.consumer.drained()  # the other query got its ranking, the items are in their log
    assert await running.store.item_count("default") == len(few) + len(many)
    await asyncio.sleep(1.5 * STUCK_SECONDS)  # the follower waits for nobody any more
    assert len(collection) == before
    settling.go.set()
    await running.settled()
    running.say(verdict(1))
    await running.settled()
    async with asyncio.timeout(30):
        while len(collection) < len(few) + len(many) or not running.worker.idle():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    state = running.worker.state("q")
    assert state is not None
    assert (state.found, state.cursor) == (1, len(collection))


async def test_a_lone_verdict_is_folded_in_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [Query("q"), *items(0, 5)]
    async with run(StillClock()) as running:
        running.say(*events)
        await running.settled()
        settling = SlowSettle(monkeypatch)
        running.say(verdict(0))
        await running.settled()
        assert set(settling.threads) == {threading.main_thread()}
        await running.is_the_fold_of(*events, verdict(0))


async def test_partitions_may_go_in_the_middle_of_a_long_settle(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    settling = SlowSettle(monkeypatch)
    events = [Query("q"), *items(0, 3)]
    settling.slow = True
    running.say(*events)
    await settling.entered.wait()
    async with asyncio.timeout(30):
        await running.consumer.assign(running.worker, {0})  # revoked, and given back
    settling.slow = False
    settling.go.set()
    running.say(verdict(1))
    await running.settled()
    await running.is_the_fold_of(*events, verdict(1))


async def test_whoever_comes_next_waits_for_a_thread_that_was_given_up() -> None:
    exclusive, held, order = Exclusive(), HeldWork(), list[str]()

    def long() -> None:
        held()
        order.append("long")

    given_up = asyncio.create_task(exclusive(long, in_thread=True))
    await held.entered.wait()
    given_up.cancel()
    with suppress(asyncio.CancelledError):
        await given_up
    following = asyncio.create_task(exclusive(lambda: order.append("next"), in_thread=False))
    await asyncio.sleep(0)
    assert order == []
    held.go.set()
    await following
    assert order == ["long", "next"]


async def test_drift_is_not_undone_on_a_collection_that_has_grown_meanwhile() -> None:
    collection = Collection("default")
    state = QueryState(Query("q"), collection)
    for item in items(0, 20):
        collection.add(item)
    state.settle()
    for number in range(5):
        state.apply_verdict(verdict(number))
    state.settle()
    for item in items(20, 500):
        collection.add(item)
    assert not state.tend(4)  # as the worker calls it between two batches; compiled code would read past its arrays
    state.settle()
    while state.tend(4):
        pass
    assert np.isfinite(state.ranking().expected_remaining.mean)


@pytest.mark.parametrize("in_thread", [True, False])
async def test_what_the_work_raises_is_raised_and_the_turn_passes_on(in_thread: bool) -> None:
    exclusive = Exclusive()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await exclusive(lambda: 1 / 0, in_thread=in_thread)


def in_order(exclusive: Exclusive, order: list[str], who: str, turn: Turn) -> asyncio.Task[None]:
    """Wait for a turn, and write down that it came."""
    return asyncio.create_task(exclusive(lambda: order.append(who), in_thread=False, turn=turn, who=who))


async def test_whoever_somebody_begins_to_wait_for_goes_before_those_that_came_earlier() -> None:
    exclusive, held, order = Exclusive(), HeldWork(), list[str]()

    waiting = partial(in_order, exclusive, order)
    tasks = [asyncio.create_task(exclusive(held, in_thread=True))]
    await held.entered.wait()
    tasks += [waiting("a", Turn.GROWTH), waiting("b", Turn.GROWTH), waiting("c", Turn.GROWTH)]
    await asyncio.sleep(0)
    exclusive.hurry("nobody")
    exclusive.hurry("c")
    exclusive.hurry("c")
    held.go.set()
    await asyncio.gather(*tasks)
    assert order == ["c", "a", "b"]
    await exclusive(lambda: order.append("last"), in_thread=False)
    assert order[-1] == "last"


async def test_two_may_wait_by_one_name() -> None:
    exclusive, order = Exclusive(), list[int]()
    work = [exclusive(lambda n=n: order.append(n), in_thread=False, who="a") for n in range(3)]  # type: ignore[misc]
    async with asyncio.timeout(30):
        await asyncio.gather(*work)
    assert order == [0, 1, 2]


async def test_who_is_at_rest_is_to_end_once_somebody_waits_for_him() -> None:
    exclusive = Exclusive()

    for turn, who, asked in (
        (Turn.REST, "a", 1),
        (Turn.REST, "b", 0),  # nobody waits for that one
        (Turn.ANSWER, "a", 0),  # who is not at rest has more to do than to end
    ):
        held = HeldWork()
        task = asyncio.create_task(exclusive(held, in_thread=True, turn=turn, who=who))
        await held.entered.wait()
        exclusive.hurry("a")
        exclusive.hurry("a")
        assert exclusive.wanted[0] == asked
        held.go.set()
        await task
        assert exclusive.wanted[0] == 0


async def test_between_turns_that_nobody_waits_for_there_are_pauses_while_verdicts_come() -> None:
    loop = asyncio.get_running_loop()
    long = 0.05

    async def waits(first: Turn, then: Turn, *, verdicts: bool) -> float:
        """Seconds from the end of a turn that took long to the beginning of the next one."""
        exclusive = Exclusive()
        if verdicts:
            exclusive.verdict_came()
        await exclusive(lambda: time.sleep(long), in_thread=False, turn=first)
        ended = loop.time()
        return await exclusive(lambda: loop.time() - ended, in_thread=False, turn=then)

    assert await waits(Turn.GROWTH, Turn.GROWTH, verdicts=True) >= 0.9 * long * PAUSES[Turn.GROWTH]
    assert await waits(Turn.GROWTH, Turn.REST, verdicts=True) >= 0.9 * long * PAUSES[Turn.GROWTH]
    assert await waits(Turn.REST, Turn.REST, verdicts=True) >= 0.9 * long * PAUSES[Turn.REST]


@pytest.mark.parametrize("verdicts", [True, False])
@pytest.mark.parametrize("first", Turn)
@pytest.mark.parametrize("then", Turn)
async def test_there_is_no_pause_before_what_goes_first_nor_where_no_verdicts_come(
    first: Turn, then: Turn, verdicts: bool
) -> None:
    exclusive = Exclusive()
    if verdicts:
        exclusive.verdict_came()
    await exclusive(lambda: time.sleep(0.05), in_thread=False, turn=first)
    following = asyncio.create_task(exclusive(lambda: None, in_thread=False, turn=then))
    await asyncio.sleep(0)
    pauses = verdicts and first is not Turn.ANSWER and then >= first
    assert following.done() is not pauses
    await following


async def test_in_a_pause_those_go_that_somebody_waits_for_and_the_others_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(PAUSES, Turn.GROWTH, 1000.0)
    exclusive, order = Exclusive(), list[str]()

    waiting = partial(in_order, exclusive, order)
    exclusive.verdict_came()
    await exclusive(lambda: time.sleep(0.02), in_thread=False, turn=Turn.GROWTH)
    tasks = [waiting("rest", Turn.REST), waiting("growth", Turn.GROWTH), waiting("hurried", Turn.REST)]
    tasks += [waiting("given up", Turn.GROWTH), waiting("answer", Turn.ANSWER)]
    await asyncio.sleep(0)
    tasks.pop(3).cancel()
    await asyncio.sleep(0)
    assert order == ["answer"]
    exclusive.hurry("hurried")
    await asyncio.sleep(0)
    assert order == ["answer", "hurried"]
    async with asyncio.timeout(30):
        await asyncio.gather(*tasks)
    assert order == ["answer", "hurried", "growth", "rest"]


async def test_a_pause_ends_when_verdicts_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PAUSES, Turn.REST, 1e9)
    monkeypatch.setattr(module, "LONGEST_PAUSE_SECONDS", 3600.0)
    exclusive, loop = Exclusive(), asyncio.get_running_loop()
    exclusive.verdict_came()
    came = loop.time()
    await exclusive(lambda: time.sleep(0.01), in_thread=False, turn=Turn.REST)
    async with asyncio.timeout(30):
        await exclusive(lambda: None, in_thread=False, turn=Turn.REST)
    assert loop.time() - came >= RECENT_SECONDS


async def test_who_waits_to_be_at_rest_may_be_told_that_the_collection_has_grown() -> None:
    exclusive, held, order = Exclusive(), HeldWork(), list[str]()

    waiting = partial(in_order, exclusive, order)
    tasks = [asyncio.create_task(exclusive(held, in_thread=True))]
    await held.entered.wait()
    tasks += [waiting("a", Turn.REST), waiting("b", Turn.REST), waiting("c", Turn.GROWTH)]
    await asyncio.sleep(0)
    exclusive.hurry("b", Turn.GROWTH)
    held.go.set()
    await asyncio.gather(*tasks)
    assert order == ["c", "b", "a"]
