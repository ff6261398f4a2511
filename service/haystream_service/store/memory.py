"""The store in this process's memory: for tests, the demo where no server is to be had, and offline runs.

It keeps the contract of `base` (one test suite holds it and the Redis store to it), but it lasts no longer
than the object. Several workers of one process may share one. Nothing here waits but `read_items`, so every
method is one atomic step of the event loop.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic

from typing_extensions import override

from haystream.errors import Rejected
from haystream.events import ItemFact, LeaseFact, Query, Status, Verdict
from haystream.facts.merging import ItemLog
from haystream.posterior.rows import EDGE_COLUMNS, PARTICIPANT_COLUMNS, Changes, Rows, Tables
from haystream_service.store.base import (
    NOWHERE,
    Appended,
    Change,
    Deletion,
    Fenced,
    Head,
    Hold,
    Note,
    Position,
    Quarantine,
    Spans,
    Store,
    StoredQuery,
)
from haystream_service.store.claims import SECOND
from haystream_service.store.memory_claims import MemoryClaims, QueryLeases
from haystream_service.store.tables import fingerprint, packed, runs, table


@dataclass(slots=True)
class _Log:
    entries: list[ItemFact] = field(default_factory=list)
    known: ItemLog = field(default_factory=ItemLog)
    grown: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class _Saved:
    query: StoredQuery
    verdicts: dict[str, Verdict]
    fingerprint: str
    ranking: bytes | None = None
    """None where the query was deleted; then there is no posterior either."""
    tables: Changes | None = None
    """The last ones."""
    participants: bytearray = field(default_factory=bytearray)
    edges: bytearray = field(default_factory=bytearray)
    withdrawn: bool = False


class MemoryStore(Store):
    """A `Store` that is a few dictionaries."""

    def __init__(self) -> None:
        self._claims = MemoryClaims()
        self._claims.rebuilding = lambda: self._generation is None
        self._logs: defaultdict[str, _Log] = defaultdict(_Log)
        self._saved: dict[str, _Saved] = {}
        self._snapshots: dict[tuple[str, str], bytes] = {}
        self._deleted_collections: set[str] = set()
        self._generation: str | None = None
        self._up_to: dict[str, int] = {}
        self._counts: Counter[str] = Counter()
        self._notes: defaultdict[str, Note] = defaultdict(Note)
        self._attempts: defaultdict[str, set[str]] = defaultdict(set)
        self._changes: dict[str, tuple[str, int | None, float]] = {}
        """By query, the change of its settings that is under way: its name, its offset, and until when."""
        self._quarantined: dict[str, int] = {}
        self._unknown: defaultdict[int, dict[str, Spans]] = defaultdict(dict)
        self._rest: dict[int, Spans] = {}

    @property
    @override
    def claims(self) -> MemoryClaims:
        return self._claims

    @override
    async def append_items(self, collection: str, facts: Sequence[ItemFact]) -> list[Appended]:
        if collection in self._deleted_collections:
            return [Appended.DELETED] * len(facts)
        log = self._logs[collection]
        answers = []
        for fact in facts:
            try:
                entry = log.known.add(fact)
            except Rejected:
                answers.append(Appended.CONFLICT)
                continue
            answers.append(Appended.KNOWN if entry is None else Appended.ADDED)
            if entry is not None:
                log.entries.append(entry)
        if Appended.ADDED in answers:
            log.grown.set()
            log.grown = asyncio.Event()
        return answers

    @override
    async def read_items(self, collection: str, after: int, *, limit: int, wait: float = 0.0) -> list[ItemFact]:
        log = self._logs[collection]
        if len(log.entries) <= after and wait > 0:
            try:
                await asyncio.wait_for(log.grown.wait(), wait)
            except TimeoutError:
                return []
        return log.entries[after : after + limit]

    @override
    async def entry_count(self, collection: str) -> int:
        return len(self._logs[collection].entries)

    @override
    async def item_count(self, collection: str) -> int:
        return len(self._logs[collection].known)

    @override
    async def find_item(self, collection: str, item_id: str) -> ItemFact | None:
        return self._logs[collection].known.get(item_id)

    @override
    async def find_items(self, collection: str, item_ids: Sequence[str]) -> list[ItemFact | None]:
        return [await self.find_item(collection, item_id) for item_id in item_ids]

    @override
    async def delete_collection(self, collection: str) -> None:
        self._deleted_collections.add(collection)
        self._logs.pop(collection, None)
        for name in [name for name in self._snapshots if name[0] == collection]:
            del self._snapshots[name]

    @override
    async def is_deleted(self, collection: str) -> bool:
        return collection in self._deleted_collections

    @override
    async def save_snapshot(self, collection: str, name: str, raw: bytes, *, seconds: int | None = None) -> None:
        self._snapshots[collection, name] = raw

    @override
    async def read_snapshot(self, collection: str, name: str) -> bytes | None:
        return self._snapshots.get((collection, name))

    @override
    async def query_ids(self, partition: int | None = None) -> set[str]:
        return {
            query_id
            for query_id, saved in self._saved.items()
            if partition is None or saved.query.partition == partition
        }

    @override
    async def list_sizes(self, partition: int) -> tuple[int, ...]:
        leased = await self.claims.leased(partition)
        stopped = sum(of == partition for of in self._quarantined.values())
        return len(await self.query_ids(partition)), len(leased), stopped

    @override
    async def list_anew(self, partitions: Collection[int]) -> int:
        return 0  # the lists are made of what there is

    @override
    async def complete_lists(self, partition: int, heads: Mapping[str, Head]) -> int:
        return 0

    @override
    async def note_listed(self, partition: int, count: int) -> None:
        """Nobody takes anything out of what the lists are made of."""

    @override
    async def read_listed(self, partition: int) -> int:
        return 0

    @override
    async def load_query(self, query_id: str) -> StoredQuery | None:
        saved = self._saved.get(query_id)
        if saved is None:
            return None
        leases = self.claims.queries[query_id].folded.values()
        return replace(saved.query, verdicts=tuple(saved.verdicts.values()), leases=tuple(leases))

    @override
    async def read_heads(self, query_ids: Sequence[str]) -> list[Head | None]:
        found = map(self._saved.get, query_ids)
        return [None if saved is None else _head(saved) for saved in found]

    @override
    async def save_query(self, change: Change, *, claimable: bool = True) -> bool:
        saved, tables = self._saved.get(change.query_id), change.tables
        stored = saved.query.revision if saved else 0
        mark = fingerprint(change)
        if stored != change.expected:
            if saved and stored == change.revision and saved.fingerprint == mark:
                return True
            raise Fenced(change.query_id, change.expected, stored)
        settings = change.settings or (saved.query.settings if saved else None)
        if settings is None:
            raise ValueError(f"the first save of query {change.query_id!r} lacks its settings")
        before = saved.query.position if saved else Position()
        queries, verdicts, leases = map(max, before.offsets, change.position.offsets)
        position = Position(queries, verdicts, change.position.cursor, leases, change.position.history)
        meta = change.partition, change.revision, position, change.touched, change.unfinished
        query = StoredQuery(settings, *meta, verdicts=())
        if saved is None:
            saved = self._saved[change.query_id] = _Saved(query, {}, mark)
        saved.query, saved.fingerprint, saved.ranking, saved.tables = query, mark, change.ranking, tables
        saved.verdicts.update((verdict.verdict_id, verdict) for verdict in change.verdicts)
        held = self.claims.queries.setdefault(change.query_id, QueryLeases(change.partition))
        held.ranking, held.offers = change.ranking, change.offers
        held.closed = held.closed or not claimable
        for fact in change.leases:
            held.merge(fact)
        for lease_id in change.ended:
            held.end(lease_id)
        if tables.whole:
            saved.participants.clear()
            saved.edges.clear()
        _patch(saved.participants, tables.participants)
        _patch(saved.edges, tables.edges)
        return True

    @override
    async def keep_leases(self, query_id: str, partition: int, facts: Sequence[LeaseFact]) -> None:
        if (held := self.claims.queries.get(query_id)) is not None:  # else the store has gone back
            for fact in facts:
                held.merge(fact)

    @override
    async def let_claim(self, query_id: str, allowed: bool) -> None:
        if query_id in self.claims.queries:
            self.claims.queries[query_id].closed = not allowed

    @override
    async def delete_query(self, query_id: str, partition: int, *, revision: int, read: Position) -> Deletion:
        saved = self._saved.get(query_id)
        if saved is not None and saved.query.partition != partition:
            return Deletion(saved.query.partition, saved.query.revision)
        before = saved.query.position if saved else Position()
        revision = max(revision, saved.query.revision + 1 if saved else 0)
        queries, verdicts, leases = map(max, read.offsets, before.offsets)
        position = Position(queries, verdicts, leases_offset=leases)
        settings = Query(query_id, status=Status.DELETED)
        query = StoredQuery(settings, partition, revision, position, revision, unfinished=False, verdicts=())
        self._saved[query_id] = _Saved(query, {}, "deleted")
        held = self.claims.queries.get(query_id, QueryLeases())
        self.claims.queries[query_id] = QueryLeases(partition, outbox=held.outbox, put=held.put, deleted=True)
        unknown = self._unknown[partition]
        for noted in (self._notes, self._attempts, self._quarantined, self._changes, unknown):
            noted.pop(query_id, None)
        return Deletion(partition, revision, position)

    @override
    async def note_withdrawn(self, query_id: str) -> None:
        if query_id in self._saved:
            self._saved[query_id].withdrawn = True

    @override
    async def hold_settings(self, query_id: str, seen: int, name: str, seconds: float) -> Hold:
        saved = self._saved.get(query_id)
        taken_in = saved.query.position.queries_offset if saved else -1
        if taken_in != seen:
            return Hold.MOVED
        held, offset, until = self._changes.get(query_id, (name, None, 0.0))
        over = monotonic() >= until or (offset is not None and offset <= taken_in)
        if held != name and not over:
            return Hold.TAKEN
        self._changes[query_id] = name, None, monotonic() + seconds
        return Hold.OURS

    @override
    async def let_go_settings(self, query_id: str, name: str, offset: int | None) -> None:
        held, _, until = self._changes.get(query_id, ("", None, 0.0))
        if held == name and offset is None:
            del self._changes[query_id]
        elif held == name:
            self._changes[query_id] = name, offset, until

    @override
    async def read_revision(self, query_id: str) -> int | None:
        saved = self._saved.get(query_id)
        return saved.query.revision if saved else None

    @override
    async def read_revisions(self, query_ids: Sequence[str]) -> list[int | None]:
        return [await self.read_revision(query_id) for query_id in query_ids]

    @override
    async def expect_verdicts(self, query_id: str, count: int) -> None:
        """Nobody takes any away here."""

    @override
    async def lower_cursor(self, query_id: str, cursor: int) -> None:
        if (saved := self._saved.get(query_id)) is not None:
            saved.query = replace(saved.query, position=replace(saved.query.position, cursor=cursor))

    @override
    async def read_verdict(self, query_id: str, verdict_id: str) -> Verdict | None:
        saved = self._saved.get(query_id)
        return saved.verdicts.get(verdict_id) if saved else None

    @override
    async def find_verdicts(self, query_id: str, item_id: str) -> list[Verdict]:
        saved = self._saved.get(query_id)
        return [verdict for verdict in saved.verdicts.values() if verdict.item_id == item_id] if saved else []

    @override
    async def read_ranking(self, query_id: str) -> bytes | None:
        saved = self._saved.get(query_id)
        return saved.ranking if saved else None

    @override
    async def read_tables(self, query_id: str) -> Tables | None:
        saved = self._saved.get(query_id)
        if saved is None or saved.tables is None:
            return None
        return Tables(
            saved.query.settings.prior,
            table(bytes(saved.participants), PARTICIPANT_COLUMNS),
            table(bytes(saved.edges), EDGE_COLUMNS),
            saved.tables.size,
            saved.tables.common,
            saved.tables.discrepancy,
        )

    @override
    async def begin_attempt(self, query_id: str, attempt: str) -> None:
        self._attempts[query_id].add(attempt)

    @override
    async def end_attempts(self, query_id: str, attempts: Collection[str]) -> None:
        self._attempts[query_id] -= set(attempts)

    @override
    async def read_note(self, query_id: str) -> Note:
        return replace(self._notes.get(query_id, Note()), attempts=frozenset(self._attempts.get(query_id, ())))

    @override
    async def pass_over(self, query_id: str, spans: Spans) -> None:
        note = self._notes[query_id]
        self._notes[query_id] = replace(note, passed=note.passed.around(spans))

    @override
    async def take_up(self, query_id: str, partition: int, note: Note, revision: int = 0) -> None:
        if (await self.read_revision(query_id) or 0) < revision:
            return
        now = self._notes[query_id]
        if all(there in {None, taken} for there, taken in zip(now.passed, note.passed, strict=True)):
            self._notes[query_id] = replace(now, passed=NOWHERE)
            self._quarantined.pop(query_id, None)
            self._unknown[partition].pop(query_id, None)

    @override
    async def quarantine(self, query_id: str, partition: int, why: Quarantine) -> None:
        self._notes[query_id] = replace(self._notes[query_id], quarantine=why)
        self._quarantined[query_id] = partition

    @override
    async def release(self, query_id: str) -> None:
        self._notes[query_id] = replace(self._notes[query_id], quarantine=None)
        self._attempts.pop(query_id, None)

    @override
    async def quarantined(self) -> dict[str, int]:
        return dict(self._quarantined)

    @override
    async def note_unknown(self, partition: int, query_id: str, spans: Spans, *, room: int) -> None:
        noted = self._unknown[partition]
        if query_id in noted or len(noted) < room:
            noted[query_id] = noted.get(query_id, NOWHERE).around(spans)
        else:
            self._rest[partition] = self._rest.get(partition, NOWHERE).around(spans)

    @override
    async def read_unknown(self, partition: int, query_id: str) -> Spans:
        return self._unknown[partition].get(query_id, NOWHERE).around(self._rest.get(partition, NOWHERE))

    @override
    async def unknown(self) -> dict[str, int]:
        return {query_id: partition for partition, noted in self._unknown.items() for query_id in noted}

    @override
    async def read_up_to(self, partitions: Collection[str] | None = None) -> dict[str, int]:
        partitions = self._up_to if partitions is None else partitions
        return {name: self._up_to[name] for name in partitions if name in self._up_to}

    @override
    async def move_up_to(self, moves: Mapping[str, tuple[int, int]]) -> dict[str, int]:
        noted = {name: self._up_to.get(name, -1) for name in moves}
        others = {name: noted[name] for name, (before, _) in moves.items() if noted[name] != before}
        self._up_to |= {name: after for name, (_, after) in moves.items() if name not in others and after >= 0}
        return others

    @override
    async def count(self, partition: str) -> int:
        self._counts[partition] += 1
        return self._counts[partition]

    @override
    async def read_counts(self, partitions: Sequence[str]) -> list[int]:
        return [self._counts[partition] for partition in partitions]

    @override
    async def generation(self) -> str | None:
        return self._generation

    @override
    async def begin(self, generation: str, *, instead_of: str = "") -> str:
        if (self._generation or "") == instead_of:
            self._generation = generation
        return self._generation or ""

    @override
    async def end(self) -> None:
        self._generation = None

    @override
    async def wipe(self) -> None:
        self._logs.clear()
        self._saved.clear()
        self.claims.queries.clear()
        self._snapshots.clear()
        self._deleted_collections.clear()
        for noted in (self._notes, self._attempts, self._quarantined, self._unknown, self._rest, self._changes):
            noted.clear()
        self._generation = None
        self._up_to.clear()
        self._counts.clear()

    @override
    async def drops(self) -> str | None:
        return None

    @override
    async def ping(self) -> float:
        return self._claims.clock() / SECOND

    @override
    async def close(self) -> None:
        return


def _patch(raw: bytearray, patch: Rows) -> None:
    for offset, run in runs(packed(patch)):
        raw.extend(bytes(max(0, offset + len(run) - len(raw))))
        raw[offset : offset + len(run)] = run


def _head(saved: _Saved) -> Head:
    query = saved.query
    meta = query.partition, query.revision, query.position, query.touched, query.unfinished
    return Head(query.settings, *meta, withdrawn=saved.withdrawn)
