"""The order in which fetched records are handed over, and that no rebalance loses one."""

import asyncio
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import faust
import pytest
import pytest_asyncio
from aiokafka import ConsumerRecord
from faust.types import TP
from yarl import URL

from haystream_service.worker.fetching import BACKLOG, Transport, VerdictsFirst

pytestmark = pytest.mark.asyncio

ITEMS, MORE_ITEMS, VERDICTS = TP("items", 0), TP("items", 1), TP("verdicts", 0)


class Fetched:
    """aiokafka's thread: what was fetched, until it is taken."""

    def __init__(self) -> None:
        self._records: defaultdict[TP, list[ConsumerRecord]] = defaultdict(list)
        self.next = dict.fromkeys((ITEMS, MORE_ITEMS, VERDICTS), 0)
        self.on_take = lambda: None
        self.seeks = 0

    def fetch(self, tp: TP, count: int = 1) -> None:
        for _ in range(count):
            offset, self.next[tp] = self.next[tp], self.next[tp] + 1
            self._records[tp].append(ConsumerRecord(*tp, offset, 1000, 0, b"k", b"v", None, 1, 1, ()))

    def _ensure_consumer(self) -> Any:
        return SimpleNamespace(_fetcher=self)

    async def getmany(self, active: set[TP], _: float) -> dict[TP, list[ConsumerRecord]]:
        taken = {tp: self._records.pop(tp) for tp in list(self._records) if not active or tp in active}
        self.on_take()
        return taken

    async def seek_to_committed(self) -> dict[TP, int]:
        self.seeks += 1
        return {}

    def assignment(self) -> set[TP]:
        return set(self.next)

    def highwater(self, tp: TP) -> int:
        return self.next[tp]


@pytest_asyncio.fixture
async def consumer() -> VerdictsFirst:
    app = faust.App("fetching", broker=[URL("kafka://127.0.0.1:1")], store="memory://", web_enabled=False)
    app.transport = Transport(app.conf.broker_consumer, app)
    assert isinstance(app.consumer, VerdictsFirst)
    app.consumer.items_topic = "items"
    app.consumer._thread.thread_loop.close()
    app.consumer._thread = Fetched()
    app.consumer_generation_id = 1
    app.consumer._set_active_tps(app.consumer.assignment())
    return app.consumer


async def hand_over(consumer: VerdictsFirst, *, after: dict[int, Any] | None = None) -> list[tuple[TP, int]]:
    """All that `getmany` hands over, with what happens after so many records."""
    handed: list[tuple[TP, int]] = []
    async for tp, message in consumer.getmany(1.0):
        handed.append((tp, message.offset))
        if after and len(handed) in after:
            after[len(handed)]()
    return handed


async def test_a_verdict_that_comes_while_items_are_in_hand_is_next(consumer: VerdictsFirst) -> None:
    fetched = consumer._thread
    fetched.fetch(ITEMS, 10)
    fetched.fetch(VERDICTS)
    late = {4: lambda: fetched.fetch(VERDICTS, 2), 9: lambda: (fetched.fetch(ITEMS, 2), fetched.fetch(VERDICTS))}
    handed = await hand_over(consumer, after=late)
    assert [number for number, (tp, _) in enumerate(handed) if tp == VERDICTS] == [0, 4, 5, 9]
    for tp, count in ((ITEMS, 12), (VERDICTS, 4)):
        assert [offset for other, offset in handed if other == tp] == list(range(count))


async def test_a_partition_keeps_its_order_however_much_of_it_is_in_hand(consumer: VerdictsFirst) -> None:
    fetched = consumer._thread
    for tp in (ITEMS, MORE_ITEMS, VERDICTS):
        fetched.fetch(tp, 3)
    more = {
        number: lambda: [fetched.fetch(tp, 2) for tp in (VERDICTS, MORE_ITEMS, ITEMS)] for number in range(1, 8)
    }
    handed = await hand_over(consumer, after=more)
    for tp in (ITEMS, MORE_ITEMS, VERDICTS):
        assert [offset for other, offset in handed if other == tp] == list(range(3 + 2 * 7))


async def test_items_stay_with_kafka_while_enough_are_in_hand_and_verdicts_do_not(consumer: VerdictsFirst) -> None:
    fetched = consumer._thread
    fetched.fetch(ITEMS, BACKLOG + 100)
    seen: list[int] = []

    def look() -> None:
        fetched.fetch(ITEMS)
        fetched.fetch(VERDICTS)

    late = {50: look, 52: lambda: seen.append(len(fetched._records[ITEMS]))}
    handed = await hand_over(consumer, after=late)
    assert handed[50] == (VERDICTS, 0)
    assert seen == [1]
    assert handed[-1] == (ITEMS, BACKLOG + 100)


async def test_a_rebalance_drops_what_is_in_hand_and_keeps_what_it_brings(consumer: VerdictsFirst) -> None:
    fetched, app = consumer._thread, consumer.app
    fetched.fetch(ITEMS, 10)

    def between() -> None:
        app.consumer_generation_id = 2

    assert len(await hand_over(consumer, after={3: between})) == 3

    def while_it_is_asked() -> None:
        app.consumer_generation_id = 3
        fetched.on_take = lambda: None

    fetched.fetch(ITEMS, 10)
    last = {3: lambda: (fetched.fetch(VERDICTS, 5), setattr(fetched, "on_take", while_it_is_asked))}
    handed = await hand_over(consumer, after=last)
    # The fetcher is past those that it brought in the new generation: they come from nowhere else.
    assert handed == [(ITEMS, 10), (ITEMS, 11), (ITEMS, 12), *((VERDICTS, n) for n in range(5))]


async def test_a_flow_that_is_stopped_hands_over_nothing_more(consumer: VerdictsFirst) -> None:
    fetched = consumer._thread
    fetched.fetch(ITEMS, 10)
    assert len(await hand_over(consumer, after={3: consumer.stop_flow})) == 3
    consumer.resume_flow()
    fetched.fetch(ITEMS, 10)
    fetched.on_take = consumer.stop_flow
    assert await hand_over(consumer) == []
    assert fetched.seeks == 1  # what was taken and not handed over is fetched again


async def test_partitions_that_were_taken_away_are_not_handed_over(consumer: VerdictsFirst) -> None:
    fetched = consumer._thread
    fetched.fetch(ITEMS, 4)
    fetched.fetch(MORE_ITEMS, 4)
    handed = await hand_over(consumer, after={4: lambda: consumer.pause_partitions([MORE_ITEMS])})
    assert [offset for tp, offset in handed if tp == ITEMS] == [0, 1, 2, 3]
    assert len([offset for tp, offset in handed if tp == MORE_ITEMS]) == 2


async def test_what_is_not_wanted_any_more_is_not_taken(
    consumer: VerdictsFirst, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = consumer._thread
    fetched.fetch(ITEMS, 2)
    consumer.pause_partitions([MORE_ITEMS])
    fetched.fetch(MORE_ITEMS, 3)
    answers = iter([{VERDICTS}])
    monkeypatch.setattr(consumer, "_fetched", lambda _: next(answers, set()))
    assert await hand_over(consumer) == [(ITEMS, 0), (ITEMS, 1)]
    assert len(fetched._records[MORE_ITEMS]) == 3


async def test_a_record_that_need_not_wait_is_handed_over_at_once(consumer: VerdictsFirst) -> None:
    done: list[str] = []

    async def quick() -> None:
        done.append("quick")

    asyncio.get_running_loop().call_soon(lambda: done.append("the loop"))
    await consumer.wait_first(quick(), consumer.suspend_flow.wait())
    assert done == ["quick"]


async def test_a_record_that_waits_is_given_up_when_the_flow_is_stopped(consumer: VerdictsFirst) -> None:
    async def step(log: list[str], waits: asyncio.Event) -> None:
        log.append("begun")
        await asyncio.sleep(0)
        try:
            await waits.wait()
        except asyncio.CancelledError:
            log.append("given up")
            raise
        log.append("done")

    for ends, expected in (("record", ["begun", "done"]), ("flow", ["begun", "given up"])):
        log: list[str] = []
        waits = asyncio.Event()
        waiting = asyncio.ensure_future(consumer.wait_first(step(log, waits), consumer.suspend_flow.wait()))
        for _ in range(5):
            await asyncio.sleep(0)
        assert log == ["begun"]
        assert not waiting.done()
        waits.set() if ends == "record" else consumer.stop_flow()
        await waiting
        await asyncio.sleep(0)
        assert log == expected
        consumer.resume_flow()


@pytest.mark.parametrize("waits", [False, True])
async def test_a_failure_to_hand_over_is_told(consumer: VerdictsFirst, waits: bool) -> None:
    async def fails() -> None:
        if waits:
            await asyncio.sleep(0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await consumer.wait_first(fails(), consumer.suspend_flow.wait())
