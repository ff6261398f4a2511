"""Queries in Redis or Valkey: what is saved of each, in one script a batch, and what is read of it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar, cast

from typing_extensions import override

from haystream.errors import Rejected
from haystream.events import LeaseFact, Query, Status, Verdict
from haystream.posterior.rows import EDGE_COLUMNS, PARTICIPANT_COLUMNS, Size, Tables
from haystream_service.store.base import (
    UNREADABLE,
    Change,
    Deletion,
    Fenced,
    Head,
    Hold,
    Position,
    Queries,
    StoreDamaged,
    StoredQuery,
    VerdictsLost,
)
from haystream_service.store.damage import REBUILD
from haystream_service.store.facts import (
    encode_fact,
    encode_shared,
    read_lease,
    read_meta,
    read_settings,
    read_shared,
    read_verdict,
    read_verdicts_on,
)
from haystream_service.store.redis_calls import Script, answers_of
from haystream_service.store.redis_claims import LEASE_PARTS, NOT_LISTED
from haystream_service.store.redis_lists import RedisLists
from haystream_service.store.shapes import Unreadable, read_number, read_text
from haystream_service.store.tables import fingerprint, packed, table, whole_table
from haystream_service.wire import encode_query, encode_verdict

VERDICTS_A_SCAN = 1000
"""Between two turns of the event loop, and of Redis: some milliseconds."""
HEADS_AT_ONCE = 500
FACTS_AT_ONCE = 500
"""Verdicts, or leases, that are read between two turns of the event loop: some 4 ms."""

T = TypeVar("T")
R = TypeVar("R")

TABLES = "people-told", "pairs-told"
LESS = b"less"
"""What `save.lua` answers where somebody else has taken away some of what was saved."""
OLD_TABLES = "participants", "edges"
"""As formats 1 to 3 have them."""

SAVED_PARTS = (*LEASE_PARTS, "verdicts", "ranking", *TABLES, "offers", *OLD_TABLES)
"""The keys of a query that a save writes, in the order in which `save.lua` has them."""


class RedisQueries(RedisLists, Queries):
    """The queries of a `RedisStore`."""

    _save = Script("save.lua", leases=True)
    _keep_leases = Script("keep_leases.lua", leases=True)
    _load = Script("load.lua")
    _read = Script("read.lua")
    _delete = Script("delete.lua")
    _hold = Script("change.lua")
    _let_go = Script("changed.lua")
    _set_in_meta = Script("set_in_meta.lua")
    _withdrawn = Script("withdrawn.lua")

    @override
    async def query_ids(self, partition: int | None = None) -> set[str]:
        keys = [self._keys.partition(p) for p in (await self._partitions() if partition is None else [partition])]
        return {member for key in keys for member in await self._members(key)}

    @override
    async def load_query(self, query_id: str) -> StoredQuery | None:
        keys = [self._keys.query(query_id, part) for part in ("meta", "verdicts", "leases")]
        found = await self._run(self._load, keys, [])
        if found is None:
            return None
        flat, verdicts, leases = found
        meta = dict(zip(flat[::2], flat[1::2], strict=True))

        def fact(pair: tuple[bytes, bytes]) -> LeaseFact | None:
            lease_id, lease = pair
            return read_lease(lease).folded_fact(query_id, read_text(lease_id, "the id of a lease"))

        with self._reading(keys[0]):
            read = read_meta(meta)
            settings = read_settings(query_id, meta.get(b"settings"))
            had = read_number(meta.get(b"verdicts", b"0"), "verdicts")
        with self._reading(keys[1]):
            judged = await _by_turns(read_verdict, verdicts)
        with self._reading(keys[2]):
            folded = await _by_turns(fact, list(zip(leases[::2], leases[1::2], strict=True)))
        known = tuple(fact for fact in folded if fact is not None)
        stored = StoredQuery(settings, *read, verdicts=tuple(judged), leases=known)
        if len(verdicts) < had:
            raise VerdictsLost(stored, had, f"of {had} verdicts Redis has {len(verdicts)} in {keys[1]}", REBUILD)
        return stored

    @override
    async def read_heads(self, query_ids: Sequence[str]) -> list[Head | None]:
        heads: list[Head | None] = []
        for start in range(0, len(query_ids), HEADS_AT_ONCE):
            some = query_ids[start : start + HEADS_AT_ONCE]
            async with self._answering(), self._redis.pipeline(transaction=False) as pipeline:
                for query_id in some:
                    pipeline.hgetall(self._keys.query(query_id, "meta"))
                answers = await answers_of(pipeline, of_another_type=True)
            heads += (_head(query_id, meta) for query_id, meta in zip(some, answers, strict=True))
        return heads

    @override
    async def save_query(self, change: Change, *, claimable: bool = True) -> bool:
        query_id = change.query_id
        if change.expected == 0:
            if change.settings is None:
                raise ValueError(f"the first save of query {query_id!r} lacks its settings")
            await self._list(query_id, change.partition, self._keys.partition(change.partition))
        keys = [self._keys.query(query_id, part) for part in SAVED_PARTS]
        stored = await self._run(self._save, keys, _arguments(change, claimable=claimable, listed=False))
        if stored == NOT_LISTED:
            # Before a lease is stored: the owner is sure to look at it then.
            await self._list(query_id, change.partition, self._keys.leased(change.partition))
            stored = await self._run(self._save, keys, _arguments(change, claimable=claimable, listed=True))
        if stored not in {None, LESS}:
            with self._reading(keys[0]):
                raise Fenced(query_id, change.expected, read_number(stored, "revision"))
        return stored is None

    @override
    async def keep_leases(self, query_id: str, partition: int, facts: Sequence[LeaseFact]) -> None:
        keys = [self._keys.query(query_id, part) for part in LEASE_PARTS]
        arguments = ["", *(text for fact in facts for text in encode_fact(fact))]
        if await self._run(self._keep_leases, keys, arguments) == NOT_LISTED:
            await self._list(query_id, partition, self._keys.leased(partition))
            await self._run(self._keep_leases, keys, ["1", *arguments[1:]])

    @override
    async def let_claim(self, query_id: str, allowed: bool) -> None:
        meta = self._keys.query(query_id, "meta")
        if not allowed:
            await self._run(self._set_in_meta, [meta], ["rebuilding", "1"])
            return
        async with self._answering(meta):
            await self._redis.hdel(meta, "rebuilding")

    @override
    async def delete_query(self, query_id: str, partition: int, *, revision: int, read: Position) -> Deletion:
        await self._list(query_id, partition, self._keys.partition(partition))
        parts = [part for part in (*SAVED_PARTS, "note", "attempts", "change") if part != "outbox"]
        keys = [self._keys.query(query_id, part) for part in parts]
        settings = encode_query(Query(query_id, status=Status.DELETED))
        answer = await self._run(self._delete, keys, [partition, revision, *read.offsets, settings])
        with self._reading(keys[0]):
            owner, last = read_number(answer[0], "partition"), read_number(answer[1], "revision")
            offsets = (read_number(offset, "an offset", least=-1) for offset in answer[2:])
            queries, verdicts, leases = tuple(offsets) or (-1, -1, -1)
        deletion = Deletion(owner, last, Position(queries, verdicts, leases_offset=leases))
        if deletion.partition == partition:
            await self._forget(query_id, partition)
        else:
            key = self._keys.partition(partition)
            async with self._answering(key):
                await self._redis.srem(key, query_id)
        return deletion

    @override
    async def note_withdrawn(self, query_id: str) -> None:
        await self._run(self._withdrawn, [self._keys.query(query_id, part) for part in ("meta", "outbox")], [])

    @override
    async def hold_settings(self, query_id: str, seen: int, name: str, seconds: float) -> Hold:
        keys = [self._keys.query(query_id, part) for part in ("meta", "change")]
        answer: bytes = await self._run(self._hold, keys, [seen, name, int(1000 * seconds)])
        return Hold(answer.decode())

    @override
    async def let_go_settings(self, query_id: str, name: str, offset: int | None) -> None:
        key = self._keys.query(query_id, "change")
        await self._run(self._let_go, [key], [name, "" if offset is None else offset])

    @override
    async def read_revision(self, query_id: str) -> int | None:
        meta = self._keys.query(query_id, "meta")
        async with self._answering(meta):
            revision = await self._redis.hget(meta, "revision")
        with self._reading(meta):
            return None if revision is None else read_number(revision, "revision")

    @override
    async def read_revisions(self, query_ids: Sequence[str]) -> list[int | None]:
        if not query_ids:
            return []
        async with self._answering(), self._redis.pipeline(transaction=False) as pipeline:
            for query_id in query_ids:
                pipeline.hget(self._keys.query(query_id, "meta"), "revision")
            found = await answers_of(pipeline, of_another_type=True)
        return list(map(_revision, found))

    @override
    async def expect_verdicts(self, query_id: str, count: int) -> None:
        await self._run(self._set_in_meta, [self._keys.query(query_id, "meta")], ["verdicts", count])

    @override
    async def lower_cursor(self, query_id: str, cursor: int) -> None:
        await self._run(self._set_in_meta, [self._keys.query(query_id, "meta")], ["cursor", cursor])

    @override
    async def read_verdict(self, query_id: str, verdict_id: str) -> Verdict | None:
        verdicts = self._keys.query(query_id, "verdicts")
        async with self._answering(verdicts):
            raw = await self._redis.hget(verdicts, verdict_id)
        with self._reading(verdicts):
            return None if raw is None else read_verdict(raw)

    @override
    async def find_verdicts(self, query_id: str, item_id: str) -> list[Verdict]:
        verdicts, found, cursor = self._keys.query(query_id, "verdicts"), dict[str, Verdict](), 0
        while True:
            async with self._answering(verdicts):
                cursor, some = await self._redis.hscan(verdicts, cursor, count=VERDICTS_A_SCAN)
            with self._reading(verdicts):
                for verdict in read_verdicts_on(some.values(), item_id):
                    found[verdict.verdict_id] = verdict  # a scan may come upon one twice
            if not cursor:
                return list(found.values())

    @override
    async def read_ranking(self, query_id: str) -> bytes | None:
        ranking = self._keys.query(query_id, "ranking")
        async with self._answering(ranking):
            return cast(bytes | None, await self._redis.get(ranking))

    @override
    async def read_tables(self, query_id: str) -> Tables | None:
        parts = "meta", *TABLES, *OLD_TABLES
        keys = [self._keys.query(query_id, part) for part in parts]
        found = await self._run(self._read, keys, [])
        if found is None:
            return None
        shared, settings, size, saved, *strings = found
        for key, bytes_saved, rows in zip(keys[1:], saved, strings, strict=False):
            if (there := len(rows or b"")) < bytes_saved:
                raise StoreDamaged(
                    f"of {bytes_saved} bytes Redis has {there} in {key}: the next save writes them anew"
                )
        meta, people_told, pairs_told, *whole = keys
        read = whole_table if size is None else table
        with self._reading(whole[0] if size is None else people_told):
            people = read(strings[0] or b"", PARTICIPANT_COLUMNS)
        with self._reading(whole[1] if size is None else pairs_told):
            pairs = read(strings[1] or b"", EDGE_COLUMNS)
        with self._reading(meta):
            of = Size(len(people.index), len(pairs.index)) if size is None else _size(size)
            return Tables(read_settings(query_id, settings).prior, people, pairs, of, *read_shared(shared))


def _arguments(change: Change, *, claimable: bool, listed: bool) -> list[bytes | str | int | float]:
    """What `save.lua` is given of a change, in its order."""
    position, offers = change.position, change.offers
    arguments: list[bytes | str | int | float] = [
        change.expected,
        change.revision,
        fingerprint(change),
        change.partition,
        position.queries_offset,
        position.verdicts_offset,
        position.cursor,
        change.touched,
        b"" if change.settings is None else encode_query(change.settings),
        encode_shared(change.tables),
        change.ranking,
        packed(change.tables.participants),
        packed(change.tables.edges),
        position.leases_offset,
        "" if claimable else "1",
        len(change.verdicts),
        len(change.leases),
        len(change.ended),
        "" if offers is None else f"{change.revision} {int(offers.complete)}",
        "1" if change.tables.whole else "",
        f"{change.tables.size.participants} {change.tables.size.edges}",
        position.history,
        "1" if listed else "",
        "1" if change.unfinished else "",
    ]
    for verdict in change.verdicts:
        arguments += (verdict.verdict_id, encode_verdict(verdict))
    for fact in change.leases:
        arguments += encode_fact(fact)
    arguments += change.ended
    if offers is not None:
        arguments += (f"{item_id}\n{score!r}\n{mean!r}" for item_id, score, mean in offers.items)
    return arguments


async def _by_turns(read: Callable[[T], R], raws: Sequence[T]) -> list[R]:
    """What is read of each. Others have their turns meanwhile."""
    known: list[R] = []
    for start in range(0, len(raws), FACTS_AT_ONCE):
        if start:
            await asyncio.sleep(0)
        known += map(read, raws[start : start + FACTS_AT_ONCE])
    return known


def _head(query_id: str, meta: Mapping[bytes, bytes] | Exception) -> Head | None:
    if isinstance(meta, Exception):
        return Head.unreadable()
    if b"revision" not in meta:
        return None
    settings: Query | None = None
    # Whoever loads it is told why.
    with suppress(Unreadable):
        with suppress(Rejected, Unreadable):
            settings = read_settings(query_id, meta.get(b"settings"))
        return Head(settings, *read_meta(meta), withdrawn=b"withdrawn" in meta, leased=b"leased" in meta)
    return Head.unreadable()


def _revision(found: bytes | Exception | None) -> int | None:
    """The revision that was found, or UNREADABLE; None where there is none."""
    if found is None:
        return None
    try:
        return UNREADABLE if isinstance(found, Exception) else read_number(found, "revision")
    except Unreadable:
        return UNREADABLE


def _size(raw: bytes) -> Size:
    """How many participants and edges tables are of. Raises `Unreadable`."""
    participants, _, edges = raw.partition(b" ")
    return Size(read_number(participants, "size"), read_number(edges, "size"))
