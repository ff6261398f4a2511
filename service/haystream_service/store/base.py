"""The store's contract. `memory` and `redis` keep it, and one test suite holds both to it.

Facts are what the state is a fold of: a query's settings, its verdicts (by verdict_id), its leases and the items of
its collection. Everything else in the store (ranking, posterior) is derived, written for others to read.

One writer per query is the rule, but a paused process may wake up as a second one (a zombie). So every save
is a compare-and-set on the query's revision, in one atomic step: the loser gets `Fenced` and must load again.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from haystream.events import ItemFact, LeaseFact, Query, Verdict
from haystream.posterior.rows import Changes, Tables
from haystream_service.store.claims import Claims, Offers


class Appended(Enum):
    """What became of what a record says of an item."""

    ADDED = "added"
    """It is new, and the log has an entry with all that is known of the item now."""
    KNOWN = "known"
    """All of it was known."""
    CONFLICT = "conflict"
    """The id is there with other people, who stand."""
    DELETED = "deleted"
    """The collection was deleted and takes nothing any more."""


UNREADABLE = -1
"""In place of a revision, where nobody can say."""

HISTORY = "history"
"""What the store's history (`worker.written`) is noted under, beside how far topics are."""
NONE_SAID = 0
"""In place of a history, in what earlier versions saved."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far into its topics a query's saved state has come. An offset of -1 means: nothing yet."""

    queries_offset: int = -1
    verdicts_offset: int = -1
    cursor: int = 0
    """How many entries of the collection's log are folded in: 1 … cursor."""
    leases_offset: int = -1
    history: int = NONE_SAID
    """The store's history in which that was saved."""

    @property
    def offsets(self) -> tuple[int, int, int]:
        """The offsets of queries, verdicts and leases."""
        return self.queries_offset, self.verdicts_offset, self.leases_offset

    def of_another(self, history: int | None) -> bool:
        """Whether that was saved in another history of the store than this: of another log, perhaps."""
        return self.history not in {NONE_SAID, history}


@dataclass(frozen=True, slots=True)
class Head:
    """A query as saved, but for its verdicts."""

    settings: Query | None
    """None where this version cannot read them."""
    partition: int
    revision: int
    position: Position
    touched: int
    """When an event for it was last saved, or when it was deleted, in milliseconds since the epoch."""
    unfinished: bool = False
    """As of `Change`."""
    withdrawn: bool = False
    """Whether the query was deleted and readers were told that there is no ranking any more."""
    leased: bool = False
    """Whether it is in its partition's list of those that ever had leases, or ought to be."""

    @classmethod
    def unreadable(cls) -> "Head":
        """Of a query whose key holds something else: who loads it is told. Its partition, -1, is not known."""
        return cls(None, -1, 0, Position(), 0)


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """A query as saved: enough to go on from."""

    settings: Query
    partition: int
    revision: int
    position: Position
    touched: int
    """As of `Head`."""
    unfinished: bool
    """As of `Change`."""
    verdicts: tuple[Verdict, ...]
    """Every verdict ever applied, in no particular order."""
    leases: tuple[LeaseFact, ...] = ()
    """What is known of every lease there ever was, a fact or two each, in no particular order."""


@dataclass(frozen=True, slots=True)
class Change:
    """What one batch does to a query: all of it is written, or nothing."""

    query_id: str
    partition: int
    expected: int
    """The revision that the batch was computed from; 0 where the query is not stored yet."""
    revision: int
    """The new revision, above `expected`."""
    position: Position
    touched: int
    """When an event for it was last saved, this batch included, in milliseconds since the epoch."""
    settings: Query | None
    """The new settings, or None where they did not change. Never None when `expected` is 0."""
    verdicts: Sequence[Verdict]
    """New facts only."""
    ranking: bytes
    """The value published to next-items, as JSON."""
    tables: Changes
    """Row i is of the i-th participant or edge of the collection's log, as far as that is in the query's scope.
    They are told apart from the prior of the settings that hold with this change."""
    leases: Sequence[LeaseFact] = ()
    """New facts only."""
    ended: Sequence[str] = ()
    """Leases, by id, that are over by a verdict."""
    offers: Offers | None = None
    """What may be claimed; None of a query that had no leases yet: then it is what the ranking says."""
    unfinished: bool = False
    """Whether ranking and tables are by estimates, or lack what was made exact since: they are to be saved anew."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """What is left of a query that was deleted."""

    partition: int
    """That owns the query; where it is not the one that asked for the deletion, nothing was deleted."""
    revision: int
    position: Position = field(default_factory=Position)
    """How far its topics were read then, the deletion included; nothing is said of one that another owns."""


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets of one partition, from `first` to `last`, both included."""

    first: int
    last: int

    def around(self, other: "Span | None") -> "Span":
        """The smallest span that holds both."""
        return self if other is None else Span(min(self.first, other.first), max(self.last, other.last))


class Spans(NamedTuple):
    """Where records of a query lie, by the topic that brings them. Empty where there are none."""

    queries: Span | None = None
    verdicts: Span | None = None
    leases: Span | None = None

    def __bool__(self) -> bool:
        return any(self)

    def around(self, other: "Spans") -> "Spans":
        """The smallest spans that hold both."""
        return Spans(*(span.around(more) if span else more for span, more in zip(self, other, strict=True)))


NOWHERE = Spans()


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Why a query is stopped, and since when, in seconds since the epoch."""

    code: str
    detail: str
    since: float


@dataclass(frozen=True, slots=True)
class Note:
    """What is noted of a query beside its facts."""

    attempts: frozenset[str] = frozenset()
    """Batches of it that were begun and have not ended: of one that goes on, and of those that died of it."""
    passed: Spans = NOWHERE
    """Where records lie that were read and not applied: they have to be read again."""
    quarantine: Quarantine | None = None


class Hold(Enum):
    """What became of taking hold of a query's settings."""

    OURS = "ours"
    TAKEN = "taken"
    """Somebody else has, and the worker has not taken in what became of that."""
    MOVED = "moved"
    """They were written since they were read."""


class Fenced(Exception):  # noqa: N818 - it is a word of the field
    """Another writer was here: the stored revision is not the expected one. Nothing was written.

    Load again and go on from there; never acknowledge what the refused batch held.
    """

    def __init__(self, query_id: str, expected: int, stored: int) -> None:
        super().__init__(f"query {query_id!r}: expected revision {expected}, the store has {stored}")
        self.query_id = query_id
        self.expected = expected
        self.stored = stored


class StoreUnavailable(Exception):  # noqa: N818
    """The store did not answer, or not in time: try again. It is unknown whether a write was carried out."""


class StoreRefused(StoreUnavailable):
    """The store does not let us in, or is none: a password, a permission, an address. Once somebody has mended it,
    it goes on."""


class StoreDamaged(Exception):  # noqa: N818
    """The store holds something else under a key of a query or a collection than what was written there, or less:
    somebody else was at it."""


class VerdictsLost(StoreDamaged):
    """The store has fewer verdicts of a query than were saved: what is `left` of it, how many it `had`, and that in
    words."""

    def __init__(self, left: "StoredQuery", had: int, said: str, mend: str) -> None:
        super().__init__(f"{said}: {mend}")
        self.left = left
        self.had = had
        self.said = said


class SharedDamaged(StoreUnavailable):
    """A key that all queries need holds what it should not: nothing can be done before a person has mended it."""


class Logs(Protocol):
    """Collections: the log of each, and what was computed from it."""

    async def append_items(self, collection: str, facts: Sequence[ItemFact]) -> list[Appended]:
        """Take what records say of items; one answer for each. Idempotent.

        Where it is new, all that is known of the item then (`haystream.facts.merging`) becomes an entry of the
        collection's log.
        """
        ...

    async def read_items(self, collection: str, after: int, *, limit: int, wait: float = 0.0) -> list[ItemFact]:
        """Entries after+1 … after+limit of the collection's log; waits up to `wait` seconds for a first one.

        They may be fewer than there are, where they are long; none only where there is none.
        An entry is all that was known of an item when it was appended: the last one on an item holds.
        """
        ...

    async def entry_count(self, collection: str) -> int:
        """The number of entries in the collection's log."""
        ...

    async def item_count(self, collection: str) -> int:
        """The number of items in the collection's log, also those withdrawn."""
        ...

    async def find_item(self, collection: str, item_id: str) -> ItemFact | None:
        """All that is known of the item; None where nothing is."""
        ...

    async def find_items(self, collection: str, item_ids: Sequence[str]) -> list[ItemFact | None]:
        """What the log says of each of several items, None of one that is not in it."""
        ...

    async def delete_collection(self, collection: str) -> None:
        """Remove the collection's log and all that was computed from it, and take nothing for it any more."""
        ...

    async def is_deleted(self, collection: str) -> bool:
        """Whether the collection was deleted."""
        ...

    async def save_snapshot(self, collection: str, name: str, raw: bytes, *, seconds: int | None = None) -> None:
        """Keep bytes that can be computed again, beside the collection's log; at least for so many seconds."""
        ...

    async def read_snapshot(self, collection: str, name: str) -> bytes | None:
        """The bytes last kept under that name."""
        ...


class Queries(Protocol):
    """Queries: the facts of each, and what they make."""

    async def query_ids(self, partition: int | None = None) -> set[str]:
        """The queries saved from that partition of the queries topic, or all."""
        ...

    async def list_sizes(self, partition: int) -> tuple[int, ...]:
        """How many queries the lists of that partition have: of those saved, that ever had leases, that are stopped
        or were. Those count that `Claims.leased` has taken out here: what is less was taken out by others."""
        ...

    async def list_anew(self, partitions: Collection[int]) -> int:
        """Find the queries of those partitions without these lists, and put each into those that it belongs to; how
        often one was not there. It looks at every key that there is."""
        ...

    async def complete_lists(self, partition: int, heads: Mapping[str, Head]) -> int:
        """Put the queries of that partition into its other lists, by what is saved and noted of each; how often one
        was not there that belongs there."""
        ...

    async def load_query(self, query_id: str) -> StoredQuery | None:
        """The saved query, read in one consistent step. Raises `VerdictsLost`."""
        ...

    async def read_heads(self, query_ids: Sequence[str]) -> list[Head | None]:
        """What is saved of each of those queries, but for their verdicts; None where nothing is."""
        ...

    async def save_query(self, change: Change, *, claimable: bool = True) -> bool:
        """Write one batch in one atomic step, or raise `Fenced` and write nothing. Whether all is there that was
        saved of the query before, so far as is seen from there; where it is not, somebody else was at it.

        Where it is not `claimable`, nothing may be claimed from the query until `let_claim` says so.
        """
        ...

    async def keep_leases(self, query_id: str, partition: int, facts: Sequence[LeaseFact]) -> None:
        """Take in facts that change nothing that is ranked, beside what is saved. They may come in any order.

        `partition` is the query's.
        """
        ...

    async def let_claim(self, query_id: str, allowed: bool) -> None:
        """Whether items of the query, if saved, may be claimed, and leases extended and released, from now on."""
        ...

    async def delete_query(self, query_id: str, partition: int, *, revision: int, read: Position) -> Deletion:
        """Remove everything of the query, noted or saved, but its id, that it is deleted, and how far topics are
        read: up to where that was saved, or to `read`.

        What lies in its outbox stays until it is confirmed (`Claims.published`). In one atomic step, whatever the
        stored revision is: the new one is above it and at least `revision`, so that every other writer is fenced.
        `load_query` then has settings with `Status.DELETED` and no verdicts. Where another partition owns the query
        nothing is changed.
        """
        ...

    async def note_withdrawn(self, query_id: str) -> None:
        """Note of a query that was deleted that readers were told so."""
        ...

    async def hold_settings(self, query_id: str, seen: int, name: str, seconds: float) -> Hold:
        """Take hold of the query's settings for a change of that name, made from those that lay at offset `seen`;
        or to open the query, where it was not there (-1).

        Nobody else can for so long, or until what was written is taken in. The same change may once more.
        """
        ...

    async def let_go_settings(self, query_id: str, name: str, offset: int | None) -> None:
        """Say where the change was written, or None where it was not."""
        ...

    async def read_revision(self, query_id: str) -> int | None:
        """The revision of the saved query, for whoever asks often whether it moved; None where nothing is saved."""
        ...

    async def read_revisions(self, query_ids: Sequence[str]) -> list[int | None]:
        """The revisions of several queries, as `read_revision`; UNREADABLE where a key holds something else."""
        ...

    async def expect_verdicts(self, query_id: str, count: int) -> None:
        """Have a query, if it is saved, say that so many verdicts of it were."""
        ...

    async def lower_cursor(self, query_id: str, cursor: int) -> None:
        """Have a query, if it is saved, say that it saw so many entries of its collection's log."""
        ...

    async def read_verdict(self, query_id: str, verdict_id: str) -> Verdict | None:
        """One verdict of the saved query, which the saved ranking reflects; None where it was not applied."""
        ...

    async def find_verdicts(self, query_id: str, item_id: str) -> list[Verdict]:
        """The verdicts of the saved query on the item, in no particular order; others may be served meanwhile."""
        ...

    async def read_ranking(self, query_id: str) -> bytes | None:
        """The last saved next-items value; None of a query that is not there, or was deleted."""
        ...

    async def read_tables(self, query_id: str) -> Tables | None:
        """The saved posterior, read in one consistent step: `posterior.tables.read` says what it means.

        What earlier versions wrote has every row. Raises `Rejected` where this one cannot read the settings.
        """
        ...


class Notes(Protocol):
    """What is noted of queries beside their facts: what was begun, passed over, stopped or not opened."""

    async def begin_attempt(self, query_id: str, attempt: str) -> None:
        """Note that a batch of the query begins, under a name of its own."""
        ...

    async def end_attempts(self, query_id: str, attempts: Collection[str]) -> None:
        """Note that these came to an end, or no longer matter."""
        ...

    async def read_note(self, query_id: str) -> Note:
        """What is noted of the query."""
        ...

    async def pass_over(self, query_id: str, spans: Spans) -> None:
        """Note that records of the query lie there and are not applied; widens what is noted."""
        ...

    async def take_up(self, query_id: str, partition: int, note: Note, revision: int = 0) -> None:
        """Note that the query goes on and what was passed over is applied, if `note` is still what is noted."""
        ...

    async def quarantine(self, query_id: str, partition: int, why: Quarantine) -> None:
        """Note that the query is stopped."""
        ...

    async def release(self, query_id: str) -> None:
        """Note that the query may go on, as if nobody had begun a batch of it. It is listed until `take_up`."""
        ...

    async def quarantined(self) -> dict[str, int]:
        """The queries that are stopped, or were and are not taken up, and the partitions that own them."""
        ...

    async def note_unknown(self, partition: int, query_id: str, spans: Spans, *, room: int) -> None:
        """Note where verdicts and leases for a query lie that nobody has opened.

        Of at most `room` queries of the partition; of further ones, only where those of all of them lie.
        """
        ...

    async def read_unknown(self, partition: int, query_id: str) -> Spans:
        """Where verdicts and leases for the query may lie that came before it was opened."""
        ...

    async def unknown(self) -> dict[str, int]:
        """The queries that verdicts or leases name and nobody has opened, as far as they are noted, and their
        partitions.
        """
        ...


class Marks(Protocol):
    """What tells whether the store still has all that it had: how far topics are in it, counts, a mark."""

    async def read_up_to(self, partitions: Collection[str] | None = None) -> dict[str, int]:
        """By partition of a topic, of all unless some are named, the offset before which all of it is in the store,
        where that is noted.
        """
        ...

    async def move_up_to(self, moves: Mapping[str, tuple[int, int]]) -> dict[str, int]:
        """Note for each partition, in place of one offset (-1: of none), another.

        Returns those of which something else is noted, with that: there nothing is changed.
        """
        ...

    async def count(self, partition: str) -> int:
        """Count that something was written for a partition of a topic; how often that was, this time with it."""
        ...

    async def read_counts(self, partitions: Sequence[str]) -> list[int]:
        """What `count` came to for each; 0 where nothing was counted."""
        ...

    async def note_listed(self, partition: int, count: int) -> None:
        """Note that so many queries are in the list of that partition."""
        ...

    async def read_listed(self, partition: int) -> int:
        """What was noted last of it; 0 where nothing was."""
        ...

    async def generation(self) -> str | None:
        """The mark that `begin` left, or None where the store is empty (new, or lost) or being rebuilt."""
        ...

    async def begin(self, generation: str, *, instead_of: str = "") -> str:
        """Leave the mark where there is none, or the one given; the mark that stands."""
        ...

    async def end(self) -> None:
        """Take the mark away: from now on no worker begins here, until `begin`."""
        ...


class Store(Logs, Queries, Notes, Marks, Protocol):
    """The live state. Every method may raise `StoreUnavailable`, and `StoreDamaged`."""

    @property
    def claims(self) -> Claims:
        """The leases of the queries that are saved here."""
        ...

    async def wipe(self) -> None:
        """Remove everything under this store's prefix."""
        ...

    async def ping(self) -> float:
        """Return, if the store answers and takes writes, what time it has: seconds since the epoch."""
        ...

    async def drops(self) -> str | None:
        """By which policy the store drops what it holds where memory is short; None where it does not, it seems."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
