"""A worker on the in-memory transport and store, as a process that may crash and be replaced."""

import asyncio
import random
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry
from typing_extensions import override

from haystream.events import Action, Event, Item, LeaseFact, Outcome, Policy, Query, Verdict, Withdrawal
from haystream.models import DEFAULT_PRIORS
from haystream_service.metrics import Metrics
from haystream_service.store.base import Store
from haystream_service.store.memory import MemoryStore
from haystream_service.wire import (
    decode_dead_letter,
    decode_ranking,
    encode_item,
    encode_lease,
    encode_query,
    encode_verdict,
)
from haystream_service.wire.records import NextItems
from haystream_service.worker.clock import Clock, SystemClock
from haystream_service.worker.memory_broker import MemoryBroker, MemoryConsumer, MemoryPublisher
from haystream_service.worker.shared import Limits
from haystream_service.worker.worker import Worker
from support.equality import EXACT, assert_is_the_fold

RELEVANCE = replace(DEFAULT_PRIORS["relevance"], mean=0.4)
PEOPLE = ("ann", "bo", "cy", "dee", "eve")
T = TypeVar("T")


class DayAhead(SystemClock):
    """The clock of a machine whose date is wrong."""

    @override
    def now(self) -> float:
        return super().now() + 86_400.0


class Process:
    """One worker with its consumer, as a process would run them."""

    def __init__(
        self,
        world: "World",
        *,
        store: Store | None = None,
        publisher: Any = None,
        clock: Clock | None = None,
        **limits: Any,
    ) -> None:
        self.world = world
        self.consumer = MemoryConsumer(world.broker)
        self.metrics = Metrics(CollectorRegistry(), labelled_queries=10)
        self.worker = Worker(
            store or world.store,
            publisher or MemoryPublisher(world.broker),
            caught_up=self.consumer.caught_up,
            ends=self.consumer.ends,
            again=self.consumer.again,
            metrics=self.metrics,
            clock=clock,
            limits=Limits(
                **{
                    "item_publish_seconds": 0.0,
                    "totals_seconds": 0.0,
                    "max_batch": 20,
                    "tolerance": EXACT,
                    **limits,
                }
            ),
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

    async def taken_in(self) -> None:
        """Everything that is in the topics is folded in; what may wait to be published may be waiting."""
        await self.wait(self.consumer.drained())
        await self.wait(self._folded_in())
        await self.wait(self.worker.drain())

    async def settled(self) -> None:
        """Everything that is in the topics is acknowledged, and every ranking is up to date."""
        await self.wait(self.consumer.drained())
        await self.wait(self._caught_up())

    async def _caught_up(self) -> None:
        # What intake has put into a collection's log reaches its queries by way of the follower, a little later.
        while True:
            await self.worker.drain()
            if self.worker.idle() and not any([await self._behind(q) for q in await self.world.store.query_ids()]):
                return
            await asyncio.sleep(0)

    async def _folded_in(self) -> None:
        while any([await self._behind(q) for q in await self.world.store.query_ids()]):  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def _behind(self, query_id: str) -> bool:
        state = self.worker.state(query_id)
        if state is None:
            return False
        read = state.collection.entries
        return state.lag > 0 or read < await self.world.store.entry_count(state.settings.collection)


def say(broker: MemoryBroker, *events: Event) -> None:
    """Produce events to their topics."""
    for event in events:
        match event:
            case Query():
                broker.produce("queries", event.query_id.encode(), encode_query(event))
            case Item() | Withdrawal():
                broker.produce("items", event.item_id.encode(), encode_item(event))
            case Verdict():
                broker.produce("verdicts", event.query_id.encode(), encode_verdict(event))
            case LeaseFact():
                broker.produce("leases", event.query_id.encode(), encode_lease(event))


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
        say(self.broker, *events)

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


def item(number: int, collection: str = "default") -> Item:
    rng = random.Random(number)
    sender, *recipients = rng.sample(PEOPLE, rng.choice((2, 2, 3)))
    return Item(f"item-{number}", collection, sender, tuple(sorted(recipients)))


def verdict(number: int, query_id: str = "q", *, item: int | None = None, outcome: str = "relevant") -> Verdict:
    of = number if item is None else item
    return Verdict(f"v{number}", query_id, f"item-{of}", "zoe", Outcome(outcome), 1_700_000_000_000_000 + number)


def lease(
    number: int, action: str = "claimed", *, item: int, query_id: str = "q", analyst: str = "zoe", at: int = 0
) -> LeaseFact:
    """Lease `number` is on one item, whatever happens to it; `at` and `until` in the terms of `verdict`."""
    begin = 1_700_000_000_000_000 + at
    return LeaseFact(f"l{number}", query_id, f"item-{item}", analyst, Action(action), begin, begin + 60)


def story(seed: int, *, opened_first: bool = False) -> list[Event]:
    """A query of each model, forty items, verdicts of every kind, some changed their mind."""
    rng = random.Random(seed)
    events: list[Event] = [Query("q"), Query("r", prior=RELEVANCE, policy=Policy("bayes-ucb"))]
    events += [item(n) for n in range(40)]
    for number in range(60):
        query_id, outcome = rng.choice("qr"), rng.choice([o.value for o in Outcome])
        events.append(replace(verdict(number, query_id, item=rng.randrange(40), outcome=outcome)))
    for _ in range(30):
        action, which = rng.choice([a.value for a in Action]), rng.randrange(15)
        query_id, analyst = "qr"[which % 2], ("zoe", "kim")[which % 3 == 0]
        events.append(
            lease(which, action, item=which * 2, query_id=query_id, analyst=analyst, at=rng.randrange(60))
        )
    rng.shuffle(events)
    return sorted(events, key=lambda event: not isinstance(event, Query)) if opened_first else events
