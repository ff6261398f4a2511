"""Faust's consumer, but verdicts do not wait behind items, and a record is handed over without tasks of its own."""

import types
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Generator
from functools import partial
from typing import Any

from faust.transport.drivers import aiokafka
from faust.types import TP

BACKLOG = 2000
"""Items in hand beyond which none are taken: some 0.3 seconds of work. The rest stays with Kafka."""


class VerdictsFirst(aiokafka.Consumer):  # type: ignore[misc]  # Faust has no types
    """Hands over queries and verdicts at once, and items as there is time. Each partition keeps its order.

    Faust hands over all that a fetch brought before it looks what came since, and starts four tasks a record to
    do so: a verdict would wait behind hundreds of items, at 0.1 ms each. What differs here is `getmany`, which
    is Faust's but for the backlog, and `wait_first`, where there is nothing to wait for.
    """

    items_topic = ""
    """The topic that has time."""

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, Any]]:  # noqa: ASYNC109 - Faust's
        """Partition and message of what comes within so many seconds; on, while items are in hand.

        What is in hand when the flow ends or a rebalance comes is dropped, as by Faust: it will be fetched again.
        """
        backlog: deque[tuple[TP, Any]] = deque()
        generation = None
        while True:
            if backlog:
                wanted = self._fetched(len(backlog))
                records = await self._getmany(wanted, 0.0) if wanted else {}  # of no partition: of all
            else:
                records, _ = await self._wait_next_records(timeout)
            if records is None or self.should_stop:
                return
            if not self.flow_active:
                await self._seek_back()
                return
            if self.app.consumer_generation_id != generation:
                # These are of the new one, and have to be handed over: the fetcher is past them.
                generation = self.app.consumer_generation_id
                backlog.clear()
            items = {tp: some for tp, some in records.items() if tp.topic == self.items_topic}
            backlog.extend(self.scheduler.iterate(items))
            urgent = deque(self.scheduler.iterate({tp: records[tp] for tp in records.keys() - items.keys()}))
            while urgent or (backlog and not self._fetched(len(backlog))):
                tp, record = (urgent or backlog).popleft()
                if not self.flow_active or self.app.consumer_generation_id != generation:
                    return
                if tp in self._get_active_partitions() or tp in self._buffered_partitions:
                    self.app.monitor.track_tp_end_offset(tp, self.highwater(tp))
                    yield tp, self._to_message(tp, record)
            if not backlog:
                return

    def _fetched(self, in_hand: int) -> set[TP]:
        """The partitions to take from what is fetched, where so many items are in hand."""
        # They are with aiokafka's thread; asking there would take a millisecond. CPython copies keys in one step.
        fetched = list(self._thread._ensure_consumer()._fetcher._records)
        active = self._get_active_partitions()
        return {tp for tp in fetched if tp in active and (tp.topic != self.items_topic or in_hand < BACKLOG)}

    async def _seek_back(self) -> None:
        try:
            await self.perform_seek()
        except Exception as error:  # noqa: BLE001 - as Faust does: the rebalance that stopped the flow seeks, too
            self.log.warning("cannot seek while the flow is stopped: %r", error)

    async def wait_first(self, *coros: Any, timeout: Any = None) -> Any:  # noqa: ASYNC109 - Faust's
        """As Faust's, but a first coroutine that need not wait for anything has no tasks made for it."""
        first, *others = coros
        if timeout is not None or not isinstance(first, Coroutine):
            return await super().wait_first(*coros, timeout=timeout)
        try:
            waits_for = first.send(None)
        except BaseException as end:
            for other in others:
                other.close()
            if not isinstance(end, StopIteration):
                raise
            return None
        return await super().wait_first(_go_on(first, waits_for), *others)


async def _go_on(begun: Coroutine[Any, Any, Any], waits_for: Any) -> Any:
    """The result of a coroutine that was begun by hand: what mode calls an awaitable, which a generator is not."""
    return await _steps(begun, waits_for)


@types.coroutine
def _steps(begun: Coroutine[Any, Any, Any], waits_for: Any) -> Generator[Any, Any, Any]:
    while True:
        try:
            step = partial(begun.send, (yield waits_for))
        except BaseException as error:  # noqa: BLE001 - a cancellation, too, is for the coroutine to handle
            step = partial(begun.throw, error)
        try:
            waits_for = step()
        except StopIteration as done:
            return done.value


class Transport(aiokafka.Transport):  # type: ignore[misc]
    """Kafka, by that consumer."""

    Consumer = VerdictsFirst
