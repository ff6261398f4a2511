"""What outlives the workers: the broker's logs and committed offsets, and the way to a server, which may fail."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from zlib import crc32

from haystream_service.kafka.records import SOURCES
from haystream_service.worker.clock import Clock
from haystream_service.worker.memory_broker import Message, Where


class Broker:
    """Partitioned logs, in which some offsets are a transaction's markers, and what the group has committed."""

    def __init__(self, *, partitions: int, clock: Clock) -> None:
        self.partitions = partitions
        self.committed: defaultdict[Where, int] = defaultdict(int)
        self.produced: list[tuple[Where, int]] = []
        """Where each message of the source topics went, in the order in which they were produced."""
        self.listeners: list[Callable[[], None]] = []
        """Are called when a log has grown."""
        self._clock = clock
        self._logs: defaultdict[Where, list[Message | None]] = defaultdict(list)

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._clock.now()

    def produce(self, topic: str, key: bytes | None, value: bytes | None, *, marker: bool = False) -> None:
        """Append a message, and perhaps a marker behind it; messages of one key share a partition."""
        where = (topic, self.partition_of(key))
        self.append(where, Message(key, value, self._clock.now()))
        if marker:
            self._logs[where].append(None)

    def partition_of(self, key: bytes | None) -> int:
        """Where messages of that key go."""
        return crc32(key or b"") % self.partitions

    def restate(self, key: bytes, value: bytes, partition: int, restates: int) -> None:
        """Append settings that a worker writes once more."""
        self.append(("queries", partition), Message(key, value, self._clock.now(), restates))

    def append(self, where: Where, message: Message) -> None:
        """Append a message to a partition."""
        log = self._logs[where]
        if where[0] in SOURCES.values():
            self.produced.append((where, len(log)))
        log.append(message)
        for listener in self.listeners:
            listener()

    def end(self, where: Where) -> int:
        """The offset that the partition's next message will get."""
        return len(self._logs[where])

    def after_markers(self, where: Where, offset: int) -> int:
        """The offset of the first message at or after that one, or the end."""
        log = self._logs[where]
        while offset < len(log) and log[offset] is None:
            offset += 1
        return offset

    def at(self, where: Where, offset: int) -> Message:
        """The message at the offset."""
        message = self._logs[where][offset]
        assert message is not None
        return message

    def messages(self, topic: str) -> list[Message]:
        """Everything in the topic, partition by partition."""
        return [m for p in range(self.partitions) for m in self._logs[topic, p] if m is not None]

    def read_to_its_end(self) -> bool:
        """Whether the group has committed every message there is."""
        where = {where for where, _ in self.produced}
        return all(self.after_markers(w, self.committed[w]) >= self.end(w) for w in where)


@dataclass(slots=True)
class Link:
    """A process's way to one server. Chances are those of a single request."""

    refused: float = 0.0
    """The request does not get there."""
    lost: float = 0.0
    """The answer does not come back, whatever became of the request."""
    servers: int = 0
    """How often the server became another one: what was on its way to the one before is lost."""

    def heal(self) -> None:
        """All goes through again."""
        self.refused = self.lost = 0.0

    def cut(self) -> None:
        """Nothing goes through."""
        self.refused = 1.0

    def shake(self, rng: Random) -> None:
        """Some of it goes through."""
        self.refused, self.lost = rng.uniform(0.0, 0.4), rng.uniform(0.0, 0.4)
