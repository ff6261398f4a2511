"""How far the store is, by its notes: who reads from where, and who ends when it has gone back."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from functools import partial

import pytest
from aiokafka import TopicPartition
from prometheus_client import CollectorRegistry
from support.changes import change
from support.simulated.store_copy import StoreCopy

from haystream.events import Item, Withdrawal
from haystream_service.kafka.records import SOURCES, Kind
from haystream_service.metrics import Metrics
from haystream_service.store.base import HISTORY, Span, Spans, StoreUnavailable
from haystream_service.store.memory import MemoryStore
from haystream_service.worker.endings import ReadTooFar, StateBack
from haystream_service.worker.progress import Progress
from haystream_service.worker.retry import Retry
from haystream_service.worker.written import Written

pytestmark = pytest.mark.asyncio

VERDICTS = TopicPartition("verdicts", 0)


@dataclass
class Read:
    """What a process has read and acknowledged."""

    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    begun: dict[TopicPartition, int] = field(default_factory=dict)

    def topic(self, kind: Kind) -> str:
        return SOURCES[kind]

    def has(self, tp: TopicPartition) -> bool:
        return tp in self.offsets

    def acknowledged(self, tp: TopicPartition) -> int:
        return self.offsets[tp]

    def begins(self, tp: TopicPartition, offset: int) -> None:
        self.begun[tp] = offset

    def take_items_anew(self, among: Set[TopicPartition]) -> set[TopicPartition]:
        return set()


class Process:
    """One process's progress."""

    def __init__(self, store: MemoryStore) -> None:
        self.store, self.read = store, Read()
        self.written = Written(store, Retry(Metrics(CollectorRegistry(), labelled_queries=0)))
        self.progress = Progress(store, self.read, self.written)  # type: ignore[arg-type]

    async def begin(self, committed: int | None) -> int | None:
        """Start, and be given the partition; from where it is to be read, if not from what is committed."""
        await self.written.begin()
        back = await self.progress.begin({VERDICTS: committed})
        self.read.offsets[VERDICTS] = 0
        return back.get(VERDICTS)

    async def acknowledge(self, offset: int) -> None:
        """All before the offset is done; look, and note that."""
        self.read.offsets[VERDICTS] = offset
        await self.progress.note()


async def noted(store: MemoryStore) -> dict[str, int]:
    return {name: offset for name, offset in (await store.read_up_to()).items() if name != HISTORY}


async def test_what_is_acknowledged_is_noted_and_read_on_from() -> None:
    store = MemoryStore()
    assert await Process(store).begin(None) is None
    first = Process(store)
    assert await first.begin(7) == 0  # nothing is noted: it is read from its beginning
    await first.acknowledge(9)
    assert await noted(store) == {"verdict/0": 9}
    assert await Process(store).begin(9) is None
    assert await Process(store).begin(12) == 9
    assert await Process(store).begin(5) is None


async def test_who_could_not_ask_begins_at_what_is_committed_and_ends_if_that_was_too_far(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    first = Process(store)
    await first.begin(None)
    await first.acknowledge(4)

    async def away(*_: object) -> dict[str, int]:
        raise StoreUnavailable("away")

    second, third = Process(store), Process(store)
    with monkeypatch.context() as meanwhile:
        await second.written.begin()
        await third.written.begin()
        meanwhile.setattr(store, "read_up_to", away)
        for process, committed in ((second, 4), (third, 6)):
            assert await process.progress.begin({VERDICTS: committed}) == {}
            process.read.offsets[VERDICTS] = 0
    history = (await store.read_up_to())[HISTORY]
    await second.acknowledge(5)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(store, "read_revisions", away)
        with pytest.raises(StoreUnavailable):
            await third.progress.note()
    with pytest.raises(ReadTooFar, match=r"verdicts/0 .* up to 5, and it is read from 6"):
        await third.progress.note()
    assert (await store.read_up_to()) == {HISTORY: history, "verdict/0": 5}  # nobody else has to end


async def test_who_is_being_told_where_to_begin_is_not_taken_for_one_who_could_not_ask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    first = Process(store)
    await first.begin(None)
    await first.acknowledge(4)
    second = Process(store)
    await second.written.begin()
    second.read.offsets[VERDICTS] = 0
    read_up_to, answer, askers = store.read_up_to, asyncio.Event(), 0

    async def late(*names: Iterable[str]) -> Mapping[str, int]:
        nonlocal askers
        askers += 1
        if askers == 1:
            await answer.wait()  # others who ask later are told sooner
        return await read_up_to(*names)

    monkeypatch.setattr(store, "read_up_to", late)
    for given_up in (True, False):  # the partitions were dealt out anew meanwhile
        askers = 0
        beginning = asyncio.create_task(second.progress.begin({VERDICTS: 6}))
        await asyncio.sleep(0)
        await second.progress.note()
        if given_up:
            beginning.cancel()
            await asyncio.wait([beginning])
            await second.progress.note()
    answer.set()
    assert await beginning == {VERDICTS: 4}
    await second.acknowledge(5)
    assert await noted(store) == {"verdict/0": 5}


Write = Callable[[Process], Awaitable[None]]


async def save(process: Process) -> None:
    await process.store.save_query(change(revision=10))
    process.written.saved("q", 10)


async def append(process: Process) -> None:
    item = Item("i", "mail", "a", ("b",))
    await process.store.append_items("mail", [item])
    process.written.appended("mail", item)


async def withdraw(process: Process) -> None:
    gone = Withdrawal("known", "mail")
    await process.store.append_items("mail", [gone])
    process.written.appended("mail", gone)


async def pass_over(process: Process) -> None:
    span = Span(3, 3)
    await process.written.counted(
        "query/0", partial(process.store.note_unknown, 0, "nobody", Spans(verdicts=span), room=10)
    )


@pytest.mark.parametrize("write", [save, append, withdraw, pass_over])
@pytest.mark.parametrize("looked", [False, True], ids=["before a look", "after one"])
async def test_what_is_gone_again_ends_all_processes_and_is_read_again(write: Write, looked: bool) -> None:
    store = MemoryStore()
    await store.append_items("mail", [Item("known", "mail", "a", ("b",))])
    one, other = Process(store), Process(store)
    assert await one.begin(None) is None
    assert await other.written.begin() is None
    await one.acknowledge(3)
    copy = StoreCopy(store)
    await write(one)
    if looked:
        await one.acknowledge(4)
        await other.progress.note()
    copy.put_back()
    with pytest.raises(StateBack, match="gone back"):
        await one.acknowledge(4)
    with pytest.raises(StateBack, match="another worker has found that out"):
        await other.progress.note()
    assert await noted(store) == {"verdict/0": 3}
    after = Process(store)
    assert await after.begin(4) == 3
    await write(after)
    await after.acknowledge(4)


async def test_what_was_written_at_once_is_no_loss() -> None:
    store = MemoryStore()
    process = Process(store)
    await process.begin(None)
    answers = [asyncio.Event() for _ in range(2)]
    count = store.count

    async def late(name: str) -> int:
        found = await count(name)
        await answers[found - 1].wait()  # the first answer comes after the second
        answers[0].set()
        return found

    store.count = late  # type: ignore[method-assign]
    writes = asyncio.gather(pass_over(process), pass_over(process))
    answers[1].set()
    await writes
    await process.progress.note()


async def test_who_does_not_know_yet_that_a_partition_is_anothers_fails_nobody() -> None:
    store = MemoryStore()
    zombie, owner = Process(store), Process(store)
    await zombie.begin(None)
    await zombie.acknowledge(2)
    await owner.begin(2)
    await owner.acknowledge(7)
    for _ in range(3):
        await zombie.acknowledge(4)
        await owner.acknowledge(8)
    assert await noted(store) == {"verdict/0": 8}
