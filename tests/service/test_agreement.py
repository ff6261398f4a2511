"""Live, `replay` and `rebuild` agree on every fact, also on what is refused, whatever the log holds."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from support.equality import EXACT, assert_is_the_state
from support.world import World

from haystream.errors import Code
from haystream.events import Item, Outcome, Policy, Query, Verdict, Withdrawal
from haystream_service.commands.replay import Replayed, fold
from haystream_service.kafka.records import SOURCES, Kind, Record
from haystream_service.metrics import Metrics
from haystream_service.store.memory import MemoryStore
from haystream_service.wire import (
    decode_dead_letter,
    decode_ranking,
    encode_item,
    encode_line,
    encode_query,
    encode_verdict,
)
from haystream_service.worker.memory_broker import MemoryBroker, MemoryPublisher
from haystream_service.worker.rebuild_publisher import RebuildPublisher
from haystream_service.worker.rebuilding import ORDER
from haystream_service.worker.shared import Limits
from haystream_service.worker.worker import Worker

Said = tuple[str, bytes, bytes | None]
"""Topic, key and value."""
Source = tuple[str, int, int]


@st.composite
def settings_of(draw: st.DrawFn) -> Said:
    query_id = draw(st.sampled_from("qr"))
    bad = draw(st.sampled_from([None, None, None, b"{", b'{"query_id":"%b","top":0}' % query_id.encode(), b"gone"]))
    if bad is not None:
        return "queries", query_id.encode(), None if bad == b"gone" else bad
    query = Query(
        query_id,
        collection=draw(st.sampled_from(["a", "a", "b"])),
        top=draw(st.sampled_from([3, 50])),
        policy=Policy(draw(st.sampled_from(["look-ahead", "greedy"]))),
    )
    return "queries", query_id.encode(), encode_query(query)


@st.composite
def item(draw: st.DrawFn) -> Said:
    people = draw(st.lists(st.sampled_from("ABCDE"), min_size=2, max_size=3, unique=True))
    item_id = f"m{draw(st.integers(0, 7))}"  # few ids: some are used for two things
    said = Item(item_id, draw(st.sampled_from("ab")), people[0], tuple(sorted(people[1:])))
    told = replace(said, uri=draw(st.sampled_from([None, "x", "y"])), withdrawn=not draw(st.integers(0, 4)))
    fact = draw(st.sampled_from([told, told, told, Withdrawal(item_id, said.collection)]))
    return "items", item_id.encode(), encode_item(fact)


@st.composite
def verdict(draw: st.DrawFn) -> Said:
    query_id = draw(st.sampled_from("qrx"))  # nobody opens x
    said = Verdict(
        f"v{draw(st.integers(0, 9))}",
        query_id,
        f"m{draw(st.integers(0, 7))}",
        draw(st.sampled_from(["kim", "zoe"])),
        draw(st.sampled_from(Outcome)),
        draw(st.integers(0, 3)),
    )
    return "verdicts", query_id.encode(), encode_verdict(said)


logs = st.lists(st.one_of(settings_of(), item(), verdict(), verdict()), min_size=1, max_size=40)


@settings(max_examples=60)
@given(log=logs, pauses=st.sets(st.integers(0, 40), max_size=4), restart=st.booleans())
def test_live_replay_and_rebuild_agree(log: list[Said], pauses: set[int], restart: bool) -> None:
    asyncio.run(check(log, pauses, restart=restart))


async def check(log: list[Said], pauses: set[int], *, restart: bool) -> None:
    world = World()
    process = await world.process()
    for number, said in enumerate(log):
        world.broker.produce(*said)
        if number in pauses:
            await process.settled()
            if restart:
                await process.crash()
                process = await world.process()
    await process.settled()
    sources = list(_in_order(world.broker, log))
    replayed = fold((encode_line(topic, value or b"") for topic, _, value in log), tolerance=EXACT)
    rankings = [decode_ranking(message.value) for message in world.broker.messages("next-items")]
    await assert_is_the_state(world.store, rankings, replayed.state)
    refused = {sources[line.line - 1]: line.code for line in replayed.rejected}
    assert _live(world.broker, replayed) == refused
    await process.crash()
    await _check_rebuilt(world.broker, replayed, refused)


def _in_order(broker: MemoryBroker, log: list[Said]) -> Iterable[Source]:
    """Where each of what was said lies. What workers restate comes in between."""
    taken: set[Source] = set()
    for topic, key, value in log:
        for partition in range(broker.partitions):
            for offset in range(broker.end((topic, partition))):
                message = broker._logs[topic, partition][offset]
                source = topic, partition, offset
                same = (message.key, message.value, message.restates) == (key, value, None)
                if same and source not in taken:
                    break
            else:
                continue
            break
        taken.add(source)
        yield source


def _live(broker: MemoryBroker, replayed: Replayed) -> dict[Source, str]:
    """The last letter about each record, but for verdicts that were early and count now."""
    letters: dict[Source, tuple[str, Any]] = {}
    for message in broker.messages("dead-letters"):
        letter, _ = decode_dead_letter(message.value)
        source = letter.source.topic, letter.source.partition, letter.source.offset
        letters[source] = letter.error.code, message.key
    return {
        source: code
        for source, (code, key) in letters.items()
        if code != Code.UNKNOWN_QUERY or key.decode() not in replayed.state.queries
    }


async def _check_rebuilt(broker: MemoryBroker, replayed: Replayed, refused: dict[Source, str]) -> None:
    """The same topics, read as `haystream rebuild` does: items, then queries, then verdicts."""
    store, held = MemoryStore(), Letters(broker)

    async def at_once(_: int) -> None: ...

    async def never(partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        return dict.fromkeys(partitions, (1 << 62, 1 << 62))

    async def nothing(*_: Any) -> list[Record]:
        raise AssertionError("a rebuild reads nothing again")

    worker = Worker(
        store,
        held,
        caught_up=at_once,
        ends=never,
        again=nothing,
        metrics=Metrics(CollectorRegistry(), labelled_queries=0),
        limits=Limits(item_publish_seconds=0.0, totals_seconds=0.0, max_batch=20, tolerance=EXACT),
    )
    for kind in ORDER:
        records = list(_records(broker, kind))
        if kind is Kind.ITEM:
            await worker.on_items(records)
        else:
            for record in records:
                await worker.on_record(record)
        await worker.drain()
    rankings = [decode_ranking(value) for value in held.rankings.values()]
    await worker.close()
    await assert_is_the_state(store, rankings, replayed.state)
    assert held.codes == refused


class Letters(RebuildPublisher):
    """With the code of each letter."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(MemoryPublisher(broker), committed={})
        self.codes: dict[Source, str] = {}

    async def publish_dead_letter(self, key: bytes | None, value: bytes) -> None:
        await super().publish_dead_letter(key, value)
        letter, _ = decode_dead_letter(value)
        self.codes[letter.source.topic, letter.source.partition, letter.source.offset] = letter.error.code


def _records(broker: MemoryBroker, kind: Kind) -> Iterable[Record]:
    topic = SOURCES[kind]
    for partition in range(broker.partitions):
        for offset in range(broker.end((topic, partition))):
            m = broker._logs[topic, partition][offset]
            yield Record(
                kind, topic, partition, offset, m.timestamp, m.key, m.value, lambda: None, restates=m.restates
            )
