"""Queries over HTTP: opened, listed, shown, changed, deleted."""

import asyncio
from typing import Any

import httpx
import pytest
from support.world import World, item

from haystream.events import Query
from haystream_service.store.base import Hold, Quarantine
from haystream_service.wire import decode_query

pytestmark = pytest.mark.asyncio

AWKWARD = "team-a/case 7?#%ü"
AWKWARD_PATH = "/v1/queries/team-a%2Fcase%207%3F%23%25%C3%BC"


async def test_a_query_is_opened_once_and_shown(lead: httpx.AsyncClient, world: World) -> None:
    opened = await lead.put("/v1/queries/q", json={"collection": "mail", "top": 20})
    assert opened.status_code == 201, opened.text
    assert opened.json()["settings"]["top"] == 20
    assert opened.json()["applied"]
    again = await lead.put("/v1/queries/q", json={"collection": "mail", "top": 20})
    assert again.status_code == 200
    assert again.headers["etag"] == opened.headers["etag"]
    written = [m for m in world.broker.messages("queries") if m.key == b"q"]
    assert [decode_query(m.value, m.key) for m in written] == [Query("q", "mail", top=20)]
    other = await lead.put("/v1/queries/q", json={"collection": "mail"})
    assert (other.status_code, other.json()["code"]) == (409, "query_exists")
    for settings, said in (
        ({"collection": "x"}, "on collection 'mail'"),
        ({"scope": {"with": ["a"]}}, "another scope"),
    ):
        other = await lead.put("/v1/queries/q", json={"collection": "mail"} | settings)
        assert (other.status_code, said in other.json()["detail"]) == (409, True)
    shown = await lead.get("/v1/queries/q")
    assert shown.json() == again.json()


async def test_an_id_may_hold_what_a_path_gives_a_meaning_to(lead: httpx.AsyncClient) -> None:
    assert (await lead.put(AWKWARD_PATH, json={})).status_code == 201
    assert (await lead.get(AWKWARD_PATH)).json()["query_id"] == AWKWARD
    assert [line["query_id"] for line in (await lead.get("/v1/queries")).json()["queries"]] == [AWKWARD]


async def test_a_patch_changes_what_it_names_and_edits_the_watch_list(lead: httpx.AsyncClient) -> None:
    await lead.put("/v1/queries/q", json={"prior": {"mean": 0.05, "participants": {"ann": 0.9, "bob": 0.2}}})
    patch = {"top": 7, "prior": {"participants": {"bob": None, "cy": 0.5}}}
    changed = (await lead.patch("/v1/queries/q", json=patch)).json()["settings"]
    assert changed["top"] == 7
    assert changed["prior"]["mean"] == 0.05
    assert changed["prior"]["participants"] == {"ann": 0.9, "cy": 0.5}
    for status in ("paused", "open", "closed", "open"):
        answer = await lead.patch("/v1/queries/q", json={"status": status})
        assert (answer.status_code, answer.json()["settings"]["status"]) == (200, status)
    moved = await lead.patch("/v1/queries/q", json={"collection": "calls"})
    assert (moved.status_code, moved.json()["code"]) == (409, "collection_changed")
    deleted = await lead.patch("/v1/queries/q", json={"status": "deleted"})
    assert (deleted.status_code, deleted.json()["code"]) == (422, "invalid_value")


async def test_of_two_leads_the_slower_is_told(lead: httpx.AsyncClient) -> None:
    seen = (await lead.put("/v1/queries/q", json={})).headers["etag"]
    first = await lead.patch("/v1/queries/q", json={"top": 7}, headers={"If-Match": seen})
    second = await lead.patch("/v1/queries/q", json={"top": 8}, headers={"If-Match": seen})
    assert (first.status_code, second.status_code) == (200, 412)
    assert (await lead.get("/v1/queries/q")).json()["settings"]["top"] == 7


async def test_of_two_changes_at_the_same_moment_one_is_made(lead: httpx.AsyncClient, world: World) -> None:
    seen = {"If-Match": (await lead.put("/v1/queries/q", json={})).headers["etag"]}
    await world.processes[0].crash()

    async def changed(**settings: object) -> httpx.Response:
        return await lead.patch("/v1/queries/q", json=settings, headers=seen, params={"wait": 0})

    answers = await asyncio.gather(changed(top=7), changed(top=8))
    assert sorted(answer.status_code for answer in answers) == [202, 412]
    made = next(answer.json()["settings"]["top"] for answer in answers if answer.status_code == 202)
    assert (await changed(top=made)).status_code == 202  # the same once more
    assert (await changed(top=9)).status_code == 412
    await (await world.process()).settled()
    now = await lead.get("/v1/queries/q")
    assert now.json()["settings"]["top"] == made
    seen["If-Match"] = now.headers["etag"]
    assert (await lead.patch("/v1/queries/q", json={"top": 9}, headers=seen)).json()["settings"]["top"] == 9


async def test_a_deleted_query_is_gone_for_good(lead: httpx.AsyncClient) -> None:
    await lead.put("/v1/queries/q", json={})
    assert (await lead.delete("/v1/queries/q")).json() == {"query_id": "q", "deleted": True}
    for answer in (await lead.get("/v1/queries/q"), await lead.put("/v1/queries/q", json={})):
        assert (answer.status_code, answer.json()["code"]) == (410, "query_deleted")
    assert (await lead.get("/v1/queries")).json() == {"queries": [], "next": None}


async def test_a_list_comes_in_pages(lead: httpx.AsyncClient) -> None:
    for n in range(5):
        await lead.put(f"/v1/queries/q{n}", json={"collection": "mail" if n % 2 else "calls"})
    first = (await lead.get("/v1/queries", params={"limit": 3})).json()
    assert [line["query_id"] for line in first["queries"]] == ["q0", "q1", "q2"]
    rest = (await lead.get("/v1/queries", params={"limit": 3, "after": first["next"]})).json()
    assert [line["query_id"] for line in rest["queries"]] == ["q3", "q4"]
    assert rest["next"] is None
    mail = (await lead.get("/v1/queries", params={"collection": "mail"})).json()["queries"]
    assert [line["query_id"] for line in mail] == ["q1", "q3"]


async def test_a_query_that_is_stopped_says_why_and_is_let_go(lead: httpx.AsyncClient, world: World) -> None:
    partition = (await lead.put("/v1/queries/q", json={})).json()["partition"]
    await world.store.quarantine("q", partition, Quarantine("not_finite", "it cannot be told", 1_700_000_000.0))
    shown = (await lead.get("/v1/queries/q")).json()
    assert (shown["state"], shown["quarantine"]["detail"]) == ("stopped", "it cannot be told")
    assert (await lead.get("/v1/queries")).json()["queries"][0]["state"] == "stopped"
    assert (await lead.post("/v1/queries/q/release")).json()["released"]
    assert not (await lead.post("/v1/queries/q/release")).json()["released"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "malformed_json"),
        (b"[]", 400, "malformed_json"),
        (b'{"top": "7"}', 422, "wrong_type"),
        (b'{"prior": {"mean": NaN}}', 422, "not_finite"),
        (b'{"prior": {"mean": 2.0}}', 422, "out_of_range"),
        (b'{"query_id": "r"}', 422, "key_mismatch"),
        (b'{"status": "deleted"}', 422, "invalid_value"),
        (b'{"collection": "%s"}' % (b"x" * 600), 413, "too_large"),
        (b'{"collection": "%s"}' % (b"x" * (1 << 20)), 413, "too_large"),
    ],
)
async def test_settings_that_the_wire_would_reject_are_not_written(
    lead: httpx.AsyncClient, world: World, body: bytes, status: int, code: str
) -> None:
    answer = await lead.put("/v1/queries/q", content=body)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code), problem
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["correlation_id"] == answer.headers["x-correlation-id"]
    assert not world.broker.messages("queries")


async def test_without_a_worker_the_answer_says_that_nobody_has_taken_it_in(
    lead: httpx.AsyncClient, world: World
) -> None:
    await world.processes.pop().crash()
    answer = await lead.put("/v1/queries/q", json={}, params={"wait": 0.05})
    assert (answer.status_code, answer.json()["applied"]) == (202, False)
    assert decode_query(world.broker.messages("queries")[0].value, b"q") == Query("q")


async def test_while_redis_is_empty_or_made_anew_nobody_opens_what_may_be_open(
    lead: httpx.AsyncClient, world: World
) -> None:
    assert (await lead.put("/v1/queries/q", json={"top": 20})).status_code == 201
    await world.processes[0].crash()
    await world.store.wipe()
    refused = await lead.put("/v1/queries/q", json={"top": 3})
    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
    assert refused.headers["retry-after"]
    assert len(world.broker.messages("queries")) == 1
    world.broker.committed.clear()
    await (await world.process()).settled()
    conflict = await lead.put("/v1/queries/q", json={"top": 3})
    assert (conflict.status_code, conflict.json()["code"]) == (409, "query_exists")
    assert (await lead.get("/v1/queries/q")).json()["settings"]["top"] == 20


async def test_while_redis_is_empty_or_made_anew_nothing_is_said_not_to_be_there(
    lead: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that is told so takes its verdict for refused, and forgets it."""
    world.say(*(item(n) for n in range(5)))
    assert (await lead.put("/v1/queries/q", json={})).status_code == 201
    await world.processes[0].settled()
    verdict = {"item_id": "i1", "outcome": "relevant", "decided_at": "2026-11-28T12:00:00Z", "analyst": "kim"}
    given = await lead.put("/v1/queries/q/verdicts/v", json=verdict, params={"wait": "ranking"})
    assert given.status_code == 201
    await world.processes[0].crash()
    await world.store.wipe()
    # The settings that the replica has read are believed for a second.
    lately = [
        await lead.post("/v1/queries/q/claims", json={"analyst": "kim"}),
        await lead.delete("/v1/queries/q/verdicts/v"),
    ]
    monkeypatch.setattr("haystream_service.api.desk.HEAD_SECONDS", 0.0)
    for answer in (
        *lately,
        await lead.put("/v1/queries/q/verdicts/w", json=verdict),
        await lead.post("/v1/queries/q/claims", json={"analyst": "kim"}),
        await lead.get("/v1/queries/q/ranking"),
        await lead.get("/v1/queries"),
        await lead.get("/v1/collections/default/items/i1"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable"), answer.text
        assert answer.headers["retry-after"]


async def test_of_two_who_open_a_query_at_once_with_other_settings_one_is_told(
    lead: httpx.AsyncClient, world: World
) -> None:
    answers = await asyncio.gather(*(lead.put("/v1/queries/q", json={"top": top}) for top in (3, 20, 30)))
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409]
    (opened,) = (answer for answer in answers if answer.status_code == 201)
    assert {answer.json()["code"] for answer in answers if answer is not opened} == {"query_exists"}
    assert (await lead.get("/v1/queries/q")).json()["settings"] == opened.json()["settings"]
    assert len(world.broker.messages("queries")) == 1


async def test_who_opens_a_query_twice_before_a_worker_takes_it_in_opens_it_once(
    lead: httpx.AsyncClient, world: World
) -> None:
    await world.processes[0].crash()
    for top, code in ((3, 202), (3, 202), (20, 409)):
        answer = await lead.put("/v1/queries/q?wait=0", json={"top": top})
        assert answer.status_code == code, answer.text
    await (await world.process()).settled()
    assert (await lead.get("/v1/queries/q")).json()["settings"]["top"] == 3


async def test_who_opens_a_query_that_another_has_just_opened_with_the_same_settings_is_told_of_it(
    lead: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = world.store.hold_settings

    async def late(*args: Any) -> Hold:
        monkeypatch.setattr(world.store, "hold_settings", hold)
        assert (await lead.put("/v1/queries/q", json={"top": 3})).status_code == 201
        return await hold(*args)

    for settings, code in (({"top": 3}, 200), ({"top": 20}, 409)):
        monkeypatch.setattr(world.store, "hold_settings", late)
        answer = await lead.put("/v1/queries/q", json=settings)
        assert answer.status_code == code, answer.text
        monkeypatch.setattr(world.store, "hold_settings", hold)


async def test_settings_that_cannot_be_computed_are_put_right_by_who_opens_the_query_again(
    lead: httpx.AsyncClient, world: World
) -> None:
    await world.processes[0].crash()
    assert (await lead.put("/v1/queries/q?wait=0", json={"engine": "reference"})).status_code == 202
    await world.store.quarantine("q", 0, Quarantine("too_much_work", "use the engine local", 0.0))
    assert (await lead.put("/v1/queries/q?wait=0", json={})).status_code == 202
    await world.store.release("q")
    await (await world.process()).settled()
    assert (await lead.get("/v1/queries/q")).json()["settings"]["engine"] == "local"
