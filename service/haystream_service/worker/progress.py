"""How far each topic is in the store, noted in the store itself: one that goes back says so.

Kafka knows what was committed, and the store may have lost the last of it: a replica that lagged became the
master, a machine lost power, somebody restored a copy. What is noted goes back with the rest, and whoever has a
partition sees within a second or so that it is not what he noted last. The process ends then: what it has in memory
is of a store that is no more. And whoever gets a partition reads from where the store is: from its beginning where
nothing is noted. What comes again counts once.
"""

from collections.abc import Iterable, Mapping

from aiokafka import TopicPartition

from haystream_service.settings import Settings
from haystream_service.store.base import Store, StoreUnavailable
from haystream_service.worker.endings import StateBack
from haystream_service.worker.partitions import Partitions
from haystream_service.worker.records import SOURCES, Kind


class Progress:
    """Compares, and notes what this process has acknowledged."""

    def __init__(self, store: Store, partitions: Partitions) -> None:
        self._store = store
        self._partitions = partitions
        self._begun: dict[TopicPartition, int] = {}
        """From where partitions are read: what lies before is in the store, unless that has gone back."""
        self._noted: dict[TopicPartition, int] = {}
        """What is noted of those that were compared."""

    async def begin(self, committed: Mapping[TopicPartition, int | None]) -> Mapping[TopicPartition, int]:
        """Where to read partitions from that were given to this process, where that is before what is committed.

        A store that does not answer holds up nobody: `note` compares then.
        """
        for tp, offset in committed.items():
            self._begun[tp] = offset or 0
            self._noted.pop(tp, None)
            self._partitions.begins(tp, offset or 0)
        try:
            self._noted |= await self._read(committed)
        except StoreUnavailable:
            return {}
        held = {tp: max(0, self._noted[tp]) for tp in committed}
        for tp, offset in held.items():
            self._partitions.begins(tp, offset)
        back = {tp: offset for tp, offset in held.items() if offset < self._begun[tp]}
        self._begun |= back
        return back

    async def note(self) -> None:
        """Note what was acknowledged since. Raises `StateBack`, and what the store raises."""
        mine = {tp: begun for tp, begun in self._begun.items() if self._partitions.has(tp)}
        found = await self._read({tp for tp in mine if tp not in self._noted})
        for tp, offset in found.items():
            if max(0, offset) < mine[tp]:
                raise _back(tp, max(0, offset), mine[tp])
        self._noted |= found
        for tp in self._partitions.take_items_anew() & mine.keys():  # offsets mean something else now
            await self._store.move_up_to({self._name(tp): (self._noted[tp], 0)})
            self._begun[tp] = self._noted[tp] = mine[tp] = 0
        moves = {tp: (self._noted[tp], self._done(tp)) for tp in mine}
        others = await self._store.move_up_to({self._name(tp): move for tp, move in moves.items()})
        for tp, (before, after) in moves.items():
            offset = others.get(self._name(tp), before)
            if offset < before and self._partitions.has(tp):
                await self._store.move_up_to({self._name(tp): (offset, max(0, offset))})  # where there is nothing
                raise _back(tp, max(0, offset), before)
            if offset == before:
                self._noted[tp] = after

    def _done(self, tp: TopicPartition) -> int:
        return max(self._begun[tp], self._noted[tp], self._partitions.acknowledged(tp))

    async def _read(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        names = {tp: self._name(tp) for tp in partitions}
        found = await self._store.read_up_to(list(names.values()))
        return {tp: found.get(name, NOTHING) for tp, name in names.items()}

    def _name(self, tp: TopicPartition) -> str:
        kind = next(kind for kind in Kind if self._partitions.topic(kind) == tp.topic)
        return partition_name(kind, tp.partition)


NOTHING = -1
"""Noted of a partition of which nothing is."""


def named(offsets: Mapping[TopicPartition, int], settings: Settings) -> dict[str, int]:
    """Offsets by what the store calls the partitions of the topics."""
    kinds = {settings.topic(name): kind for kind, name in SOURCES.items()}
    return {partition_name(kinds[tp.topic], tp.partition): offset for tp, offset in offsets.items()}


def partition_name(kind: Kind, partition: int) -> str:
    """What the store calls a partition."""
    return f"{kind}/{partition}"


def _back(tp: TopicPartition, found: int, before: int) -> StateBack:
    return StateBack(
        f"the store has gone back to an earlier state: it has {tp.topic}/{tp.partition} up to offset {found}, and "
        f"had it up to {before}. Reading again from there"
    )
