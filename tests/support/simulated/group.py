"""The consumer group: who reads which partitions, and whose commits count."""

import asyncio
from collections.abc import Callable, Collection, Set
from math import inf
from random import Random
from typing import Any

from aiokafka import TopicPartition

from haystream_service.kafka.records import SOURCES, Kind, Record
from haystream_service.store.base import Span
from haystream_service.worker.acks import OrderedAcks
from support.simulated.loop import short_time
from support.simulated.process import Process
from support.simulated.servers import Broker, Message, Where

COMMIT_SECONDS = 0.5
LOOK_SECONDS = 0.3
"""Between two tries of a consumer that is cut off."""
SESSION_SECONDS = 10.0
"""After so long without a sign a member is given up."""


class Consumer:
    """Hands one process the records of its partitions. A member of one group, which reads some topics.

    Queries and verdicts one at a time of each topic, as Faust's agents do; items in batches, one after the other.
    """

    def __init__(
        self,
        process: Process,
        broker: Broker,
        rng: Random,
        kinds: tuple[Kind, ...],
        on_ack: Callable[[Record], None],
    ) -> None:
        self.generation = 0
        self.partitions: set[int] = set()
        self.process = process
        self.kinds = kinds
        self._broker = broker
        self._rng = rng
        self._on_ack = on_ack
        self._next: dict[Where, int] = {}
        self._handed: dict[Where, int] = {}
        self._acks: dict[Where, OrderedAcks] = {}
        self._acked: dict[Where, int] = {}
        """What is to be committed."""
        self._released: dict[Where, int] = {}
        """What was acknowledged since the partition was assigned."""
        self._began: dict[Where, int] = {}
        """From where it is read since then."""
        self._moved = asyncio.Event()
        broker.listeners.append(self._move)

    async def start(self) -> None:
        """Read for as long as the process lives."""
        for kind in self.kinds:
            self.process.run(self._read(kind))
        self.process.run(self._commit())

    async def revoke(self) -> None:
        """Everything is taken away."""
        partitions, self.partitions = self.partitions, set()
        self.process.did(self.process.name, f"loses {sorted(partitions)}")
        for acks in self._acks.values():
            acks.forget()
        for of_partition in (self._next, self._handed, self._acks, self._acked, self._released, self._began):
            of_partition.clear()
        if Kind.QUERY in self.kinds:
            await self.process.worker.revoke(partitions)

    async def assign(self, partitions: set[int], generation: int) -> None:
        """These are the process's now; it reads them from what is committed."""
        self.generation, self.partitions = generation, partitions
        self.process.did(self.process.name, f"gets {sorted(partitions)}")
        committed = {
            TopicPartition(SOURCES[kind], p): self._broker.committed[SOURCES[kind], p]
            for kind in self.kinds
            for p in partitions
        }
        begins = committed | dict(await self.process.progress.begin(committed))
        if self.generation != generation:
            return  # it is told otherwise meanwhile
        for where, offset in begins.items():
            self._next[where] = self._handed[where] = self._began[where] = offset
            self._acks[where] = OrderedAcks()
        if Kind.QUERY in self.kinds:
            await self.process.worker.assign(partitions)
        self._move()

    def has(self, where: Where) -> bool:
        """Whether it is assigned, though it may not be known yet from where it is read."""
        topic, partition = where
        return any(topic == SOURCES[kind] for kind in self.kinds) and partition in self.partitions

    def acknowledged(self, where: Where) -> int:
        """The offset after the last record that was acknowledged; 0 for none."""
        return self._released.get(where, 0)

    def behind(self, where: Where) -> float:
        """For how many seconds a record has been there that is not acknowledged; 0 where there is none, infinite
        where it is not known from where the partition is read."""
        if where not in self._began:
            return inf
        first = self._broker.after_markers(where, max(self._began[where], self.acknowledged(where)))
        if first >= self._broker.end(where):
            return 0.0
        return self._broker.now() - self._broker.at(where, first).timestamp

    async def caught_up(self, partition: int) -> None:
        """Return when the queries partition was handed over as far as it goes now."""
        where = (SOURCES[Kind.QUERY], partition)
        end = self._broker.end(where)
        while self._broker.after_markers(where, self._handed.get(where, 0)) < end:
            await self._moved.wait()
        await self.process.point()

    async def again(self, kind: Kind, partition: int, key: bytes, span: Span) -> list[Record]:
        """The partition's records of that key in the span."""
        broker, where = self._broker, (SOURCES[kind], partition)

        async def read() -> list[Record]:
            offsets = {broker.after_markers(where, offset) for offset in range(span.first, span.last + 1)}
            there = sorted(offset for offset in offsets if offset <= span.last)
            records = [self._as_record(kind, where, o, broker.at(where, o), lambda: None) for o in there]
            return [record for record in records if record.key == key]

        return await self.process.read("kafka", read, "again")

    async def _read(self, kind: Kind) -> None:
        broker, topic = self._broker, SOURCES[kind]
        while True:
            ready = [
                where
                for where, offset in sorted(self._next.items())
                if where[0] == topic and broker.after_markers(where, offset) < broker.end(where)
            ]
            if not ready:
                await self._moved.wait()
                continue
            if self.process.links["kafka"].refused == 1.0:
                await asyncio.sleep(LOOK_SECONDS)
                continue
            where = self._rng.choice(ready)
            acks = self._acks[where]
            most = self._rng.choice((1, 3, 100)) if kind is Kind.ITEM else 1
            begin, offsets = self._next[where], []
            while len(offsets) < most and (offset := broker.after_markers(where, begin)) < broker.end(where):
                offsets.append(offset)
                begin = self._next[where] = offset + 1
            await asyncio.sleep(short_time(self._rng))
            await self.process.point()
            if self._acks.get(where) is not acks:
                continue  # the partition went meanwhile
            records = [self._record(kind, where, offset, acks) for offset in offsets]
            self.process.did(self.process.name, f"is handed {topic} {where[1]}/{offsets}")
            if kind is Kind.ITEM:
                await self.process.worker.on_items(records)
            else:
                await self.process.worker.on_record(records[0])
            if self._acks.get(where) is acks:
                self._handed[where] = begin
                self._move()

    def _record(self, kind: Kind, where: Where, offset: int, acks: OrderedAcks) -> Record:
        message = self._broker.at(where, offset)

        def release() -> None:
            if self.process.alive:
                self._on_ack(record)
                self._acked[where] = self._released[where] = offset + 1

        ack = acks.track(release)
        record = self._as_record(kind, where, offset, message, ack)
        return record

    def _as_record(
        self, kind: Kind, where: Where, offset: int, message: Message, ack: Callable[[], None]
    ) -> Record:
        said = message.timestamp, message.key, message.value
        return Record(kind, *where, offset, *said, ack, restates=message.restates)

    async def _commit(self) -> None:
        while True:
            await asyncio.sleep(self._rng.uniform(0.0, 2 * COMMIT_SECONDS))
            if not self._acked:
                continue
            await self.process.point()
            if self._rng.random() < self.process.links["kafka"].refused:
                continue
            acked, self._acked = self._acked, {}
            self.commit(acked)

    commit: Callable[[dict[Where, int]], None]
    """Has the group note what is acknowledged."""

    def _move(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()


class Partitions:
    """What a process's consumers have read and acknowledged, as `Progress` and `Leasing` ask for it."""

    def __init__(self, consumers: Collection[Consumer], rng: Random) -> None:
        self._consumers = consumers
        self._rng = rng

    def topic(self, kind: Kind) -> str:
        """The topic that brings this kind of record."""
        return SOURCES[kind]

    def has(self, tp: TopicPartition) -> bool:
        """Whether the partition is assigned."""
        return any(consumer.has(tp) for consumer in self._consumers)

    def acknowledged(self, tp: TopicPartition) -> int:
        """The offset after the last record that was acknowledged since the partition was assigned; 0: none was."""
        return max(consumer.acknowledged(tp) for consumer in self._consumers)

    def behind(self, partition: int) -> float:
        """For how many seconds verdicts may have been there that are not acknowledged: as many as it is, or more,
        since nobody looks at every moment; and at times nothing is known."""
        where = SOURCES[Kind.VERDICT], partition
        known = min((consumer.behind(where) for consumer in self._consumers), default=inf)
        return known + self._rng.choice((0.0, 0.0, 1.0, 3.0, inf))

    def begins(self, tp: TopicPartition, offset: int) -> None:
        """Nothing: no record is ever lost here before it is read."""

    def take_items_anew(self, among: Set[TopicPartition]) -> set[TopicPartition]:
        """None: no topic is ever made anew here."""
        return set()


class Group:
    """Its members, one assignment at a time. A member that stands still is left behind and does not know it."""

    def __init__(self, broker: Broker, rng: Random) -> None:
        self.broker = broker
        self.rng = rng
        self.members: dict[str, Consumer] = {}
        self.wanted = False
        """Whether partitions are to be dealt out anew although nobody came or went."""
        self._generation = 0
        self._owner: dict[int, Consumer] = {}
        self._dealt: set[str] = set()

    def join(self, consumer: Consumer) -> None:
        """A member more; it gets nothing before partitions are dealt out the next time."""
        consumer.commit = lambda acked: self._commit(consumer, acked)
        self.members[consumer.process.name] = consumer

    def leave(self, process: Process) -> None:
        """It is known to be gone."""
        self.members.pop(process.name, None)

    async def coordinate(self) -> None:
        """Deal the partitions out anew when somebody came, was silent for too long, or came back; without end."""
        heard: dict[str, float] = {}
        while True:
            await asyncio.sleep(self.rng.uniform(0.1, 2.0))
            now = asyncio.get_running_loop().time()
            heard |= {name: now for name, member in self.members.items() if self._answers(member)}
            there = {
                name: m
                for name, m in self.members.items()
                if now - heard.get(name, -SESSION_SECONDS) < SESSION_SECONDS
            }
            behind = any(m.generation != self._generation for m in there.values() if self._answers(m))
            if self.wanted or behind or there.keys() != self._dealt:
                self.wanted = False
                await self._rebalance(there)

    async def _rebalance(self, members: dict[str, Consumer]) -> None:
        """Have everybody let go, and those who do so in time get something. The others do not know of it."""
        self._owner, self._dealt = {}, set(members)
        self._generation += 1
        letting_go = {name: m.process.run(m.revoke()) for name, m in members.items() if m.process.alive}
        await self._all(letting_go.values())
        there = [members[name] for name, task in letting_go.items() if task.done() and not task.cancelled()]
        dealt: dict[str, set[int]] = {m.process.name: set() for m in there}
        for partition in range(self.broker.partitions if there else 0):
            self._owner[partition] = self.rng.choice(there)
            dealt[self._owner[partition].process.name].add(partition)
        generation = self._generation
        await self._all([m.process.run(m.assign(dealt[m.process.name], generation)) for m in there])

    @property
    def settled(self) -> bool:
        """Whether everybody who is alive has what the last assignment gave."""
        there = [m for m in self.members.values() if m.process.alive]
        return (
            len(self._owner) == self.broker.partitions
            and all(m.generation == self._generation for m in there)
            and all(owner in there for owner in self._owner.values())
        )

    async def _all(self, tasks: Collection[asyncio.Task[Any]]) -> None:
        """Wait until all have done it, or are given up."""
        if tasks:
            await asyncio.wait(tasks, timeout=SESSION_SECONDS)
        for task in tasks:
            if task.done() and not task.cancelled():
                task.result()

    def _answers(self, member: Consumer) -> bool:
        return member.process.alive and not member.process.frozen and member.process.links["kafka"].refused < 1.0

    def _commit(self, member: Consumer, acked: dict[Where, int]) -> None:
        if member.generation != self._generation:
            return  # of one that was left behind
        for where, offset in acked.items():
            if self._owner.get(where[1]) is member:
                self.broker.committed[where] = offset
