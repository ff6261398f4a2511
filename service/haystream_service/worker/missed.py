"""Records that a topic lost before they were read: retention, somebody's `kafka-delete-records`, a topic cut off.

Kafka says nothing of it: a consumer whose next offset is gone goes on from the first that is left. But offsets
are never given twice, so what is missing is seen from them. It cannot be had any more, whoever waits for it; it is
told.
"""

import logging

from aiokafka import TopicPartition

from haystream_service.kafka.stretches import Tell
from haystream_service.metrics import Metrics
from haystream_service.worker.clock import Clock

log = logging.getLogger(__name__)

QUIET_SECONDS = 1.0
"""So long nothing was handed over of a partition of which nothing is on its way any more."""
MOST_GAPS = 1000
"""Of more between two looks the last ones count as one: transactions leave one each."""


class Missed:
    """Follows the offsets of partitions, and `tell`s what begins after it was to be read.

    Offsets that are missing between two records may be a transaction's markers. They were lost if the partition
    begins behind them; then they count as records, so what is told is an upper bound.
    """

    def __init__(self, clock: Clock, tell: Tell) -> None:
        self._clock = clock
        self._tell = tell
        self._next: dict[TopicPartition, int] = {}
        """The offset up to which all was handed over, is in the store already, or was told of."""
        self._came: dict[TopicPartition, float] = {}
        """When the last record was handed over."""
        self._gaps: dict[TopicPartition, list[tuple[int, int]]] = {}
        """From which offset to which none came, since the last look."""

    def begins(self, tp: TopicPartition, offset: int) -> None:
        """The partition is this process's, and what lies before the offset was dealt with."""
        self.forget(tp)
        self._next[tp], self._came[tp] = offset, self._clock.monotonic()

    def forget(self, tp: TopicPartition) -> None:
        """The partition is another's now."""
        self._next.pop(tp, None)
        self._came.pop(tp, None)
        self._gaps.pop(tp, None)

    def came(self, tp: TopicPartition, offset: int) -> None:
        """The record at that offset was handed over."""
        before = self._next.setdefault(tp, offset)
        if offset > before:
            gaps = self._gaps.setdefault(tp, [])
            if len(gaps) == MOST_GAPS:
                before = gaps.pop()[0]
            gaps.append((before, offset))
        self._next[tp] = max(before, offset + 1)
        self._came[tp] = self._clock.monotonic()

    def next(self, tp: TopicPartition) -> int:
        """The offset up to which all is dealt with; 0 where nothing is known."""
        return self._next.get(tp, 0)

    def look(self, tp: TopicPartition, first: int) -> bool:
        """Tell what is missing between records, where the partition begins at that offset.

        Whether it begins behind all records that came, and nothing has come for a while: then whoever knows that
        the consumer is past that is to call `jumped`.
        """
        for begin, end in self._gaps.pop(tp, ()):
            if begin < first:
                self._tell(tp, begin, min(end, first))
        if tp not in self._next or first <= self._next[tp]:
            return False
        return self._clock.monotonic() - self._came.get(tp, 0.0) > QUIET_SECONDS

    def jumped(self, tp: TopicPartition, first: int) -> None:
        """The consumer reads on from there, and all records that it had were handed over."""
        self._tell(tp, self._next[tp], first)
        self._next[tp] = first

    def read(self, tp: TopicPartition, end: int) -> None:
        """The partition is read to its end: what was not handed over is no record."""
        self._next[tp] = max(self.next(tp), end)


def told(metrics: Metrics) -> Tell:
    """What counts and logs records that were removed before a worker has read them."""

    def tell(tp: TopicPartition, first: int, after: int) -> None:
        metrics.records_missed.labels(tp.topic.rpartition(".")[2]).inc(after - first)
        log.error(
            "%s/%d: offsets %d to %d were removed from the topic before they were read: up to %d records that do "
            "not count. Produce them again from a mirror or a backup, and have the topic keep its records: "
            "cleanup.policy=delete, retention.ms=-1, retention.bytes=-1",
            *(tp.topic, tp.partition, first, after - 1, after - first),
        )

    return tell
