"""How far each topic is in the store, noted in the store itself: one that goes back says so.

Kafka knows what was committed, and the store may have lost the last of it: a replica that lagged became the
master, a machine lost power, somebody restored a copy. What is noted goes back with the rest, and whoever has a
partition sees within a second or so that it is not what he noted last. The process ends then: what it has in memory
is of a store that is no more. And whoever gets a partition reads from where the store is: from its beginning where
nothing is noted. What comes again counts once.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from aiokafka import TopicPartition

from haystream_service.kafka.records import NO_OFFSET, SOURCES, Kind, partition_name
from haystream_service.settings import Settings
from haystream_service.store.base import Store, StoreUnavailable
from haystream_service.worker.endings import ReadTooFar, StateBack
from haystream_service.worker.partitions import Partitions
from haystream_service.worker.written import Written


@dataclass(slots=True)
class PartitionProgress:
    """What is known of a partition since it was given to this process."""

    begun: int
    """From where it is read: what lies before is in the store, unless that has gone back."""
    noted: int = NO_OFFSET
    """What is noted of it, as far as this process knows, from when it had it before, too."""
    sure: int = 0
    """The same, where all that was written before was there when it was looked for afterwards."""
    compared: bool = False
    """Whether the store was asked since it was given to this process."""
    beginning: bool = True
    """Whether `begin` may still say that it is to be read from elsewhere."""

    def compare(self, noted: int) -> bool:
        """Take what is found to be noted; whether that is what it was, or more."""
        before, self.compared = self.noted, True
        if noted != before:  # else it may have been noted by this process, and not looked for since
            self.noted, self.sure = noted, max(0, noted)
        return noted >= before


class Progress:
    """Compares, and notes what this process has acknowledged."""

    def __init__(self, store: Store, partitions: Partitions, written: Written) -> None:
        self._store = store
        self._partitions = partitions
        self._written = written
        self._held: dict[TopicPartition, PartitionProgress] = {}
        """Of all partitions that this process has, or had."""
        self._gone = ""
        """What the store has no more."""

    async def begin(self, committed: Mapping[TopicPartition, int | None]) -> Mapping[TopicPartition, int]:
        """Where to read partitions from that were given to this process, where that is before what is committed.

        A store that does not answer holds up nobody: `note` compares then.
        """
        held = {}
        for tp, offset in committed.items():
            before = self._held.get(tp, PartitionProgress(0))
            held[tp] = PartitionProgress(offset or 0, before.noted, before.sure)
            self._partitions.begins(tp, offset or 0)
        self._held |= held
        back = {}
        with suppress(StoreUnavailable):
            await self._compare(held)
            for tp, each in held.items():
                self._partitions.begins(tp, each.sure)
                if each.sure < each.begun:
                    back[tp] = each.begun = each.sure
        for each in held.values():  # whoever is cancelled before has begun nothing
            each.beginning = False
        return back

    async def note(self) -> None:
        """Note what was acknowledged since. Raises `StateBack`, and what the store raises."""
        # Others may be given, and these be taken and given anew, while the store is asked.
        held = {tp: each for tp, each in self._held.items() if self._partitions.has(tp) and not each.beginning}
        await self._compare({tp: each for tp, each in held.items() if not each.compared})
        # Of all of them: one that is too far stays so until this has come to its end.
        too_far = [tp for tp, each in held.items() if each.sure < each.begun]
        for tp in self._partitions.take_items_anew(held.keys()):  # offsets mean something else now
            await self._store.move_up_to({self._name(tp): (held[tp].noted, 0)})
            held[tp].begun = held[tp].noted = held[tp].sure = 0
        if too_far:
            self._gone = self._gone or await self._written.lately().missing()
        elif not self._gone:
            await self._move(held)
        if self._gone:
            await self._take_back()
            raise StateBack(f"the store has gone back to an earlier state: {self._gone}. Reading again from there")
        if too_far:
            (tp, *_), each = too_far, held[too_far[0]]
            raise ReadTooFar(
                f"Redis did not answer when {tp.topic}/{tp.partition} was assigned: it has that up to {each.sure}, "
                f"and it is read from {each.begun}. Reading again from there"
            )

    async def _compare(self, held: Mapping[TopicPartition, PartitionProgress]) -> None:
        """Take what is noted of partitions that were given to this process."""
        for tp, noted in (await self._read(held)).items():
            before = held[tp].noted
            if not held[tp].compare(noted):  # it may have something of it in memory yet
                self._gone = _back(tp, noted, before)

    async def _move(self, held: Mapping[TopicPartition, PartitionProgress]) -> None:
        """Note what was acknowledged, if all that was written before is there; and see if it still is."""
        moves = {tp: (each.noted, self._done(tp, each)) for tp, each in held.items()}
        lately = self._written.lately()
        if gone := await lately.missing():
            self._gone = gone
            return
        others = await self._store.move_up_to({self._name(tp): move for tp, move in moves.items()})
        moved = [tp for tp in moves if self._name(tp) not in others]
        for tp, (before, after) in moves.items():
            offset = others.get(self._name(tp), before)
            if offset < before and self._partitions.has(tp):
                self._gone = _back(tp, offset, before)
            # More is noted by somebody who has not heard that the partition is this process's.
            held[tp].noted = after if tp in moved else max(before, offset)
        # Had it gone back in between, what is noted would not tell.
        self._gone = self._gone or await lately.missing()
        if not self._gone:
            self._written.there(lately)
            for tp in moved:
                held[tp].sure = held[tp].noted

    async def _take_back(self) -> None:
        """Have no more noted than was there for sure, and a new history begin."""
        held = {tp: h for tp, h in self._held.items() if self._partitions.has(tp) or h.noted > h.sure}
        noted = await self._read(held)
        sure = {tp: min(max(0, offset), held[tp].sure) for tp, offset in noted.items()}
        await self._store.move_up_to({self._name(tp): (offset, sure[tp]) for tp, offset in noted.items()})
        await self._written.end()

    def _done(self, tp: TopicPartition, held: PartitionProgress) -> int:
        return max(held.begun, held.noted, self._partitions.acknowledged(tp))

    async def _read(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        names = {tp: self._name(tp) for tp in partitions}
        found = await self._store.read_up_to(list(names.values()))
        return {tp: found.get(name, NO_OFFSET) for tp, name in names.items()}

    def _name(self, tp: TopicPartition) -> str:
        kind = next(kind for kind in Kind if self._partitions.topic(kind) == tp.topic)
        return partition_name(kind, tp.partition)


def named(offsets: Mapping[TopicPartition, int], settings: Settings) -> dict[str, int]:
    """Offsets by what the store calls the partitions of the topics."""
    kinds = {settings.topic(name): kind for kind, name in SOURCES.items()}
    return {partition_name(kinds[tp.topic], tp.partition): offset for tp, offset in offsets.items()}


def _back(tp: TopicPartition, found: int, before: int) -> str:
    return f"it has {tp.topic}/{tp.partition} up to offset {max(0, found)}, and had it up to {before}"
