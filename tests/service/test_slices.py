"""A burst of items is let in slice by slice, and verdicts go between."""

from collections import deque

import pytest
from support.world import World

from haystream.collection.collection import Collection
from haystream.events import Event, Item, ItemFact, Outcome, Query, Verdict
from haystream_service.wire import decode_ranking
from haystream_service.worker import followers, slices
from haystream_service.worker.slices import ADDED_AT_ONCE, KNOWN_COST, LEAST_COST, MOST_COST, Slices


def pair(number: int) -> Item:
    """An item on a pair of its own."""
    return Item(f"m{number}", "default", f"p{number}", (f"q{number}",))


def test_a_slice_is_measured_in_new_pairs() -> None:
    collection = Collection("default")
    slices = Slices(collection)
    slices._most = 10.0
    crowd = Item("crowd", "default", None, tuple(f"c{n:02d}" for n in range(64)))
    left = deque([*map(pair, range(12)), crowd, pair(12)])
    sizes = []
    while left:
        sizes.append(len(slices.next(left)))
    assert sizes == [10, 2, 1, 1]  # 2,016 pairs are more than a slice, and cannot be cut
    collection.add(pair(0))
    known = deque(Item(f"n{n}", "default", "p0", ("q0",)) for n in range(1000))
    assert len(slices.next(known)) == pytest.approx(10.0 / KNOWN_COST, abs=1)
    slices._most = MOST_COST
    assert len(slices.next(known)) == ADDED_AT_ONCE


def test_slices_follow_what_queries_take_for_them() -> None:
    slices = Slices(Collection("default"))
    for _ in range(20):
        slices.adapt(1.0)
    assert slices._most == LEAST_COST
    slices.next(deque([pair(1)]))
    slices.adapt(0.0)  # one that was not full says nothing
    assert slices._most == LEAST_COST
    for _ in range(20):
        slices.next(deque(map(pair, range(1000))))
        slices.adapt(0.0)
    assert slices._most == MOST_COST


@pytest.mark.asyncio
async def test_verdicts_are_answered_and_queries_open_while_a_burst_is_let_in(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "MOST_COST", 4.0)
    process = await world.process(item_publish_seconds=0.25, totals_seconds=0.5)
    count = 1500
    events: list[Event] = [Query("q"), *map(pair, range(5))]
    world.say(*events)
    await process.settled()
    burst = list(map(pair, range(5, count)))
    said = Verdict("v1", "q", "m1", "zoe", Outcome.RELEVANT, 1_700_000_000_000_000)
    world.say(*burst)
    await process.wait(process.consumer.drained())
    world.say(said, Query("late"))
    await process.wait(world.broker.wait_for("next-items", lambda m: decode_ranking(m.value).screened == 1))
    await process.wait(world.broker.wait_for("next-items", lambda m: decode_ranking(m.value).query_id == "late"))
    state = process.worker.state("q")
    assert state is not None
    assert len(state.collection) < count
    await process.settled()
    await world.check_equals_fold([*events, *burst, said, Query("late")])
    assert len(world.rankings("q")) < len(burst) / 4  # not one for every slice


@pytest.mark.asyncio
async def test_a_long_log_is_read_on_while_it_is_added(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followers, "ENTRIES_A_READ", 20)
    monkeypatch.setattr(followers, "ADDED_IN_BULK", 7)
    items = list(map(pair, range(206)))
    await world.store.append_items("default", items)
    read_items, asked, ahead = world.store.read_items, [], []

    async def noted(name: str, after: int, *, limit: int, wait: float = 0.0) -> list[ItemFact]:
        if limit == followers.ENTRIES_A_READ:
            asked.append(after)
            ahead.extend(after > known.entries for known in process.worker._followers.collections())
        return await read_items(name, after, limit=limit, wait=wait)

    monkeypatch.setattr(world.store, "read_items", noted)
    process = await world.process()
    world.say(Query("q"))
    await process.settled()
    state = process.worker.state("q")
    assert state is not None
    assert state.collection.item_ids == [item.item_id for item in items]
    assert asked[:11] == list(range(0, 206, 20))
    assert any(ahead)
