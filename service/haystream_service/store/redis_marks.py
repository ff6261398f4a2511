"""What tells whether Redis or Valkey still has all that it had: how far topics are in it, counts, a mark."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from typing_extensions import override

from haystream_service.store.base import Marks
from haystream_service.store.facts import NO_OFFSET
from haystream_service.store.redis_calls import RedisPart, Script
from haystream_service.store.shapes import read_number, read_text

COUNTED = b"counted/"
"""How fields begin that count what was written for a partition, beside those that say how far topics are."""


class RedisMarks(RedisPart, Marks):
    """The marks of a `RedisStore`."""

    _begin = Script("begin.lua")
    _move_up_to = Script("move_up_to.lua")

    @override
    async def read_up_to(self, partitions: Collection[str] | None = None) -> dict[str, int]:
        key, names = self._keys.up_to, list(partitions or ())
        async with self._answering(key):
            if partitions is None:
                all_of_it = await self._redis.hgetall(key)
                noted = {name: o for name, o in all_of_it.items() if not name.startswith(COUNTED)}
            else:
                found = await self._redis.hmget(key, names) if names else []
                noted = {name.encode(): o for name, o in zip(names, found, strict=True) if o is not None}
        with self._reading(key):
            return _read_offsets(noted.items())

    @override
    async def move_up_to(self, moves: Mapping[str, tuple[int, int]]) -> dict[str, int]:
        arguments = [part for name, (before, after) in moves.items() for part in (name, before, after)]
        others = await self._run(self._move_up_to, [self._keys.up_to], arguments)
        with self._reading(self._keys.up_to):
            return _read_offsets(zip(others[::2], others[1::2], strict=True))

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
        with self._reading(self._keys.up_to):
            return [read_number(count or b"0", "a count") for count in found]

    @override
    async def note_listed(self, partition: int, count: int) -> None:
        async with self._answering(self._keys.up_to):
            await self._redis.hset(self._keys.up_to, _listed(partition), count)

    @override
    async def read_listed(self, partition: int) -> int:
        async with self._answering(self._keys.up_to):
            noted = await self._redis.hget(self._keys.up_to, _listed(partition))
        with self._reading(self._keys.up_to):
            return 0 if noted is None else read_number(noted, f"listed/{partition}")

    @override
    async def generation(self) -> str | None:
        async with self._answering(self._keys.generation):
            mark = await self._redis.get(self._keys.generation)
        with self._reading(self._keys.generation):
            return None if mark is None else read_text(mark, "the mark")

    @override
    async def begin(self, generation: str, *, instead_of: str = "") -> str:
        standing: bytes = await self._run(self._begin, [self._keys.generation], [generation, instead_of])
        with self._reading(self._keys.generation):
            return read_text(standing, "the mark")

    @override
    async def end(self) -> None:
        async with self._answering(self._keys.generation):
            await self._redis.delete(self._keys.generation)


def _read_offsets(noted: Iterable[tuple[bytes, bytes]]) -> dict[str, int]:
    """How far partitions are, by their names. Raises `Unreadable`."""
    return {
        (partition := read_text(name, "a partition")): read_number(offset, partition, least=NO_OFFSET)
        for name, offset in noted
    }


def _listed(partition: int) -> bytes:
    return _counted(f"listed/{partition}")


def _counted(partition: str) -> bytes:
    return COUNTED + partition.encode()
