"""The live state in Redis or Valkey, one server or a cluster. `keys` has the layout; the scripts write.

A write is one script, so nobody comes in between, and a save is a compare-and-set.
What this does not prevent, and what repairs it:

- **A script is refused in the middle** (a permission was taken away, a key holds something of another type). What
  it has done until then stays. Scripts are written so that whoever sends them again makes it whole: what says that
  it is done comes last.
- **A reply is lost after the write.** The caller gets `StoreUnavailable` and tries again; items are
  idempotent by id, a save is recognised by its revision and fingerprint.
- **A query is put in its partition's set, then never saved** (the process died between the two). The set
  names a query that is not there: `load_query` answers None and the worker passes over it.
- **A zombie saves between two saves of the owner.** One of the two is fenced, loads again and applies its
  batch to what the other wrote. Facts are sets: nothing is lost or counted twice.
- **A replica that lags is promoted, or the machine loses power with `appendfsync everysec`.** The last
  writes are gone although they were acknowledged. `up-to` has gone back with them, or the owner is fenced by an
  earlier revision: workers end, and begin again where the store is (`worker/progress.py`). Killing the server's
  process loses nothing when its append-only file is on.
- **The data are gone altogether.** The generation mark is gone with them: workers stop and say so until
  `haystream rebuild` has run.
- **`wipe` runs while somebody writes.** Keys may come into being behind the scan. `haystream rebuild`
  therefore refuses to start while the consumer group has members.

A table is limited by Redis to 512 MiB: 16 million edges a query.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Self, TypeVar, cast

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from typing_extensions import override

from haystream.errors import Rejected
from haystream.events import ItemFact, LeaseFact, Query, Status, Verdict
from haystream.posterior_tables import EDGE_COLUMNS, PARTICIPANT_COLUMNS, Size, Tables
from haystream_service.settings import Settings
from haystream_service.store.base import (
    UNREADABLE,
    Appended,
    Change,
    Deletion,
    Fenced,
    Head,
    Hold,
    Note,
    Position,
    Quarantine,
    Span,
    Store,
    StoreDamaged,
    StoredQuery,
    StoreRefused,
)
from haystream_service.store.connection import redis_client
from haystream_service.store.facts import (
    encode_fact,
    encode_quarantine,
    encode_shared,
    encode_span,
    read_lease,
    read_meta,
    read_note,
    read_shared,
    read_span,
    read_verdict,
    read_verdicts_on,
)
from haystream_service.store.keys import Keys
from haystream_service.store.redis_calls import RedisCalls, Script, answers_of
from haystream_service.store.redis_claims import LEASE_PARTS, NOT_LISTED, RedisClaims
from haystream_service.store.redis_log import RedisLog
from haystream_service.store.tables import fingerprint, packed, table, whole_table
from haystream_service.wire import decode_stored_query, encode_query, encode_verdict

KEYS_A_SCAN = 1000
VERDICTS_A_SCAN = 1000
"""Between two turns of the event loop, and of Redis: some milliseconds."""
HEADS_AT_ONCE = 500
FACTS_AT_ONCE = 500
"""Verdicts, or leases, that are read between two turns of the event loop: some 4 ms."""

T = TypeVar("T")
R = TypeVar("R")

TABLES = "people-told", "pairs-told"
OLD_TABLES = "participants", "edges"
"""As formats 1 to 3 have them."""

SAVED_PARTS = (*LEASE_PARTS, "verdicts", "ranking", *TABLES, "offers", *OLD_TABLES)
"""The keys of a query that a save writes, in the order in which `save.lua` has them."""


class RedisStore(Store):
    """A `Store` in Redis 7+ or Valkey. A call that takes more than `timeout` seconds is given up.

    `answered` is told the name of each script that Redis has answered, and the seconds that took.
    """

    def __init__(
        self,
        client: Redis | RedisCluster,
        *,
        prefix: str = "haystream",
        timeout: float = 5.0,
        answered: Callable[[str, float], None] = lambda *_: None,
    ) -> None:
        self._keys = Keys(prefix)
        calls = RedisCalls(client, self._keys, timeout, answered)
        self._redis, self._run, self._answering = calls.redis, calls.run, calls.answering
        self._claims, self._log = RedisClaims(calls), RedisLog(calls)
        self._save = Script("save.lua", leases=True)
        self._keep_leases = Script("keep_leases.lua", leases=True)
        self._load = Script("load.lua")
        self._read = Script("read.lua")
        self._widen = Script("widen.lua")
        self._take_up = Script("take_up.lua")
        self._delete = Script("delete.lua")
        self._delete_collection = Script("delete_collection.lua")
        self._begin = Script("begin.lua")
        self._hold = Script("change.lua")
        self._let_go = Script("changed.lua")
        self._probe = Script("probe.lua")
        self._move_up_to = Script("move_up_to.lua")
        self._set_in_meta = Script("set_in_meta.lua")
        self._withdrawn = Script("withdrawn.lua")

    @classmethod
    def open(
        cls,
        settings: Settings,
        *,
        timeout: float = 5.0,
        answered: Callable[[str, float], None] = lambda *_: None,
    ) -> Self:
        """The store that the settings name; connects at the first call.

        The client neither waits nor tries again by itself: `timeout` and the callers do that, and count it.
        A blocking read takes a connection of its own from the pool, so it holds up nobody.
        """
        client = redis_client(settings, connect_seconds=timeout)
        return cls(client, prefix=settings.redis_prefix, timeout=timeout, answered=answered)

    @classmethod
    def connect(cls, url: str, *, prefix: str = "haystream", timeout: float = 5.0, cluster: bool = False) -> Self:
        """A store on the server (or one node of the cluster) at `url`, as `open` does it."""
        client = redis_client(Settings(redis=url, redis_cluster=cluster), connect_seconds=timeout)
        return cls(client, prefix=prefix, timeout=timeout)

    @property
    @override
    def claims(self) -> RedisClaims:
        return self._claims

    @override
    async def append_items(self, collection: str, facts: Sequence[ItemFact]) -> list[Appended]:
        return await self._log.append(collection, facts)

    @override
    async def read_items(self, collection: str, after: int, *, limit: int, wait: float = 0.0) -> list[ItemFact]:
        return await self._log.read(collection, after, limit=limit, wait=wait)

    @override
    async def entry_count(self, collection: str) -> int:
        return await self._log.length(collection)

    @override
    async def item_count(self, collection: str) -> int:
        return await self._log.items(collection)

    @override
    async def find_item(self, collection: str, item_id: str) -> ItemFact | None:
        return (await self._log.find(collection, [item_id]))[0]

    @override
    async def find_items(self, collection: str, item_ids: Sequence[str]) -> list[ItemFact | None]:
        return await self._log.find(collection, item_ids)

    @override
    async def delete_collection(self, collection: str) -> None:
        keys = (self._keys.log(collection), self._keys.ids(collection))
        await self._run(self._delete_collection, keys, [])
        await self._unlink(self._keys.derived(collection))

    @override
    async def is_deleted(self, collection: str) -> bool:
        return await self._log.deleted(collection)

    @override
    async def save_snapshot(self, collection: str, name: str, raw: bytes, *, seconds: int | None = None) -> None:
        async with self._answering():
            await self._redis.set(self._keys.snapshot(collection, name), raw, ex=seconds)

    @override
    async def read_snapshot(self, collection: str, name: str) -> bytes | None:
        key = self._keys.snapshot(collection, name)
        with suppress(StoreDamaged):  # it is written anew
            async with self._answering(key):
                return cast(bytes | None, await self._redis.get(key))
        return None

    @override
    async def query_ids(self, partition: int | None = None) -> set[str]:
        keys = [self._keys.partition(p) for p in (await self._partitions() if partition is None else [partition])]
        return {member.decode() for key in keys for member in await self._members(key)}

    @override
    async def load_query(self, query_id: str) -> StoredQuery | None:
        keys = [self._keys.query(query_id, part) for part in ("meta", "verdicts", "leases")]
        found = await self._run(self._load, keys, [])
        if found is None:
            return None
        flat, verdicts, leases = found
        meta = dict(zip(flat[::2], flat[1::2], strict=True))
        settings = decode_stored_query(meta[b"settings"], query_id.encode())

        def fact(pair: tuple[bytes, bytes]) -> LeaseFact | None:
            lease_id, lease = pair
            return read_lease(lease).folded_fact(query_id, lease_id.decode())

        folded = await _by_turns(fact, list(zip(leases[::2], leases[1::2], strict=True)))
        return StoredQuery(
            settings,
            *read_meta(meta),
            verdicts=tuple(await _by_turns(read_verdict, verdicts)),
            leases=tuple(fact for fact in folded if fact is not None),
        )

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
    async def save_query(self, change: Change, *, claimable: bool = True) -> None:
        query_id, position = change.query_id, change.position
        if change.expected == 0:
            if change.settings is None:
                raise ValueError(f"the first save of query {query_id!r} lacks its settings")
            await self._list(query_id, change.partition, self._keys.partition(change.partition))
        offers = change.offers
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
            "",
            "1" if change.unfinished else "",
        ]
        listed = len(arguments) - 2
        for verdict in change.verdicts:
            arguments += (verdict.verdict_id, encode_verdict(verdict))
        for fact in change.leases:
            arguments += encode_fact(fact)
        arguments += change.ended
        if offers is not None:
            arguments += (f"{item_id}\n{score!r}\n{mean!r}" for item_id, score, mean in offers.items)
        keys = [self._keys.query(query_id, part) for part in SAVED_PARTS]
        stored = await self._run(self._save, keys, arguments)
        if stored == NOT_LISTED:
            # Before a lease is stored: the owner is sure to look at it then.
            await self._list(query_id, change.partition, self._keys.leased(change.partition))
            arguments[listed] = "1"
            stored = await self._run(self._save, keys, arguments)
        if stored is not None:
            raise Fenced(query_id, change.expected, int(stored))

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
        offsets = read.queries_offset, read.verdicts_offset, read.leases_offset
        answer = await self._run(self._delete, keys, [partition, revision, *offsets, settings])
        owner, last, *furthest = map(int, answer)
        queries, verdicts, leases = furthest or (-1, -1, -1)
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
        return None if revision is None else int(revision)

    @override
    async def read_revisions(self, query_ids: Sequence[str]) -> list[int | None]:
        if not query_ids:
            return []
        async with self._answering(), self._redis.pipeline(transaction=False) as pipeline:
            for query_id in query_ids:
                pipeline.hget(self._keys.query(query_id, "meta"), "revision")
            found = await answers_of(pipeline, of_another_type=True)
        damaged = (UNREADABLE if isinstance(answer, Exception) else answer for answer in found)
        return [None if revision is None else int(revision) for revision in damaged]

    @override
    async def lower_cursor(self, query_id: str, cursor: int) -> None:
        await self._run(self._set_in_meta, [self._keys.query(query_id, "meta")], ["cursor", cursor])

    @override
    async def read_verdict(self, query_id: str, verdict_id: str) -> Verdict | None:
        verdicts = self._keys.query(query_id, "verdicts")
        async with self._answering(verdicts):
            raw = await self._redis.hget(verdicts, verdict_id)
        return None if raw is None else read_verdict(raw)

    @override
    async def find_verdicts(self, query_id: str, item_id: str) -> list[Verdict]:
        verdicts, found, cursor = self._keys.query(query_id, "verdicts"), dict[str, Verdict](), 0
        while True:
            async with self._answering(verdicts):
                cursor, some = await self._redis.hscan(verdicts, cursor, count=VERDICTS_A_SCAN)
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
        found = await self._run(self._read, [self._keys.query(query_id, part) for part in parts], [])
        if found is None:
            return None
        shared, settings, size, *strings = found
        people, pairs = (
            (whole_table if size is None else table)(rows or b"", columns)
            for rows, columns in zip(strings, (PARTICIPANT_COLUMNS, EDGE_COLUMNS), strict=True)
        )
        return Tables(
            decode_stored_query(settings, query_id.encode()).prior,
            people,
            pairs,
            Size(*map(int, size.split())) if size else Size(len(people.index), len(pairs.index)),
            *read_shared(shared),
        )

    @override
    async def begin_attempt(self, query_id: str, attempt: str) -> None:
        attempts = self._keys.query(query_id, "attempts")
        async with self._answering(attempts):
            await self._redis.sadd(attempts, attempt)

    @override
    async def end_attempts(self, query_id: str, attempts: Collection[str]) -> None:
        if attempts:
            key = self._keys.query(query_id, "attempts")
            async with self._answering(key):
                await self._redis.srem(key, *attempts)

    @override
    async def read_note(self, query_id: str) -> Note:
        attempts, note = (self._keys.query(query_id, part) for part in ("attempts", "note"))
        async with self._answering(attempts, note):
            return read_note(await self._redis.smembers(attempts), await self._redis.hgetall(note))

    @override
    async def pass_over(
        self,
        query_id: str,
        *,
        queries: Span | None = None,
        verdicts: Span | None = None,
        leases: Span | None = None,
    ) -> None:
        arguments: list[str | int] = [0]
        for field, span in (("queries", queries), ("verdicts", verdicts), ("leases", leases)):
            if span is not None:
                arguments += (field, span.first, span.last)
        await self._run(self._widen, [self._keys.query(query_id, "note")], arguments)

    @override
    async def take_up(self, query_id: str, partition: int, note: Note, revision: int = 0) -> None:
        spans = [encode_span(span) for span in (note.queries, note.verdicts, note.leases)]
        keys = [self._keys.query(query_id, part) for part in ("note", "meta")]
        if await self._run(self._take_up, keys, [*spans, revision]):
            await self._forget(query_id, partition)

    async def _forget(self, query_id: str, partition: int) -> None:
        """Take the query out of the lists of those that are stopped, or not opened."""
        stopped, *unknown = (
            named(partition) for named in (self._keys.quarantined, self._keys.unknown, self._keys.unknown_leases)
        )
        async with self._answering(stopped, *unknown), self._redis.pipeline(transaction=False) as pipeline:
            pipeline.srem(stopped, query_id)
            for key in unknown:
                pipeline.hdel(key, query_id)
            await answers_of(pipeline)

    @override
    async def quarantine(self, query_id: str, partition: int, why: Quarantine) -> None:
        await self._list(query_id, partition, self._keys.quarantined(partition))
        note = self._keys.query(query_id, "note")
        async with self._answering(note):
            await self._redis.hset(note, "quarantine", encode_quarantine(why))

    @override
    async def release(self, query_id: str) -> None:
        note = self._keys.query(query_id, "note")
        async with self._answering(note):
            await self._redis.delete(self._keys.query(query_id, "attempts"))
            await self._redis.hdel(note, "quarantine")

    @override
    async def quarantined(self) -> dict[str, int]:
        return {
            member.decode(): partition
            for partition in await self._partitions()
            for member in await self._members(self._keys.quarantined(partition))
        }

    @override
    async def note_unknown(
        self,
        partition: int,
        query_id: str,
        verdicts: Span | None = None,
        *,
        leases: Span | None = None,
        room: int,
    ) -> None:
        partitions = self._keys.partitions
        async with self._answering(partitions):
            await self._redis.sadd(partitions, partition)
        for key, span in ((self._keys.unknown, verdicts), (self._keys.unknown_leases, leases)):
            if span is not None:
                await self._run(self._widen, [key(partition)], [room, query_id, span.first, span.last])

    @override
    async def read_unknown(self, partition: int, query_id: str) -> Note:
        spans = []
        for key in (self._keys.unknown, self._keys.unknown_leases):
            async with self._answering(key(partition)):
                found = await self._redis.hmget(key(partition), [query_id, ""])
            noted, rest = map(read_span, found)
            spans.append(noted.around(rest) if noted else rest)
        return Note(verdicts=spans[0], leases=spans[1])

    @override
    async def unknown(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for partition in await self._partitions():
            for key in (self._keys.unknown(partition), self._keys.unknown_leases(partition)):
                async with self._answering(key):
                    found |= {name.decode(): partition for name in await self._redis.hkeys(key) if name}
        return found

    @override
    async def read_up_to(self, partitions: Collection[str] | None = None) -> dict[str, int]:
        key, names = self._keys.up_to, list(partitions or ())
        async with self._answering(key):
            if partitions is None:
                noted = await self._redis.hgetall(key)
                return {name.decode(): int(o) for name, o in noted.items() if not name.startswith(COUNTED)}
            found = await self._redis.hmget(key, names) if names else []
        return {name: int(offset) for name, offset in zip(names, found, strict=True) if offset is not None}

    @override
    async def move_up_to(self, moves: Mapping[str, tuple[int, int]]) -> dict[str, int]:
        arguments = [part for name, (before, after) in moves.items() for part in (name, before, after)]
        others = await self._run(self._move_up_to, [self._keys.up_to], arguments)
        return {name.decode(): int(offset) for name, offset in zip(others[::2], others[1::2], strict=True)}

    @override
    async def count(self, partition: str) -> int:
        async with self._answering(self._keys.up_to):
            return int(await self._redis.hincrby(self._keys.up_to, _counted(partition), 1))

    @override
    async def read_counts(self, partitions: Sequence[str]) -> list[int]:
        if not partitions:
            return []
        async with self._answering(self._keys.up_to):
            found = await self._redis.hmget(self._keys.up_to, list(map(_counted, partitions)))
        return [int(count or 0) for count in found]

    @override
    async def generation(self) -> str | None:
        async with self._answering(self._keys.generation):
            mark = await self._redis.get(self._keys.generation)
        return None if mark is None else mark.decode()

    @override
    async def begin(self, generation: str, *, instead_of: str = "") -> str:
        standing: bytes = await self._run(self._begin, [self._keys.generation], [generation, instead_of])
        return standing.decode()

    @override
    async def end(self) -> None:
        async with self._answering(self._keys.generation):
            await self._redis.delete(self._keys.generation)

    @override
    async def wipe(self) -> None:
        await self._unlink(self._keys.everything)

    async def _unlink(self, pattern: str) -> None:
        # One timeout a batch: how long the whole takes depends on how much there is.
        keys = self._redis.scan_iter(match=pattern, count=KEYS_A_SCAN)
        more = True
        while more:
            async with self._answering():
                batch = []
                async for key in keys:
                    batch.append(key)
                    if len(batch) == KEYS_A_SCAN:
                        break
                else:
                    more = False
                # One key a command: a cluster takes no two keys of different slots in one.
                async with self._redis.pipeline(transaction=False) as pipeline:
                    for key in batch:
                        pipeline.execute_command("UNLINK", key)
                    await answers_of(pipeline)

    @override
    async def ping(self) -> None:
        await self._run(self._probe, [self._keys.probe], [])

    @override
    async def drops(self) -> str | None:
        try:
            async with self._answering():
                found = await self._redis.info("memory")
        except StoreRefused:
            return None  # it is no right that a worker needs
        servers = [found] if "maxmemory_policy" in found else found.values()
        policies = (server["maxmemory_policy"] for server in servers if server["maxmemory"])
        # By the others nothing goes that has no time to go by, and all that has can be made anew.
        return next((policy for policy in policies if policy.startswith("allkeys")), None)

    @override
    async def close(self) -> None:
        async with self._answering():
            await self._redis.aclose()

    async def _partitions(self) -> list[int]:
        return [int(member) for member in await self._members(self._keys.partitions)]

    async def _members(self, key: str) -> set[bytes]:
        async with self._answering(key):
            return cast(set[bytes], await self._redis.smembers(key))

    async def _list(self, query_id: str, partition: int, key: str) -> None:
        """Put the query into that set of its partition."""
        async with self._answering(key, self._keys.partitions):
            await self._redis.sadd(key, query_id)
            await self._redis.sadd(self._keys.partitions, partition)


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
    with suppress(Rejected):  # whoever loads it is told why
        settings = decode_stored_query(meta[b"settings"], query_id.encode())
    return Head(settings, *read_meta(meta), withdrawn=b"withdrawn" in meta)


COUNTED = b"counted/"
"""How fields begin that count what was written for a partition, beside those that say how far topics are."""


def _counted(partition: str) -> bytes:
    return COUNTED + partition.encode()
