"""A query with a scope over HTTP: it is opened with it, keeps it, and shows nothing of what is outside."""

import csv
import io

import httpx
import pytest
from support.world import World, item

from haystream.events import Item, ItemFact, View
from haystream.report import report
from haystream.scope import scope
from haystream_service.api import graphs as module
from haystream_service.api.graphs import Graphs
from haystream_service.api.problems import Problem
from haystream_service.store.memory import MemoryStore
from haystream_service.wire import encode_item

pytestmark = pytest.mark.asyncio
PEOPLE = [f"p{n}" for n in range(12)]

ITEMS = [item(n) for n in range(40)]
OF_ANN = {"with": ["ann"], "without": ["eve"]}
INSIDE = [each for each in ITEMS if "ann" in each.people() and "eve" not in each.people()]
OUTSIDE = [each for each in ITEMS if each not in INSIDE]


async def opened(lead: httpx.AsyncClient, ingest: httpx.AsyncClient, world: World) -> None:
    body = b"\n".join(map(encode_item, ITEMS))
    assert (await ingest.post("/v1/collections/default/items", content=body)).json()["accepted"] == 40
    assert (await lead.put("/v1/queries/q", json={"scope": OF_ANN})).status_code == 201
    await world.processes[0].settled()


async def test_a_scope_is_shown_and_can_never_change(
    lead: httpx.AsyncClient, ingest: httpx.AsyncClient, world: World
) -> None:
    await opened(lead, ingest, world)
    shown = (await lead.get("/v1/queries/q")).json()
    assert shown["settings"]["scope"] == OF_ANN
    assert (
        await lead.put("/v1/queries/q", json={"scope": {"without": ["eve"], "with": ["ann", "ann"]}})
    ).is_success
    for patch in ({"scope": None}, {"scope": {"with": ["bo"]}}, {"scope": {"labels": {"k": 1}}}):
        refused = await lead.patch("/v1/queries/q", json=patch)
        assert (refused.status_code, refused.json()["code"]) == (409, "scope_changed")
    assert (await lead.patch("/v1/queries/q", json={"top": 3})).json()["settings"]["scope"] == OF_ANN
    bad = await lead.put("/v1/queries/r", json={"scope": {"sent": ["2002-01-01", "2001-01-01"]}})
    assert (bad.status_code, bad.json()["code"]) == (422, "invalid_value")


async def test_what_is_outside_is_not_there(
    lead: httpx.AsyncClient, ingest: httpx.AsyncClient, kim: httpx.AsyncClient, world: World
) -> None:
    await opened(lead, ingest, world)
    for number, judged in enumerate((INSIDE[0], OUTSIDE[0])):
        body = {"item_id": judged.item_id, "outcome": "relevant", "decided_at": f"2026-01-31T12:00:0{number}Z"}
        assert (await kim.put(f"/v1/queries/q/verdicts/v{number}", json=body)).is_success
    await world.processes[0].settled()
    progress = (await kim.get("/v1/queries/q/progress")).json()
    assert (progress["items"], progress["screened"]) == (len(INSIDE), 1)
    offered = {entry["item_id"] for entry in (await kim.get("/v1/queries/q/ranking")).json()["items"]}
    assert offered == {each.item_id for each in INSIDE[1:]}
    assert (await kim.get(f"/v1/queries/q/items/{INSIDE[1].item_id}")).status_code == 200
    assert (await kim.get(f"/v1/queries/q/items/{OUTSIDE[0].item_id}")).status_code == 404
    decisions = (await lead.get("/v1/queries/q/export/decisions", params={"format": "csv"})).text
    holds = {row["item_id"]: row["holds"] for row in csv.DictReader(io.StringIO(decisions))}
    assert holds == {INSIDE[0].item_id: "yes", OUTSIDE[0].item_id: "no"}


async def test_what_is_believed_is_of_the_scope(
    lead: httpx.AsyncClient, ingest: httpx.AsyncClient, kim: httpx.AsyncClient, world: World
) -> None:
    await opened(lead, ingest, world)
    state = world.processes[0].worker.state("q")
    assert state is not None
    expected = report(state)
    people = (await kim.get("/v1/queries/q/participants", params={"limit": 1000})).json()["participants"]
    assert {each["participant"]: each["mean"] for each in people} == {
        name: pytest.approx(mean, abs=1e-9) for name, (mean, _) in expected.participants.items()
    }
    pairs = (await kim.get("/v1/queries/q/pairs", params={"limit": 1000})).json()["pairs"]
    assert {tuple(each["participants"]) for each in pairs} == {edge.participants for edge in expected.edges}
    around = (await kim.get("/v1/queries/q/participants/ann")).json()
    assert {each["participant"] for each in around["contacts"]} == set(expected.participants) - {"ann"}
    assert (await kim.get("/v1/queries/q/participants/eve")).status_code == 404


async def test_rows_saved_before_the_scope_was_counted_anew_are_read_as_they_were_numbered(
    lead: httpx.AsyncClient, ingest: httpx.AsyncClient, kim: httpx.AsyncClient, world: World
) -> None:
    """A query that is closed is not saved anew: its rows stay those of the items that were in it then."""
    first = [item(n) for n in range(6)]
    for number, each in enumerate(first):
        label = b'"labels":{"k":"m"}' if number != 2 else b'"labels":{"k":"z"}'
        body = encode_item(each)[:-1] + b"," + label + b"}"
        assert (await ingest.post("/v1/collections/default/items", content=body)).json()["accepted"] == 1
    settings = {"scope": {"labels": {"k": "m"}}, "status": "closed"}
    assert (await lead.put("/v1/queries/q", json=settings)).status_code == 201
    assert (await lead.put("/v1/queries/r", json={**settings, "status": "open"})).status_code == 201
    await world.processes[0].settled()
    before = {name: (await kim.get(f"/v1/queries/{name}/pairs")).json()["pairs"] for name in "qr"}
    assert before["q"] == before["r"]
    for number, value in ((0, "a"), (3, "b"), (2, "m")):  # two are outside now, and one is inside
        body = encode_item(first[number])[:-1] + b',"labels":{"k":"%b"}}' % value.encode()
        assert (await ingest.post("/v1/collections/default/items", content=body)).json()["accepted"] == 1
    await world.processes[0].settled()
    assert (await kim.get("/v1/queries/q/pairs")).json()["pairs"] == before["q"]
    now = (await kim.get("/v1/queries/r/pairs")).json()["pairs"]
    inside = [first[n] for n in (1, 2, 4, 5)]
    assert {tuple(each["participants"]) for each in now} == {pair for each in inside for pair in each.pairs()}
    state = world.processes[0].worker.state("r")
    assert state is not None
    assert sorted(state.collection.item_ids) == sorted(each.item_id for each in inside)


def view(person: str) -> View:
    return View("mail", scope(anybody=[person]))


async def mail() -> MemoryStore:
    store = MemoryStore()
    pairs = [(a, b) for a in PEOPLE for b in PEOPLE if a < b]
    await store.append_items("mail", [Item(f"{a}-{b}", "mail", a, (b,)) for a, b in pairs])
    return store


async def found(graphs: Graphs, view: View) -> int | None:
    """How many items there are in it, by the first answer; None where that is to be asked for again."""
    try:
        collection = await graphs.in_scope(view)
    except Problem:
        return None
    assert collection is not None
    return len(collection)


async def test_many_scopes_that_are_asked_for_in_turns_are_all_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than are kept, of a log that takes longer to read than anybody waits."""
    for name, value in {
        "MOST_GRAPHS": 2,
        "ITEMS_AT_ONCE": 5,
        "PATIENCE_SECONDS": 0.0,
        "FAR_BEHIND_ENTRIES": 20,
    }.items():
        monkeypatch.setattr(module, name, value)
    graphs, answers = Graphs(await mail()), dict[str, int]()
    for _ in range(100):
        for person in PEOPLE:
            if (items := await found(graphs, view(person))) is not None:
                answers[person] = items
    assert answers == dict.fromkeys(PEOPLE, 11)
    await graphs.close()


async def test_small_scopes_are_kept_and_of_large_ones_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    store, reads = await mail(), list[int]()
    read = store.read_items

    async def noted(collection: str, after: int, *, limit: int, wait: float = 0.0) -> list[ItemFact]:
        reads.append(after)
        return await read(collection, after, limit=limit, wait=wait)

    monkeypatch.setattr(store, "read_items", noted)
    graphs = Graphs(store)
    for _ in range(3):
        assert [await found(graphs, view(person)) for person in PEOPLE] == [11] * 12
    assert reads.count(0) == 12
    monkeypatch.setattr(module, "MOST_KEPT", 8 * module.LEAST_SIZE)
    for _ in range(2):
        assert [await found(graphs, view(person)) for person in PEOPLE] == [11] * 12
    assert reads.count(0) == 12 + 11 + 12  # the first is still there, once
    await graphs.close()
