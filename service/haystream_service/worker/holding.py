"""What an owner has of its query, which is one of five at a time.

| `Held` | when | until |
|---|---|---|
| None | nothing is known yet, nobody has opened it, or it is stopped | it is found in the store, or opened |
| `Loaded` | its state is in memory | it is put away; a save or a computation of it fails, or is broken off |
| `Away` | it lies in the store alone | something comes for it, or it is wanted |
| `Deleted` | it was deleted | for good |
| `Elsewhere` | it was opened on another partition | for good |

Of None and `Away` the store is asked whenever something comes: the answer is one of the others, or None again.
"""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Self

from haystream.errors import Code, Rejected
from haystream.events import LeaseFact, Query, Status, Verdict, View
from haystream.query.state import QueryState
from haystream_service.kafka.records import OWNED, Offsets
from haystream_service.store.base import Position
from haystream_service.worker.batch import Batch

LIGHT_SOLVES = 20
"""Verdicts of so many local solves may be taken in where the event loop runs, and leases of so many: some
milliseconds. A thread would cost a lone verdict a tenth of a millisecond, and more where many run."""
LIGHT_ITEMS = 50
"""So many new items may be folded in there, where all are on pairs that are known: a millisecond or two."""
LIGHT_EVENTS = 300
"""More new items than that are noted as an attempt before they are folded in (`Troubles.attempt`)."""
LIGHT_SECONDS = 0.02
"""A query whose last batch took longer gets a thread: the reference engine, a policy that moves every score."""
LONG_SECONDS = 0.5
"""Of one whose last batch took longer, the next is noted as an attempt. That takes two round trips to the store: as
long, beside a burst of new items, as the batch."""


@dataclass(slots=True, eq=False)
class Loaded:
    """A query in memory. `revision` is 0 until the first save; `saved` is the position at the last one.

    It is a copy of the stored query that may be out of date: after a pause or a rebalance another process may have
    been the writer.
    """

    state: QueryState
    revision: int = 0
    saved: Position = field(default_factory=Position)
    touched: int = 0
    """When an event for it was saved last, in milliseconds since the epoch."""
    backlog: Offsets = (0, 0, 0)
    """Where its topics ended when it was loaded: what lies before may have been in hand elsewhere."""
    settings_offset: int = -1
    """Where the settings that hold came from, or a later offset that is saved."""
    unsaved_settings: bool = False
    """Whether the state has other settings than the store: those could not be computed."""
    published: bool = False
    """Whether this process has published a ranking of the query."""
    finished: bool = False
    """Whether tending has finished what growth had left, or moved rows, since the last save."""
    owed: bool = False
    """Whether rows that tending moved are left for a later save."""
    unfinished: bool = False
    """Whether what was saved last is by estimate, or lacks what was made exact since."""
    tended_at: float = float("-inf")
    """When rows that tending moved were saved last, on the monotonic clock."""
    top: tuple[str, ...] | None = None
    """The items of the ranking that was saved last, in order, where this process made it."""
    saved_at: float = float("-inf")
    """When that was, on the monotonic clock."""
    pairs: int = 0
    """How many its collection had when the last batch was folded in."""
    put_off: float | None = None
    """When items that are folded in are to be saved and published, on the monotonic clock, where that can wait."""
    took: float = 0.0
    """Seconds that folding in the last batch took."""
    followed: float = 0.0
    """The same of those that took in what its collection got, since anything came for the query."""
    worked: float = float("-inf")
    """When it took something in last, on the monotonic clock."""
    lacking: bool = False
    """Whether the store has lost something of the query that is not saved anew by itself."""
    slimmed: bool = False
    """Whether `QueryState.slim` was tried since, and is as good as done."""

    def __post_init__(self) -> None:
        self.settings_offset = self.saved.queries_offset

    def heavy(self, batch: Batch) -> bool:
        """Whether folding the batch in may take so long that the event loop should not wait for it."""
        more = self.state.collection.graph.edges > self.pairs or self.state.is_slim
        more |= self._new_items() > LIGHT_ITEMS or self._solves(batch, LeaseFact) > LIGHT_SOLVES
        return self._much(batch) or self.took > LIGHT_SECONDS or more

    def may_kill(self, batch: Batch) -> bool:
        """Whether a process may have died of the batch before, or of what it takes in, or this one well may."""
        ends = dict(zip(OWNED, self.backlog, strict=True))
        again = any(delivery.record.offset < ends[delivery.record.kind] for delivery in batch.deliveries)
        slow = self.took > LONG_SECONDS and bool(batch.deliveries)
        return again or ((self._much(batch) or slow) and not self.idle(batch))

    def _much(self, batch: Batch) -> bool:
        # A first batch settles, or at least saves, everything; new settings may ask for another engine.
        afresh = not self.published or any(isinstance(delivery.event, Query) for delivery in batch.deliveries)
        return afresh or self._new_items() > LIGHT_EVENTS or self._solves(batch, Verdict) > LIGHT_SOLVES

    def _solves(self, batch: Batch, kind: type[Verdict] | type[LeaseFact]) -> int:
        events = (delivery.event for delivery in batch.deliveries)
        return sum(self.state.solves(event.item_id) for event in events if isinstance(event, kind))

    def _new_items(self) -> int:
        return self.state.behind

    @property
    def unsaved_items(self) -> bool:
        """Whether its collection got anything for it since the last save."""
        return self.saved.cursor < self.state.collection.changed

    @property
    def cursor(self) -> int:
        """Entries of its collection's log after which it is as it was saved: all, where nothing came for it."""
        return self.saved.cursor if self.unsaved_items else self.state.collection.entries

    @property
    def follows(self) -> bool:
        """Whether new items are its concern: one that is not open has no use for them until something comes."""
        return is_open(self.state)

    def idle(self, batch: Batch) -> bool:
        """Whether there is nothing to fold in."""
        return not batch.deliveries and self.revision > 0 and not self._new_items()


def is_open(state: QueryState) -> bool:
    """Whether the query offers items."""
    return state.settings.status == Status.OPEN


@dataclass(frozen=True, slots=True)
class Away:
    """What its owner remembers of a query that is put away: in the store alone, until an event for it comes."""

    revision: int
    cursor: int
    """Entries of its collection's log after which it would be as it is."""
    follows: View | None
    """Whose new items are to be taken in; None of a query that is not open."""
    outdated: bool = False
    """Whether it is to be saved anew: its owner ended before what it had saved was exact, or saved it in another
    history of the store, so that its tables may number people as a log did that is no more."""

    @classmethod
    def of(cls, settings: Query | None, revision: int, cursor: int, *, outdated: bool = False) -> Self:
        """What is remembered of a query with these settings, which are None where they cannot be read."""
        follows = settings.view if settings is not None and settings.status == Status.OPEN else None
        return cls(revision, cursor, follows, outdated)


@dataclass(frozen=True, slots=True)
class Deleted:
    """What its owner remembers of a query that was deleted: nothing counts for it any more."""

    revision: int
    read: Position
    """How far the topics were read when it was: that counted then, or has its dead letter."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A query that another partition owns: what comes for it on this one is refused."""

    partition: int


Held = Loaded | Away | Deleted | Elsewhere | None


class Wanted(Enum):
    """What brings a query into memory, or lets it stay there, although nothing comes for it."""

    NOT = auto()
    TO_STAY = auto()
    FOR_A_VISIT = auto()
    """To be put away as soon as it has taken in what there is, and is saved and tended."""


def query_deleted(query_id: str) -> Rejected:
    """Why nothing counts for the query any more."""
    return Rejected(Code.QUERY_DELETED, f"query {query_id!r} was deleted, for good")


def wrong_partition(query_id: str, owner: int, here: int) -> Rejected:
    """Why a record of the query is not taken from this partition."""
    return Rejected(
        Code.WRONG_PARTITION,
        f"query {query_id!r} was opened on partition {owner}, and this came on {here}. Have every producer choose "
        "the partition by the murmur2 hash of the key, with librdkafka by partitioner=murmur2_random "
        "(docs/wire-format.md, Partitions)",
    )
