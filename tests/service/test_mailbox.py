"""The mailbox: batches in order, one at a time, bounded, drained or dropped, and no bug swallowed."""

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


def mailbox(handler: Handler, *, max_batch: int = 3, size: int = 5) -> Mailbox[int]:
    return Mailbox(handler, max_batch=max_batch, size=size, on_bug=handler.note_bug)


async def test_a_lone_event_goes_straight_through(handler: Handler) -> None:
    box = mailbox(handler)
    await box.put(1)
    await box.drained()
    await box.put(2)
    await box.drained()
    assert handler.batches == [[1], [2]]


async def test_what_comes_while_the_handler_works_is_one_batch(handler: Handler) -> None:
    box = mailbox(handler)
    handler.gate.clear()
    await box.put(1)
    await handler.began.wait()
    for event in (2, 3, 4, 5):
        await box.put(event)
    handler.gate.set()
    await box.drained()
    assert handler.batches == [[1], [2, 3, 4], [5]]


async def test_a_full_mailbox_makes_its_sender_wait_but_takes_a_post(handler: Handler) -> None:
    box = mailbox(handler, size=2)
    handler.gate.clear()
    await box.put(0)
    await handler.began.wait()
    await box.put(1)
    await box.put(2)
    sender = asyncio.create_task(box.put(4))
    await asyncio.sleep(0)
    box.post(3)
    assert not sender.done()
    assert len(box) == 3
    handler.gate.set()
    await sender
    await box.drained()
    assert [event for batch in handler.batches for event in batch] == [0, 1, 2, 3, 4]


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


async def test_dropping_stops_the_handler_and_forgets_the_rest(handler: Handler) -> None:
    box = mailbox(handler)
    assert not await box.drop()
    handler.gate.clear()
    await box.put(1)
    await handler.began.wait()
    await box.put(2)
    assert await box.drop()
    await box.drained()
    assert (handler.batches, len(box)) == ([[1]], 0)


async def test_a_dropped_mailbox_takes_new_events(handler: Handler) -> None:
    box = mailbox(handler)
    handler.gate.clear()
    await box.put(1)
    await handler.began.wait()
    dropping = asyncio.create_task(box.drop())
    await asyncio.sleep(0)
    box.post(2)
    await dropping
    handler.gate.set()
    await box.drained()
    assert handler.batches == [[1], [2]]


async def test_a_bug_is_told_and_nothing_is_handled_after_it(handler: Handler) -> None:
    box = mailbox(handler)
    await box.put(13)
    await box.drained()
    assert isinstance(handler.bug, ZeroDivisionError)
    await box.put(14)
    await asyncio.sleep(0)
    assert handler.batches == [[13]]


async def test_acknowledgements_are_let_through_in_order() -> None:
    acks = OrderedAcks()
    released: list[int] = []
    ack = [acks.track(lambda n=n: released.append(n)) for n in range(4)]
    ack[2]()
    ack[1]()
    assert released == []
    ack[0]()
    assert released == [0, 1, 2]
    ack[0]()
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
