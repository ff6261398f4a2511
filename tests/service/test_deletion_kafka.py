"""`haystream query delete` and `collection delete` on real servers: who forgets what, and what comes back."""

import asyncio
import json

import pytest
from redis import Redis
from support.pipeline import Pipeline, page, until

from haystream.events import Event, Item, Outcome, Query, Status, Verdict
from haystream_service.store.base import Position, Quarantine, Span, Spans
from haystream_service.wire import decode_dead_letter, decode_item

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]

ITEMS = tuple(Item(f"m{n}", "default", f"p{n % 5}", (f"p{n % 5 + 1 + n % 2}",)) for n in range(20))
EVENTS: tuple[Event, ...] = (
    Query("q"),
    Query("r"),
    *ITEMS,
    *(
        Verdict(f"v{n}", "qr"[n % 2], f"m{n}", "zoe", list(Outcome)[n % 3], 1_700_000_000_000_000 + n)
        for n in range(12)
    ),
)
LATER = Verdict("late", "q", "m15", "zoe", Outcome.RELEVANT, 1_800_000_000_000_000)


async def codes(pipeline: Pipeline) -> list[str]:
    return sorted(decode_dead_letter(r.value)[0].error.code for r in await pipeline.records("dead-letters"))


async def last_ranking(pipeline: Pipeline, query_id: str) -> bytes | None:
    (*_, record) = [r for r in await pipeline.records("next-items") if r.key == query_id.encode()]
    return bytes(record.value) if record.value is not None else None


def keys(pipeline: Pipeline, tag: str) -> set[str]:
    with Redis.from_url(pipeline.settings.redis) as server:
        return {
            key.decode().rpartition(":")[2]
            for key in server.scan_iter(f"{pipeline.settings.redis_prefix}:{{{tag}}}:*")
        }


async def test_a_query_is_deleted_and_stays_so_in_a_rebuild(pipeline: Pipeline) -> None:
    worker = await pipeline.worker()
    await pipeline.say(*EVENTS)
    await pipeline.assert_is_the_fold(EVENTS)
    code, out, said = await pipeline.program("query", "delete", "q", "--yes", "--json")
    assert code == 0, said
    deleted = json.loads(out)
    topic = pipeline.settings.topic
    assert {name: deleted[name] for name in ("query_id", "deleted", "verdicts")} == {
        "query_id": "q",
        "deleted": True,
        "verdicts": 6,
    }
    assert deleted["kafka_keeps"] == {
        topic("queries"): -1,
        topic("verdicts"): -1,
        topic("leases"): -1,
        topic("dead-letters"): 2_592_000_000,
    }
    assert keys(pipeline, "q:q") == {"meta"}
    assert await last_ranking(pipeline, "q") is None
    assert await pipeline.store.read_ranking("r") == await last_ranking(pipeline, "r")
    assert "haystream_owned_queries 1.0" in page(worker, "/metrics")[1]

    await pipeline.say(LATER, Query("q", top=7))
    gone = Query("q", status=Status.DELETED)
    remaining = [event for event in EVENTS if not isinstance(event, Verdict) or event.query_id == "r"]
    await pipeline.assert_is_the_fold([*remaining, gone])
    assert await codes(pipeline) == ["query_deleted"] * 2
    code, _, said = await pipeline.program("query", "delete", "q", "--yes")
    assert (code, said.strip()) == (2, "haystream: query 'q' is deleted already")
    code, _, said = await pipeline.program("query", "delete", "nobody", "--yes")
    assert (code, "there is no query 'nobody'" in said) == (2, True)
    code, out, _ = await pipeline.program("query", "list", "--json")
    assert {row["query_id"]: row["state"] for row in json.loads(out)["queries"]} == {"q": "deleted", "r": "running"}

    await asyncio.to_thread(worker.stop)
    code, _, said = await pipeline.program("rebuild", "--yes")
    assert code == 0, said
    await pipeline.assert_is_the_fold([*remaining, gone])
    assert keys(pipeline, "q:q") == {"meta"}
    assert await last_ranking(pipeline, "q") is None


async def test_a_collection_is_deleted_once_nothing_needs_it_and_the_copy_leaves_it_out(pipeline: Pipeline) -> None:
    worker = await pipeline.worker()
    await pipeline.say(*EVENTS, Query("other", collection="kept"), Item("k", "kept", "ann", ("bob",)))
    await pipeline.drained()
    code, _, said = await pipeline.program("collection", "delete", "default", "--yes")
    assert (code, "has queries: q, r." in said) == (2, True)
    await asyncio.to_thread(worker.stop)
    (head,) = await pipeline.store.read_heads(["r"])
    assert head is not None
    await pipeline.store.quarantine("r", head.partition, Quarantine("quarantined", "it raised", 1.0))
    await pipeline.worker()
    for query_id in ("q", "r"):  # also one that is stopped
        code, _, said = await pipeline.program("query", "delete", query_id, "--yes")
        assert (code, "is deleted: nothing but its id is left" in said) == (0, True), said
    assert await pipeline.store.quarantined() == {}
    code, _, said = await pipeline.program("collection", "delete", "default", "--yes")
    assert code == 0, said
    assert f"Kafka keeps records in {pipeline.settings.topic('items')} for ever" in said
    assert keys(pipeline, "c:default") == {"ids"}
    await pipeline.say(Item("new", "default", "ann", ("bob",)), Query("again"))

    async def refused() -> bool:
        return await codes(pipeline) == ["collection_deleted"] * 2

    await until(refused, "neither an item nor a query is taken for it")
    code, _, said = await pipeline.program("collection", "delete", "default", "--yes")
    assert (code, "is deleted already" in said) == (2, True)


async def test_what_was_deleted_is_not_copied_to_new_topics(pipeline: Pipeline) -> None:
    gone = Query("q", status=Status.DELETED)
    await pipeline.say(*EVENTS, gone, LATER, Item("k", "kept", "ann", ("bob",)))
    clean = f"{pipeline.settings.topic_prefix}-clean"
    arguments = ("--to", clean, "--partitions", "2", "--yes", "--without-collection", "default")
    code, _, said = await pipeline.program("repartition", *arguments, "--without-collection", "defualt")
    items = pipeline.settings.topic("items")
    assert (code, f"{items} has no items of 'defualt' to leave out. Nothing was copied" in said) == (2, True), said
    code, _, said = await pipeline.program("repartition", *arguments)
    assert code == 0, said
    async with Pipeline(pipeline.settings.model_copy(update={"topic_prefix": clean})) as copied:
        assert [decode_item(r.value, r.key).collection for r in await copied.records("items")] == ["kept"]
        assert {r.key for r in await copied.records("verdicts")} == {b"r"}
        (deletion,) = [r for r in await copied.records("queries") if r.key == b"q"]
        assert json.loads(deletion.value)["status"] == "deleted"


async def test_of_what_was_withdrawn_no_word_is_copied(pipeline: Pipeline) -> None:
    said = {
        "subject": "a secret",
        "text": "a secret",
        "body": "a secret",
        "uri": "mail:1",
        "labels": {"box": "sent"},
    }

    def record(item_id: str, **more: object) -> bytes:
        return json.dumps({"item_id": item_id, "sender": "ann", "recipients": ["bob"], **more}).encode()

    others = {"sender": "eve", "withdrawn": True}
    for item_id, facts in {
        "gone": [said, {"withdrawn": True}],
        "before": [{"withdrawn": True}, said],
        "again": [said, {"withdrawn": True}, {**said, "sender": "eve"}],
        "kept": [said, others],
    }.items():
        for fact in facts:
            await pipeline.say_raw("items", item_id.encode(), record(item_id, **fact))
    await pipeline.say_raw("items", b"gone", None)
    await pipeline.say_raw("items", b"gone", record("gone", **said, collection="another"))
    clean = f"{pipeline.settings.topic_prefix}-clean"
    code, _, told = await pipeline.program("repartition", "--to", clean, "--partitions", "2", "--yes")
    assert code == 0, told
    async with Pipeline(pipeline.settings.model_copy(update={"topic_prefix": clean})) as copied:
        records = await copied.records("items")
    assert len(records) == 11
    with_secret = [(json.loads(r.value)["item_id"], r) for r in records if b"secret" in (r.value or b"")]
    assert sorted(item_id for item_id, _ in with_secret) == ["gone", "kept"]
    assert all(b"another" in r.value for item_id, r in with_secret if item_id == "gone")
    by_id = {r.key.decode(): json.loads(r.value) for r in records if r.key == b"before" and b"uri" in r.value}
    assert by_id["before"] == {
        "item_id": "before", "collection": "default", "sender": "ann", "recipients": ["bob"], "uri": "mail:1",
        "labels": {"box": "sent"},
    }  # fmt: skip


async def test_nothing_is_deleted_before_it_was_asked(pipeline: Pipeline) -> None:
    await pipeline.store.delete_query("other", 0, revision=1, read=Position(0))
    await pipeline.store.note_unknown(0, "q", Spans(verdicts=Span(0, 0)), room=5)
    code, _, said = await pipeline.program("query", "delete", "q")
    assert code != 0
    assert "Delete query 'q' with its 0 verdicts, for good?" in said
    assert await pipeline.records("queries") == []
