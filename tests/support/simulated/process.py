"""A worker as a process: it may stand still, and be cut off between any two things that it does to others."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextvars import ContextVar, copy_context
from math import inf, nextafter
from random import Random
from typing import Any, TypeVar

from haystream_service.kafka.records import OWNED, SOURCES, BrokerUnavailable, Offsets
from haystream_service.metrics import Metrics
from haystream_service.store.base import Store, StoreUnavailable
from haystream_service.store.claims import Claims, Outgoing
from haystream_service.wire import decode_ranking
from haystream_service.worker.leasing import Leasing
from haystream_service.worker.memory_broker import Message
from haystream_service.worker.progress import Progress
from haystream_service.worker.retry import Retry
from haystream_service.worker.shared import Limits
from haystream_service.worker.transport import Again
from haystream_service.worker.worker import Worker
from support.equality import EXACT
from support.simulated.loop import VirtualClock, VirtualLoop, short_time
from support.simulated.servers import Broker, Link

T = TypeVar("T")

READS = ("read_", "load_", "has_", "item_count", "entry_count", "query_ids", "generation", "ping")
"""How the store's methods are called that write nothing."""
RANKINGS = "next-items"
WHO: "ContextVar[Process | None]" = ContextVar("WHO", default=None)
"""The process that a task belongs to."""


class Process:
    """One worker, its links to the servers, and its tasks, which end with it wherever they are.

    Everything that others can see of it is a request. Before and after each there is a `point` at which it may be
    cut off: at the one numbered `fatal`. A request that has left a process is carried out whatever becomes of it.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        broker: Broker,
        rng: Random,
        metrics: Metrics,
        *,
        skew: float,
        fatal: int | None,
    ) -> None:
        self.name = name
        self.fatal = fatal
        """The number of the point at which it is cut off, if any."""
        self.alive = True
        self.links = {"redis": Link(), "kafka": Link()}
        self.loop: VirtualLoop = asyncio.get_running_loop()  # type: ignore[assignment]
        self.rng = rng
        self.broker = broker
        self.did: Callable[[str, str], None] = lambda name, what: None
        """Is told of every request: the process's name, and what it did."""
        self.on_crash: Callable[[Process], None] = lambda process: None
        self.landed: dict[bytes, tuple[int, int]] = {}
        """By query, the partition and the offset of the ranking that this process published last."""
        self._store = store
        self._points = 0
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._landed = 0.0
        self.clock = VirtualClock(self.loop, skew=skew)
        self._metrics = metrics
        self.worker: Worker
        self.leasing: Leasing
        self.progress: Progress

    def begin(
        self,
        *,
        partitions: Any,
        caught_up: Callable[[int], Awaitable[None]],
        again: Again,
        limits: dict[str, Any],
    ) -> None:
        """Make the worker; to be called in the process's own context (`run`).

        `partitions` says what is read and acknowledged, as `worker.partitions` does.
        """
        self.worker = Worker(
            StoreOf(self, self._store),  # type: ignore[arg-type]
            PublisherOf(self),
            caught_up=caught_up,
            ends=self._ends,
            again=again,
            metrics=self._metrics,
            limits=Limits(tolerance=EXACT, **limits),
            clock=self.clock,
            retry=(retry := Retry(self._metrics, rng=self.rng)),
        )
        self.progress = Progress(StoreOf(self, self._store), partitions, self.worker.written)  # type: ignore[arg-type]
        self.leasing = Leasing(
            StoreOf(self, self._store),  # type: ignore[arg-type]
            PublisherOf(self),
            lambda: self.worker.partitions,
            metrics=self._metrics,
            retry=retry,
            behind=partitions.behind,
            load_again=self.worker.load_again,
        )

    def run(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task of the process."""
        context = copy_context()
        context.run(WHO.set, self)
        return self.loop.create_task(work, context=context)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Have the task end with the process."""
        self._tasks[task] = None

    @property
    def frozen(self) -> bool:
        """Whether it stands still."""
        return not self._thawed.is_set()

    def freeze(self) -> None:
        """Stand still (SIGSTOP)."""
        self._thawed.clear()

    def thaw(self) -> None:
        """Go on (SIGCONT)."""
        self._thawed.set()

    def kill(self) -> None:
        """Be gone at once (SIGKILL): only requests that are under way still reach their server."""
        if self.alive:
            self.alive = False
            self.did(self.name, "dies")
            for task in self._tasks:
                task.cancel()
            self.on_crash(self)

    async def watch(self) -> None:
        """As `worker.rankings`: write over older rankings that land after this process's own."""
        positions: dict[int, int] = {}
        while True:
            await asyncio.sleep(self.rng.uniform(0.2, 1.0))
            await self.point()
            if self.links["kafka"].refused == 1.0:
                continue
            begins: dict[int, int] = {}
            for partition, offset in (at for key, at in self.landed.items() if self.revision(key) is not None):
                begins[partition] = min(offset, begins.get(partition, offset))
            positions = {partition: positions.get(partition, begin) for partition, begin in begins.items()}
            for partition, position in positions.items():
                where = RANKINGS, partition
                for offset in range(position, self.broker.end(where)):
                    self._look(partition, offset)
                positions[partition] = self.broker.end(where)

    async def note(self) -> None:
        """As `worker.watch`: note in the store how far it is, and end where it has gone back."""
        while True:
            await asyncio.sleep(self.rng.uniform(0.5, 1.5))
            await self.point()
            try:
                await self.progress.note()
            except StoreUnavailable:
                continue
            except Exception as bug:  # noqa: BLE001 - `StateBack`, or one of ours
                self.worker.fail(bug)
                return

    def _look(self, partition: int, offset: int) -> None:
        message = self.broker.at((RANKINGS, partition), offset)
        key = message.key or b""
        revision = self.revision(key)
        if revision is None or offset <= self.landed.get(key, (partition, offset))[1]:
            return
        if message.value is None or decode_ranking(message.value).revision < revision:
            self.worker.publish_again(key.decode())

    def revision(self, key: bytes) -> int | None:
        """The newest revision of a query that the worker owns."""
        return self.worker.revision(key.decode())

    async def point(self) -> None:
        """Between two things: here a process stands still, or is cut off."""
        self._points += 1
        if self._points == self.fatal:
            self.kill()
        await self._thawed.wait()
        while not self.alive:
            await asyncio.Event().wait()

    async def read(self, server: str, call: Callable[[], Awaitable[T]], what: str) -> T:
        """What a server answers to a question."""
        before = self.links[server].servers
        await self._out(server, what)
        answer = await call()
        await self._back(server, what, before)
        return answer

    async def write(self, server: str, carry_out: Callable[[], T], what: str, *, in_order: bool = False) -> T:
        """Have a server do something, now or a little later; with `in_order`, after what it was told before."""
        before = self.links[server].servers
        await self._out(server, what)
        at = self.loop.time() + short_time(self.rng)
        if in_order:
            # Later than the one before it, if by nothing: a loop's timers of one time come in any order.
            at = self._landed = max(at, nextafter(self._landed, inf))
        answer: asyncio.Future[T] = self.loop.create_future()

        def land() -> None:
            if self.links[server].servers != before:
                answer.set_exception(self._unavailable(server, f"{what}: lost"))
                answer.exception()
                return
            self.did(self.name, what)
            try:
                answer.set_result(carry_out())
            except Exception as error:  # noqa: BLE001 - the answer
                answer.set_exception(error)
                answer.exception()

        self.loop.call_at(at, land)
        if self.rng.random() < self.links[server].lost:
            await asyncio.sleep(short_time(self.rng))
            await self.point()
            raise self._unavailable(server, f"{what}: no answer")
        result = await asyncio.shield(answer)
        await self.point()
        return result

    async def _out(self, server: str, what: str) -> None:
        await self.point()
        if self.rng.random() < self.links[server].refused:
            await asyncio.sleep(short_time(self.rng))
            await self.point()
            raise self._unavailable(server, f"{what}: refused")

    async def _back(self, server: str, what: str, before: int) -> None:
        if (seconds := short_time(self.rng)) > 0.0:
            await asyncio.sleep(seconds)
        await self.point()
        if self.rng.random() < self.links[server].lost or self.links[server].servers != before:
            raise self._unavailable(server, f"{what}: no answer")

    def _unavailable(self, server: str, why: str) -> Exception:
        self.did(self.name, why)
        return (StoreUnavailable if server == "redis" else BrokerUnavailable)(why)

    async def _ends(self, partitions: Collection[int]) -> Mapping[int, Offsets]:
        async def ends() -> Mapping[int, Offsets]:
            topics = [SOURCES[kind] for kind in OWNED]
            return {p: tuple(self.broker.end((topic, p)) for topic in topics) for p in partitions}  # type: ignore[misc]

        return await self.read("kafka", ends, "ends")


class StoreOf:
    """The store as one process reaches it: every method of the contract."""

    def __init__(self, process: Process, store: Store) -> None:
        self._process = process
        self._store = store

    @property
    def claims(self) -> Claims:
        """The leases, over the same link."""
        return ClaimsOf(self._process, self._store.claims)  # type: ignore[return-value]

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        async def call(*args: Any, **options: Any) -> Any:
            if name.startswith(READS):
                return await self._process.read("redis", lambda: method(*args, **options), name)
            return await self._process.write("redis", lambda: at_once(method(*args, **options)), name)

        return call


class ClaimsOf:
    """The store's leases as one process reaches them: a call is done as it arrives, and no trace tells of it."""

    def __init__(self, process: Process, claims: Claims) -> None:
        self._process = process
        self._claims = claims

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._claims, name)

        async def call(*args: Any, **options: Any) -> Any:
            return await self._process.read("redis", lambda: method(*args, **options), name)

        return call


class PublisherOf:
    """The topics as one process writes to them: in order, as an idempotent producer does."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def publish_ranking(self, query_id: str, value: bytes) -> None:
        """Append to next-items."""
        await self._publish(RANKINGS, query_id.encode(), value)

    async def withdraw_ranking(self, query_id: str) -> None:
        """Append a record without a value to next-items."""
        await self._publish(RANKINGS, query_id.encode(), None)

    async def publish_dead_letter(self, key: bytes | None, value: bytes) -> None:
        """Append to dead-letters."""
        await self._publish("dead-letters", key, value)

    async def publish_leases(self, records: Sequence[Outgoing]) -> None:
        """Append to leases, each to its partition."""
        broker, clock = self._process.broker, self._process.clock

        def append() -> None:
            for record in records:
                broker.append(("leases", record.partition), Message(record.key, record.value, clock.now()))

        await self._process.write("kafka", append, "leases", in_order=True)

    async def restate_settings(self, query_id: str, partition: int, value: bytes, restates: int) -> None:
        """Append to that partition of queries."""
        broker, key = self._process.broker, query_id.encode()
        await self._process.write("kafka", lambda: broker.restate(key, value, partition, restates), "queries")

    async def _publish(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        process, where = self._process, (topic, self._process.broker.partition_of(key))

        def append() -> None:
            if topic == RANKINGS and process.alive and key is not None:
                process.landed[key] = where[1], process.broker.end(where)
            process.broker.produce(topic, key, value)

        await process.write("kafka", append, topic, in_order=True)


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits, as those of the memory store that write."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("a write waits")


def task_of_its_process(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    """A loop's task factory: a task belongs to the process that starts it."""
    context = options.get("context")
    process = context.get(WHO) if context is not None else WHO.get()
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
    if process is not None:
        process.adopt(task)
    return task
