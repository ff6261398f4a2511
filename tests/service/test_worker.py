"""The worker on the in-memory transport and store: what it makes of events, in any order."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from support.simulated.store_copy import StoreCopy
from support.world import Process, World, item, story, verdict
from typing_extensions import override

from haystream.collection.collection import Collection
from haystream.engines.local.inverse import precision, prior_inverse
from haystream.engines.local.solves.budget import DEFAULT_TOLERANCE, TOLD_FACTOR
from haystream.events import Event, Item, ItemFact, ModelName, Outcome, Query, Status, Verdict
from haystream.memory.arrays import Floats, Ints
from haystream.models import DEFAULT_PRIORS
from haystream.posterior.rows import Changes
from haystream.posterior.tables import laid_over, settled_inverse
from haystream.query.state import QueryState
from haystream.ranking import set_ranking, unowned
from haystream.ranking.tournament import Tournament
from haystream.scope import Scope
from haystream_service.store.base import HISTORY, StoreDamaged
from haystream_service.wire import decode_ranking, encode_item, encode_query, encode_verdict
from haystream_service.worker import expected, followers
from haystream_service.worker.endings import StateBack
from haystream_service.worker.exclusive import Exclusive
from haystream_service.worker.followers import Follower
from haystream_service.worker.holding import Loaded
from haystream_service.worker.mailbox import Mailbox
from haystream_service.worker.memory_broker import MemoryPublisher
from haystream_service.worker.tending import Tending

pytestmark = pytest.mark.asyncio


def counted(process: Process) -> dict[str, int]:
    """What the gauges of queries say."""
    metrics = process.metrics
    gauges = {
        "owned": metrics.owned_queries,
        "in_memory": metrics.queries_in_memory,
        "put_away": metrics.queries_put_away,
    }
    return {name: int(gauge.collect()[0].samples[0].value) for name, gauge in gauges.items()}


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


class Mute(MemoryPublisher):
    """A publisher whose rankings do not come through; `asked` once one was to be published."""

    def __init__(self, world: World) -> None:
        super().__init__(world.broker)
        self.asked = asyncio.Event()

    @override
    async def publish_ranking(self, query_id: str, value: bytes) -> None:
        self.asked.set()
        await asyncio.Event().wait()


async def test_settings_that_a_bad_record_hides_are_said_again_whenever_a_worker_dies(world: World) -> None:
    process = await world.process()
    world.say(Query("q"), item(1))
    await process.settled()
    await process.crash()
    world.say(Query("q", collection="another"), verdict(1))
    publisher = Mute(world)
    dies = await world.process(publisher=publisher)
    await dies.wait(publisher.asked.wait())  # the batch is saved by now
    await dies.crash()
    heir = await world.process()
    await heir.settled()
    last = [message for message in world.broker.messages("queries") if message.key == b"q"][-1]
    assert (last.value, last.restates) == (encode_query(Query("q")), 1)


def pair(name: str, sender: str) -> Item:
    return Item(name, "default", sender, (f"{sender}-too",))


BY_ANN: list[Event] = [Query("first", top=1), Query("all"), *(pair(f"item-{n}", "ann") for n in (1, 2))]
BY_ANN += [verdict(1, "first"), verdict(1, "all")]


async def test_items_that_change_no_top_are_published_with_the_next_verdict(world: World) -> None:
    process, events = await world.process(totals_seconds=3600.0), list(BY_ANN)
    for event in events:
        world.say(event)
        await process.taken_in()
    published, saved = world.rankings("first"), await world.store.load_query("first")
    assert [ranked.item_id for ranked in published[-1].items] == ["item-2"]

    events.append(pair("item-3", "bo"))  # nothing speaks for this one
    world.say(events[-1])
    await process.taken_in()
    assert world.rankings("first") == published
    assert await world.store.load_query("first") == saved
    assert [ranked.item_id for ranked in world.rankings("all")[-1].items] == ["item-2", "item-3"]

    events.append(verdict(2, "first"))
    world.say(events[-1])
    await process.taken_in()  # what tending has finished for `all` may wait for an hour
    assert [ranked.item_id for ranked in world.rankings("first")[-1].items] == ["item-3"]
    await world.check_equals_fold(events)


async def test_items_that_change_no_top_are_published_after_a_while(world: World) -> None:
    process = await world.process(totals_seconds=0.1)
    events = [*BY_ANN, pair("item-3", "bo")]
    for event in events:
        world.say(event)
        await process.settled()
    before, after = world.rankings("first")[-2:]
    assert before.items == after.items
    assert before.expected_remaining.mean < after.expected_remaining.mean
    await world.check_equals_fold(events)


async def test_items_that_are_no_concern_of_a_query_are_folded_in_later(world: World) -> None:
    process = await world.process(totals_seconds=3600.0)
    events = [*BY_ANN, pair("item-3", "bo")]
    for event in events:
        world.say(event)
        await process.taken_in()
    first, everything = process.worker.state("first"), process.worker.state("all")
    assert first is not None
    assert everything is not None
    assert (first.behind, first.lag) == (1, 0)
    assert everything.behind == 0  # it may offer more items than there are
    assert [ranked.item_id for ranked in world.rankings("first")[-1].items] == ["item-2"]

    events.append(pair("item-4", "ann"))  # of the set that it offers from
    world.say(events[-1])
    await process.taken_in()
    assert (first.behind, first.lag) == (0, 0)

    events.append(verdict(2, "first"))
    world.say(events[-1])
    await process.taken_in()
    assert [ranked.item_id for ranked in world.rankings("first")[-1].items] == ["item-4"]
    await world.check_equals_fold(events)


@pytest.mark.parametrize("soon", [-1.0, 3600.0])
async def test_one_that_is_judged_again_and_again_takes_items_in_between_verdicts(
    world: World, monkeypatch: pytest.MonkeyPatch, soon: float
) -> None:
    monkeypatch.setattr(expected, "EXPECTED_SECONDS", soon)
    process = await world.process(totals_seconds=3600.0)
    events = [*BY_ANN, pair("item-3", "ann"), verdict(2, "first")]
    for event in events:
        world.say(event)
        await process.taken_in()
    first = process.worker.state("first")
    assert first is not None
    await process.wait(tended(first))  # everything concerns a query that has still to follow what came before
    events.append(pair("item-4", "bo"))
    world.say(events[-1])
    await process.taken_in()
    assert (first.behind, first.lag) == (1 if soon < 0 else 0, 0)
    assert [ranked.item_id for ranked in world.rankings("first")[-1].items] == ["item-3"]
    events.append(verdict(3, "first"))
    world.say(events[-1])
    await process.taken_in()
    await world.check_equals_fold(events)


async def test_a_query_that_cannot_say_whether_items_concern_it_follows_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await world.process(totals_seconds=3600.0)
    for event in BY_ANN:
        world.say(event)
        await process.taken_in()

    def broken(state: QueryState) -> bool:
        raise ZeroDivisionError(state.settings.query_id)

    monkeypatch.setattr(QueryState, "concerned", broken)
    world.say(pair("item-3", "ann"))  # of the set that it offers from, so that it is asked
    await process.taken_in()
    state = process.worker.state("first")
    assert state is not None
    await process.wait(caught_up(state))
    assert not process.worker.failed.done()


async def tended(state: QueryState) -> None:
    while state.unfinished or state.engine.waiting or state.engine.untold or state.queue.late:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def caught_up(state: QueryState) -> None:
    while state.behind:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def test_a_crash_loses_no_items_that_wait_to_be_published(world: World) -> None:
    process = await world.process(totals_seconds=3600.0)
    events = [*BY_ANN, pair("item-3", "bo")]
    for event in events:
        world.say(event)
        await process.taken_in()
    await process.crash()
    heir = await world.process()
    await heir.settled()
    await world.check_equals_fold(events)


async def test_a_verdict_takes_in_no_items_that_wait_for_a_ranking_of_their_own(world: World) -> None:
    """A burst of new items is not to be worked off before the answer that an analyst waits for."""
    process = await world.process(item_publish_seconds=3600.0)
    await world.store.append_items("default", [item(1)])
    world.say(Query("q"))
    await process.wait(world.broker.wait_for("next-items", lambda m: len(decode_ranking(m.value).items) == 1))
    await world.store.append_items("default", [item(n) for n in range(2, 9)])
    world.say(verdict(1))
    await process.wait(world.broker.wait_for("next-items", lambda m: decode_ranking(m.value).screened == 1))
    assert world.rankings("q")[-1].items == ()
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
    # Opened after all, it has the verdict that was kept.
    world.say(Query("nobody"), verdict(2, "nobody"), item(2), item(1))
    await process.settled()
    assert max(r.screened for r in world.rankings("nobody")) == 2


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
    unsupported = b'{"query_id":"q","prior":{"conditional":"table-1"}}'  # of the model relevance
    world.broker.produce("queries", b"q", unsupported)
    await process.settled()
    assert world.dead_letters() == [("unsupported", unsupported)]
    world.say(Query("q"))
    await process.settled()
    assert len(world.rankings("q")) == 1


@pytest.mark.parametrize("model", DEFAULT_PRIORS)
async def test_what_is_stored_reads_as_the_fold_however_far_the_base_rate_has_moved(
    world: World, model: ModelName
) -> None:
    process = await world.process()
    events: list[Event] = [Query("q", prior=DEFAULT_PRIORS[model]), *(item(n) for n in range(60))]
    events.append(Item("far", "default", "x", ("y",)))  # nothing links it to the verdicts but the base rate
    world.say(*events)
    for outcome, said in (("relevant", range(30)), ("irrelevant", range(60)), ("retracted", range(0, 60, 2))):
        for n in said:
            events.append(verdict(len(events), item=n, outcome=outcome))
            world.say(events[-1])
        await process.settled()
        await world.check_equals_fold(events)


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


def in_a_circle(number: int) -> Item:
    """An item of three of twenty people, on all their pairs: other three for each number."""
    people = {f"p{number % 20:02}", f"p{(number + 1 + number // 20) % 20:02}", f"p{(number + 9) % 20:02}"}
    return Item(f"item-{number}", "default", None, tuple(sorted(people)))


def tended_when(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """What has queries tended while it is set, as it is; new items are taken in by estimate."""
    tend, rested = Tending.until_due, asyncio.Event()

    async def when_rested(tending: Tending, state: QueryState, exclusive: Exclusive, mailbox: Mailbox[Any]) -> bool:
        while not (rested.is_set() or mailbox.due):
            await mailbox.until_due(0.01)
        return False if mailbox.due else await tend(tending, state, exclusive, mailbox)

    monkeypatch.setattr(Tending, "until_due", when_rested)
    for module in (precision, prior_inverse):
        monkeypatch.setattr(module, "one_by_one", lambda *_: False)  # as where many pairs come at once
    rested.set()
    return rested


@pytest.mark.parametrize("touched", ["lately", "long ago"])
@pytest.mark.parametrize("status", [Status.OPEN, Status.PAUSED])
async def test_what_a_worker_that_died_had_saved_by_estimate_the_next_one_makes_exact(
    world: World, monkeypatch: pytest.MonkeyPatch, status: Status, touched: str
) -> None:
    rested, items = tended_when(monkeypatch), [in_a_circle(n) for n in range(51)]
    events: list[Event] = [Query("q"), *items[:50]]
    events += [verdict(n, outcome=("relevant", "irrelevant")[n % 2]) for n in range(30)]
    world.say(*events)
    process = await world.process()
    await process.settled()
    rested.clear()
    last = [items[50], Query("q", status=status, top=7)]
    events += last
    for event in last:
        world.say(event)
        await process.taken_in()
    stored = await world.store.load_query("q")
    assert stored is not None
    assert stored.settings == last[1]
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        await world.check_equals_fold(events)
    await process.crash()
    rested.set()
    idle = 900.0 if touched == "lately" else 0.0
    heir = await world.process(refresh_seconds=0.01, idle_seconds=idle)

    async def saved_anew() -> None:
        while (await world.store.read_revision("q")) == stored.revision:  # noqa: ASYNC110 - nobody says when
            await asyncio.sleep(0.005)

    await heir.wait(saved_anew())
    await heir.settled()
    await world.check_equals_fold(events)
    heirs = await world.store.load_query("q")
    assert heirs is not None
    assert not heirs.unfinished


async def test_what_is_not_open_any_more_is_as_exact_as_ever_though_its_collection_grows_amid_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was paused when it had taken items in by estimate, and more came before that was made exact."""
    rested, items = tended_when(monkeypatch), [in_a_circle(n) for n in range(54)]

    async def until(done: Callable[[QueryState], bool]) -> None:
        while not ((state := process.worker.state("q")) and done(state)):  # noqa: ASYNC110 - nobody says when
            await asyncio.sleep(0.005)

    events: list[Event] = [Query("q"), Query("open"), *items[:50]]
    events += [verdict(n, outcome=("relevant", "irrelevant")[n % 2]) for n in range(30)]
    world.say(*events)
    process = await world.process()
    await process.settled()
    rested.clear()
    more: list[list[Event]] = [[items[50]], [Query("q", status=Status.PAUSED)], [*items[51:]]]
    conditions: list[Callable[[QueryState], bool]] = [
        lambda state: state.unfinished,
        lambda state: state.settings.status == Status.PAUSED,
        lambda state: state.behind > 0,
    ]
    for said, condition in zip(more, conditions, strict=True):
        events += said
        world.say(*said)
        await process.wait(until(condition))
    rested.set()
    await process.settled()
    assert process.worker.state("q") is None
    await world.check_equals_fold(events)


@pytest.mark.parametrize("status", [Status.PAUSED, Status.CLOSED])
async def test_a_query_that_is_not_open_is_let_go_and_comes_back_with_its_next_event(
    world: World, status: Status
) -> None:
    process = await world.process()
    events: list[Event] = [Query("q"), Query("open"), item(1), item(2), verdict(1)]
    world.say(*events)
    await process.settled()
    events.append(Query("q", status=status))
    before = len(world.rankings("q"))
    world.say(events[-1])
    await process.settled()
    assert len(world.rankings("q")) == before + 1
    assert process.worker.state("q") is None
    assert counted(process) == {"owned": 2, "in_memory": 1, "put_away": 1}
    saved = await world.store.load_query("q")

    world.say(item(3), item(4))
    await process.settled()
    assert len(world.rankings("open")[-1].items) == 4
    assert len(world.rankings("q")) == before + 1  # new items are no work for it
    assert await world.store.load_query("q") == saved

    events += [item(3), item(4), verdict(3), verdict(2, outcome="irrelevant")]
    world.say(*events[-2:])
    await process.settled()
    assert (world.rankings("q")[-1].screened, world.rankings("q")[-1].items) == (3, ())
    assert process.worker.state("q") is None
    await world.check_equals_fold(events)

    events.append(Query("q", top=3))
    world.say(events[-1])
    await process.settled()
    assert [ranked.item_id for ranked in world.rankings("q")[-1].items] == ["item-4"]
    assert counted(process) == {"owned": 2, "in_memory": 2, "put_away": 0}
    await world.check_equals_fold(events)


async def test_a_collection_stays_for_a_while_after_the_last_query_that_needed_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    class Counted(Collection):
        def __init__(self, name: str, *scope: Scope | None) -> None:
            super().__init__(name, *scope)
            made.append(name)

    monkeypatch.setattr(followers, "Collection", Counted)
    for seconds, times in ((3600.0, 1), (0.0, 2)):
        made.clear()
        process = await world.process(idle_seconds=seconds)
        name = f"q{times}"
        world.say(Query(name, collection=name), Query(name, collection=name, status=Status.CLOSED))
        await process.settled()
        await asyncio.sleep(0.01)  # for what is due after no time at all
        world.say(verdict(1, name))
        await process.settled()
        assert made.count(name) == times
        await process.crash()


async def test_the_newest_ranking_of_a_query_that_is_put_away_is_published_again_when_an_older_one_lands(
    world: World,
) -> None:
    process = await world.process()
    world.say(Query("q"), item(1), Query("q", status=Status.PAUSED))
    await process.settled()
    assert process.worker.state("q") is None
    newest = await world.store.read_ranking("q")
    count = len(world.rankings("q"))
    assert process.worker.revision("q") == world.rankings("q")[-1].revision
    process.worker.publish_again("q")
    await process.settled()
    assert len(world.rankings("q")) == count + 1
    assert world.broker.messages("next-items")[-1].value == newest
    assert process.worker.state("q") is None


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
    state = process.worker.state("q")
    assert state is not None
    assert not state.unfinished


async def test_rows_that_an_answer_left_out_are_saved_when_nothing_else_is_to_be_done(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = [Item(f"r{n}", "default", f"p{n}", (f"p{(n + 1) % 50}",)) for n in range(50)]
    said = Verdict("v1", "q", "r1", "zoe", Outcome.RELEVANT, 1_700_000_000_000_000)
    process = await world.process()
    world.say(Query("q"), *ring)
    await process.settled()
    # Another query of the collection may heal the graph between this one's answer and its turn.
    monkeypatch.setattr(QueryState, "unfinished", property(lambda query: "v1" in query.verdicts))
    drained: list[bool] = []
    drain = QueryState.drain

    def spied(query: QueryState, *, tended: bool = True) -> Changes:
        drained.append(tended)
        if not tended:
            monkeypatch.setattr(QueryState, "unfinished", False)
        return drain(query, tended=tended)

    monkeypatch.setattr(QueryState, "drain", spied)
    world.say(said)
    await process.settled()
    assert drained == [False, True]
    await world.check_equals_fold([Query("q"), *ring, said])


async def test_what_is_told_in_idle_time_is_saved_when_nothing_comes(world: World) -> None:
    """Who moved by little is told of when nobody waits: whoever reads the tables then must find it there."""
    process = await world.process(tolerance=DEFAULT_TOLERANCE, totals_seconds=0.05)
    ring = [Item(f"r{n}", "default", f"p{n}", (f"p{(n + 1) % 50}",)) for n in range(50)]
    world.say(Query("q"), *ring)
    await process.settled()
    for number in range(5):
        world.say(Verdict(f"v{number}", "q", f"r{7 * number}", "zoe", Outcome.RELEVANT, 1_700_000_000_000_000))
        await process.settled()
        state, tables = process.worker.state("q"), await world.store.read_tables("q")
        assert state is not None
        assert tables is not None
        everybody, graph = np.arange(50, dtype=np.int32), state.collection.graph
        people, _ = laid_over(tables, graph, settled_inverse(graph, tables.prior))
        held = people[:, 0] + tables.common.mean_shift * people[:, 1]
        off = np.abs(held - state.engine.readings.unconstrained(everybody)[0])
        assert off.max() <= TOLD_FACTOR * DEFAULT_TOLERANCE


async def test_rows_that_tending_moved_are_saved_with_a_verdict_now_and_then(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await world.process(tolerance=DEFAULT_TOLERANCE, totals_seconds=1000.0)
    ring = [Item(f"r{n}", "default", f"p{n}", (f"p{(n + 1) % 50}",)) for n in range(50)]
    world.say(Query("q"), *ring)
    state = await _loaded(process, items=len(ring))
    drained: list[bool] = []
    drain = QueryState.drain

    def spied(query: QueryState, *, tended: bool = True) -> Changes:
        drained.append(tended)
        return drain(query, tended=tended)

    monkeypatch.setattr(QueryState, "drain", spied)
    for number in range(4):
        if number == 2:
            state.tended_at -= 1000.0
        said = Verdict(f"v{number}", "q", f"r{7 * number}", "zoe", Outcome.RELEVANT, 1_700_000_000_000_000)
        world.say(said)
        while len(drained) <= number:  # noqa: ASYNC110 - it is a list of the test's
            await asyncio.sleep(0.01)
        await process.wait(process.worker.drain())
    assert drained == [False, False, True, False]


async def test_who_was_late_and_leads_is_published_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of the common mean has those scored that are foreseen to lead: here always the wrong ones."""
    monkeypatch.setattr(Tournament, "foreseen", _upside_down)
    for name, value in (("AT_ONCE", 0), ("CANDIDATES", 20), ("LATE_AT_ONCE", 64)):
        monkeypatch.setattr(set_ranking, name, value)
    monkeypatch.setattr(unowned, "MADE_AT_ONCE", 0)
    process = await world.process(totals_seconds=1000.0)
    ring = [Item(f"r{n}", "default", f"p{n}", (f"p{(n + 1) % 100}",)) for n in range(100)]
    world.say(Query("q", top=5), *ring)
    state, events = (await _loaded(process, items=len(ring))).state, [Query("q", top=5), *ring]
    others = 0
    for number in range(12):
        outcome = Outcome.IRRELEVANT if number % 4 else Outcome.RELEVANT
        events.append(Verdict(f"v{number}", "q", f"r{7 * number}", "zoe", outcome, 1_700_000_000_000_000))
        world.say(events[-1])
        published = await process.wait(_made_up(world, state, screened=number + 1))
        others += published[-1] not in published[:-1] and len(published) > 1
    assert others > 0
    await world.check_equals_fold(events)


def _upside_down(tournament: Tournament, _: float) -> tuple[Ints, Floats]:
    score = tournament.places.score[: tournament.size]
    at = np.flatnonzero(score > -np.inf).astype(np.int32)
    return at, -score[at]


async def _made_up(world: World, state: QueryState, *, screened: int) -> list[list[str]]:
    """The items of the rankings that know of so many verdicts, when the last has those that lead."""
    while True:
        await asyncio.sleep(0.01)
        known = [ranking for ranking in world.rankings("q") if ranking.screened == screened]
        published = [[ranked.item_id for ranked in ranking.items] for ranking in known]
        if published and not (state.queue.late or state.engine.waiting):
            leads = [state.collection.item_ids[item] for item, _, _ in state.queue.first(5)]
            if leads == published[-1]:
                return published


async def _loaded(process: Process, *, items: int) -> Loaded:
    """The one query that the process has in memory, when so many items are in its ranking and all is saved."""
    while True:
        await asyncio.sleep(0.01)
        for owner in process.worker._owners.values():
            loaded = owner.loaded
            if loaded and len(loaded.state.collection) == items and loaded.revision and not loaded.unsaved_items:
                await process.wait(process.worker.drain())
                return loaded


async def test_who_read_of_a_log_what_is_there_no_more_ends(world: World) -> None:
    """Though it has as many entries as before, and all that this process wrote is there again."""
    process = await world.process()
    world.say(Query("q"), item(0))
    await process.settled()
    then = StoreCopy(world.store)
    world.say(item(1))
    await process.settled()
    then.put_back()
    history = (await world.store.read_up_to([HISTORY]))[HISTORY]
    await world.store.append_items("default", [item(2), item(1)])
    with pytest.raises(StateBack, match=r"number 2 in the log of 'default'\. Reading all items again"):
        await process.wait(asyncio.Event().wait())
    assert (await world.store.read_up_to([HISTORY]))[HISTORY] != history


async def test_a_query_that_has_gone_back_need_not_be_whole_to_be_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await world.process()
    world.say(Query("q"), *(item(n) for n in range(3)), verdict(0))
    await process.settled()
    then = StoreCopy(world.store)
    world.say(verdict(1))
    await process.settled()
    then.put_back()
    monkeypatch.setattr(world.store, "load_query", mock.Mock(side_effect=StoreDamaged("its verdicts are gone")))
    world.say(verdict(2))
    with pytest.raises(StateBack, match=r"query 'q': .*gone back to an earlier state"):
        await process.wait(asyncio.Event().wait())


async def test_of_a_log_that_is_gone_no_query_says_that_it_saw_more(world: World) -> None:
    """Whoever loads it would end of that once more."""
    process = await world.process()
    world.say(Query("q"), Query("r"), Query("other", collection="mail"), item(0), item(1), item(2, "mail"))
    await process.settled()
    world.store._logs.pop("default")
    with pytest.raises(StateBack, match=r"in the log of 'default'\. Reading all items again"):
        await process.wait(asyncio.Event().wait())
    heads = await world.store.read_heads(["q", "r", "other"])
    assert [head.position.cursor for head in heads if head is not None] == [0, 0, 1]


async def test_what_was_read_and_not_let_in_is_read_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a query had to go over to a collection made afresh, and left instead."""
    process = await world.process(item_publish_seconds=0.2)
    read_items, waits, read = world.store.read_items, asyncio.Event(), asyncio.Event()

    async def told(name: str, after: int, *, limit: int, wait: float = 0.0) -> list[ItemFact]:
        if after == 1 and wait > 0:
            waits.set()
        items = await read_items(name, after, limit=limit, wait=wait)
        if item(1) in items:
            read.set()
        return items

    monkeypatch.setattr(world.store, "read_items", told)
    await world.store.append_items("default", [item(0)])
    follower = Follower(Collection("default"), process.worker._shared)
    await process.wait(waits.wait())
    follower.collection.outgrown.add("other")
    follower.followed_by.add("q")
    await world.store.append_items("default", [item(1)])
    await process.wait(read.wait())
    await asyncio.sleep(0.05)  # it rests before it goes on
    assert follower.collection.item_ids == ["item-0"]
    follower.left("q")
    await world.store.append_items("default", [item(2)])
    await process.wait(follower.reach(3))
    assert follower.collection.item_ids == ["item-0", "item-1", "item-2"]
    follower.close()
