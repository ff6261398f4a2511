"""Items in, rankings out, verdicts in, and why: what an analyst and those around her do over HTTP."""

import asyncio
import csv
import io
import json
from codecs import BOM_UTF8
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from support.in_a_row import InARow
from support.queue_api import EVERYTHING, MemoryFacts, an_app, calling, listening, write_keys
from support.world import World, item

from haystream.events import Outcome, Query, Verdict
from haystream.report import report
from haystream_service.api import exports, items, rankings, tokens
from haystream_service.api.access import Role
from haystream_service.api.tokens import KeyFile
from haystream_service.store.base import StoreDamaged, StoreUnavailable
from haystream_service.wire import encode_item

pytestmark = pytest.mark.asyncio

AT = "2026-01-31T12:00:00.%06dZ"
ITEMS = [item(n) for n in range(40)]


async def opened(
    lead: httpx.AsyncClient, ingest: httpx.AsyncClient, world: World, **settings: Any
) -> dict[str, Any]:
    """A query on forty items that is ranked; its ranking."""
    body = b"\n".join(map(encode_item, ITEMS))
    answer = await ingest.post("/v1/collections/default/items", content=body)
    assert answer.json() == {"accepted": 40, "rejected": []}, answer.text
    assert (await lead.put("/v1/queries/q", json=settings)).status_code == 201
    await world.processes[0].settled()
    return await ranking(lead)


async def ranking(client: httpx.AsyncClient) -> dict[str, Any]:
    answer = await client.get("/v1/queries/q/ranking")
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


async def decide(
    client: httpx.AsyncClient, number: int, item_id: str, outcome: str = "relevant", **parameters: Any
) -> httpx.Response:
    body = {"item_id": item_id, "outcome": outcome, "decided_at": AT % number}
    return await client.put(f"/v1/queries/q/verdicts/v{number}", json=body, params=parameters)


async def test_a_verdict_is_known_by_its_id_and_reflected_when_asked_for(
    lead: httpx.AsyncClient, ingest: httpx.AsyncClient, kim: httpx.AsyncClient, world: World
) -> None:
    top = (await opened(lead, ingest, world))["items"][0]["item_id"]
    first = await decide(kim, 1, top, wait="ranking")
    assert (first.status_code, first.json()["ranked"], first.json()["known"]) == (201, True, False)
    assert first.json()["verdict"]["analyst"] == "kim"
    now = await ranking(kim)
    assert now["screened"] == now["found"] == 1
    assert now["revision"] >= first.json()["revision"]
    assert top not in {entry["item_id"] for entry in now["items"]}
    again = await decide(kim, 1, top)
    assert (again.status_code, again.json()["known"]) == (200, True)
    other = await decide(kim, 1, top, "irrelevant")
    assert (other.status_code, other.json()["code"]) == (409, "verdict_conflict")
    assert len(world.broker.messages("verdicts")) == 1
    assert (await kim.get("/v1/queries/q/verdicts/v1")).json()["verdict"] == first.json()["verdict"]


async def test_of_two_verdicts_under_an_id_at_once_the_second_is_told_that_it_does_not_count(
    lead: httpx.AsyncClient, ingest: httpx.AsyncClient, kim: httpx.AsyncClient, world: World
) -> None:
    top = (await opened(lead, ingest, world))["items"][0]["item_id"]
    await world.processes[0].crash()
    assert (await decide(kim, 1, top)).status_code == 201
    second = asyncio.create_task(decide(kim, 1, top, "irrelevant", wait="ranking"))
    while len(world.broker.messages("verdicts")) < 2:
        await kim.get("/v1/me")
    await world.process()
    answer = await second
    assert (answer.status_code, answer.json()["code"]) == (409, "verdict_conflict")
    assert (await kim.get("/v1/queries/q/verdicts/v1")).json()["verdict"]["outcome"] == "relevant"


async def test_a_verdict_is_changed_and_taken_back(
    lead: httpx.AsyncClient, ingest: httpx.AsyncClient, kim: httpx.AsyncClient, world: World
) -> None:
    before = await opened(lead, ingest, world)
    top = before["items"][0]["item_id"]
    await decide(kim, 1, top)
    await decide(kim, 2, top, "irrelevant", wait="ranking")
    assert [(await ranking(kim))[name] for name in ("screened", "found")] == [1, 0]
    for _ in range(2):  # to undo twice is to undo
        undone = await kim.delete("/v1/queries/q/verdicts/v2", params={"wait": "ranking"})
        assert undone.json()["verdict"]["outcome"] == "retracted"
    after = await ranking(kim)
    assert after["screened"] == 0
    assert top in {entry["item_id"] for entry in after["items"]}
    assert len(world.broker.messages("verdicts")) == 3
    missing = await kim.delete("/v1/queries/q/verdicts/none")
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    twice = await kim.delete("/v1/queries/q/verdicts/v2%2Fundone")
    assert (twice.status_code, twice.json()["code"]) == (422, "invalid_value")


async def test_a_verdict_with_the_longest_id_is_taken_back(
    lead: httpx.AsyncClient, ingest: httpx.AsyncClient, kim: httpx.AsyncClient, world: World
) -> None:
    before = await opened(lead, ingest, world)
    path = "/v1/queries/q/verdicts/" + "\U0001f600" * 512
    body = {"item_id": before["items"][0]["item_id"], "outcome": "relevant", "decided_at": AT % 1}
    await kim.put(path, json=body, params={"wait": "ranking"})
    for known in (False, True):
        undone = await kim.delete(path, params={"wait": "ranking"})
        assert (undone.json()["verdict"]["outcome"], undone.json()["known"]) == ("retracted", known)
    assert (await ranking(kim))["screened"] == 0


async def test_an_analyst_acts_for_herself_and_a_lead_for_others(
    lead: httpx.AsyncClient, ingest: httpx.AsyncClient, kim: httpx.AsyncClient, world: World
) -> None:
    await opened(lead, ingest, world)
    body = {"item_id": "item-1", "outcome": "relevant", "decided_at": AT % 1, "analyst": "lee"}
    refused = await kim.put("/v1/queries/q/verdicts/v1", json=body)
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    given = await lead.put("/v1/queries/q/verdicts/v1", json=body, params={"wait": "ranking"})
    assert given.json()["verdict"]["analyst"] == "lee"
    assert (await kim.get("/v1/queries/q/verdicts/v1")).status_code == 404
    assert (await kim.delete("/v1/queries/q/verdicts/v1")).status_code == 404
    assert (await lead.get("/v1/queries/q/verdicts/v1")).status_code == 200


async def test_verdicts_from_the_future_are_refused(lead: httpx.AsyncClient, kim: httpx.AsyncClient) -> None:
    await lead.put("/v1/queries/q", json={})
    body = {"item_id": "item-1", "outcome": "relevant", "decided_at": "2090-01-01T00:00:00Z"}
    answer = await kim.put("/v1/queries/q/verdicts/v1", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "out_of_range")


async def test_a_ranking_that_does_not_come_in_time_is_said_not_to(
    lead: httpx.AsyncClient, kim: httpx.AsyncClient, world: World
) -> None:
    await lead.put("/v1/queries/q", json={})
    await world.processes.pop().crash()
    answer = await decide(kim, 1, "item-1", wait="ranking", wait_seconds=0.05)
    assert (answer.status_code, answer.json()["ranked"]) == (202, False)


async def test_every_line_that_is_no_item_is_answered(ingest: httpx.AsyncClient, world: World) -> None:
    lines = [
        encode_item(ITEMS[0]),
        b"",
        b"{",
        b'{"item_id": "x", "participants": ["ann", "ann"]}',
        b'{"item_id": "y", "participants": ["ann", "bo"], "collection": "other"}',
        b'{"item_id": "z", "participants": ["ann", "bo"], "collection": "mail", "labels": {"a": 1}}',
    ]
    body = BOM_UTF8 + b"\n".join(lines)  # as some editors write it
    answer = (await ingest.post("/v1/collections/mail/items", content=body)).json()
    assert answer["accepted"] == 1
    found = [(line["line"], line["error"]["code"]) for line in answer["rejected"]]
    assert found == [
        (1, "invalid_value"),
        (3, "malformed_json"),
        (4, "too_few_participants"),
        (5, "invalid_value"),
    ]
    (written,) = world.broker.messages("items")
    assert written.key == b"z"
    assert json.loads(written.value or b"")["collection"] == "mail"
    assert json.loads(written.value or b"")["labels"] == {"a": 1}


async def test_a_body_of_too_many_lines_writes_nothing(ingest: httpx.AsyncClient, world: World) -> None:
    answer = await ingest.post("/v1/collections/mail/items", content=b"{}\n" * 10_001)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert not world.broker.messages("items")


async def test_others_are_served_while_many_items_are_read(
    ingest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = InARow(items._item)
    monkeypatch.setattr(items, "_item", read)
    body = b"\n".join(encode_item(item(number)) for number in range(20 * items.READ_AT_ONCE))
    async with read:
        answer = await ingest.post("/v1/collections/default/items", content=body)
    assert answer.json()["accepted"] == 20 * items.READ_AT_ONCE
    assert 0 < read.most <= items.READ_AT_ONCE


async def test_an_item_is_shown_and_explained(
    lead: httpx.AsyncClient, ingest: httpx.AsyncClient, kim: httpx.AsyncClient, world: World
) -> None:
    ranked = await opened(lead, ingest, world)
    await decide(kim, 1, ranked["items"][0]["item_id"], wait="ranking")
    top = (await ranking(kim))["items"][0]
    shown = (await kim.get(f"/v1/collections/default/items/{top['item_id']}")).json()
    there = next(item for item in ITEMS if item.item_id == top["item_id"])
    assert (shown["sender"], tuple(shown["recipients"])) == (there.sender, there.participants)
    why = (await kim.get(f"/v1/queries/q/items/{top['item_id']}")).json()
    assert why["item"] == shown
    assert why["ranked"]["because"] == top["because"]
    assert [tuple(pair["participants"]) for pair in why["pairs"]] == list(there.pairs())
    judged = (await kim.get(f"/v1/queries/q/items/{ranked['items'][0]['item_id']}")).json()
    assert judged["ranked"] is None
    assert [verdict["verdict_id"] for verdict in judged["verdicts"]] == ["v1"]
    missing = await kim.get("/v1/queries/q/items/none")
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")


async def test_why_an_item_is_ranked_reads_no_verdicts_on_others(
    lead: httpx.AsyncClient,
    ingest: httpx.AsyncClient,
    kim: httpx.AsyncClient,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A query may have a hundred thousand, and nobody else is answered while they are made of what Redis has."""
    await opened(lead, ingest, world)
    for number, outcome in enumerate(["relevant", "irrelevant", "skipped"]):
        await decide(kim, number, f"item-{number // 2}", outcome)
    await world.processes[0].settled()
    monkeypatch.setattr(world.store, "load_query", None)
    judged = (await kim.get("/v1/queries/q/items/item-0")).json()
    assert [(each["verdict_id"], each["outcome"]) for each in judged["verdicts"]] == [
        ("v0", "relevant"),
        ("v1", "irrelevant"),
    ]


async def test_beliefs_are_those_of_the_worker(
    lead: httpx.AsyncClient, ingest: httpx.AsyncClient, kim: httpx.AsyncClient, world: World
) -> None:
    await opened(lead, ingest, world)
    for n in range(10):
        await decide(kim, n, f"item-{n}", "relevant" if n % 3 == 0 else "irrelevant")
    await world.processes[0].settled()
    state = world.processes[0].worker.state("q")
    assert state is not None
    truth = report(state)
    await world.processes[0].settled()
    people = (await kim.get("/v1/queries/q/participants")).json()
    assert people["count"] == len(truth.participants)
    means = [person["mean"] for person in people["participants"]]
    assert means == sorted(means, reverse=True)
    for person in people["participants"]:
        mean, variance = truth.participants[person["participant"]]
        np.testing.assert_allclose((person["mean"], person["sd"] ** 2), (mean, variance), atol=1e-9)
    pairs = (await kim.get("/v1/queries/q/pairs", params={"limit": 5})).json()
    by_pair = {edge.participants: edge for edge in truth.edges}
    assert len(pairs["pairs"]) == 5 < pairs["count"] == len(by_pair)
    for pair in pairs["pairs"]:
        edge = by_pair[tuple(pair["participants"])]
        np.testing.assert_allclose((pair["mean"], pair["sd"] ** 2), (edge.mean, edge.variance), atol=1e-9)
        assert (pair["screened"], pair["relevant"]) == (edge.screened, edge.relevant)
    around = (await kim.get("/v1/queries/q/participants/ann", params={"limit": 2})).json()
    assert len(around["contacts"]) == 2
    assert around["contacts_cut"] == sum("ann" in names for names in by_pair) - 2
    assert all("ann" in contact["pair"]["participants"] for contact in around["contacts"])
    assert (await kim.get("/v1/queries/q/participants/nobody")).status_code == 404


async def test_progress_counts(
    lead: httpx.AsyncClient, ingest: httpx.AsyncClient, kim: httpx.AsyncClient, world: World
) -> None:
    await opened(lead, ingest, world)
    await decide(kim, 1, "item-1", wait="ranking")
    progress = (await kim.get("/v1/queries/q/progress")).json()
    assert [progress[name] for name in ("items", "screened", "found")] == [40, 1, 1]
    assert progress["expected_remaining"]["mean"] > 0


async def test_a_ranking_is_cut_and_not_sent_twice(
    lead: httpx.AsyncClient, ingest: httpx.AsyncClient, kim: httpx.AsyncClient, world: World
) -> None:
    whole = await opened(lead, ingest, world)
    cut = await kim.get("/v1/queries/q/ranking", params={"limit": 3})
    assert cut.json()["items"] == whole["items"][:3]
    tag = cut.headers["etag"]
    for named in (tag, f"W/{tag}", f'"0", {tag}', f'"0",W/{tag}', "*"):  # a proxy that packs answers makes it weak
        seen = await kim.get("/v1/queries/q/ranking", headers={"If-None-Match": named})
        assert (seen.status_code, seen.content) == (304, b""), named
    for named in ('"0"', tag.strip('"'), ""):
        other = await kim.get("/v1/queries/q/ranking", headers={"If-None-Match": named})
        assert other.json() == whole, named


class Stream:
    """The events of a stream, as they come."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.aiter_lines()

    async def event(self) -> dict[str, str]:
        """The next event that is none of silence."""
        found: dict[str, str] = {}
        async for line in self._lines:
            name, _, value = line.partition(": ")
            if line and name and name != "retry":
                found[name] = value
            elif not line and "event" in found:
                return found
        raise AssertionError("the stream has ended")

    async def ended(self) -> None:
        """Return once it has."""
        async for _ in self._lines:
            pass


async def test_a_stream_brings_every_ranking_and_goes_on_where_it_was(
    lead: httpx.AsyncClient, ingest: httpx.AsyncClient, kim: httpx.AsyncClient, world: World
) -> None:
    before = await opened(lead, ingest, world)
    async with asyncio.timeout(30), kim.stream("GET", "/v1/queries/q/ranking/stream") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        stream = Stream(response)
        first = await stream.event()
        assert (first["event"], first["id"]) == ("ranking", str(before["revision"]))
        assert json.loads(first["data"]) == before
        await decide(kim, 1, before["items"][0]["item_id"])
        second = await stream.event()
        assert json.loads(second["data"])["screened"] == 1
    await decide(kim, 2, before["items"][1]["item_id"], wait="ranking")
    resumed = {"Last-Event-ID": second["id"]}
    async with asyncio.timeout(30), kim.stream("GET", "/v1/queries/q/ranking/stream", headers=resumed) as response:
        stream = Stream(response)
        third = await stream.event()
        assert int(third["id"]) > int(second["id"])
        assert json.loads(third["data"])["screened"] == 2
        await lead.delete("/v1/queries/q")
        assert (await stream.event())["event"] == "deleted"
        with pytest.raises(AssertionError, match="ended"):
            await stream.event()


async def test_a_stream_says_that_it_is_alive(
    lead: httpx.AsyncClient, kim: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rankings, "QUIET_SECONDS", 0.02)
    await lead.put("/v1/queries/q", json={})
    async with asyncio.timeout(30), kim.stream("GET", "/v1/queries/q/ranking/stream") as response:
        async for line in response.aiter_lines():
            if line.startswith(":"):
                break


@pytest.mark.parametrize("trouble", [StoreUnavailable, StoreDamaged])
async def test_a_stream_goes_on_once_redis_is_mended(
    lead: httpx.AsyncClient,
    ingest: httpx.AsyncClient,
    kim: httpx.AsyncClient,
    world: World,
    trouble: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = await opened(lead, ingest, world)
    async with asyncio.timeout(30), kim.stream("GET", "/v1/queries/q/ranking/stream") as response:
        stream, asked = Stream(response), asyncio.Event()
        await stream.event()

        async def refused(query_id: str) -> int | None:
            asked.set()
            raise trouble("it holds a string, and a hash belongs there")

        with monkeypatch.context() as patched:
            patched.setattr(world.store, "read_revision", refused)
            await asked.wait()
        await decide(kim, 1, before["items"][0]["item_id"])
        assert json.loads((await stream.event())["data"])["screened"] == 1


@pytest.mark.parametrize(
    "left",
    [[], [("kim", [Role.ANALYST], ["elsewhere"])], [("kim", [Role.INGEST], [EVERYTHING])]],
    ids=["no key", "another collection", "another role"],
)
async def test_a_stream_ends_where_its_key_may_see_no_more(
    lead: httpx.AsyncClient,
    ingest: httpx.AsyncClient,
    kim: httpx.AsyncClient,
    world: World,
    left: list[tuple[str, list[Role], list[str]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tokens, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(rankings, "ASK_SECONDS", 0.0)
    before = await opened(lead, ingest, world)
    async with asyncio.timeout(30), kim.stream("GET", "/v1/queries/q/ranking/stream") as response:
        stream = Stream(response)
        await stream.event()
        write_keys(tmp_path / "keys.json", ("lead", [Role.LEAD], [EVERYTHING]), *left)
        await decide(lead, 1, before["items"][0]["item_id"])
        await stream.ended()


async def test_decisions_are_exported_with_those_that_hold(
    lead: httpx.AsyncClient, ingest: httpx.AsyncClient, kim: httpx.AsyncClient, world: World
) -> None:
    await opened(lead, ingest, world)
    for number, (item_id, outcome) in enumerate(
        [("item-1", "relevant"), ("item-1", "irrelevant"), ("item-2", "skipped"), ("=cmd()", "relevant")]
    ):
        await decide(kim, number, item_id, outcome)
    await kim.delete("/v1/queries/q/verdicts/v2", params={"wait": "ranking"})
    await world.processes[0].settled()
    text = (await lead.get("/v1/queries/q/export/decisions")).text
    rows = [json.loads(line) for line in text.splitlines()]
    assert [(row["item_id"], row["verdict_id"], row["holds"]) for row in rows] == [
        ("=cmd()", "v3", True),
        ("item-1", "v0", False),
        ("item-1", "v1", True),
        ("item-2", "v2", False),
        ("item-2", "v2/undone", False),
    ]
    table = list(csv.DictReader(io.StringIO((await lead.get("/v1/queries/q/export/decisions?format=csv")).text)))
    assert table[0]["item_id"] == "'=cmd()"
    assert [row["holds"] for row in table] == ["yes", "no", "yes", "no", "no"]


async def test_rows_of_decisions_are_made_as_they_are_sent() -> None:
    looked_at: list[str] = []

    def counts(item_id: str) -> bool:
        looked_at.append(item_id)
        return True

    verdicts = [Verdict(f"v{n}", "q", f"item-{n}", "kim", Outcome.RELEVANT, n) for n in range(3)]
    rows = iter(exports._decisions(verdicts, counts))
    assert (next(rows)["item_id"], looked_at) == ("item-0", ["item-0"])


@pytest.mark.parametrize("form", ["ndjson", "csv"])
async def test_a_trail_that_cannot_be_read_is_said_to_be_unavailable(
    world: World, keys: KeyFile, form: str
) -> None:
    facts = MemoryFacts(world.broker)
    async with listening(an_app(world.store, facts, keys)) as address, calling(address, "lead") as lead:
        assert (await lead.put("/v1/queries/q", json={})).status_code == 201
        await world.processes[0].settled()
        facts.away = True
        answer = await lead.get("/v1/queries/q/export/audit", params={"format": form})
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert "Retry-After" in answer.headers
        facts.away = False
        assert (await lead.get("/v1/queries/q/export/audit", params={"format": form})).status_code == 200


async def test_the_trail_has_every_fact_of_this_query(
    lead: httpx.AsyncClient, ingest: httpx.AsyncClient, kim: httpx.AsyncClient, world: World
) -> None:
    await opened(lead, ingest, world)
    world.say(Query("other"), Verdict("w", "other", "item-1", "lee", Outcome.RELEVANT, 1))
    await decide(kim, 1, "item-1")
    world.broker.produce("verdicts", b"q", b"{")  # a dead letter, and no fact
    rows = [json.loads(line) for line in (await lead.get("/v1/queries/q/export/audit")).text.splitlines()]
    assert [(row["fact"], row["action"], row["id"], row["analyst"]) for row in rows] == [
        ("verdict", "relevant", "v1", "kim")
    ]
