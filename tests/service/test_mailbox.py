"""The mailbox: batches in order, one at a time, drained or dropped, and no bug swallowed."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from haystream_service.worker.acks import OrderedAcks
from haystream_service.worker.mailbox import Mailbox

pytestmark = pytest.mark.asyncio


class Handler:
    """Records batches; holds each until it is let through."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.began = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.bug: BaseException | None = None

    async def __call__(self, batch: list[int]) -> None:
        self.batches.append(batch)
        self.began.set()
        await self.gate.wait()
        if batch == [13]:
            raise ZeroDivisionError("a bug")

    def note_bug(self, bug: BaseException) -> None:
        self.bug = bug


@pytest_asyncio.fixture
async def handler() -> AsyncIterator[Handler]:
    yield Handler()


def mailbox(handler: Handler, *, max_batch: int = 3) -> Mailbox[int]:
    return Mailbox(handler, max_batch=max_batch, on_bug=handler.note_bug)


async def test_a_lone_event_goes_straight_through(handler: Handler) -> None:
    box = mailbox(handler)
    box.post(1)
    await box.drained()
    box.post(2)
    await box.drained()
    assert handler.batches == [[1], [2]]


async def test_what_comes_while_the_handler_works_is_one_batch(handler: Handler) -> None:
    box = mailbox(handler)
    handler.gate.clear()
    box.post(1)
    await handler.began.wait()
    for event in (2, 3, 4, 5):
        box.post(event)
    handler.gate.set()
    await box.drained()
    assert handler.batches == [[1], [2, 3, 4], [5]]


async def test_what_is_done_in_rest_keeps_nobody_from_counting_it_as_drained(handler: Handler) -> None:
    resting, rested = asyncio.Event(), asyncio.Event()

    async def rest() -> None:
        resting.set()
        await rested.wait()

    box = Mailbox(handler, rest=rest, max_batch=3, on_bug=handler.note_bug)
    box.post(1)
    assert not box.idle
    await resting.wait()
    await box.drained()
    assert not box.idle
    box.post(2)
    draining = asyncio.create_task(box.drained())
    await asyncio.sleep(0)
    assert not draining.done()
    rested.set()
    await draining
    await asyncio.sleep(0)
    assert box.idle
    assert handler.batches == [[1], [2]]


async def test_what_comes_while_it_rests_is_handled_at_the_next_turn_of_the_loop(handler: Handler) -> None:
    """Each turn may hold other work, for which it would wait."""
    box: Mailbox[int]

    async def rest() -> None:
        await box.until_due(60.0)

    box = Mailbox(handler, max_batch=3, on_bug=handler.note_bug, rest=rest)
    box.post(1)
    await handler.began.wait()
    for _ in range(10):  # until it has come to rest
        await asyncio.sleep(0)
    box.post(2)
    await asyncio.sleep(0)
    assert handler.batches == [[1], [2]]
    async with box.dropped():
        pass


async def test_a_poke_calls_the_handler_once_even_without_events(handler: Handler) -> None:
    box = mailbox(handler)
    box.poke()
    box.poke()
    await box.drained()
    assert handler.batches == [[]]


async def test_a_poke_with_events_is_no_extra_call(handler: Handler) -> None:
    box = mailbox(handler)
    box.poke()
    box.post(1)
    await box.drained()
    assert handler.batches == [[1]]


async def drop(box: Mailbox[int]) -> bool:
    async with box.dropped() as amid_a_batch:
        return amid_a_batch


async def test_dropping_stops_the_handler_and_forgets_the_rest(handler: Handler) -> None:
    box = mailbox(handler)
    assert not await drop(box)
    handler.gate.clear()
    box.post(1)
    await handler.began.wait()
    box.post(2)
    assert await drop(box)
    await box.drained()
    assert (handler.batches, len(box)) == ([[1]], 0)


async def test_what_comes_while_it_is_dropped_is_handled_once_that_is_done(handler: Handler) -> None:
    box = mailbox(handler)
    handler.gate.clear()
    box.post(1)
    await handler.began.wait()
    async with box.dropped():
        box.post(2)
        for _ in range(10):
            await asyncio.sleep(0)
        assert handler.batches == [[1]]
    handler.gate.set()
    await box.drained()
    assert handler.batches == [[1], [2]]


async def test_what_comes_while_the_handler_is_being_stopped_is_handled(handler: Handler) -> None:
    box = mailbox(handler)
    handler.gate.clear()
    box.post(1)
    await handler.began.wait()
    dropping = asyncio.create_task(drop(box))
    await asyncio.sleep(0)
    box.post(2)
    await dropping
    handler.gate.set()
    await box.drained()
    assert handler.batches == [[1], [2]]


async def test_a_mailbox_that_is_dropped_before_its_handler_began_takes_new_events(handler: Handler) -> None:
    box = mailbox(handler)
    box.post(1)
    assert await drop(box)
    box.post(2)
    async with asyncio.timeout(30):
        await box.drained()
    assert handler.batches == [[2]]


async def test_a_bug_is_told_and_nothing_is_handled_after_it(handler: Handler) -> None:
    box = mailbox(handler)
    box.post(13)
    await box.drained()
    assert isinstance(handler.bug, ZeroDivisionError)
    box.post(14)
    await asyncio.sleep(0)
    assert handler.batches == [[13]]


async def test_acknowledgements_are_let_through_in_order() -> None:
    acks = OrderedAcks()
    released: list[int] = []
    ack = [acks.track(lambda n=n: released.append(n)) for n in range(4)]
    ack[2]()
    ack[1]()
    assert (released, len(acks), acks.in_hand) == ([], 4, 2)
    ack[0]()
    assert released == [0, 1, 2]
    ack[0]()
    assert acks.in_hand == 1
    ack[3]()
    assert (released, len(acks)) == ([0, 1, 2, 3], 0)


async def test_a_late_acknowledgement_after_a_rebalance_counts_for_nothing() -> None:
    acks = OrderedAcks()
    released: list[int] = []
    old = [acks.track(lambda n=n: released.append(n)) for n in range(2)]
    acks.forget()
    new = acks.track(lambda: released.append(7))
    old[0]()
    old[1]()
    assert released == []
    new()
    assert released == [7]
