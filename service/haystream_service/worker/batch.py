"""A batch of one query's events, and what became of each."""

from dataclasses import dataclass, field

from haystream.errors import Rejected
from haystream.events import Query, Verdict
from haystream_service.store.base import Position
from haystream_service.worker.records import Kind, Record


@dataclass(frozen=True, slots=True, eq=False)
class Delivery:
    """An event for a query, with the record it came in."""

    record: Record
    event: Query | Verdict


@dataclass(slots=True, eq=False)
class Batch:
    """Deliveries that are saved, published and acknowledged together, and what became of each."""

    deliveries: list[Delivery]
    applied: set[Delivery] = field(default_factory=set)
    """New facts or settings; what is neither here nor in `rejected` was known."""
    rejected: dict[Delivery, Rejected] = field(default_factory=dict)
    told: set[Delivery] = field(default_factory=set)
    """Those rejected that have their dead letter."""

    def of(self, kind: Kind) -> list[Delivery]:
        """The deliveries of one kind, in order."""
        return [delivery for delivery in self.deliveries if delivery.record.kind is kind]

    @property
    def known(self) -> bool:
        """Whether anything in it is neither new nor bad."""
        return len(self.deliveries) > len(self.applied) + len(self.rejected)

    def position_after(self, saved: Position, *, cursor: int) -> Position:
        """How far the topics are read once this is saved."""
        queries = [delivery.record.offset for delivery in self.of(Kind.QUERY)]
        verdicts = [delivery.record.offset for delivery in self.of(Kind.VERDICT)]
        return Position(
            queries_offset=max(queries, default=saved.queries_offset),
            verdicts_offset=max(verdicts, default=saved.verdicts_offset),
            cursor=cursor,
        )
