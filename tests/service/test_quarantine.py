"""A query that cannot be computed is stopped and says so; nothing else is, and nothing of it is lost."""

import asyncio
import gc
import threading
from collections.abc import Collection
from typing import Any
from weakref import ref

import pytest
from support.pipeline import until
from support.world import DayAhead, World, item, verdict

from haystream.errors import Code, QueryFailed
from haystream.events import Event, Outcome, Query, Status, Verdict
from haystream.query.state import QueryState
from haystream.ranking.ranked import Estimate, RankedItem, Ranking
from haystream_service.store.base import Deletion, Note, Position, Span, StoreDamaged
from haystream_service.wire import NextItems, decode_ranking, encode_ranking
from haystream_service.worker import committing, troubles
from haystream_service.worker.committing import READ_WHOLE, is_ranking
from haystream_service.worker.endings import ShortOfMemory
from haystream_service.worker.shared import Limits

pytestmark = pytest.mark.asyncio


class Poison:
    """Makes settling a query raise, as long as it is in force."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: Exception | None = ZeroDivisionError("division by zero")
        self.verdict_id: str | None = None
        """Raise only where the query has this verdict."""
        self.raised = 0
        self.most = 1_000_000
        settle = QueryState.settle

        def poisoned(state: QueryState) -> None:
            bad = self.verdict_id is None or self.verdict_id in state.verdicts
            if self.error is not None and self.raised < self.most and state.settings.query_id == "bad" and bad:
                self.raised += 1
                raise self.error
            settle(state)

        monkeypatch.setattr(QueryState, "settle", poisoned)


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> Poison:
    return Poison(monkeypatch)


def facts(query_id: str, numbers: range) -> list[Event]:
    return [
        Verdict(f"{query_id}-v{n}", query_id, f"item-{n}", "zoe", Outcome.RELEVANT, 1_700_000_000_000_000 + n)
        for n in numbers
    ]


ITEMS = [item(n) for n in range(10)]


async def released(world: World, process: Any, poison: Poison) -> None:
    poison.error = None
    await world.store.release("bad")
    await process.wait(_taken_up(world))
    await process.settled()


async def _taken_up(world: World) -> None:
    async def taken_up() -> bool:
        return not await world.store.quarantined()

    await until(taken_up, "taken up again")


async def test_a_batch_that_raises_twice_stops_its_query_and_no_other(world: World, poison: Poison) -> None:
    poison.verdict_id = "bad-v3"
    process = await world.process(clock=DayAhead())
    events = [Query("good"), Query("bad"), *ITEMS, *facts("good", range(3)), *facts("bad", range(3))]
    world.say(*events)
    await process.settled()
    more = [*facts("bad", range(3, 6)), *facts("good", range(3, 6))]
    world.say(*more, Query("bad", top=3))
    await process.settled()
    assert poison.raised >= 2
    assert {code for code, _ in world.dead_letters()} == {"quarantined"}
    assert len(world.dead_letters()) == 4  # three verdicts and the settings
    assert process.metrics.quarantined_queries._value is not None
    assert process.metrics.quarantined_queries.collect()[0].samples[0].value == 1
    why = (await world.store.read_note("bad")).quarantine
    assert why is not None
    assert (why.code, why.detail) == ("quarantined", "computing it raised ZeroDivisionError: division by zero")
    assert why.since <= await world.store.ping()
    assert world.rankings("good")[-1].screened == 6
    assert world.rankings("bad")[-1].screened == 3
    assert process.worker.troubles() + await process.worker.store_troubles() == []
    await released(world, process, poison)
    await world.check_equals_fold([*events, *more, Query("bad", top=3)])
    assert len(world.dead_letters()) == 4
    assert await world.store.read_note("bad") == Note()
    assert process.metrics.quarantined_queries.collect()[0].samples[0].value == 0


async def test_a_query_that_fails_when_it_is_opened_is_stopped_and_opens_when_it_is_released(
    world: World, poison: Poison
) -> None:
    process = await world.process()
    events = [*ITEMS, *facts("bad", range(2)), Query("good"), Query("bad", top=7), *facts("bad", range(2, 4))]
    world.say(*events)
    await process.settled()
    assert await world.store.query_ids() == {"good"}
    assert await world.store.quarantined() != {}
    await process.crash()
    # The next process knows, and tries nothing.
    before, heir = poison.raised, await world.process()
    later = facts("bad", range(4, 6))
    world.say(*later)
    await heir.settled()
    assert poison.raised == before
    await heir.crash()
    poison.error = None
    await world.store.release("bad")
    last = await world.process()
    await last.settled()
    await last.wait(_taken_up(world))
    await last.settled()
    await world.check_equals_fold([*events, *later])


async def test_a_failure_with_a_name_stops_the_query_at_once_with_that(world: World, poison: Poison) -> None:
    poison.error = QueryFailed(Code.OUT_OF_RANGE, "prior.weight is too small for these verdicts")
    process = await world.process()
    world.say(Query("bad"), Query("good"), *ITEMS)
    await process.settled()
    why = (await world.store.read_note("bad")).quarantine
    assert why is not None
    assert (why.code, why.detail) == ("out_of_range", "prior.weight is too small for these verdicts")
    assert poison.raised == 1
    assert len(world.rankings("good")[-1].items) == 10


async def test_a_bug_that_does_not_come_again_stops_nothing(world: World, poison: Poison) -> None:
    process = await world.process()
    events = [Query("bad"), *ITEMS]
    world.say(*events)
    poison.most = 1
    await process.settled()
    await world.check_equals_fold(events)
    assert world.dead_letters() == []


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (FloatingPointError("tended"), ("quarantined", "tending it raised FloatingPointError: tended")),
        (QueryFailed(Code.TOO_MUCH_WORK, "a solve was given up"), ("too_much_work", "a solve was given up")),
    ],
)
async def test_tending_that_raises_stops_its_query_and_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception, why: tuple[str, str]
) -> None:
    def tend(state: QueryState, *_: Any, **__: Any) -> bool:
        if state.settings.query_id == "bad":
            raise error
        return False

    monkeypatch.setattr(QueryState, "tend", tend)
    process = await world.process()
    world.say(Query("bad"), Query("good"), *ITEMS)
    await process.wait(world.broker.wait_for("next-items", lambda m: len(decode_ranking(m.value).items) == 10))
    await process.wait(until(lambda: quarantined(world), "stopped"))
    assert await reason(world) == why


async def test_a_query_that_fails_as_it_is_made_slim_is_stopped_and_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slim(state: QueryState) -> None:
        if state.settings.query_id == "bad":
            raise QueryFailed(Code.TOO_MUCH_WORK, "a solve was given up")

    monkeypatch.setattr(QueryState, "slim", slim)
    process = await world.process(slim_seconds=0.1, totals_seconds=0.05)
    world.say(Query("bad"), Query("good"), *ITEMS)
    await process.wait(until(lambda: quarantined(world), "stopped"))
    assert await reason(world) == ("too_much_work", "a solve was given up")
    world.say(*facts("good", range(1)))
    await process.settled()
    assert world.rankings("good")[-1].screened == 1


async def test_a_query_that_is_stopped_keeps_no_collection_in_memory(world: World, poison: Poison) -> None:
    poison.verdict_id = "bad-v0"
    process = await world.process(idle_seconds=0.1)
    events = [Query("bad"), *ITEMS]
    world.say(*events)
    await process.settled()
    events += facts("bad", range(1))
    world.say(*events[-1:])
    await process.wait(until(lambda: quarantined(world), "stopped"))

    async def let_go() -> bool:
        return process.worker._followers.collections() == []

    await process.wait(until(let_go, "the collection is let go"))
    await released(world, process, poison)
    await process.settled()
    await world.check_equals_fold(events)


async def quarantined(world: World) -> bool:
    return bool(await world.store.quarantined())


async def reason(world: World) -> tuple[str, str]:
    why = (await world.store.read_note("bad")).quarantine
    assert why is not None
    return why.code, why.detail


async def test_a_query_that_processes_die_of_is_stopped_and_others_that_were_beside_it_are_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a death is a batch that never comes back, in a process that is then gone."""
    settle = QueryState.settle
    fatal, gate, loop = asyncio.Event(), threading.Event(), asyncio.get_running_loop()

    def dies(state: QueryState) -> None:
        if state.settings.query_id == "bad" and "bad-v1" in state.verdicts:
            loop.call_soon_threadsafe(fatal.set)
            gate.wait(60)
        settle(state)

    events = [Query("good"), Query("bad"), *ITEMS, *facts("good", range(2)), *facts("bad", range(2))]
    first = await world.process()
    world.say(*events)
    monkeypatch.setattr(QueryState, "settle", dies)
    deaths = 0
    process = first
    while deaths < 8:
        done = asyncio.ensure_future(process.settled())
        died = asyncio.ensure_future(fatal.wait())
        await asyncio.wait({done, died}, return_when=asyncio.FIRST_COMPLETED)
        died.cancel()
        if done.done():
            break
        done.cancel()
        deaths += 1
        fatal.clear()
        await killed(process)
        process = await world.process()
    assert 3 <= deaths <= Limits().deaths + 1
    assert await world.store.quarantined() != {}
    why = (await world.store.read_note("bad")).quarantine
    assert why is not None
    assert "processes ended" in why.detail
    assert (await world.store.read_note("good")).quarantine is None
    assert world.rankings("good")[-1].screened == 2
    monkeypatch.setattr(QueryState, "settle", settle)
    gate.set()
    await world.store.release("bad")
    await process.wait(_taken_up(world))
    await process.settled()
    await world.check_equals_fold(events)


async def killed(process: Any) -> None:
    """End the process without its tidying up: what is noted of attempts stays."""

    async def gone() -> None: ...

    for owner in process.worker._owners.values():
        owner._troubles.abandon = gone
    await process.crash()


async def test_a_rebalance_in_the_middle_of_a_batch_is_no_death(world: World) -> None:
    process = await world.process()
    world.say(Query("q"), *ITEMS)
    await process.settled()
    owner = next(iter(process.worker._owners.values()))
    begun, wait = asyncio.Event(), asyncio.Event()

    async def attempt() -> None:
        async with owner._troubles.attempt(Position()):
            begun.set()
            await wait.wait()

    task = asyncio.create_task(attempt())
    await begun.wait()
    assert len((await world.store.read_note("q")).attempts) == 1
    task.cancel()
    await asyncio.wait([task])
    await owner._troubles.abandon()
    assert await world.store.read_note("q") == Note()


async def test_who_is_computed_alone_begins_when_it_is_noted_of_all_others_that_they_have_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process may die of it, and nobody else is to be blamed for that."""
    process = await world.process()
    world.say(Query("good"), Query("bad"), *ITEMS)
    await process.settled()
    good, bad = (
        next(owner for owner in process.worker._owners.values() if owner.query_id == name)._troubles
        for name in ("good", "bad")
    )
    await world.store.begin_attempt("bad", "-1,-1 of a process that is gone")
    await bad.read()
    end, attempts = world.store.end_attempts, list[frozenset[str]]()

    async def late(query_id: str, attempts: Collection[str]) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        await end(query_id, attempts)

    async def alone() -> None:
        async with bad.attempt(Position()):
            attempts.append((await world.store.read_note("good")).attempts)

    monkeypatch.setattr(world.store, "end_attempts", late)
    async with good.attempt(Position()):
        suspect = asyncio.create_task(alone())
        for _ in range(20):
            await asyncio.sleep(0)
        assert attempts == []
    await process.wait(suspect)
    assert attempts == [frozenset()]


async def test_where_verdicts_of_unknown_queries_lie_is_bounded_and_none_is_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await world.process()
    object.__setattr__(process.worker._shared.limits, "unknown", 3)
    early = [verdict(n, f"q{n % 8}") for n in range(40)]
    world.say(*early, *ITEMS)
    await process.settled()
    assert len(world.dead_letters()) == 40
    assert len(await world.store.unknown()) <= 6  # of two partitions
    await process.crash()
    heir = await world.process()
    queries = [Query(f"q{n}") for n in range(8)]
    world.say(*queries)
    await heir.settled()
    await world.check_equals_fold([*queries, *early, *ITEMS])
    assert await world.store.unknown() == {}


async def test_what_came_before_its_query_counts_though_whoever_opened_it_died_amid_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await world.process(max_batch=2)
    early = [verdict(n) for n in range(6)]
    world.say(*early, *ITEMS)
    await process.settled()
    save, saves = world.store.save_query, 0

    async def only_once(*change: Any, **how: Any) -> None:
        nonlocal saves
        saves += 1
        if saves > 1:
            await asyncio.Event().wait()
        await save(*change, **how)

    monkeypatch.setattr(world.store, "save_query", only_once)
    world.say(Query("q"))
    await until(lambda: _is(saves > 1), "the second save")
    await process.crash()
    monkeypatch.undo()
    heir = await world.process(idle_seconds=0.0)  # so that it loads nothing that it need not
    await heir.settled()
    await world.check_equals_fold([Query("q"), *early, *ITEMS])


async def _is(value: bool) -> bool:
    return value


async def test_verdicts_on_another_partition_are_rejected_with_what_to_set(world: World) -> None:
    process = await world.process()
    world.say(Query("q"), item(1), item(2), verdict(1))
    await process.settled()
    (owner,) = (o for o in process.worker._owners.values())
    elsewhere = 1 - owner.partition
    for topic in ("queries", "verdicts"):
        message = next(m for m in world.broker.messages(topic) if m.key == b"q")
        world.broker.append((topic, elsewhere), b"q", message.value)
    world.say(verdict(2))
    await process.settled()
    assert [code for code, _ in world.dead_letters()] == ["wrong_partition"] * 2
    assert b"murmur2" in world.broker.messages("dead-letters")[-1].value
    await world.check_equals_fold([Query("q"), item(1), item(2), verdict(1), verdict(2)])
    # So are those that come before it is opened, whoever owns which partition.
    for partition in (0, 1):
        other = await world.process((partition,))
        await other.settled()
        await other.crash()
    assert await world.store.unknown() == {}


async def test_the_span_of_what_is_passed_over_is_kept_exactly(world: World, poison: Poison) -> None:
    process = await world.process()
    world.say(Query("bad"), *facts("bad", range(3)))
    await process.settled()
    note = await world.store.read_note("bad")
    assert note.passed[:2] == (Span(0, 0), Span(0, 2))


async def test_a_query_that_is_put_away_and_cannot_be_shown_is_stopped_and_goes_on_when_it_is_released(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await world.process(idle_seconds=0.0)
    events = [Query("bad"), *ITEMS, *facts("bad", range(3))]
    world.say(*events)
    await process.settled()

    async def is_away() -> bool:
        return process.worker.state("bad") is None

    async def is_stopped() -> bool:
        return set(await world.store.quarantined()) == {"bad"}

    async def read_ranking(_: str) -> bytes:
        raise StoreDamaged("what is in bad:meta in Redis cannot be read")

    await process.wait(until(is_away, "put away"))
    with monkeypatch.context() as damaged:
        damaged.setattr(world.store, "read_ranking", read_ranking)
        process.worker.publish_again("bad")
        await process.wait(until(is_stopped, "stopped"))
    await world.store.release("bad")
    await process.wait(_taken_up(world))
    await process.settled()
    await world.check_equals_fold(events)


async def test_a_query_that_gets_no_memory_waits_for_it_and_is_not_stopped(
    world: World, poison: Poison, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine is at fault, as under `ulimit -v`: not the query that happened to want memory just then."""
    monkeypatch.setattr(troubles, "MEMORY_SECONDS", 0.05)
    poison.error = MemoryError("Unable to allocate 1.00 GiB")
    process = await world.process()
    events = [Query("good"), Query("bad"), *ITEMS, *facts("good", range(3)), *facts("bad", range(3))]
    world.say(*events)
    said = "query 'bad' waits: the process gets no more memory (Unable to allocate 1.00 GiB): allow it more"

    async def waits() -> bool:
        return poison.raised > 3 and any(why.startswith(said) for why in process.worker.troubles())

    await until(waits, "the query waits, and that is said")
    await until(lambda: _screened(world, "good", 3), "the other one goes on")
    poison.error = None
    await process.settled()
    await world.check_equals_fold(events)
    assert process.worker.troubles() == []
    assert world.dead_letters() == []
    assert await world.store.read_note("bad") == Note()


async def _screened(world: World, query_id: str, count: int) -> bool:
    rankings = world.rankings(query_id)
    return bool(rankings) and rankings[-1].screened == count


async def test_a_process_that_gets_no_memory_for_what_cannot_wait_says_so(world: World) -> None:
    process = await world.process()
    await process.settled()
    process.worker.fail(MemoryError())
    assert process.worker.troubles()[0].startswith("the process gets no more memory: allow it more")
    with pytest.raises(ShortOfMemory):
        process.worker.failed.result()


@pytest.mark.parametrize("at", ["settle", "tend"])
async def test_a_query_that_waits_for_memory_holds_none(
    world: World, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Nor does what says where memory was wanted: that holds all that was being worked on there."""
    refused: list[ref[QueryState]] = []

    def short(state: QueryState, *_: object, **__: object) -> None:
        refused.append(ref(state))
        raise MemoryError("Unable to allocate 1.00 GiB")

    process = await world.process()
    monkeypatch.setattr(QueryState, at, short)
    gc.disable()  # which is seldom done on what is old, and only then would find what holds itself
    try:
        world.say(Query("q"), *ITEMS, *facts("q", range(3)))
        await until(lambda: _waits(process), "the query waits")
        assert [state() for state in refused] == [None] * len(refused)
    finally:
        gc.enable()


async def test_a_query_that_gets_no_memory_when_nobody_waits_waits_longer_each_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though each time it is loaded, and a batch goes well, before memory is wanted again: loading is work."""
    monkeypatch.setattr(troubles, "MEMORY_SECONDS", 0.01)
    refused = 0

    def short(state: QueryState, *_: object, **__: object) -> None:
        nonlocal refused
        refused += 1
        raise MemoryError

    process = await world.process()
    with monkeypatch.context() as patched:
        patched.setattr(QueryState, "tend", short)
        world.say(Query("q"), *ITEMS, *facts("q", range(3)))

        async def four_times() -> bool:
            return refused >= 4

        await until(four_times, "it was refused some times")
        [owner] = process.worker._owners.values()
        assert owner._troubles._memory_seconds >= 0.08
    await process.settled()
    await until(lambda: _calm(process), "it is as before")
    assert owner._troubles._memory_seconds == 0.01


async def _calm(process: Any) -> bool:
    [owner] = process.worker._owners.values()
    return bool(owner.loaded is not None and owner.idle())


async def _waits(process: Any) -> bool:
    return any(why.startswith("query 'q' waits: ") for why in process.worker.troubles())


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"[]", b"{}", b'{"query_id":"good"}'])
async def test_what_is_in_place_of_a_ranking_is_not_published_and_the_ranking_is_made_anew(
    world: World, monkeypatch: pytest.MonkeyPatch, value: bytes | None
) -> None:
    process = await world.process(idle_seconds=0.1)
    events = [Query("bad"), *ITEMS, *facts("bad", range(3))]
    world.say(*events)
    await process.settled()

    async def is_away() -> bool:
        return process.worker.state("bad") is None

    await process.wait(until(is_away, "put away"))
    before, read_ranking = await world.store.read_revision("bad"), world.store.read_ranking

    async def damaged(query_id: str) -> bytes | None:
        return value if await world.store.read_revision("bad") == before else await read_ranking(query_id)

    async def made_anew() -> bool:
        return await world.store.read_revision("bad") != before

    monkeypatch.setattr(world.store, "read_ranking", damaged)
    process.worker.publish_again("bad")
    await process.wait(until(made_anew, "the ranking is made anew"))
    await process.settled()
    assert await world.store.quarantined() == {}
    await world.check_equals_fold(events)


async def test_of_a_long_ranking_the_ends_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it would take as long as hundreds of verdicts."""
    people = tuple(f"person-{number}@example.org" for number in range(10))
    items = tuple(RankedItem(f"item-{rank}", rank, 0.5, 0.5, 0.1, people, ()) for rank in range(1, 301))
    ranking = Ranking("coverage", 0, 0, Estimate(0.0, 0.0), 0.0, items)
    value = encode_ranking('ä "1"', ranking, revision=1, published_at=1_700_000_000_000_000)
    assert len(value) > READ_WHOLE

    def decode(value: bytes) -> NextItems:
        raise AssertionError(f"{len(value)} bytes are decoded")

    monkeypatch.setattr(committing, "decode_ranking", decode)
    assert is_ranking(value, 'ä "1"')
    for other in (value[:-1], value[1:], b"x" * len(value), b"{" + b" " * len(value) + b"}"):
        assert not is_ranking(other, 'ä "1"')
    assert not is_ranking(value, 'ä "2"')


async def test_a_query_that_cannot_be_deleted_for_what_the_store_has_waits_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await world.process()
    world.say(Query("bad"), *ITEMS)
    await process.settled()
    delete, tries, mended = world.store.delete_query, 0, False

    async def damaged(query_id: str, partition: int, **how: Any) -> Deletion:
        nonlocal tries
        tries += 1
        if not mended and tries < 1000:
            raise StoreDamaged("somebody was at it")
        return await delete(query_id, partition, **how)

    async def told() -> bool:
        return "somebody was at it" in process.worker.troubles()

    monkeypatch.setattr(world.store, "delete_query", damaged)
    world.say(Query("bad", status=Status.DELETED))
    await process.wait(until(told, "it says so"))
    mended = True
    await process.settled()
    stored = await world.store.load_query("bad")
    assert stored is not None
    assert stored.settings.status is Status.DELETED
    assert tries < 1000
