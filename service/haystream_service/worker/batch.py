"""A batch of one query's events, and what became of each."""

from dataclasses import dataclass, field

from haystream.errors import Code, Rejected
from haystream.events import LeaseFact, Query, Status, Verdict
from haystream_service.kafka.records import OWNED, Kind, Record
from haystream_service.store.base import Position
from haystream_service.wire import decode_lease, decode_query, decode_verdict

NOTHING_READ = Position()


@dataclass(frozen=True, slots=True, eq=False)
class Delivery:
    """An event for a query, or why there is none, with the record it came in."""

    record: Record
    event: Query | Verdict | LeaseFact | Rejected
    again: bool = False
    """Whether the record was passed over when it came, and is read once more."""

    @property
    def deletes(self) -> bool:
        """Whether it deletes the query."""
        return isinstance(self.event, Query) and self.event.status == Status.DELETED


def decode(record: Record) -> Query | Verdict | LeaseFact:
    """The settings, the verdict, or what happened to a lease, that the record holds. Raises `Rejected`."""
    if record.kind is Kind.QUERY:
        return decode_query(record.value, record.key)
    if record.kind is Kind.LEASE:
        return decode_lease(record.value, record.key)
    return decode_verdict(record.value, record.key)


@dataclass(slots=True, eq=False)
class Batch:
    """Deliveries that are saved, published and acknowledged together, and what became of each."""

    deliveries: list[Delivery]
    applied: set[Delivery] = field(default_factory=set)
    """New facts or settings; what is neither here nor in `rejected` was known."""
    rejected: dict[Delivery, Rejected] = field(default_factory=dict)
    told: set[Delivery] = field(default_factory=set)
    """Those rejected that have their dead letter."""
    quiet: set[Delivery] = field(default_factory=set)
    """Those applied that change nothing that is ranked."""

    stale: set[Delivery] = field(default_factory=set)
    """Settings that were restated after newer ones had come: those have to be said once more."""

    def __post_init__(self) -> None:
        for delivery in self.deliveries:
            if isinstance(delivery.event, Rejected):
                self.rejected[delivery] = delivery.event

    def add(self, deliveries: list[Delivery]) -> None:
        """Take more in."""
        self.deliveries += deliveries
        self.__post_init__()

    def add_again(self, deliveries: list[Delivery]) -> None:
        """Put before the others what was passed over when it came."""
        self.deliveries[:0] = deliveries

    def forget_again(self) -> None:
        """Undo `add_again`."""
        self.deliveries = [delivery for delivery in self.deliveries if not delivery.again]

    def parts(self, most: int) -> "list[Batch]":
        """The batch itself, or, where much was passed over, batches of at most so many; settings come first."""
        if not any(delivery.again for delivery in self.deliveries):
            return [self]
        ordered = [delivery for kind in OWNED for delivery in self.of(kind)]
        parts = [Batch(ordered[at : at + most], told=self.told) for at in range(0, len(ordered), most)]
        for part in parts:
            part.rejected.update((d, self.rejected[d]) for d in part.deliveries if d in self.rejected)
        return parts

    def reject_all(self, error: Rejected, *, after: Position = NOTHING_READ) -> None:
        """Reject what is not rejected yet, but for what was dealt with before: that is known."""
        read = dict(zip(OWNED, after.offsets, strict=True))
        for delivery in self.deliveries:
            if delivery.record.offset > read[delivery.record.kind]:
                self.rejected.setdefault(delivery, error)

    def of(self, kind: Kind) -> list[Delivery]:
        """The deliveries of one kind, in order."""
        return [delivery for delivery in self.deliveries if delivery.record.kind is kind]

    @property
    def deletion(self) -> Delivery | None:
        """The record that deletes the query, if there is one."""
        return next((delivery for delivery in self.of(Kind.QUERY) if delivery.deletes), None)

    @property
    def hides_settings(self) -> int | None:
        """The last offset at which a record of queries is not what holds, and compaction would keep it; or None."""
        lasting = {Code.QUARANTINED, Code.WRONG_PARTITION, Code.QUERY_DELETED}
        hiding = [
            delivery.record.offset
            for delivery in self.of(Kind.QUERY)
            if delivery in self.stale or (delivery in self.rejected and self.rejected[delivery].code not in lasting)
        ]
        return max(hiding, default=None)

    @property
    def known(self) -> bool:
        """Whether anything in it is neither new nor bad."""
        return len(self.deliveries) > len(self.applied) + len(self.rejected)

    def position_after(self, saved: Position, *, cursor: int) -> Position:
        """How far the topics are read once this is saved."""
        queries, verdicts, leases = (
            max([before, *(delivery.record.offset for delivery in self.of(kind))])
            for kind, before in zip(OWNED, saved.offsets, strict=True)
        )
        return Position(queries, verdicts, cursor, leases, saved.history)
