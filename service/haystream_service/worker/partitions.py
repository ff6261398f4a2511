"""What this process has read and acknowledged of the partitions that Faust gave it."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from faust.types import TP
from prometheus_client import Gauge

from haystream_service.metrics import Metrics
from haystream_service.settings import Settings
from haystream_service.worker.acks import OrderedAcks
from haystream_service.worker.records import BrokerUnavailable, Clock, Kind, Record

TOPICS = {Kind.QUERY: "queries", Kind.ITEM: "items", Kind.VERDICT: "verdicts"}
LOOK_SECONDS = 0.05
"""Between two looks at how far the queries are read, while a verdict waits for its query."""
QUIET_SECONDS = 1.0
"""A partition that Kafka says is read to its end, and that hands over nothing for so long, is read: the last
offset of a topic need not be a record (a transaction's marker, for one, takes an offset too)."""
STALL_SECONDS = 60.0
"""A partition with lag that stands still for so long is reported. A cold start of a large query takes less."""


class Partitions:
    """Acknowledgements, progress and lag, by topic and partition. `consumer` is set once the app is built."""

    consumer: Any

    def __init__(self, settings: Settings, metrics: Metrics, clock: Clock) -> None:
        self.assigned: set[TP] = set()
        self.stuck: list[str] = []
        """Partitions that stood still at the last look although there was something to read."""
        self.deaf = False
        """Whether one of them has no record of its topic in hand: the consumer has stopped fetching."""
        self._topics = {kind: settings.topic(name) for kind, name in TOPICS.items()}
        self._metrics = metrics
        self._clock = clock
        self._acks: dict[TP, OrderedAcks] = {}
        self._handed: dict[TP, tuple[int, float]] = {}
        """The offset after the last record handed to the worker, and when that was."""
        self._done: dict[TP, tuple[int, float]] = {}
        """The offset after the last record acknowledged, and when it last moved or had no lag."""

    def topic(self, kind: Kind) -> str:
        """The full name of the topic that brings this kind of record."""
        return self._topics[kind]

    def numbers(self, kind: Kind, partitions: Iterable[TP]) -> set[int]:
        """The partitions of that topic among these."""
        return {tp.partition for tp in partitions if tp.topic == self._topics[kind]}

    def assign(self, assigned: set[TP]) -> None:
        """These are this process's now."""
        self.assigned = set(assigned)

    def revoke(self, revoked: set[TP]) -> None:
        """These are taken away: what is still under way in them acknowledges nothing any more."""
        self.assigned -= revoked
        for tp in revoked:
            if tp in self._acks:
                self._acks.pop(tp).forget()
            self._handed.pop(tp, None)
            self._done.pop(tp, None)
            for gauge in (self._metrics.consumer_lag, self._metrics.consumer_offset):
                _remove(gauge, tp)

    def record(self, kind: Kind, event: Any) -> Record:
        """The record of a Faust event, to be acknowledged in any order."""
        message = event.message
        tp, after = message.tp, message.offset + 1

        def release() -> None:
            self._done[tp] = (after, self._clock.monotonic())
            event.ack()

        acks = self._acks.setdefault(tp, OrderedAcks())
        return Record(
            kind=kind,
            topic=message.topic,
            partition=message.partition,
            offset=message.offset,
            timestamp=message.timestamp,
            key=message.key,
            value=message.value,
            ack=acks.track(release),
        )

    def handed(self, record: Record) -> None:
        """The worker has the record."""
        self._handed[TP(record.topic, record.partition)] = (record.offset + 1, self._clock.monotonic())

    async def caught_up(self, partition: int) -> None:
        """Return when the queries partition was handed to the worker as far as it goes now."""
        tp = TP(self._topics[Kind.QUERY], partition)
        began = self._clock.monotonic()
        end = (await self._ends(tp))[tp]
        while True:
            offset, when = self._handed.get(tp, (0, began))
            quiet = self._clock.monotonic() - max(when, began)
            if offset >= end or (quiet > QUIET_SECONDS and (await self.consumer.position(tp) or 0) >= end):
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def ends(self, partition: int) -> tuple[int, int]:
        """The offsets that the partition's next query and next verdict will get."""
        queries, verdicts = (TP(self._topics[kind], partition) for kind in (Kind.QUERY, Kind.VERDICT))
        ends = await self._ends(queries, verdicts)
        return ends[queries], ends[verdicts]

    async def look(self) -> None:
        """Bring the lag metrics, `stuck` and `deaf` up to date."""
        if not self.assigned:
            self.stuck, self.deaf = [], False
            return
        ends = await self.consumer.highwaters(*self.assigned)
        now = self._clock.monotonic()
        stuck, deaf = [], False
        for tp in sorted(self.assigned & ends.keys()):
            done, moved = await self._progress(tp, now)
            lag = max(0, ends[tp] - done)
            self._metrics.consumer_lag.labels(tp.topic, tp.partition).set(lag)
            self._metrics.consumer_offset.labels(tp.topic, tp.partition).set(done)
            if lag == 0:
                self._done[tp] = (done, now)
            elif now - moved > STALL_SECONDS:
                # An agent hands over one record of its topic at a time: one that waits holds up the others.
                held = sum(len(acks) for other, acks in self._acks.items() if other.topic == tp.topic)
                stuck.append(f"{tp.topic}/{tp.partition} stands at {done} of {ends[tp]}, {held} in hand")
                deaf = deaf or held == 0
        self.stuck, self.deaf = stuck, deaf

    async def _progress(self, tp: TP, now: float) -> tuple[int, float]:
        if tp not in self._done:
            # Nothing is acknowledged yet; what is in hand was read after the position to start from.
            position = await self.consumer.position(tp) or 0
            self._done[tp] = (max(0, position - len(self._acks.get(tp, ()))), now)
        return self._done[tp]

    async def _ends(self, *partitions: TP) -> Mapping[TP, int]:
        try:
            ends: Mapping[TP, int] = await self.consumer.highwaters(*partitions)
        except Exception as error:  # try again: they are of many kinds
            topics = ", ".join(sorted({tp.topic for tp in partitions}))
            raise BrokerUnavailable(f"Kafka did not say how far {topics} goes: {error!r}") from error
        return ends


def _remove(gauge: Gauge, tp: TP) -> None:
    if (tp.topic, str(tp.partition)) in gauge._metrics:
        gauge.remove(tp.topic, tp.partition)
