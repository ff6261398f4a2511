"""A broker in this process: partitioned topics, a consumer group, commits and redelivery. No server, no disk.

It serves the same `Worker` as Kafka does: the demo where no Java is to be had, and the tests of what happens
when a worker crashes, comes back, or shares the partitions with another.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from zlib import crc32

from haystream_service.kafka.records import OWNED, SOURCES, Kind, Offsets, Record
from haystream_service.store.base import Span
from haystream_service.store.claims import Outgoing
from haystream_service.worker.acks import OrderedAcks
from haystream_service.worker.worker import Worker

ITEMS_AT_ONCE = 1000

Where = tuple[str, int]
"""A topic and a partition."""


@dataclass(frozen=True, slots=True)
class Message:
    """What a topic holds at one offset; `timestamp` in seconds since the epoch."""

    key: bytes | None
    value: bytes | None
    timestamp: float
    restates: int | None = None


class MemoryBroker:
    """Topics and the committed offsets of one consumer group. It outlives the workers; it is the log."""

    def __init__(self, *, partitions: int = 1) -> None:
        self.partitions = partitions
        self.committed: dict[Where, int] = {}
        """The next offset to deliver after a crash, by topic and partition."""
        self._logs: defaultdict[Where, list[Message]] = defaultdict(list)
        self._grown: defaultdict[Where, asyncio.Event] = defaultdict(asyncio.Event)

    def produce(self, topic: str, key: bytes | None, value: bytes | None) -> int:
        """Append a message; messages of one key share a partition. The offset it got."""
        return self.append((topic, crc32(key or b"") % self.partitions), key, value)

    def append(self, where: Where, key: bytes | None, value: bytes | None, *, restates: int | None = None) -> int:
        """Append a message to a partition. The offset it got."""
        log = self._logs[where]
        log.append(Message(key, value, time.time(), restates))
        self._grown[where].set()
        return len(log) - 1

    def messages(self, topic: str) -> list[Message]:
        """Everything in the topic, partition by partition."""
        return [message for p in range(self.partitions) for message in self._logs[topic, p]]

    def end(self, where: Where) -> int:
        """The offset that the partition's next message will get."""
        return len(self._logs[where])

    async def read(self, where: Where, offset: int) -> Message:
        """The message at the offset, as soon as there is one."""
        while self.end(where) <= offset:
            self._grown[where].clear()
            await self._grown[where].wait()
        return self._logs[where][offset]

    async def wait_for(self, topic: str, wanted: Callable[[Message], bool]) -> Message:
        """The topic's first message that is `wanted`, as soon as there is one."""
        readers = [asyncio.ensure_future(self._find((topic, p), wanted)) for p in range(self.partitions)]
        try:
            done, _ = await asyncio.wait(readers, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for reader in readers:
                reader.cancel()

    async def _find(self, where: Where, wanted: Callable[[Message], bool]) -> Message:
        offset = 0
        while not wanted(message := await self.read(where, offset)):
            offset += 1
        return message


class MemoryPublisher:
    """A `Publisher` on a `MemoryBroker`."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    async def publish_ranking(self, query_id: str, value: bytes) -> None:
        """Append to next-items."""
        self._broker.produce("next-items", query_id.encode(), value)

    async def withdraw_ranking(self, query_id: str) -> None:
        """Append a record without a value to next-items."""
        self._broker.produce("next-items", query_id.encode(), None)

    async def publish_dead_letter(self, key: bytes | None, value: bytes) -> None:
        """Append to dead-letters."""
        self._broker.produce("dead-letters", key, value)

    async def publish_leases(self, records: Sequence[Outgoing]) -> None:
        """Append to leases, each to its partition."""
        for record in records:
            self._broker.append((SOURCES[Kind.LEASE], record.partition), record.key, record.value)

    async def restate_settings(self, query_id: str, partition: int, value: bytes, restates: int) -> None:
        """Append to that partition of queries."""
        self._broker.append((SOURCES[Kind.QUERY], partition), query_id.encode(), value, restates=restates)


class MemoryConsumer:
    """Reads partitions of the source topics from where the group stands, and feeds them to a worker."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._acks: dict[Where, OrderedAcks] = {}
        self._tasks: dict[Where, asyncio.Task[None]] = {}
        self._handed: dict[Where, int] = {}
        self._moved = asyncio.Event()

    async def caught_up(self, partition: int) -> None:
        """Return when the queries partition was handed over as far as it goes now."""
        where = (SOURCES[Kind.QUERY], partition)
        end = self._broker.end(where)
        while self._handed.get(where, self._broker.committed.get(where, 0)) < end:
            self._moved.clear()
            await self._moved.wait()

    async def ends(self, partitions: Iterable[int]) -> dict[int, Offsets]:
        """By partition, the offsets that its next query, its next verdict and its next lease will get."""
        queries, verdicts, leases = (SOURCES[kind] for kind in OWNED)
        end = self._broker.end
        return {p: (end((queries, p)), end((verdicts, p)), end((leases, p))) for p in partitions}

    async def again(self, kind: Kind, partition: int, key: bytes, span: Span) -> list[Record]:
        """The partition's records of that key in the span."""
        where = (SOURCES[kind], partition)
        offsets = range(span.first, min(span.last + 1, self._broker.end(where)))
        read = [(offset, await self._broker.read(where, offset)) for offset in offsets]
        records = [self._as_record(kind, where, offset, message, lambda: None) for offset, message in read]
        return [record for record in records if record.key == key]

    async def assign(self, worker: Worker, partitions: set[int]) -> None:
        """Read these partitions for the worker, and no others: a rebalance, as Kafka's eager protocol does it."""
        await self.stop()
        await worker.revoke(partitions)
        await worker.assign(partitions)
        for kind, topic in SOURCES.items():
            for partition in partitions:
                where = (topic, partition)
                self._acks[where] = OrderedAcks()
                task = self._tasks[where] = asyncio.create_task(self._deliver(kind, where, worker))
                task.add_done_callback(lambda _: self._moved.set())

    async def stop(self) -> None:
        """Deliver no more, and take no more acknowledgements: what was not acknowledged comes again."""
        for acks in self._acks.values():
            acks.forget()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._acks.clear()
        self._tasks.clear()
        self._handed.clear()

    async def drained(self) -> None:
        """Return when everything that the partitions hold now is acknowledged."""
        ends = {where: self._broker.end(where) for where in self._tasks}
        while any(self._broker.committed.get(where, 0) < end for where, end in ends.items()):
            for task in self._tasks.values():
                if task.done():
                    task.result()  # a handler's bug
            self._moved.clear()
            await self._moved.wait()

    async def _deliver(self, kind: Kind, where: Where, worker: Worker) -> None:
        offset = self._broker.committed.get(where, 0)
        while True:
            await self._broker.read(where, offset)
            if kind is Kind.ITEM:
                end = min(self._broker.end(where), offset + ITEMS_AT_ONCE)
                await worker.on_items([await self._record(kind, where, n) for n in range(offset, end)])
                offset = end
            else:
                await worker.on_record(await self._record(kind, where, offset))
                offset += 1
            self._handed[where] = offset
            self._moved.set()

    async def _record(self, kind: Kind, where: Where, offset: int) -> Record:
        ack = self._acks[where].track(lambda: self._commit(where, offset + 1))
        return self._as_record(kind, where, offset, await self._broker.read(where, offset), ack)

    def _as_record(
        self, kind: Kind, where: Where, offset: int, message: Message, ack: Callable[[], None]
    ) -> Record:
        return Record(
            kind, *where, offset, message.timestamp, message.key, message.value, ack, restates=message.restates
        )

    def _commit(self, where: Where, after: int) -> None:
        self._broker.committed[where] = after
        self._moved.set()
