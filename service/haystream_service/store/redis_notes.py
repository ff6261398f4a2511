"""Notes on queries in Redis or Valkey, beside their facts: what was begun, passed over, stopped, not opened."""

from collections.abc import Collection

from typing_extensions import override

from haystream_service.store.base import Note, Notes, Quarantine, Spans
from haystream_service.store.facts import encode_quarantine, encode_span, read_note, read_span
from haystream_service.store.redis_calls import Script
from haystream_service.store.redis_lists import RedisLists
from haystream_service.store.shapes import read_text


class RedisNotes(RedisLists, Notes):
    """The notes of a `RedisStore`."""

    _widen = Script("widen.lua")
    _take_up = Script("take_up.lua")

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
            found = await self._redis.smembers(attempts), await self._redis.hgetall(note)
        with self._reading(attempts):
            begun = frozenset(read_text(attempt, "a batch") for attempt in found[0])
        with self._reading(note):
            return Note(begun, *read_note(found[1]))

    @override
    async def pass_over(self, query_id: str, spans: Spans) -> None:
        arguments: list[str | int] = [0]
        for field, span in spans._asdict().items():
            if span is not None:
                arguments += (field, span.first, span.last)
        await self._run(self._widen, [self._keys.query(query_id, "note")], arguments)

    @override
    async def take_up(self, query_id: str, partition: int, note: Note, revision: int = 0) -> None:
        spans = map(encode_span, note.passed)
        keys = [self._keys.query(query_id, part) for part in ("note", "meta")]
        if await self._run(self._take_up, keys, [*spans, revision]):
            await self._forget(query_id, partition)

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
            member: partition
            for partition in await self._partitions()
            for member in await self._members(self._keys.quarantined(partition))
        }

    @override
    async def note_unknown(self, partition: int, query_id: str, spans: Spans, *, room: int) -> None:
        partitions = self._keys.partitions
        async with self._answering(partitions):
            await self._redis.sadd(partitions, partition)
        for key, span in ((self._keys.unknown, spans.verdicts), (self._keys.unknown_leases, spans.leases)):
            if span is not None:
                await self._run(self._widen, [key(partition)], [room, query_id, span.first, span.last])

    @override
    async def read_unknown(self, partition: int, query_id: str) -> Spans:
        spans = []
        for key in (self._keys.unknown, self._keys.unknown_leases):
            async with self._answering(key(partition)):
                found = await self._redis.hmget(key(partition), [query_id, ""])
            with self._reading(key(partition)):
                noted, rest = (read_span(span, "offsets") for span in found)
            spans.append(noted.around(rest) if noted else rest)
        return Spans(None, *spans)

    @override
    async def unknown(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for partition in await self._partitions():
            for key in (self._keys.unknown(partition), self._keys.unknown_leases(partition)):
                async with self._answering(key):
                    names = await self._redis.hkeys(key)
                with self._reading(key):
                    found |= {read_text(name, "a query's id"): partition for name in names if name}
        return found
