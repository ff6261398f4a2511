"""What this process has read and acknowledged of the partitions that are its own."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Protocol

from aiokafka import TopicPartition
from prometheus_client import Gauge

from haystream_service.kafka.records import OWNED, SOURCES, BrokerUnavailable, Kind, Offsets, Record, restates
from haystream_service.metrics import Metrics
from haystream_service.settings import Settings
from haystream_service.worker.acks import OrderedAcks
from haystream_service.worker.clock import Clock
from haystream_service.worker.missed import Missed, told
from haystream_service.worker.waiting import Waiting

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.05
"""Between two looks at how far the queries are read, while a verdict waits for its query."""
QUIET_SECONDS = 1.0
"""A partition that was fetched to its end, and of which nothing was handed over for so long, is read: the last
offset of a topic need not be a record (a transaction's marker, or a record of one that was given up)."""
NAMESAKE_TIMES = 3
NAMESAKE_SECONDS = 60.0
"""A place in the group that is lost so often in so long is another's, too: each takes it back within seconds. Who
stands still loses it once in ten seconds at most, and seldom again at once."""
STALL_SECONDS = 60.0
"""A partition with lag that stands still for so long is told of. A cold start of a large query takes less."""


class Consumer(Protocol):
    """What fetches partitions: Faust's consumer, or aiokafka's."""

    async def position(self, partition: Any) -> int | None:
        """The offset to be fetched next."""
        ...


class EndOffsets(Protocol):
    """Says how far partitions go."""

    async def __call__(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset up to which each can be read. Raises `BrokerUnavailable`."""
        ...

    async def first(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset of the first record that each still has. Raises `BrokerUnavailable`."""
        ...


@dataclass(frozen=True, slots=True)
class Stall:
    """A partition that has something to read and does not move."""

    partition: TopicPartition
    done: int
    end: int
    in_hand: int
    seconds: float

    def __str__(self) -> str:
        where = f"{self.partition.topic}/{self.partition.partition}"
        since = f"for {self.seconds:.0f} s, {self.in_hand} in hand"
        return f"{where} stands at {self.done} of {self.end} {since}"


class Partitions:
    """Acknowledgements, progress and lag, by topic and partition."""

    def __init__(self, settings: Settings, metrics: Metrics, clock: Clock, end_offsets: EndOffsets) -> None:
        self.stalled: list[Stall] = []
        """Partitions that stood still at the last look although there was something to read."""
        self.items_unread = ""
        """Why nothing at all is read of items; empty where they are."""
        self.absent = ""
        """Which topic Kafka does not have, so that nobody is given partitions of it; empty where it has all."""
        self._name = settings.instance_id
        self._given_away: deque[float] = deque(maxlen=NAMESAKE_TIMES)
        """When Kafka had given this process's place in the group to another."""
        self._topics = {kind: settings.topic(name) for kind, name in SOURCES.items()}
        self._metrics = metrics
        self._clock = clock
        self._end_offsets = end_offsets
        self._consumers: dict[TopicPartition, Consumer] = {}
        """Of every partition that is assigned."""
        self._acks: dict[TopicPartition, OrderedAcks] = {}
        self._handed: dict[TopicPartition, tuple[int, float]] = {}
        """The offset after the last record handed to the worker, and when that was."""
        self._done: dict[TopicPartition, tuple[int, float]] = {}
        """The offset after the last record acknowledged, and when it last moved or had no lag."""
        self._acknowledged: dict[TopicPartition, int] = {}
        """The same of records alone: what is read to its end without any is not in here."""
        self._missed = Missed(clock, told(metrics))
        self._anew: dict[TopicPartition, str] = {}
        """What is said of partitions that end before what was read of them, until they are read again."""
        self._items_anew: set[TopicPartition] = set()
        self._waiting = Waiting(metrics, clock)
        self._verdict_at = float("-inf")
        self._mark: dict[TopicPartition, tuple[int, float]] = {}
        """Where each partition of verdicts ended at an earlier look, and when that was asked for."""
        self._reached: dict[TopicPartition, int] = {}
        """How far it was fetched or dealt with at the last look."""
        self._abreast: dict[TopicPartition, float] = {}
        """When all that there was of such a partition was what is dealt with by now."""
        self._unread: dict[int, float] = {}
        """Partitions of which queries are read and verdicts are not, and since when."""

    @property
    def since_verdict(self) -> float:
        """Seconds since a verdict came."""
        return self._clock.monotonic() - self._verdict_at

    def topic(self, kind: Kind) -> str:
        """The full name of the topic that brings this kind of record."""
        return self._topics[kind]

    def of(self, kind: Kind) -> set[TopicPartition]:
        """The partitions of that topic that are assigned."""
        return {tp for tp in self._consumers if tp.topic == self._topics[kind]}

    def numbers(self, kind: Kind, partitions: Iterable[TopicPartition]) -> set[int]:
        """The partitions of that topic among these."""
        return {tp.partition for tp in partitions if tp.topic == self._topics[kind]}

    def left_out(self) -> list[str]:
        """What is not assigned although other topics of that partition are: its topic was not there then."""
        have = {kind: {tp.partition for tp in self.of(kind)} for kind in OWNED}
        every = set().union(*have.values())
        return [
            *filter(None, [self.items_unread, self.absent, self.namesake]),
            *(
                f"{self._topics[kind]}: of partition {', '.join(map(str, sorted(every - numbers)))} nothing is read"
                for kind, numbers in have.items()
                if numbers != every
            ),
            *self._anew.values(),
        ]

    def place_was_given_away(self) -> None:
        """Kafka had given this process's place in the group to another, and gave it another one."""
        told = self.namesake
        self._given_away.append(self._clock.monotonic())
        if not told and (said := self.namesake):
            log.error("%s", said)

    @property
    def namesake(self) -> str:
        """What is said where another worker seems to have the same name, so that each takes the other's partitions
        away; empty where none does."""
        times = self._given_away
        often = len(times) == NAMESAKE_TIMES and self._clock.monotonic() - times[0] < NAMESAKE_SECONDS
        if not often or self._name is None:
            return ""
        return (
            f"Kafka gives the place of {self._name!r} in the group to another process again and again: no two"
            " workers may have the same HAYSTREAM_INSTANCE_ID"
        )

    def assign(self, assigned: Iterable[TopicPartition], consumer: Consumer) -> None:
        """These are this process's now, fetched by that consumer."""
        self._consumers.update((TopicPartition(*tp), consumer) for tp in assigned)

    def begins(self, tp: TopicPartition, offset: int) -> None:
        """All that lies before the offset is in the store, as far as is known."""
        self._missed.begins(tp, offset)

    def revoke(self, revoked: Iterable[TopicPartition]) -> None:
        """These are taken away: what is still under way in them acknowledges nothing any more."""
        for tp in revoked:
            self._consumers.pop(tp, None)
            if tp in self._acks:
                self._acks.pop(tp).forget()
            self._handed.pop(tp, None)
            self._done.pop(tp, None)
            self._acknowledged.pop(tp, None)
            self._anew.pop(tp, None)
            self._items_anew.discard(tp)
            self._missed.forget(tp)
            for gauge in (self._metrics.consumer_lag, self._metrics.consumer_offset):
                _remove(gauge, tp)
            self._waiting.forget(tp)
            self._mark.pop(tp, None)
            self._reached.pop(tp, None)
            self._abreast.pop(tp, None)

    def record(
        self, kind: Kind, message: Any, timestamp: float, *, release: Callable[[], object] = lambda: None
    ) -> Record:
        """The record of a message, to be acknowledged in any order; `release` is called in the order of offsets.

        `timestamp` is in seconds: Faust's messages have them, aiokafka's are in milliseconds.
        """
        tp, after = TopicPartition(message.topic, message.partition), message.offset + 1
        self._done.setdefault(tp, (message.offset, self._clock.monotonic()))
        self._missed.came(tp, message.offset)

        def released() -> None:
            self._done[tp] = (after, self._clock.monotonic())
            self._acknowledged[tp] = after
            release()

        ack = self._acks.setdefault(tp, OrderedAcks()).track(released)
        if kind is Kind.VERDICT:
            self._verdict_at = self._clock.monotonic()
        if kind is Kind.VERDICT and tp in self._consumers:  # of one that was taken away, nothing is answered here
            ack = _both(ack, self._waiting.came(tp, message.offset, timestamp))
        return Record(
            kind=kind,
            topic=message.topic,
            partition=message.partition,
            offset=message.offset,
            timestamp=timestamp,
            key=message.key,
            value=message.value,
            ack=ack,
            restates=restates(message.headers),
        )

    def has(self, tp: TopicPartition) -> bool:
        """Whether the partition is assigned."""
        return tp in self._consumers

    def acknowledged(self, tp: TopicPartition) -> int:
        """The offset after the last record that was acknowledged since the partition was assigned; 0: none was."""
        return self._acknowledged.get(tp, 0)

    def take_items_anew(self, among: Set[TopicPartition]) -> set[TopicPartition]:
        """Those of these partitions of items whose offsets have begun again since they were last taken: they are
        read from there."""
        taken = self._items_anew & among
        self._items_anew -= taken
        return taken

    def in_hand(self, tp: TopicPartition) -> int:
        """How many of the partition's records are being worked on."""
        return self._acks[tp].in_hand if tp in self._acks else 0

    def handed(self, record: Record) -> None:
        """The worker has the record."""
        self._handed[TopicPartition(record.topic, record.partition)] = (
            record.offset + 1,
            self._clock.monotonic(),
        )

    async def caught_up(self, partition: int) -> None:
        """Return when the queries partition was handed to the worker as far as it goes now."""
        tp = TopicPartition(self._topics[Kind.QUERY], partition)
        began = self._clock.monotonic()
        end = (await self._end_offsets([tp]))[tp]
        while True:
            offset, when = self._handed.get(tp, (0, began))
            quiet = self._clock.monotonic() - max(when, began) > QUIET_SECONDS
            if offset >= end or (quiet and await self._position(tp) >= end):
                return
            await asyncio.sleep(LOOK_SECONDS)

    def behind(self, partition: int) -> float:
        """For how many seconds verdicts of the partition may have been in Kafka that are not dealt with.

        Infinite where that is not known yet; 0 where they have not been read at all for as long as a partition that
        stands still is waited for.
        """
        tp, now = TopicPartition(self._topics[Kind.VERDICT], partition), self._clock.monotonic()
        if tp not in self._consumers and now - self._unread.get(partition, now) > STALL_SECONDS:
            return 0.0
        return now - self._abreast.get(tp, float("-inf"))

    def _look_how_far_behind(self, tp: TopicPartition, done: int, end: int, asked: float, *, stalled: bool) -> None:
        """Note since when verdicts may wait. A partition that stands still is waited for until that is told."""
        # What was fetched is not in hand at once, but is at the next look, or is dealt with by then.
        before, self._reached[tp] = self._reached.get(tp, 0), done
        done = max(self.acknowledged(tp), 0 if len(self._acks.get(tp, ())) else min(before, done))
        mark, then = self._mark.setdefault(tp, (end, asked))
        # What is no more, as where the topic was made anew, does not come.
        if then < asked and (done >= min(mark, end) or stalled):
            self._mark[tp], self._abreast[tp] = (end, asked), then

    async def ends(self, partitions: Iterable[int]) -> dict[int, Offsets]:
        """By partition, the offsets that its next query, its next verdict and its next lease will get."""
        those = {p: [TopicPartition(self._topics[kind], p) for kind in OWNED] for p in partitions}
        ends = await self._end_offsets([tp for each in those.values() for tp in each])
        return {p: (ends[query], ends[verdict], ends[lease]) for p, (query, verdict, lease) in those.items()}

    async def look(self) -> None:
        """Bring the lag metrics and `stalled` up to date. Raises `BrokerUnavailable`."""
        dealt_with = {tp: self._missed.next(tp) for tp in self._consumers}
        asked = self._clock.monotonic()
        ends = await self._end_offsets(list(dealt_with)) if dealt_with else {}
        now = self._clock.monotonic()
        stalled, read = [], set()
        unread = self.numbers(Kind.QUERY, self._consumers) - self.numbers(Kind.VERDICT, self._consumers)
        self._unread = {partition: self._unread.get(partition, now) for partition in unread}
        for tp in dealt_with.keys() & self._consumers.keys() & ends.keys():
            await self._look_whether_anew(tp, dealt_with[tp], ends[tp])
        for tp in sorted(self._consumers.keys() & ends.keys()):
            done, moved = await self._progress(tp, ends[tp], now)
            lag = max(0, ends[tp] - done)
            self._metrics.consumer_lag.labels(tp.topic, tp.partition).set(lag)
            self._metrics.consumer_offset.labels(tp.topic, tp.partition).set(done)
            if tp.topic == self._topics[Kind.VERDICT]:
                self._waiting.look(tp, done, ends[tp])
                stood = lag > 0 and now - moved > STALL_SECONDS
                self._look_how_far_behind(tp, done, ends[tp], asked, stalled=stood)
            if lag == 0:
                self._done[tp] = (done, now)
                read.add(tp)
            elif now - moved > STALL_SECONDS:
                stalled.append(Stall(tp, done, ends[tp], self.in_hand(tp), now - moved))
        self.stalled = stalled
        firsts = await self._end_offsets.first(list(ends)) if ends else {}
        for tp in self._consumers.keys() & firsts.keys():
            if firsts[tp] > self._missed.next(tp) or tp not in read:
                await self._look_for_missed(tp, firsts[tp])
            else:
                self._missed.look(tp, firsts[tp])
                self._missed.read(tp, ends[tp])

    async def _look_for_missed(self, tp: TopicPartition, first: int) -> None:
        """Tell what was removed before it was read, and where nothing is in hand, note that it will not be read."""
        if self._missed.look(tp, first) and await self._position(tp) >= first and tp in self._consumers:
            self._missed.jumped(tp, first)
            if not len(self._acks.get(tp, ())):
                self._acknowledged[tp] = max(self.acknowledged(tp), first)

    async def _look_whether_anew(self, tp: TopicPartition, dealt_with: int, end: int) -> None:
        """Notice a partition that ends before what was read of it, and when the consumer has noticed it, too."""
        if dealt_with > end:
            self._anew[tp] = (
                f"{tp.topic}/{tp.partition} was read up to {dealt_with} and ends at {end}: the topic was made anew"
                ", or has lost its last records"
            )
            log.error("%s", self._anew[tp])
            self._missed.begins(tp, 0)
            self._acknowledged.pop(tp, None)
            self._items_anew |= {tp} & self.of(Kind.ITEM)
        if tp in self._anew and (position := await self._position(tp)) <= end:
            self._anew.pop(tp, None)
            if tp in self._consumers and not self.in_hand(tp):
                self._done[tp] = (position, self._clock.monotonic())

    async def _progress(self, tp: TopicPartition, end: int, now: float) -> tuple[int, float]:
        """The offset before which all is done, and when that last moved."""
        in_hand = len(self._acks.get(tp, ()))
        if tp not in self._done:
            self._done.setdefault(tp, (await self._position(tp), now))
        done, moved = self._done[tp]
        if done < end and not in_hand and await self._position(tp) >= end:
            return end, now  # what is left is no record
        return done, moved

    async def _position(self, tp: TopicPartition) -> int:
        try:
            return (await self._consumers[tp].position(tp) or 0) if tp in self._consumers else 0
        except Exception as error:  # try again: they are of many kinds, and come with a rebalance
            raise BrokerUnavailable(f"{tp.topic}/{tp.partition} has no position now: {error!r}") from error


def _both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        first()
        second()

    return call


def _remove(gauge: Gauge, tp: TopicPartition) -> None:
    if (tp.topic, str(tp.partition)) in gauge._metrics:
        gauge.remove(tp.topic, tp.partition)
