"""What only the Redis store has: a server that hangs, dies, forgets scripts, or serves others as well."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import ConnectionError as RedisConnectionError
from support.changes import rows, tables
from support.in_a_row import InARow

from haystream.events import Action, Item, ItemFact, LeaseFact, Outcome, Query, Verdict, Withdrawal
from haystream.posterior.rows import Rows, Size
from haystream_service.local import ValkeyServer
from haystream_service.metrics import Metrics
from haystream_service.store import redis_queries
from haystream_service.store.base import (
    UNREADABLE,
    Appended,
    Change,
    Position,
    StoreDamaged,
    StoreUnavailable,
    VerdictsLost,
)
from haystream_service.store.claims import ClaimRefused, Offer, Offers
from haystream_service.store.keys import Keys
from haystream_service.store.redis import RedisStore
from haystream_service.store.redis_log import ITEMS_A_SCRIPT, _Known
from haystream_service.wire import decode_lease
from haystream_service.worker.listing import Listing
from haystream_service.worker.retry import Retry

pytestmark = [pytest.mark.asyncio, pytest.mark.redis]


@pytest_asyncio.fixture
async def store(redis_url: str, redis_prefix: str) -> AsyncIterator[RedisStore]:
    store = RedisStore.connect(redis_url, prefix=redis_prefix)
    yield store
    await store.wipe()
    await store.close()


async def test_whoever_asks_while_hundreds_do_is_answered(store: RedisStore) -> None:
    """The client's own bound, a hundred connections, does not have a call wait, but fails it."""
    assert await asyncio.gather(*(store.query_ids() for _ in range(300))) == [set()] * 300


@pytest.mark.parametrize("said", ["", "two", "-2", "7" * 5000], ids=["empty", "a word", "less than 0", "long"])
async def test_a_revision_that_is_none_is_unreadable(
    store: RedisStore, client: Any, redis_prefix: str, said: str
) -> None:
    await client.hset(Keys(redis_prefix).query("q", "meta"), "revision", said)
    assert await store.read_revisions(["p", "q"]) == [None, UNREADABLE]


async def test_whoever_asks_much_at_once_leaves_connections_to_others(own_valkey: ValkeyServer) -> None:
    """A connection that was made stays, and Redis takes so many of all its clients."""
    async with Redis.from_url(own_valkey.url) as client:
        await client.config_set("maxclients", 150)
    one, other = (RedisStore.connect(own_valkey.url, prefix="p", timeout=30.0) for _ in range(2))
    followed = [asyncio.create_task(one.read_items(f"c{n}", 0, limit=1, wait=20.0)) for n in range(20)]
    assert await asyncio.gather(*(one.query_ids() for _ in range(300))) == [set()] * 300
    assert await other.query_ids() == set()
    await asyncio.gather(*(other.append_items(f"c{n}", [Item("i", f"c{n}", "ann", ("bo",))]) for n in range(20)))
    assert [item.item_id for items in await asyncio.gather(*followed) for item in items] == ["i"] * 20
    await one.close()
    await other.close()


@pytest_asyncio.fixture
async def client(redis_url: str) -> AsyncIterator[Any]:
    async with Redis.from_url(redis_url) as client:
        yield client


def change(query_id: str, edges: Rows | None = None) -> Change:
    position = Position(0, 0, 0)
    told = tables(edges=edges or rows([]))
    return Change(query_id, 0, 0, 1, position, 0, Query(query_id), [], b"{}", told)


async def test_wiping_leaves_others_keys(store: RedisStore, client: Any, redis_prefix: str) -> None:
    neighbour = f"{redis_prefix}2:generation"
    await client.set(neighbour, "mine")
    await store.begin("one")
    await store.wipe()
    assert await client.get(neighbour) == b"mine"
    await client.delete(neighbour)


async def test_a_snapshot_is_let_go_when_that_was_asked_for(
    store: RedisStore, client: Any, redis_prefix: str
) -> None:
    await store.save_snapshot("mail", "inverse:0.9:1e-05", b"kept")
    await store.save_snapshot("mail", "inverse:0.9:1e-05:0a", b"for a while", seconds=1000)
    keys = Keys(redis_prefix)
    assert await client.ttl(keys.snapshot("mail", "inverse:0.9:1e-05")) == -1
    assert 0 < await client.ttl(keys.snapshot("mail", "inverse:0.9:1e-05:0a")) <= 1000


@pytest.mark.parametrize("name", ["generation", "{q:q}:meta"])
async def test_a_key_of_another_type_that_is_mended_before_anybody_looks_at_it_is_tried_again(
    store: RedisStore, client: Any, redis_prefix: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    key = f"{redis_prefix}:{name}"
    await client.rpush(key, "junk")
    look = store._redis.type

    async def mended(key: str) -> bytes:
        await client.delete(key)
        return await look(key)

    monkeypatch.setattr(store._redis, "type", mended)
    with pytest.raises(StoreUnavailable, match="had something else under a key of ours: WRONGTYPE") as caught:
        await (store.generation() if name == "generation" else store.load_query("q"))
    assert type(caught.value) is StoreUnavailable
    assert await store.generation() is None
    assert await store.load_query("q") is None


async def test_a_query_whose_verdicts_somebody_deleted_is_not_taken_for_one_that_has_none(
    store: RedisStore, client: Any, redis_prefix: str
) -> None:
    verdicts = [Verdict(f"v{n}", "q", f"i{n}", "zoe", Outcome.RELEVANT, n) for n in range(3)]
    await store.save_query(replace(change("q"), verdicts=verdicts[:2], revision=1))
    await store.save_query(replace(change("q"), verdicts=verdicts[1:], expected=1, revision=2))
    loaded = await store.load_query("q")
    assert loaded is not None
    assert len(loaded.verdicts) == 3
    await client.delete(f"{redis_prefix}:{{q:q}}:verdicts")
    with pytest.raises(StoreDamaged, match=r"of 3 verdicts Redis has 0 in .*:verdicts: .* `haystream rebuild`"):
        await store.load_query("q")


async def test_verdicts_that_somebody_deleted_are_missed_though_more_were_saved_since(
    store: RedisStore, client: Any, redis_prefix: str
) -> None:
    """As of a query that is in memory: its owner saves what comes, and reads nothing."""
    verdicts = [Verdict(f"v{n}", "q", f"i{n}", "zoe", Outcome.RELEVANT, n) for n in range(5)]
    await store.save_query(replace(change("q"), verdicts=verdicts[:2], revision=1))
    await client.delete(f"{redis_prefix}:{{q:q}}:verdicts")
    assert not await store.save_query(replace(change("q"), verdicts=verdicts[2:], expected=1, revision=2))
    with pytest.raises(VerdictsLost, match="of 5 verdicts Redis has 3") as caught:
        await store.load_query("q")
    assert sorted(verdict.verdict_id for verdict in caught.value.left.verdicts) == ["v2", "v3", "v4"]
    await store.expect_verdicts("q", 3)
    assert await store.save_query(replace(change("q"), verdicts=verdicts, expected=2, revision=3))
    assert len((await store.load_query("q")).verdicts) == 5
    await store.delete_query("q", 0, revision=9, read=Position(1))
    assert (await store.load_query("q")).verdicts == ()


async def test_ids_that_somebody_deleted_are_made_anew_of_the_log(
    store: RedisStore, client: Any, redis_prefix: str
) -> None:
    """By whoever needs them first; an item with several entries has its last one, and one of nobody stays that."""
    key = Keys(redis_prefix).ids("c")
    said = [Item(f"m{n}", "c", "ann", (f"p{n}",)) for n in range(ITEMS_A_SCRIPT + 2)]
    await store.append_items("c", [*said, replace(said[1], uri="mid:1"), Withdrawal("gone", "c")])
    ids = await client.hgetall(key)

    async def needed() -> list[object]:
        count = await store.item_count("c")
        await client.delete(key)
        found = await store.find_items("c", ["m1", "gone", "nobody"])
        await client.delete(key)
        answers = await store.append_items("c", [said[2], replace(said[3], sender="bob")])
        return [count, found, answers]

    before = await needed()
    assert await client.hgetall(key) == ids
    assert before == [
        len(ids),
        [replace(said[1], uri="mid:1"), Withdrawal("gone", "c"), None],
        [Appended.KNOWN, Appended.CONFLICT],
    ]
    assert await client.ttl(key) == -1
    await client.delete(key)
    assert await asyncio.gather(*(store.item_count("c") for _ in range(5))) == [len(ids)] * 5
    assert await client.keys(f"{redis_prefix}:{{c:c}}:ids*") == [key.encode()]


async def test_ids_that_are_made_anew_are_put_there_as_a_whole_or_not_at_all(
    store: RedisStore, client: Any, redis_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is short of memory may drop what is not to stay, and one that takes over may lack some."""
    key = Keys(redis_prefix).ids("c")
    await store.append_items("c", [Item(f"m{n}", "c", "ann", (f"p{n}",)) for n in range(ITEMS_A_SCRIPT + 2)])
    ids, reads, read_items = await client.hgetall(key), 0, RedisStore.read_items

    async def dropped_meanwhile(self: RedisStore, *asked: Any, **how: Any) -> list[ItemFact]:
        nonlocal reads
        reads += 1
        if reads in {2, 6}:  # before the last entries are read, and when all were
            await client.delete(*await client.keys(f"{key}:*"))
        return await read_items(self, *asked, **how)

    monkeypatch.setattr(RedisStore, "read_items", dropped_meanwhile)
    await client.delete(key)
    assert await store.find_items("c", ["nobody"]) == [None]
    assert await client.hgetall(key) == ids
    assert reads == 9


async def test_a_list_of_queries_that_is_gone_is_made_anew_though_others_are_listed_since(
    store: RedisStore, client: Any, redis_prefix: str
) -> None:
    retry = Retry(Metrics(CollectorRegistry(), labelled_queries=0))
    listing = Listing(store, lambda: [0], retry)
    for query_id in "pqr":
        await store.save_query(change(query_id))
    await listing.look()
    await client.delete(Keys(redis_prefix).partition(0))
    await store.save_query(change("s"))
    await listing.look()
    assert await store.query_ids(0) == {"p", "q", "r", "s"}


async def test_lists_are_not_made_anew_for_queries_that_are_deleted(
    store: RedisStore, client: Any, redis_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All keys are looked at for that, of which a hundred thousand queries have a million."""
    listing = Listing(store, lambda: [0], Retry(Metrics(CollectorRegistry(), labelled_queries=0)))
    fact = LeaseFact("l", "q", "i", "ann", Action.RELEASED, 1_700_000_000_000_000, 1_700_000_001_000_000)
    for query_id in "pqr":
        await store.save_query(replace(change(query_id), leases=[replace(fact, query_id=query_id)]))
    await listing.look()
    anew, list_anew = 0, store.list_anew

    async def counted(partitions: Collection[int]) -> int:
        nonlocal anew
        anew += 1
        return await list_anew(partitions)

    monkeypatch.setattr(store, "list_anew", counted)
    await store.delete_query("q", 0, revision=9, read=Position(1))
    assert await store.claims.leased(0) == set()
    assert await client.smembers(Keys(redis_prefix).leased(0)) == {b"p", b"r"}
    await listing.look()
    assert anew == 0
    await client.srem(Keys(redis_prefix).leased(0), "p")
    await listing.look()
    assert anew == 1
    assert await client.smembers(Keys(redis_prefix).leased(0)) == {b"p", b"r"}


async def test_a_log_that_is_gone_takes_along_what_is_known_of_its_entries(
    store: RedisStore, client: Any, redis_prefix: str
) -> None:
    items = [Item(f"i{n}", "c", "ann", (f"p{n}",)) for n in range(3)]
    await store.append_items("c", items)
    await client.delete(f"{redis_prefix}:{{c:c}}:log")
    assert await store.append_items("c", [items[2], items[0], items[2]]) == [
        Appended.ADDED,
        Appended.ADDED,
        Appended.KNOWN,
    ]
    assert await store.read_items("c", 0, limit=10) == [items[2], items[0]]
    assert await store.item_count("c") == 2


async def test_a_prefix_is_no_pattern(client: Any, redis_url: str, redis_prefix: str) -> None:
    store = RedisStore.connect(redis_url, prefix=f"{redis_prefix}*[a-z]")
    other = f"{redis_prefix}xyza:generation"
    await client.set(other, "mine")
    await store.begin("one")
    await store.wipe()
    assert await store.generation() is None
    assert await client.delete(other) == 1
    await store.close()


async def test_others_read_the_rows_as_numbers(store: RedisStore, client: Any, redis_prefix: str) -> None:
    await store.save_query(change("q", rows([7, 300], first=1.0)))
    keys = Keys(redis_prefix)
    found = np.frombuffer(await client.get(keys.query("q", "pairs-told")), [("index", "<u4"), ("row", "<f8", 3)])
    np.testing.assert_array_equal(found["index"], [7, 300])
    np.testing.assert_array_equal(found["row"], [[1, 2, 3], [4, 5, 6]])
    assert await client.hget(keys.query("q", "meta"), "size") == b"9 8"


@pytest.mark.parametrize("part", ["people-told", "pairs-told"])
@pytest.mark.parametrize("left", [0, 28], ids=["deleted", "cut short"])
async def test_rows_that_somebody_took_away_are_missed_until_all_are_written_anew(
    store: RedisStore, client: Any, redis_prefix: str, part: str, left: int
) -> None:
    def saved(revision: int, index: list[int], *, whole: bool = False) -> Change:
        told = tables(rows(index), rows(index), whole=whole)
        return replace(change("q"), expected=revision - 1, revision=revision, tables=told)

    key = Keys(redis_prefix).query("q", part)
    assert await store.save_query(saved(1, [2, 5, 7], whole=True))
    await client.set(key, (await client.get(key))[:left])
    for revision in (2, 3):
        with pytest.raises(StoreDamaged, match=f"of 84 bytes Redis has {left} in {key}"):
            await store.read_tables("q")
        assert not await store.save_query(saved(revision, [2, 5, 7, 8]))
    assert await store.save_query(saved(4, [2, 8], whole=True))
    read = await store.read_tables("q")
    assert read is not None
    assert (list(read.participants.index), list(read.edges.index)) == ([2, 8], [2, 8])


@pytest.mark.parametrize("earlier_only", [True, False])
async def test_tables_of_earlier_formats_are_read_until_the_query_is_saved(
    store: RedisStore, client: Any, redis_prefix: str, earlier_only: bool
) -> None:
    """Every row, in order, as float64; also where a worker of such a format saved last."""
    keys = Keys(redis_prefix)
    await store.save_query(change("q"))
    if earlier_only:
        await client.hdel(keys.query("q", "meta"), "size")
    await client.set(keys.query("q", "participants"), np.arange(9.0).tobytes())
    await client.set(keys.query("q", "edges"), np.arange(6.0).tobytes())
    read = await store.read_tables("q")
    assert read is not None
    assert read.size == Size(3, 2)
    np.testing.assert_array_equal(read.participants.index, [0, 1, 2])
    np.testing.assert_array_equal(read.edges.rows, [[0, 1, 2], [3, 4, 5]])
    told = tables(rows([2]), whole=True)
    await store.save_query(replace(change("q"), expected=1, revision=2, tables=told))
    read = await store.read_tables("q")
    assert read is not None
    assert (read.size, len(read.participants.index), len(read.edges.index)) == (Size(9, 8), 1, 0)
    assert not await client.exists(keys.query("q", "participants"), keys.query("q", "edges"))


async def test_a_forgotten_script_is_sent_again(store: RedisStore, client: Any) -> None:
    await store.append_items("c", [Item("1", "c", "a", ("b",))])
    await client.script_flush()
    await store.append_items("c", [Item("2", "c", "a", ("b",))])
    assert await store.item_count("c") == 2


async def test_a_server_that_hangs_is_given_up_and_its_late_answers_are_not_mixed_up(
    own_valkey: ValkeyServer,
) -> None:
    store = RedisStore.connect(own_valkey.url, timeout=0.2)
    await store.begin("one")
    await store.append_items("c", [Item("1", "c", "a", ("b",))])
    os.killpg(own_valkey._process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnavailable, match="no answer"):
            await store.generation()
        with pytest.raises(StoreUnavailable):
            await store.item_count("c")
    finally:
        os.killpg(own_valkey._process.pid, signal.SIGCONT)
    patient = RedisStore.connect(own_valkey.url)
    await patient.ping()
    assert await store.item_count("c") == 1
    assert await store.generation() == "one"
    await patient.close()
    await store.close()


async def test_what_was_acknowledged_survives_a_kill(own_valkey: ValkeyServer) -> None:
    store = RedisStore.connect(own_valkey.url)
    for number in range(50):
        await store.append_items("c", [Item(f"{number}", "c", "a", ("b",))])
        await store.save_query(change(f"q{number}"))
    own_valkey.kill()
    with pytest.raises(StoreUnavailable):
        await store.item_count("c")
    own_valkey.start()
    assert await store.item_count("c") == 50
    assert await store.query_ids() == {f"q{number}" for number in range(50)}
    await store.close()


async def test_a_log_of_the_first_format_is_read_and_more_may_be_said_of_its_items(
    store: RedisStore, client: Any, redis_prefix: str
) -> None:
    """As the first format had it: the wire's fields of who is on an item, and the digest of these."""
    keys, ann, plain = Keys(redis_prefix), Item("1", "c", "ann", ("bo",)), Item("2", "c", None, ("ann", "bo"))
    entries = (
        b'{"item_id":"1","collection":"c","sender":"ann","recipients":["bo"]}',
        b'{"item_id":"2","collection":"c","participants":["ann","bo"]}',
    )
    digests = b'["ann",["bo"]]', b'[null,["ann","bo"]]'
    for number, (entry, people) in enumerate(zip(entries, digests, strict=True), start=1):
        digest = blake2b(people, digest_size=16).digest()
        await client.xadd(keys.log("c"), {"item": entry}, id=f"{number}-0")
        await client.hset(keys.ids("c"), str(number), digest + str(number).encode())
    assert await store.read_items("c", 0, limit=9) == [ann, plain]
    assert await store.append_items("c", [ann, plain]) == [Appended.KNOWN] * 2
    assert await store.append_items("c", [replace(plain, sender="bo")]) == [Appended.CONFLICT]
    assert await store.append_items("c", [replace(ann, uri="x"), Withdrawal("2", "c")]) == [Appended.ADDED] * 2
    gone = replace(plain, withdrawn=True)
    assert await store.read_items("c", 0, limit=9) == [ann, plain, replace(ann, uri="x"), gone]
    assert await store.item_count("c") == 2


async def test_heads_of_earlier_versions_and_of_settings_that_nobody_can_read(
    store: RedisStore, client: Any, redis_prefix: str
) -> None:
    keys = Keys(redis_prefix)
    for query_id in ("old", "new"):
        await store.save_query(change(query_id))
    await client.hdel(keys.query("old", "meta"), "touched")
    await client.hset(keys.query("new", "meta"), "settings", b'{"query_id":"new","top":"all"}')
    old, new = await store.read_heads(["old", "new"])
    assert old is not None
    assert (old.settings, old.touched, old.revision) == (Query("old"), 1, 1)
    assert new is not None
    assert (new.settings, new.touched, new.revision) == (None, 0, 1)


async def test_a_query_of_which_nothing_is_known_but_that_it_is_closed_is_not_there(
    store: RedisStore, client: Any, redis_prefix: str
) -> None:
    """As earlier versions left it, where a query was listed and never saved, and a rebuild was interrupted."""
    await client.hset(Keys(redis_prefix).query("q", "meta"), "rebuilding", "1")
    assert await store.read_heads(["q"]) == [None]
    assert await store.load_query("q") is None
    await store.save_query(change("q"))
    assert await store.read_revision("q") == 1


def long_item(number: int, **more: Any) -> Item:
    """Its entry has some 100 kB."""
    return Item(f"i{number}", "long", "ann", tuple(f"{n:04}{number:096}" for n in range(1000)), **more)


async def test_long_entries_are_read_and_widened_by_parts(store: RedisStore) -> None:
    """Some hundred of a megabyte each, which is what a message may have, would take longer than any call."""
    items = [long_item(n) for n in range(100)]
    for start in range(0, 100, 10):
        await store.append_items("long", items[start : start + 10])
    some = await store.read_items("long", 0, limit=1000, wait=5.0)
    assert 0 < len(some) < 100
    read = list[ItemFact]()
    while found := await store.read_items("long", len(read), limit=1000):
        read += found
    assert read == items
    sizes = list[int]()
    tell = store._tell

    async def noted(*given: Any) -> Any:
        answers = await tell(*given)
        sizes.append(sum(len(answer.entry) for answer in answers if isinstance(answer, _Known)))
        return answers

    store._tell = noted  # type: ignore[method-assign]
    said = [
        *(Withdrawal(f"i{n}", "long") for n in range(100)), long_item(3), Item("i4", "long", "eve", ("bob",)),
        long_item(5, uri="x"), long_item(5),
    ]  # fmt: skip
    answers = await store.append_items("long", said)
    assert answers == [*[Appended.ADDED] * 100, Appended.KNOWN, Appended.CONFLICT, Appended.ADDED, Appended.KNOWN]
    assert max(sizes) < 5_000_000
    assert len(sizes) > 2
    gone = [replace(item, withdrawn=True) for item in items]
    gone[5] = replace(gone[5], uri="x")
    assert await store.find_items("long", [f"i{n}" for n in range(100)]) == gone


async def test_what_is_waited_for_comes_by_parts_too(store: RedisStore) -> None:
    items = [Item(f"i{n}", "c", "ann", ("bob",)) for n in range(50)]
    reading = asyncio.create_task(store.read_items("c", 0, limit=1000, wait=30))
    await asyncio.sleep(0.05)
    await store.append_items("c", items)
    first = await reading
    assert 0 < len(first) <= 50
    assert [*first, *await store.read_items("c", len(first), limit=1000)] == items
    assert await store.read_items("c", 10, limit=7) == items[10:17]


async def test_a_lease_that_is_over_is_stored_without_what_it_was_served_at(store: RedisStore) -> None:
    await store.begin("mark")
    ranking = b'{"items": [{"item_id": "a", "score": 0.5, "mean": 0.25}]}'
    saved = replace(change("q"), ranking=ranking)
    await store.save_query(saved)
    (lease,) = await store.claims.claim("q", "ann", 1, 60)
    key = store._keys.query("q", "leases")
    assert b"\n0.5\n0.25\n" in await store._redis.hget(key, lease.lease_id)
    await store.claims.release("q", lease.lease_id, "ann")
    assert (await store._redis.hget(key, lease.lease_id)).endswith(b"\na\nann\n\n\n\n\n\n")
    (_, released) = await store.claims.outbox("q", 2)
    assert (decode_lease(released.value, released.key).score, released.partition) == (0.5, saved.partition)


async def test_a_fact_is_never_taken_for_a_new_one_since_the_clock_was_set_back(store: RedisStore) -> None:
    await store.begin("mark")
    await store.save_query(
        replace(change("q"), ranking=b'{"items": [{"item_id": "a", "score": 0.5, "mean": 0.25}]}')
    )
    # As if something had been in it while the clock was an hour ahead: a stream's ids never go back.
    outbox = store._keys.query("q", "outbox")
    seconds, _ = await store._redis.time()
    await store._redis.xdel(outbox, await store._redis.xadd(outbox, {"fact": ""}, id=f"{seconds + 3600}000-0"))
    await store.claims.claim("q", "ann", 1, 60)
    seen = await store.claims.expire("q")
    assert (seen.expired, seen.live, seen.waiting) == (0, 1, 1)
    assert seen.age < -3000


async def test_of_queries_that_were_claimed_from_those_are_listed_that_have_anything_to_look_at(
    store: RedisStore, client: Any, redis_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("haystream_service.store.redis_claims.QUERIES_AT_ONCE", 2)
    await store.begin("mark")
    claims, keys, offers = store.claims, Keys(redis_prefix), Offers([Offer("a", 0.5, 0.25)], complete=True)
    names = [f"q{n}" for n in range(5)]
    for name in names:
        await store.save_query(replace(change(name), offers=offers))
        (lease,) = await claims.claim(name, "ann", 1, 60)
        if name in {"q0", "q1", "q2"}:
            await claims.release(name, lease.lease_id, "ann")
        if name in {"q0", "q1", "q3"}:
            await claims.published(name, [each.entry for each in await claims.outbox(name, 10)])
    assert await claims.leased(0) == {"q2", "q3", "q4"}
    await client.set(keys.query("q0", "outbox"), "junk")  # who looks at it is told
    await claims.claim("q1", "bo", 1, 60)
    assert await claims.leased(0) == set(names)
    assert await client.smembers(keys.leased(0)) == {name.encode() for name in names}


async def test_a_query_that_is_deleted_is_listed_until_what_was_claimed_is_published_and_then_forgotten(
    store: RedisStore, client: Any, redis_prefix: str
) -> None:
    await store.begin("mark")
    claims, leased = store.claims, Keys(redis_prefix).leased(0)
    for name in ("gone", "there"):
        await store.save_query(replace(change(name), offers=Offers([Offer("a", 0.5, 0.25)], complete=True)))
        (lease,) = await claims.claim(name, "ann", 1, 60)
        await claims.release(name, lease.lease_id, "ann")
    await claims.published("there", [each.entry for each in await claims.outbox("there", 10)])
    await store.delete_query("gone", 0, revision=9, read=Position(1))
    assert await claims.leased(0) == {"gone"}
    assert await client.smembers(leased) == {b"gone", b"there"}
    await claims.published("gone", [each.entry for each in await claims.outbox("gone", 10)])
    assert await client.keys(Keys(redis_prefix).query("gone", "*")) == [
        Keys(redis_prefix).query("gone", "meta").encode()
    ]
    assert await claims.leased(0) == set()
    assert await client.smembers(leased) == {b"there"}
    with pytest.raises(ClaimRefused):
        await claims.claim("gone", "bo", 1, 60)
    await claims.claim("there", "bo", 1, 60)
    assert await claims.leased(0) == {"there"}


async def test_an_outbox_that_has_nothing_left_goes_once_readers_know_that_its_query_is_gone(
    store: RedisStore, client: Any, redis_prefix: str
) -> None:
    """They are told of what an earlier version deleted, too, which left the outbox there."""
    await store.begin("mark")
    await store.save_query(replace(change("q"), offers=Offers([Offer("a", 0.5, 0.25)], complete=True)))
    await store.claims.claim("q", "ann", 1, 60)
    await store.claims.published("q", [each.entry for each in await store.claims.outbox("q", 10)])
    outbox = Keys(redis_prefix).query("q", "outbox")
    await store.delete_query("q", 0, revision=9, read=Position(1))
    assert await client.exists(outbox)
    await store.note_withdrawn("q")
    assert not await client.exists(outbox)


async def test_what_a_deleted_query_has_in_its_outbox_stays_until_it_is_published(
    store: RedisStore, client: Any, redis_prefix: str
) -> None:
    await store.begin("mark")
    await store.save_query(replace(change("q"), offers=Offers([Offer("a", 0.5, 0.25)], complete=True)))
    await store.claims.claim("q", "ann", 1, 60)
    await store.delete_query("q", 0, revision=9, read=Position(1))
    await store.note_withdrawn("q")
    (left,) = await store.claims.outbox("q", 10)
    await store.claims.published("q", [left.entry])
    assert not await client.exists(Keys(redis_prefix).query("q", "outbox"))


@pytest.mark.parametrize("saved_with", [True, False], ids=["with a save", "beside it"])
async def test_a_query_that_nobody_claimed_from_and_the_topic_tells_leases_of_is_listed(
    store: RedisStore, client: Any, redis_prefix: str, saved_with: bool
) -> None:
    """As after a rebuild, or where somebody else hands items out: its owner has to end them all the same."""
    fact = LeaseFact("l", "q", "item-1", "ann", Action.CLAIMED, 1_700_000_000_000_000, 1_700_000_001_000_000)
    await store.save_query(replace(change("q"), leases=[fact] if saved_with else []))
    if not saved_with:
        assert await client.smembers(Keys(redis_prefix).leased(0)) == set()
        await store.keep_leases("q", 0, [fact])
    assert await store.claims.leased(0) == {"q"}
    assert (await store.claims.expire("q")).expired == 1
    assert [decode_lease(out.value, out.key).action for out in await store.claims.outbox("q", 9)] == [
        Action.EXPIRED
    ]


@pytest.mark.parametrize("part", ["meta", "leases"])
async def test_leases_of_which_a_key_is_gone_are_looked_at_all_the_same(
    store: RedisStore, client: Any, redis_prefix: str, part: str
) -> None:
    await store.begin("mark")
    offered = Offers([Offer("a", 0.5, 0.25), Offer("b", 0.4, 0.2)], complete=True)
    await store.save_query(replace(change("q"), offers=offered))
    await store.claims.claim("q", "ann", 1, 0)
    await store.claims.claim("q", "bo", 1, 60)
    await client.delete(Keys(redis_prefix).query("q", part))
    seen = await store.claims.expire("q")
    facts = 3 if part == "meta" else 2  # of the lease that is gone nobody can say how it ended
    assert (seen.expired, seen.live, seen.waiting) == (facts - 2, 1, facts)
    assert len(await store.claims.live("q")) == (part == "meta")
    # Where the query is gone nobody can say on which partition its facts belong: they wait until it is back.
    assert len(await store.claims.outbox("q", 10)) == (0 if part == "meta" else facts)
    await store.save_query(change("q") if part == "meta" else replace(change("q"), expected=1, revision=2))
    assert len(await store.claims.outbox("q", 10)) == facts


async def test_an_item_whose_lease_somebody_deleted_is_held_until_its_time_is_over_and_no_longer(
    store: RedisStore, client: Any, redis_prefix: str
) -> None:
    await store.begin("mark")
    offered = Offers([Offer(name, 0.5, 0.25) for name in "abc"], complete=True)
    await store.save_query(replace(change("q"), offers=offered))
    gone, over = [(await store.claims.claim("q", "ann", 1, seconds))[0] for seconds in (0.2, 0.0)]
    (kept,) = await store.claims.claim("q", "bo", 1, 60)
    key = Keys(redis_prefix).query
    await client.hdel(key("q", "leases"), gone.lease_id, over.lease_id)
    assert (await store.claims.expire("q")).lost == 1  # of the other one nobody can say which item it is
    assert await store.claims.claim("q", "cy", 3, 60) == []
    await asyncio.sleep(0.2)
    seen = await store.claims.expire("q")
    assert (seen.expired, seen.live, seen.lost) == (0, 1, 1)
    assert {each.item_id for each in await store.claims.claim("q", "cy", 3, 60)} == {gone.item_id, over.item_id}
    assert kept.lease_id in {each.lease_id for each in await store.claims.live("q")}


@pytest.mark.parametrize("parts", [("leases", "live"), ("live",), ("held",)])
async def test_who_has_what_is_what_the_leases_say_whatever_somebody_deleted(
    store: RedisStore, client: Any, redis_prefix: str, parts: tuple[str, ...]
) -> None:
    await store.begin("mark")
    await store.save_query(replace(change("q"), offers=Offers([Offer("a", 0.5, 0.25)], complete=True)))
    await store.claims.claim("q", "ann", 1, 60)
    await client.delete(*(Keys(redis_prefix).query("q", part) for part in parts))
    claimed = await store.claims.claim("q", "bo", 1, 60)
    assert [each.analyst for each in claimed] == (["bo"] if "leases" in parts else [])
    assert [each.analyst for each in await store.claims.live("q")] == ["bo" if "leases" in parts else "ann"]


@pytest.mark.parametrize("changed", ["deleted", "set"])
async def test_an_item_that_somebody_has_is_served_to_nobody_though_it_was_taken_out_of_what_is_held(
    store: RedisStore, client: Any, redis_prefix: str, changed: str
) -> None:
    await store.begin("mark")
    offered = Offers([Offer(name, 0.5, 0.25) for name in "abc"], complete=True)
    at = 1_700_000_000_000_000
    both = [LeaseFact(lease, "q", "c", "kim", Action.CLAIMED, at, 2 * at) for lease in ("l1", "l2")]
    await store.save_query(replace(change("q"), offers=offered, leases=both))
    await store.claims.claim("q", "ann", 1, 60)
    held = Keys(redis_prefix).query("q", "held")
    if changed == "deleted":
        await client.hdel(held, "a")
    else:
        await client.hset(held, "c", 1)
    (claimed,) = await store.claims.claim("q", "bo", 3, 60)
    assert claimed.item_id == "b"
    assert await client.hgetall(held) == {b"a": b"1", b"b": b"1", b"c": b"2"}


async def test_where_several_have_one_item_nothing_is_made_anew_for_that(
    store: RedisStore, client: Any, redis_prefix: str
) -> None:
    """It takes as long as all leases that there ever were."""
    await store.begin("mark")
    offered = Offers([Offer(name, 0.5, 0.25) for name in "abc"], complete=True)
    at = 1_700_000_000_000_000
    both = [LeaseFact(lease, "q", "c", "kim", Action.CLAIMED, at, 2 * at) for lease in ("l1", "l2")]
    await store.save_query(replace(change("q"), offers=offered, leases=both))
    key = Keys(redis_prefix).query
    of_c = await client.hget(key("q", "leases"), "l1")
    await client.hset(key("q", "leases"), "l1", of_c.replace(b"\nc\n", b"\nz\n"))  # which would be seen
    await store.claims.claim("q", "bo", 1, 60)
    assert await client.hgetall(key("q", "held")) == {b"a": b"1", b"c": b"2"}


async def test_others_have_their_turns_while_a_query_with_many_verdicts_is_read(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {
        Verdict(f"v{number}", "q", f"item-{number}", "zoe", Outcome.RELEVANT, number)
        for number in range(3 * redis_queries.FACTS_AT_ONCE + 7)
    }
    await store.save_query(replace(change("q"), verdicts=list(said)))
    read = InARow(redis_queries.read_verdict)
    monkeypatch.setattr(redis_queries, "read_verdict", read)
    async with read:
        stored = await store.load_query("q")
    assert stored is not None
    assert set(stored.verdicts) == said
    assert 0 < read.most <= redis_queries.FACTS_AT_ONCE


async def test_queries_of_which_nobody_can_say_whether_they_have_leases_are_listed(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    offers = Offers([Offer("item-1", 1.0, 0.5)], complete=True)
    await store.save_query(replace(change("q"), offers=offers))
    await store.claims.claim("q", "zoe", 1, 60)

    async def away(*_: Any, **__: Any) -> Any:
        raise RedisConnectionError("a part of the cluster is away")

    monkeypatch.setattr(Pipeline, "execute", away)
    assert await store.claims.leased(0) == {"q"}
