"""What items say: told to whoever may read them, read from Kafka, and not at all once they are withdrawn."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from support.queue_api import MemoryFacts, MemoryRecords, an_app, calling
from support.world import World, item

from haystream.events import Item, ItemFact, RecordPlace
from haystream_service.api import contents
from haystream_service.api.contents import ContentReader, Contents
from haystream_service.api.facts import At
from haystream_service.api.tokens import KeyFile
from haystream_service.metrics import ApiMetrics
from haystream_service.wire import encode_item
from haystream_service.wire.decoding import content_digest
from haystream_service.worker.memory_broker import MemoryBroker

pytestmark = pytest.mark.asyncio

SAYING = {
    "sent_at": "2001-05-04T10:00:00Z",
    "uri": "https://mail.example.org/1",
    "labels": {"box": "sent", "pages": 3, "read": True, "deep": {"not": "kept"}},
    "subject": "lunch",
    "text": "At noon?\nAnn",
}


def line(number: int, **more: Any) -> bytes:
    return json.dumps(json.loads(encode_item(item(number))) | more).encode()


@pytest.fixture
def records(world: World) -> MemoryRecords:
    return MemoryRecords(world.broker)


@pytest.fixture
def app(world: World, keys: KeyFile, records: MemoryRecords) -> FastAPI:
    return an_app(world.store, MemoryFacts(world.broker), keys, records=records)


async def sent(ingest: httpx.AsyncClient, world: World, *lines: bytes) -> None:
    found = await ingest.post("/v1/collections/default/items", content=b"\n".join(lines))
    assert found.json() == {"accepted": len(lines), "rejected": []}, found.text
    await world.processes[0].settled()


async def shown(client: httpx.AsyncClient, number: int) -> httpx.Response:
    return await client.get(f"/v1/collections/default/items/item-{number}")


async def test_an_item_says_what_was_sent(ingest: httpx.AsyncClient, kim: httpx.AsyncClient, world: World) -> None:
    await sent(ingest, world, line(1, **SAYING), line(2), line(3, subject="only this"))
    found = (await shown(kim, 1)).json()
    assert found["sent_at"] == "2001-05-04T10:00:00.000000Z"
    assert found["labels"] == {"box": "sent", "pages": 3, "read": True}
    assert {name: found[name] for name in ("uri", "subject", "text")} == {
        name: SAYING[name] for name in ("uri", "subject", "text")
    }
    assert found["contents"] == "here"
    without = (await shown(kim, 2)).json()
    assert (without["contents"], without["subject"], without["text"], without["labels"]) == ("none", None, None, {})
    part = (await shown(kim, 3)).json()
    assert (part["contents"], part["subject"], part["text"]) == ("here", "only this", None)
    assert (await shown(kim, 4)).status_code == 404


async def test_what_was_read_is_kept_and_what_kafka_does_not_say_is_asked_for_again(
    app: FastAPI, ingest: httpx.AsyncClient, kim: httpx.AsyncClient, world: World, records: MemoryRecords
) -> None:
    await sent(ingest, world, line(1, **SAYING), line(2, text="another"))
    for _ in range(2):
        assert (await shown(kim, 1)).json()["text"] == SAYING["text"]
    assert len(records.reads) == 1  # subject and text lie in one record
    records.away = True
    assert (await shown(kim, 1)).status_code == 200
    away = await shown(kim, 2)
    assert (away.status_code, away.json()["code"], away.headers["retry-after"]) == (503, "unavailable", "1")
    records.away = False
    assert (await shown(kim, 2)).json()["text"] == "another"
    counted = {
        outcome: app.state.metrics.records.labels(outcome)._value.get()
        for outcome in ("read", "kept", "gone", "unavailable")
    }
    assert counted == {"read": 3, "kept": 4, "gone": 0, "unavailable": 1}


@pytest.mark.parametrize("value", [None, b"no JSON", b"[]", b'{"subject": 3, "text": "other"}'])
async def test_of_a_record_that_is_gone_nothing_is_told(
    ingest: httpx.AsyncClient, kim: httpx.AsyncClient, world: World, value: bytes | None
) -> None:
    await sent(ingest, world, line(1, **SAYING))
    for p in range(world.broker.partitions):
        log = world.broker._logs["items", p]
        log[:] = [replace(message, value=value) for message in log]
    found = (await shown(kim, 1)).json()
    assert (found["contents"], found["subject"], found["text"]) == ("gone", None, None)
    assert found["uri"] == SAYING["uri"]


@pytest.mark.parametrize(
    "odd", ['"x": NaN', '"x": 1e999', f'"labels": [{"9" * 30}]', '"text": 7, "text": "At noon?"']
)
async def test_whatever_record_was_taken_can_be_read(kim: httpx.AsyncClient, world: World, odd: str) -> None:
    value = line(1, text="At noon?").removesuffix(b"}") + f", {odd}}}".encode()
    world.broker.produce("items", b"item-1", value)
    await world.processes[0].settled()
    found = (await shown(kim, 1)).json()
    assert (found["contents"], found["text"]) == ("here", "At noon?")


async def test_a_label_may_be_any_number(ingest: httpx.AsyncClient, kim: httpx.AsyncClient, world: World) -> None:
    labels = {"large": 10**30, "small": -(10**30), "exact": 2**64 - 1}
    await sent(ingest, world, line(1, labels=labels))
    assert (await shown(kim, 1)).json()["labels"] == {"large": 1e30, "small": -1e30, "exact": float(2**64)}


async def claimed(client: httpx.AsyncClient, **body: Any) -> list[dict[str, Any]]:
    found = await client.post("/v1/queries/q/claims", params={"with": "text"}, json=body)
    assert found.status_code == 200, found.text
    return found.json()["leases"]  # type: ignore[no-any-return]


async def test_a_claim_brings_what_its_items_say(
    lead: httpx.AsyncClient,
    ingest: httpx.AsyncClient,
    kim: httpx.AsyncClient,
    world: World,
    records: MemoryRecords,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await lead.put("/v1/queries/q", json={})
    await sent(ingest, world, *(line(n, subject=f"s{n}", text=100 * f"{n}") for n in range(8)))
    plain = (await kim.post("/v1/queries/q/claims", json={})).json()["leases"]
    assert plain[0]["item"] is None
    some = await claimed(kim, count=3)
    assert len(records.reads) == 3
    for lease in some:
        told = lease["item"]
        number = lease["item_id"].removeprefix("item-")
        assert (told["subject"], told["text"], told["contents"]) == (f"s{number}", 100 * number, "here")
    monkeypatch.setattr(contents, "TOLD_CHARACTERS", 250)
    assert [lease["item"]["contents"] for lease in await claimed(kim, count=3)] == ["here", "here", "unread"]
    records.away = True
    (last,) = await claimed(kim)
    assert (last["item"]["contents"], last["item"]["text"]) == ("unread", None)
    refused = await kim.post("/v1/queries/q/claims", params={"with": "all"}, json={})
    assert refused.status_code == 422


async def test_the_item_of_a_reason_is_told_without_what_it_says(
    lead: httpx.AsyncClient, ingest: httpx.AsyncClient, kim: httpx.AsyncClient, world: World, records: MemoryRecords
) -> None:
    await lead.put("/v1/queries/q", json={})
    await sent(ingest, world, line(1, **SAYING), line(2))
    found = (await kim.get("/v1/queries/q/items/item-1")).json()["item"]
    assert (found["contents"], found["uri"], records.reads) == ("unread", SAYING["uri"], [])


async def test_whoever_may_not_read_is_told_nothing(
    address: str, ingest: httpx.AsyncClient, world: World, records: MemoryRecords
) -> None:
    await sent(ingest, world, line(1, **SAYING))
    for token in ("ingest", "operations", "analyst-elsewhere", "nobody", None):
        async with calling(address, token) as client:
            found = await shown(client, 1)
            assert found.status_code in {401, 403}
            assert "lunch" not in found.text
    assert records.reads == []


def an_item(number: int, text: str) -> Item:
    place = RecordPlace(content_digest(text), 0, number)
    return Item(f"i{number}", "default", "a", ("b",), text_at=place)


async def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = MemoryBroker()
    texts = [f"{n}" * 100 for n in range(5)]
    for text in texts:
        broker.append(("items", 0), b"k", json.dumps({"text": text}).encode())
    records = MemoryRecords(broker)
    monkeypatch.setattr(contents, "KEPT_CHARACTERS", 250)
    reader = ContentReader(records, ApiMetrics(CollectorRegistry()))
    items = [an_item(n, text) for n, text in enumerate(texts)]
    assert await reader.read_some(items) == [Contents("here", None, text) for text in texts]
    assert len(records.reads) == 5
    await reader.read(items[4])
    await reader.read(items[0])
    assert records.reads[5:] == [At(0, 0)]


async def test_items_with_one_text_are_read_once_each_place(world: World) -> None:
    broker = MemoryBroker()
    for _ in range(2):
        broker.append(("items", 0), b"k", json.dumps({"text": "same"}).encode())
    reader = ContentReader(MemoryRecords(broker), ApiMetrics(CollectorRegistry()))
    both = await reader.read_some([an_item(0, "same"), an_item(1, "same")])
    assert both == [Contents("here", None, "same")] * 2


WITHDRAWN = json.dumps({"item_id": "item-1", "withdrawn": True}).encode()


async def test_of_a_withdrawn_item_nothing_is_told_but_that(
    lead: httpx.AsyncClient, ingest: httpx.AsyncClient, kim: httpx.AsyncClient, world: World
) -> None:
    await lead.put("/v1/queries/q", json={})
    await sent(ingest, world, line(1, **SAYING), line(2), line(3))
    assert (await shown(kim, 1)).status_code == 200
    await sent(ingest, world, WITHDRAWN)
    for path in ("/v1/collections/default/items/item-1", "/v1/queries/q/items/item-1"):
        found = await kim.get(path)
        assert (found.status_code, found.json()["code"]) == (410, "withdrawn")
        assert "lunch" not in found.text
    assert {lease["item_id"] for lease in await claimed(kim, count=5)} == {"item-2", "item-3"}


async def test_a_lease_on_a_withdrawn_item_hides_no_other_whose_answer_was_lost(
    lead: httpx.AsyncClient, ingest: httpx.AsyncClient, kim: httpx.AsyncClient, world: World
) -> None:
    await lead.put("/v1/queries/q", json={})
    await sent(ingest, world, *map(line, range(4)))
    first, second = [lease["item_id"] for lease in await claimed(kim, count=2)]
    await sent(ingest, world, json.dumps({"item_id": first, "withdrawn": True}).encode())
    assert [lease["item_id"] for lease in await claimed(kim, known=[])] == [second]


async def test_no_decision_on_a_withdrawn_item_holds(
    lead: httpx.AsyncClient, ingest: httpx.AsyncClient, kim: httpx.AsyncClient, world: World
) -> None:
    await lead.put("/v1/queries/q", json={})
    await sent(ingest, world, line(1), line(2))
    for number in (1, 2):
        body = {"item_id": f"item-{number}", "outcome": "relevant", "decided_at": "2026-01-31T12:00:00Z"}
        assert (await kim.put(f"/v1/queries/q/verdicts/v{number}", json=body)).is_success
    await world.processes[0].settled()
    await sent(ingest, world, WITHDRAWN)
    rows = map(json.loads, (await lead.get("/v1/queries/q/export/decisions")).text.splitlines())
    assert {row["item_id"]: row["holds"] for row in rows} == {"item-1": False, "item-2": True}
    assert (await kim.get("/v1/queries/q/progress")).json()["screened"] == 1


async def test_what_was_withdrawn_before_it_came_is_withdrawn(
    ingest: httpx.AsyncClient, kim: httpx.AsyncClient, world: World
) -> None:
    for _ in range(2):
        await sent(ingest, world, WITHDRAWN)
        assert (await shown(kim, 1)).status_code == 410
        await sent(ingest, world, line(1, **SAYING))
        assert (await shown(kim, 1)).status_code == 410


async def test_a_claim_serves_nothing_that_was_withdrawn_a_moment_ago(
    lead: httpx.AsyncClient,
    ingest: httpx.AsyncClient,
    kim: httpx.AsyncClient,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The ranking still has the items: what is known of them is newer."""
    await lead.put("/v1/queries/q", json={})
    await sent(ingest, world, *map(line, range(8)))
    ranked = [entry["item_id"] for entry in (await kim.get("/v1/queries/q/ranking")).json()["items"]]
    find = world.store.find_item

    async def found(collection: str, item_id: str) -> ItemFact | None:
        known = await find(collection, item_id)
        if isinstance(known, Item) and item_id in {ranked[0], ranked[2]}:
            return replace(known, withdrawn=True)
        return known

    monkeypatch.setattr(world.store, "find_item", found)
    given = [lease["item_id"] for lease in await claimed(kim, count=3)]
    assert set(given).isdisjoint({ranked[0], ranked[2]})
    assert len(given) == 3
    live = (await kim.get("/v1/queries/q/leases")).json()["leases"]
    assert {lease["item_id"] for lease in live} == set(given)
    rest = await claimed(kim, count=8)
    assert len(rest) == 3
    again = await claimed(kim, count=8, known=[])
    assert {lease["item_id"] for lease in again} == set(ranked) - {ranked[0], ranked[2]}
    assert await asyncio.wait_for(claimed(kim, count=2), 5) == []
