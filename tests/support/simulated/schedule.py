"""One schedule: who fails when, drawn from a seed; and what must hold whatever was drawn."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random

from prometheus_client import CollectorRegistry

from haystream.errors import Code
from haystream.events import Status
from haystream.facts.merging import merge
from haystream_service.commands.replay import Replayed, fold
from haystream_service.kafka.records import OWNED, SOURCES, Kind, Record, partition_name
from haystream_service.metrics import Metrics
from haystream_service.store.memory import MemoryStore
from haystream_service.wire import (
    decode_dead_letter,
    decode_item,
    decode_lease,
    decode_query,
    decode_ranking,
    decode_verdict,
    encode_line,
)
from haystream_service.worker.endings import ReadTooFar, StateBack
from support.equality import EXACT, assert_is_the_state, assert_says_the_same
from support.simulated.desk import Desk
from support.simulated.group import SESSION_SECONDS, Consumer, Group, Partitions
from support.simulated.loop import VirtualClock, VirtualLoop
from support.simulated.process import Process, at_once, task_of_its_process
from support.simulated.servers import Broker
from support.simulated.store_copy import StoreCopy
from support.simulated.story import story

MOST_WORKERS = 3
STORM_SECONDS = 20.0
"""For how long things fail, about."""
PATIENCE_SECONDS = 900.0
"""Of virtual time, after the last fault: whoever has not come to rest by then never will."""
QUIET_SECONDS = 15.0
"""Nothing but waiting for so long is rest."""
SHOWN = 150
"""Lines of a failing run's trace, the last ones."""

GOES_BACK = 0.25
"""In so many schedules the store may go back to what it was, again and again."""

FAULTS = ("killed", "frozen", "cut off", "served badly", "outage", "joined", "moved", "went back")
"""What can go wrong, or at least change."""


class ScheduleFailed(AssertionError):  # noqa: N818 - it says what became of the run
    """A seed with which something does not hold. `seed` brings back the very same run."""

    def __init__(self, seed: int, cause: BaseException, trace: list[str]) -> None:
        shown = "\n".join(trace[-SHOWN:])
        super().__init__(f"{shown}\nschedule {seed}: {type(cause).__name__}: {cause}")
        self.seed = seed


@dataclass(slots=True)
class Ran:
    """What happened in a run that ended well."""

    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    records: int = 0
    trace: list[str] = field(default_factory=list)


def run(seed: int) -> Ran:
    """Play the schedule of that seed. Raises `ScheduleFailed`."""
    rng = Random(seed)
    loop = VirtualLoop(rng)
    loop.set_task_factory(task_of_its_process)
    schedule: Schedule | None = None
    try:
        with _quiet():
            try:
                schedule = loop.run_until_complete(_made(seed, rng))
                loop.run_until_complete(schedule.play())
            except Exception as cause:
                raise ScheduleFailed(seed, cause, schedule.ran.trace if schedule else []) from cause
            finally:
                _cancel_all(loop)
    finally:
        loop.close()
    return schedule.ran


async def _made(seed: int, rng: Random) -> "Schedule":
    return Schedule(seed, rng)


class Schedule:
    """A store, a broker, a group of workers, what is produced, and what goes wrong."""

    def __init__(self, seed: int, rng: Random) -> None:
        self.ran = Ran(seed)
        self.rng = rng
        self.loop: VirtualLoop = asyncio.get_running_loop()  # type: ignore[assignment]
        self.store = MemoryStore()
        clock = VirtualClock(self.loop)
        self.broker = Broker(partitions=rng.choice((1, 2, 3)), clock=clock)
        self.groups = {kinds: Group(self.broker, rng) for kinds in (OWNED, (Kind.ITEM,))}
        self.desk = Desk(self.store, self.broker, rng, clock.now)
        self.processes: list[Process] = []
        self.metrics = Metrics(CollectorRegistry(), labelled_queries=0)
        self.limits = {
            "max_batch": rng.choice((1, 3, 20)),
            "item_publish_seconds": rng.choice((0.0, 0.1, 0.5)),
            "idle_seconds": rng.choice((0.0, 2.0, 900.0, 900.0)),
            "queries_in_memory": rng.choice((1, 1000)),
            "refresh_seconds": rng.choice((0.3, 3.0)),
            "slim_seconds": rng.choice((0.0, 60.0)),
            "totals_seconds": rng.choice((0.0, 0.5, 5.0)),
            # All deaths here come from outside, at any rate and often in a row.
            "deaths": 1_000_000,
        }
        self.goes_back = rng.random() < GOES_BACK
        self.broken: BaseException | None = None
        self._kept: StoreCopy | None = None
        self._last_change = 0.0
        self._calm = False
        self._letters: dict[tuple[str, int, int], str] = {}
        self._letters_read: Counter[int] = Counter()

    async def play(self) -> None:
        """Everything, to its end."""
        for _ in range(self.rng.randint(1, 2)):
            self._start()
        coordinating = [asyncio.create_task(group.coordinate()) for group in self.groups.values()]
        producing = asyncio.create_task(self._produce())
        analysts = [asyncio.create_task(self.desk.work(f"a{n}")) for n in range(self.rng.randrange(4))]
        await self._storm()
        await producing
        await asyncio.gather(*analysts)
        self._calm_down()
        await self._rest()
        for task in coordinating:
            if task.done():
                task.result()
        await self._check()

    # ---- what is done ----

    async def _produce(self) -> None:
        # Who has not noticed yet that the store went back may let in a contradiction of what that lost.
        said = story(self.rng, contradictions=not self.goes_back)
        self.ran.records = len(said)
        pause = STORM_SECONDS / len(said)
        for record in said:
            marker = self.rng.random() < 0.02
            self.broker.produce(record.topic, record.key, record.value, marker=marker)
            if self.rng.random() < 0.7:
                await asyncio.sleep(self.rng.expovariate(1 / pause))

    async def _storm(self) -> None:
        """One thing after the other goes wrong, and ends or not."""
        faults = [self._kill, self._freeze, self._cut, self._shake, self._outage, self._scale, self._move]
        if self.goes_back:
            faults += 2 * [self._copy, self._go_back]
        until = self.loop.time() + self.rng.uniform(0.0, STORM_SECONDS)
        while self.loop.time() < until and self.broken is None:
            await asyncio.sleep(self.rng.expovariate(1 / 2.0))
            self.rng.choice(faults)()

    def _copy(self) -> None:
        """Keep what the store holds, if there is anything, in place of what was kept."""
        if at_once(self.store.generation()) is not None:
            self._note("redis", "is copied")
            self._kept = StoreCopy(self.store)

    def _go_back(self) -> None:
        """The store is as it was when it was copied, as after a failover."""
        if self._kept is not None:
            self._note("redis", "goes back")
            self.ran.faults["went back"] += 1
            self._kept.put_back()
            for process in self.processes:
                process.links["redis"].servers += 1

    def _one(self) -> Process | None:
        living = [process for process in self.processes if process.alive]
        return self.rng.choice(living) if living else None

    def _kill(self) -> None:
        if (process := self._one()) is not None:
            process.kill()

    def _freeze(self) -> None:
        """For a moment, or for so long that it is left behind; then it goes on, and is told only later."""
        process = self._one()
        if process is None or process.frozen:
            return
        self._note(process.name, "stands still")
        self.ran.faults["frozen"] += 1
        process.freeze()
        self._after(self.rng.choice((0.5, 3.0, 2 * SESSION_SECONDS)), lambda: self._thaw(process))

    def _thaw(self, process: Process) -> None:
        self._note(process.name, "goes on")
        process.thaw()

    def _cut(self) -> None:
        """One process from one server."""
        process, server = self._one(), self.rng.choice(("redis", "kafka"))
        if process is not None:
            self._note(process.name, f"is cut off from {server}")
            self.ran.faults["cut off"] += 1
            process.links[server].cut()
            self._after(self.rng.choice((0.5, 3.0, 2 * SESSION_SECONDS)), process.links[server].heal)

    def _shake(self) -> None:
        process, server = self._one(), self.rng.choice(("redis", "kafka"))
        if process is not None:
            self._note(process.name, f"is served badly by {server}")
            self.ran.faults["served badly"] += 1
            process.links[server].shake(self.rng)
            self._after(self.rng.uniform(0.0, 10.0), process.links[server].heal)

    def _outage(self) -> None:
        """One server, for everybody."""
        server = self.rng.choice(("redis", "kafka"))
        self._note(server, "is down")
        self.ran.faults["outage"] += 1
        for process in self.processes:
            process.links[server].cut()
            self._after(self.rng.uniform(0.0, 8.0), process.links[server].heal)

    def _scale(self) -> None:
        if sum(process.alive for process in self.processes) < MOST_WORKERS:
            self.ran.faults["joined"] += 1
            self._start()

    def _move(self) -> None:
        self.ran.faults["moved"] += 1
        self.rng.choice(list(self.groups.values())).wanted = True

    def _start(self) -> None:
        """Another worker, which joins when it is ready."""
        rng = self.rng
        process = Process(
            f"w{len(self.processes)}",
            self.store,
            self.broker,
            rng,
            self.metrics,
            skew=rng.choice((0.0, 0.0, -3600.0, 0.5, 86400.0)),
            fatal=rng.randint(1, 400) if rng.random() < 0.5 and not self._calm else None,
        )
        process.did = self._note
        process.on_crash = self._crashed
        self.processes.append(process)
        process.run(self._join(process))

    async def _join(self, process: Process) -> None:
        try:
            consumers = [Consumer(process, self.broker, self.rng, kinds, self.check_saved) for kinds in self.groups]
            partitions = Partitions(consumers, self.rng)
            process.begin(
                partitions=partitions,
                caught_up=consumers[0].caught_up,
                again=consumers[0].again,
                limits=self.limits,
            )
            process.worker.failed.add_done_callback(partial(self._failed, process))
            committed = {
                partition_name(kind, partition): offset
                for (topic, partition), offset in self.broker.committed.items()
                for kind in Kind
                if offset and SOURCES[kind] == topic
            }
            await process.worker.start(committed=committed)
            process.run(process.watch())
            process.run(process.note())
            process.run(process.leasing.run())
            for consumer in consumers:
                await consumer.start()
                self.groups[consumer.kinds].join(consumer)
        except Exception as bug:  # noqa: BLE001 - it ends the run
            self.broken = bug

    def _crashed(self, process: Process) -> None:
        self.ran.faults["killed"] += 1
        if not any(other.alive for other in self.processes) or self.rng.random() < 0.7:
            self._after(self.rng.choice((0.0, 1.0, 5.0)), self._start)
        if self.rng.random() < 0.5:
            for group in self.groups.values():
                group.leave(process)

    def _calm_down(self) -> None:
        """From here on everything goes well."""
        self._calm = True
        for process in self.processes:
            process.thaw()
            process.fatal = None
            for link in process.links.values():
                link.heal()
        if not any(process.alive for process in self.processes):
            self._start()

    # ---- what must hold ----

    def check_saved(self, record: Record) -> None:
        """At the moment when it is acknowledged, a record is in the store, or a dead letter."""
        if self.goes_back:
            return  # it may have been, in what the store is not any more
        if self.broken is None and not self._is_saved(record):
            self.broken = AssertionError(
                f"{record.topic} {record.partition}/{record.offset}: nothing of it is saved"
            )

    def _is_saved(self, record: Record) -> bool:
        return (record.topic, record.partition, record.offset) in self._dead_letters() or self._in_store(record)

    def _in_store(self, record: Record) -> bool:
        if record.kind is Kind.ITEM:
            fact = decode_item(record.value, record.key)
            known = at_once(self.store.find_item(fact.collection, fact.item_id))
            return known is not None and merge(known, fact) == known
        assert record.key is not None
        stored = at_once(self.store.load_query(record.key.decode()))
        if stored is None:
            return False
        if stored.settings.status == Status.DELETED:
            return True  # nothing of it is kept
        if record.kind is Kind.LEASE:
            lease_id = decode_lease(record.value, record.key).lease_id
            return any(fact.lease_id == lease_id for fact in stored.leases)
        if record.kind is Kind.VERDICT:
            return decode_verdict(record.value, record.key) in stored.verdicts
        if record.restates is not None:
            return True  # it may be out of date, and then they are written once more
        # Settings that change nothing need not be saved.
        return stored.position.queries_offset >= record.offset or stored.settings == decode_query(
            record.value, record.key
        )

    async def _rest(self) -> None:
        """Return when all that was produced is committed, and nothing has happened for a while."""
        give_up = self.loop.time() + PATIENCE_SECONDS
        while not (
            all(group.settled for group in self.groups.values())
            and self.broker.read_to_its_end()
            and not self.desk.unpublished()
            and self.loop.time() - self._last_change > QUIET_SECONDS
        ):
            if self.broken is not None:
                raise self.broken
            assert self.loop.time() < give_up, f"no rest within {PATIENCE_SECONDS:g} s"
            await asyncio.sleep(1.0)

    async def _check(self) -> None:
        """What is stored, published and refused is what an offline fold of the same log gives."""
        if not self.goes_back:  # or of two who claimed the same one's claim is lost
            self.desk.check()
        replayed = self._replay()
        rankings = self.broker.messages("next-items")
        published = [decode_ranking(message.value) for message in rankings if message.value is not None]
        await assert_is_the_state(self.store, published, replayed.state)
        rejected = {
            (*self.broker.produced[r.line - 1][0], self.broker.produced[r.line - 1][1]): r.code
            for r in replayed.rejected
        }
        # Of queries that are deleted it depends on who was first what is refused.
        expected, told = rejected | self._early(replayed), self._dead_letters()
        if self.goes_back:  # who had not noticed may have refused what is read again, and counts
            told = {source: code for source, code in told.items() if source in expected}
        deleted = {source for source in expected | told if self._query_of(source) in replayed.state.deleted}
        assert {s: c for s, c in told.items() if s not in deleted} == {
            s: c for s, c in expected.items() if s not in deleted
        }
        for query_id in replayed.state.deleted:
            assert [m.value for m in rankings if m.key == query_id.encode()][-1] is None
        for query_id in replayed.state.queries:
            of_query = [m.value for m in rankings if m.key == query_id.encode()]
            newest = max(of_query, key=lambda value: decode_ranking(value).revision)
            stored = await self.store.read_ranking(query_id)
            assert stored is not None
            if newest != stored:
                # A save of what tending moved may land when its worker has lost the partition: nothing of it is
                # read again, so nobody publishes it. It says the same, up to what solves leave out.
                both = [decode_ranking(newest), decode_ranking(stored)]
                # Where the store went back, the later one may be of what it is not any more.
                assert_says_the_same(*(sorted(both, key=lambda r: r.revision) if self.goes_back else both))
            last = of_query[-1]
            assert last == newest or (self.goes_back and last == stored), (
                f"an older one of {query_id!r} stands last"
            )

    def _replay(self) -> Replayed:
        messages = [(where[0], self.broker.at(where, offset)) for where, offset in self.broker.produced]
        return fold((encode_line(topic, m.value or b"") for topic, m in messages), tolerance=EXACT)

    # ---- parts ----

    def _early(self, replayed: Replayed) -> dict[tuple[str, int, int], str]:
        """The letters of verdicts whose query was opened later: they are told of, and count all the same."""
        return {
            source: code
            for source, code in self._dead_letters().items()
            if code == Code.UNKNOWN_QUERY and self._query_of(source) in replayed.state.queries
        }

    def _query_of(self, source: tuple[str, int, int]) -> str | None:
        """The query that a record of queries or verdicts is under."""
        key = self.broker.at(source[:2], source[2]).key
        return None if source[0] == "items" or key is None else key.decode()

    def _dead_letters(self) -> dict[tuple[str, int, int], str]:
        """The code of each dead letter, by topic, partition and offset of its source."""
        for partition in range(self.broker.partitions):
            where = "dead-letters", partition
            while self._letters_read[partition] < self.broker.end(where):
                letter, _ = decode_dead_letter(self.broker.at(where, self._letters_read[partition]).value)
                source = letter.source
                self._letters[source.topic, source.partition, source.offset] = letter.error.code
                self._letters_read[partition] += 1
        return self._letters

    def _failed(self, process: Process, failed: asyncio.Future[None]) -> None:
        if failed.cancelled():
            return
        error = failed.exception()
        if isinstance(error, StateBack if self.goes_back else ReadTooFar):
            self._note(process.name, str(error))
            process.kill()  # and another begins anew
        else:
            self.broken = self.broken or error

    def _after(self, seconds: float, what: Callable[[], object]) -> None:
        self.loop.call_later(seconds, what)

    def _note(self, who: str, what: str) -> None:
        if what == "move_up_to":
            return  # what goes on without end
        self._last_change = self.loop.time()
        self.ran.trace.append(f"{self.loop.time():10.4f} {who} {what}")


def _cancel_all(loop: VirtualLoop) -> None:
    while tasks := asyncio.all_tasks(loop):  # a mailbox whose task is cancelled starts another for what waits
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.wait(tasks))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what workers log: there is the trace."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
