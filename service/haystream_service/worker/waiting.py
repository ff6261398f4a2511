"""Verdicts that have no answer yet: how long the oldest of them has waited, and how many have waited too long."""

from collections.abc import Callable
from dataclasses import dataclass, field

from aiokafka import TopicPartition

from haystream_service.metrics import OBJECTIVE_SECONDS, Metrics
from haystream_service.worker.clock import Clock


@dataclass(slots=True)
class _Partition:
    """The verdicts of one partition, as this process sees them."""

    unanswered: dict[int, float] = field(default_factory=dict)
    """By offset, ascending: the timestamps of those that were fetched."""
    next: int | None = None
    """The offset after the last one fetched; None before the first."""
    unread_since: float | None = None
    """When it was first seen that there are verdicts, and none was fetched."""
    end: int | None = None
    """Where the partition ended at the last look."""
    told: int = 0
    """What lies before this offset is counted, where it was late."""

    def oldest(self) -> float | None:
        """Since when somebody waits, in seconds since the epoch; None where nobody does."""
        return next(iter(self.unanswered.values()), self.unread_since)


class Waiting:
    """Follows the verdicts of this process's partitions from Kafka to their answer: a ranking, or a dead letter.

    A verdict that was not fetched counts from when the worker first saw that it is there, at most a second later.
    """

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._late = metrics.verdicts_late
        self._clock = clock
        self._partitions: dict[TopicPartition, _Partition] = {}
        metrics.oldest_verdict_age.set_function(self.age)

    def age(self) -> float:
        """Seconds that the oldest unanswered verdict has waited; 0 where none waits."""
        begins = [begin for each in list(self._partitions.values()) if (begin := each.oldest()) is not None]
        return max(0.0, self._clock.now() - min(begins)) if begins else 0.0

    def forget(self, revoked: TopicPartition) -> None:
        """The partition is another's now."""
        self._partitions.pop(revoked, None)

    def came(self, tp: TopicPartition, offset: int, timestamp: float) -> Callable[[], None]:
        """A verdict was fetched; call what is returned when it is answered."""
        partition = self._partitions.setdefault(tp, _Partition())
        partition.unanswered[offset] = timestamp
        partition.next = offset + 1
        partition.unread_since = None

        def answered() -> None:
            if partition.unanswered.pop(offset, None) is None:
                return
            if offset >= partition.told and self._clock.now() - timestamp > OBJECTIVE_SECONDS:
                self._late.inc()

        return answered

    def look(self, tp: TopicPartition, done: int, end: int) -> None:
        """A partition that is done up to one offset ends at another. To be told every second.

        What was there at the look before, and is not answered, is late: it is counted now, since it may never be.
        """
        partition = self._partitions.setdefault(tp, _Partition())
        before = 0 if partition.end is None else min(partition.end, end)
        fetched = max(done, partition.next or 0)
        late = sum(partition.told <= offset < before for offset in partition.unanswered)
        late += max(0, before - max(fetched, partition.told))
        self._late.inc(late)
        # Whatever was answered before this was counted then.
        partition.told = max(partition.told, before)
        partition.end = end
        if partition.unanswered or end <= fetched:
            partition.unread_since = None
        elif partition.unread_since is None:
            partition.unread_since = self._clock.now()
