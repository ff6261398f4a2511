"""What somebody else wrote under keys of ours is told by key and field, and a bug of ours is not taken for it."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import product
from typing import Any

import orjson
import pytest
import pytest_asyncio
from redis.asyncio import Redis
from support.changes import tables

from haystream.errors import Rejected
from haystream.events import Action, Item, LeaseFact, Outcome, Query, Verdict
from haystream.ranking.ranked import Estimate, Ranking
from haystream_service.commands.query import _rows
from haystream_service.store import redis_log, redis_queries
from haystream_service.store.base import (
    Change,
    Deletion,
    Position,
    SharedDamaged,
    Span,
    Spans,
    StoreDamaged,
    StoreUnavailable,
)
from haystream_service.store.claims import Outgoing, publish_outbox
from haystream_service.store.keys import Keys
from haystream_service.store.redis import RedisStore
from haystream_service.store.redis_calls import KEYS_A_SCAN
from haystream_service.wire import decode_lease, encode_ranking

pytestmark = [pytest.mark.asyncio, pytest.mark.redis]

VERDICT = Verdict("v", "q", "i", "zoe", Outcome.RELEVANT, 1)
RUBBISH = [b"", b"\xffrub.bish", b"{}", b"[]", b"null", b"1", b'"x"', b"1e400", b"[" * 5000 + b"]" * 5000]


@pytest_asyncio.fixture
async def store(redis_url: str, redis_prefix: str) -> AsyncIterator[RedisStore]:
    store = RedisStore.connect(redis_url, prefix=redis_prefix)
    change = Change("q", 0, 0, 1, Position(0, 0, 0), 0, Query("q"), [VERDICT], b"{}", tables())
    await store.save_query(change)
    yield store
    await store.wipe()
    await store.close()


@pytest_asyncio.fixture
async def client(redis_url: str) -> AsyncIterator[Any]:
    async with Redis.from_url(redis_url) as client:
        yield client


@pytest.mark.parametrize(
    "value", [b"", b"\xff", b"{}", b"-2", b" 1", b"+1", b"01", b"1_0", b"1.0", b"NaN", b"9" * 40]
)
@pytest.mark.parametrize(
    "field",
    [
        "revision",
        "partition",
        "queries_offset",
        "verdicts_offset",
        "leases_offset",
        "cursor",
        "history",
        "verdicts",
        "touched",
    ],
)
async def test_a_number_of_a_query_is_as_it_was_written(
    store: RedisStore, client: Any, redis_prefix: str, field: str, value: bytes
) -> None:
    """The scripts compare numbers as text: one that is written otherwise would never be the one expected."""
    key = Keys(redis_prefix).query("q", "meta")
    await client.hset(key, field, value)
    with pytest.raises(StoreDamaged, match=rf"what is in {key} in Redis cannot be read \({field}: "):
        await store.load_query("q")


@pytest.mark.parametrize("value", RUBBISH)
async def test_settings_that_nobody_wrote_are_damage(
    store: RedisStore, client: Any, redis_prefix: str, value: bytes
) -> None:
    key = Keys(redis_prefix).query("q", "meta")
    await client.hset(key, "settings", value)
    with pytest.raises(StoreDamaged, match=rf"what is in {key} in Redis cannot be read \(settings: "):
        await store.load_query("q")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *product(("verdict_id", "query_id", "item_id", "analyst"), (None, 1, {}, [])),  # any text may be an id
        *product(("outcome", "decided_at"), (None, 1, {}, [], "\n")),
    ],
)
async def test_a_verdict_of_another_shape_is_damage(
    store: RedisStore, client: Any, redis_prefix: str, field: str, value: object
) -> None:
    key = Keys(redis_prefix).query("q", "verdicts")
    said = orjson.loads(await client.hget(key, "v"))
    await client.hset(key, "v", orjson.dumps({**said, field: value}))
    for read in (store.load_query("q"), store.read_verdict("q", "v")):
        with pytest.raises(StoreDamaged, match=f"what is in {key} in Redis cannot be read"):
            await read


@pytest.mark.parametrize(
    "entry",
    [
        *RUBBISH,
        b'{"item_id":1,"collection":"c","participants":["x","y"]}',
        b'{"item_id":"n","collection":null,"participants":["x","y"]}',
        b'{"item_id":"n","collection":"c","sender":"x","recipients":"abc"}',
        b'{"item_id":"n","collection":"c","sender":"x","recipients":[1]}',
        b'{"item_id":"n","collection":"c","sender":["x"],"recipients":["y"]}',
        b'{"item_id":"n","collection":"c","sender":"x","recipients":[]}',
        b'{"item_id":"n","collection":"c","participants":["x"]}',
        b'{"item_id":"n","collection":"c","sender":"x","recipients":["y"],"labels":[["a"]]}',
        b'{"item_id":"n","collection":"c","sender":"x","recipients":["y"],"sent_at":"now"}',
        b'{"item_id":"n","collection":"c","sender":"x","recipients":["y"],"subject_at":[1,2,3]}',
        b'{"item_id":"n","collection":"c","sender":"x","recipients":["y"],"withdrawn":1}',
    ],
)
async def test_an_entry_of_another_shape_is_damage(
    store: RedisStore, client: Any, redis_prefix: str, entry: bytes
) -> None:
    key = Keys(redis_prefix).log("c")
    await client.xadd(key, {"item": entry}, id="1-0")
    with pytest.raises(StoreDamaged, match=f"what is in {key} in Redis cannot be read"):
        await store.read_items("c", 0, limit=9)


async def test_an_item_is_not_put_together_with_another_one(
    store: RedisStore, client: Any, redis_prefix: str
) -> None:
    """Where `ids` has the number of another item's entry, what is known of that would become known of this one."""
    keys = Keys(redis_prefix)
    one, other = Item("1", "c", "ann", ("bo",)), Item("2", "c", "ann", ("bo",))
    await store.append_items("c", [one, replace(other, uri="mid:2")])
    await client.hset(keys.ids("c"), "1", await client.hget(keys.ids("c"), "2"))
    for ask in (store.append_items("c", [replace(one, uri="mid:1")]), store.find_items("c", ["1"])):
        with pytest.raises(StoreDamaged, match=rf"{keys.log('c')} or {keys.ids('c')} in Redis cannot be read"):
            await ask


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (2, "when a lease began"),
        (3, "until when a lease is"),
        (6, "the rank of a lease"),
        (7, "a lease"),
        (9, "a lease"),
    ],
)
async def test_a_lease_of_another_shape_is_damage(
    store: RedisStore, client: Any, redis_prefix: str, line: int, said: str
) -> None:
    await claim(store, client, redis_prefix)
    key = Keys(redis_prefix).query("q", "leases")
    ((lease_id, lease),) = (await client.hgetall(key)).items()
    lines = lease.split(b"\n")
    lines[line] = b"nan"
    await client.hset(key, lease_id, b"\n".join(lines))
    with pytest.raises(StoreDamaged, match=rf"what is in {key} in Redis cannot be read \({said}: "):
        await store.claims.live("q")


async def claim(store: RedisStore, client: Any, redis_prefix: str) -> LeaseFact:
    ranking = b'{"items": [{"item_id": "a", "score": 0.5, "mean": 0.25}]}'
    await client.set(Keys(redis_prefix).query("q", "ranking"), ranking)
    (lease,) = await store.claims.claim("q", "kim", 1, 60.0)
    return lease


@pytest.mark.parametrize("before", [True, False], ids=["before it", "after it"])
@pytest.mark.parametrize(
    "fact",
    [
        b"\xff",
        b"",
        b"claimed",
        b"taken\n1\nid\nlive\n\n1\n2\ni\na\n\n\n\n\n\n",
        b"claimed\n1e999\nid\nlive\n\n1\n2\ni\na\n\n\n\n\n\n",
        b"claimed\n1\nid\nlive\n\n1\n" + b"9" * 18 + b"\ni\na\n\n\n\n\n\n",
    ],
)
async def test_a_fact_is_published_though_the_outbox_has_what_is_none(
    store: RedisStore, client: Any, redis_prefix: str, fact: bytes, before: bool
) -> None:
    key = Keys(redis_prefix).query("q", "outbox")
    lease = None if before else await claim(store, client, redis_prefix)
    await client.xadd(key, {"fact": fact, "correlation": b""})
    lease = lease or await claim(store, client, redis_prefix)
    published: list[Outgoing] = []

    async def publish(records: list[Outgoing]) -> None:
        published.extend(records)

    await publish_outbox(store.claims, publish, "q")  # type: ignore[arg-type]
    assert [decode_lease(record.value, record.key) for record in published] == [lease]
    with pytest.raises(StoreDamaged, match=f"what is in {key} in Redis cannot be read"):
        await publish_outbox(store.claims, publish, "q")  # type: ignore[arg-type]
    assert len(published) == 1
    assert await client.xlen(key) == 1  # it is for a person to look at


@pytest.mark.parametrize("value", RUBBISH[1:])  # an empty one is a span that is none
@pytest.mark.parametrize("field", ["queries", "verdicts", "leases", "quarantine"])
async def test_a_note_of_another_shape_is_damage(
    store: RedisStore, client: Any, redis_prefix: str, field: str, value: bytes
) -> None:
    key = Keys(redis_prefix).query("q", "note")
    await client.hset(key, field, value)
    with pytest.raises(StoreDamaged, match=f"what is in {key} in Redis cannot be read"):
        await store.read_note("q")


@pytest.mark.parametrize("value", [b"", b"\xff", b"{}", b"-2", b" 1", b"1.0", b"9" * 40])
async def test_how_far_a_topic_is_is_a_number(
    store: RedisStore, client: Any, redis_prefix: str, value: bytes
) -> None:
    await client.hset(Keys(redis_prefix).up_to, "query/0", value)
    for ask in (store.read_up_to(), store.read_up_to(["query/0"]), store.move_up_to({"query/0": (1, 2)})):
        with pytest.raises(SharedDamaged, match=r"cannot be read \(query/0: .*redis-cli DEL"):
            await ask


@pytest.mark.parametrize("value", [b"", b"\xff", b"x", b"-1", b"9" * 12])
async def test_a_partition_is_a_number(store: RedisStore, client: Any, redis_prefix: str, value: bytes) -> None:
    await client.sadd(Keys(redis_prefix).partitions, value)
    with pytest.raises(SharedDamaged, match=r":partitions in Redis cannot be read \(a (partition|member): "):
        await store.query_ids()


@pytest.mark.parametrize("rows", [b"x" * 27, b"\xff" * 28], ids=["no whole row", "no numbers"])
async def test_rows_of_another_shape_are_damage(
    store: RedisStore, client: Any, redis_prefix: str, rows: bytes
) -> None:
    key = Keys(redis_prefix).query("q", "people-told")
    await client.set(key, bytes(4) + rows[4:])
    with pytest.raises(StoreDamaged, match=rf"what is in {key} in Redis cannot be read \(rows: "):
        await store.read_tables("q")


@pytest.mark.parametrize(
    "value", [b"{}", b"nan", b"inf", b"1e400", b"0x10", b"-5", b"-0", b"00", b"007", b"9" * 16, b"9" * 400]
)
@pytest.mark.parametrize("field", ["partition", "revision", "queries_offset"])
async def test_a_query_of_which_numbers_are_none_can_be_deleted(
    store: RedisStore, client: Any, redis_prefix: str, field: str, value: bytes
) -> None:
    await client.hset(Keys(redis_prefix).query("q", "meta"), field, value)
    deletion = await store.delete_query("q", 0, revision=9, read=Position(1, 2))
    assert deletion.partition == 0
    loaded = await store.load_query("q")
    assert loaded is not None
    assert loaded.revision == deletion.revision >= 9


async def test_a_query_of_another_partition_is_told_from_whatever_its_revision_is(
    store: RedisStore, client: Any, redis_prefix: str
) -> None:
    await client.hset(Keys(redis_prefix).query("q", "meta"), mapping={"partition": 7, "revision": -5})
    assert await store.delete_query("q", 0, revision=9, read=Position(1, 2)) == Deletion(7, 0, Position())


async def test_a_bug_is_not_called_damage(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def buggy(_: bytes) -> Verdict:
        raise TypeError("a bug")

    await store.append_items("c", [Item("1", "c", "ann", ("bo",))])
    monkeypatch.setattr(redis_queries, "read_verdict", buggy)
    monkeypatch.setattr(redis_log, "read_entry", buggy)
    for ask in (store.load_query("q"), store.read_verdict("q", "v"), store.read_items("c", 0, limit=1)):
        with pytest.raises(TypeError, match="a bug"):
            await ask


async def test_lists_are_made_anew_beside_keys_whose_names_are_no_text(
    store: RedisStore, client: Any, redis_prefix: str
) -> None:
    keys = Keys(redis_prefix)
    await client.hset(keys.query("@", "meta").encode().replace(b"@", b"\xff"), "partition", 0)
    await client.delete(keys.partition(0))
    assert await store.list_anew([0]) == 1
    assert await store.query_ids() == {"q"}


async def test_lists_are_made_anew_however_many_keys_others_have(
    redis_url: str, client: Any, redis_prefix: str, monkeypatch: pytest.MonkeyPatch, store: RedisStore
) -> None:
    """Each step of a scan has its time: before something matches there may be millions of others' keys."""
    async with client.pipeline(transaction=False) as others:
        for number in range(6 * KEYS_A_SCAN):
            others.set(f"{redis_prefix}:of-others:{number}", "")
        await others.execute()
    await client.delete(Keys(redis_prefix).partition(0))
    hasty = RedisStore.connect(redis_url, prefix=redis_prefix, timeout=1.0)
    scan = hasty._redis.scan

    async def slow(*asked: Any, **how: Any) -> Any:
        await asyncio.sleep(0.3)
        return await scan(*asked, **how)

    monkeypatch.setattr(hasty._redis, "scan", slow)
    assert await hasty.list_anew([0]) == 1
    await hasty.close()


async def test_what_belongs_in_the_other_lists_of_a_partition_is_put_there(
    store: RedisStore, client: Any, redis_prefix: str
) -> None:
    keys = Keys(redis_prefix)
    await claim(store, client, redis_prefix)
    await store.pass_over("q", Spans(verdicts=Span(1, 2)))
    (head,) = await store.read_heads(["q"])
    assert head is not None
    await client.delete(keys.leased(0), keys.quarantined(0))
    assert await store.complete_lists(0, {"q": head}) == 2
    assert await store.complete_lists(0, {"q": head}) == 0
    assert await store.claims.leased(0) == set(await store.quarantined()) == {"q"}


async def test_a_query_that_was_deleted_is_not_listed_for_its_leases(
    store: RedisStore, client: Any, redis_prefix: str
) -> None:
    """Another worker may keep a lease after that. Who looks at leases takes the query out of the list each time."""
    released = LeaseFact("l", "q", "i", "zoe", Action.RELEASED, 1, 2)
    await store.delete_query("q", 0, revision=2, read=Position(0, 0, 0))
    await store.keep_leases("q", 0, [released])
    assert await store.claims.leased(0) == set()
    assert await store.list_anew([0]) == 0
    assert await store.complete_lists(0, dict(zip("q", await store.read_heads(["q"]), strict=True))) == 0
    assert await client.smembers(Keys(redis_prefix).leased(0)) == set()


async def test_a_scan_ends_where_a_server_of_the_cluster_is_gone(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are asked at first, and each for the rest of its own; meanwhile a replica may have taken its place."""
    store = RedisStore.connect(redis_url)
    asked = []

    async def scan(**how: Any) -> Any:
        asked.append(how)
        return ({"new:1": 0}, []) if "cursor" in how else ({"old:1": 7}, [])

    monkeypatch.setattr(store._redis, "scan", scan)
    monkeypatch.setattr(store._redis, "get_node", lambda node_name: None, raising=False)
    with pytest.raises(StoreUnavailable, match="old:1"):
        await store.list_anew([0])
    assert len(asked) == 1
    await store.close()


@pytest.mark.parametrize("rank", [1, 1 << 53, (1 << 53) + 1, 10**30])
async def test_what_is_taken_of_a_lease_can_be_read_again(store: RedisStore, rank: int) -> None:
    """Whoever hands items out says of which rank they were: else a query could be stopped by what he says."""
    at, until = "2026-01-31T12:00:00Z", "2026-01-31T12:15:00Z"
    said = {"lease_id": "l", "query_id": "q", "item_id": "i", "analyst": "kim", "action": "claimed", "at": at}
    value = json.dumps({**said, "until": until, "rank": rank}).encode()
    if rank > 1 << 53:
        with pytest.raises(Rejected, match=r"out_of_range: rank: "):
            decode_lease(value, b"q")
        return
    fact = decode_lease(value, b"q")
    await store.keep_leases("q", 0, [fact])
    stored = await store.load_query("q")
    assert stored is not None
    assert stored.leases == (fact,)


async def test_how_many_queries_a_list_had_is_noted(store: RedisStore, client: Any, redis_prefix: str) -> None:
    assert await store.read_listed(0) == 0
    await store.note_listed(0, 3)
    assert await store.read_listed(0) == 3
    assert await store.read_listed(1) == 0
    assert await store.read_up_to() == {}  # it is of no topic


@pytest.mark.parametrize("part", ["note", "ranking"])
async def test_queries_are_listed_beside_one_that_cannot_be_read(
    store: RedisStore, client: Any, redis_prefix: str, part: str
) -> None:
    nothing = Ranking("coverage", 0, 0, Estimate(0.0, 0.0), 0.0, ())
    value = encode_ranking("q", nothing, revision=1, published_at=1_700_000_000_000_000)
    await client.set(Keys(redis_prefix).query("q", "ranking"), value)
    await store.save_query(Change("r", 0, 0, 1, Position(0, 0, 0), 0, Query("r"), [], value, tables()))
    assert [row["state"] for row in await _rows(store, stopped=False)] == ["running", "running"]
    key = Keys(redis_prefix).query("q", part)
    await (client.hset(key, "quarantine", b"{}") if part == "note" else client.set(key, b"{}"))
    damaged, other = await _rows(store, stopped=False)
    assert (damaged["query_id"], damaged["state"]) == ("q", "damaged")
    assert other["state"] == "running"
