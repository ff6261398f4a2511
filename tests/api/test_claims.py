"""Items are taken, kept and given back over HTTP; nobody gets what another has."""

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import orjson
import pytest
import pytest_asyncio
from support.queue_api import calling, told
from support.world import World, item

from haystream.events import Withdrawal
from haystream_service.api import claims
from haystream_service.store.claims import ClaimCode, ClaimRefused

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def lee(address: str) -> AsyncIterator[httpx.AsyncClient]:
    async with calling(address, "lee") as client:
        yield client


@pytest_asyncio.fixture(autouse=True)
async def opened(lead: httpx.AsyncClient, world: World) -> None:
    world.say(*(item(n) for n in range(40)))
    assert (await lead.put("/v1/queries/q", json={"top": 10})).status_code == 201
    await world.processes[0].settled()


async def take(client: httpx.AsyncClient, **body: object) -> list[dict[str, object]]:
    answer = await client.post("/v1/queries/q/claims", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["leases"]  # type: ignore[no-any-return]


async def test_two_analysts_get_different_items_in_rank_order(
    kim: httpx.AsyncClient, lee: httpx.AsyncClient, lead: httpx.AsyncClient
) -> None:
    ranked = [entry["item_id"] for entry in (await kim.get("/v1/queries/q/ranking")).json()["items"]]
    first, second = await take(kim, count=2), await take(lee, count=2)
    assert [lease["item_id"] for lease in first] == ranked[:2]
    assert len({lease["item_id"] for lease in (*first, *second)}) == 4
    assert [lease["rank"] for lease in first] == [1, 2]
    mine = (await lee.get("/v1/queries/q/leases")).json()["leases"]
    assert sorted(lease["lease_id"] for lease in mine) == sorted(str(lease["lease_id"]) for lease in second)
    assert len((await lead.get("/v1/queries/q/leases")).json()["leases"]) == 4
    assert (await lead.get("/v1/queries/q/progress")).json()["leased"] == 4


async def test_a_claim_whose_answer_was_lost_is_answered_again(kim: httpx.AsyncClient) -> None:
    lost = await take(kim, count=2, known=[])
    assert await take(kim, count=2, known=[]) == lost
    more = await take(kim, count=3, known=[lost[0]["lease_id"]])
    assert more[0] == lost[1]
    assert len({lease["item_id"] for lease in (*lost, *more)}) == 4


async def test_a_lease_is_kept_and_given_back(kim: httpx.AsyncClient, lee: httpx.AsyncClient, world: World) -> None:
    (lease,) = await take(kim, seconds=5)
    path = f"/v1/queries/q/leases/{lease['lease_id']}"
    kept = (await kim.post(f"{path}/extend", json={"seconds": 100})).json()
    assert kept["until"] > str(lease["until"])
    for answer in (await lee.post(f"{path}/extend", json={}), await lee.delete(path)):
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert (await kim.delete(path)).json()["item_id"] == lease["item_id"]
    over = await kim.delete(path)
    assert (over.status_code, over.json()["code"]) == (409, "lease_over")
    unknown = await kim.delete("/v1/queries/q/leases/none")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")
    await told(world, "q")  # between the fact that it was claimed and this one it is not offered
    (again,) = await take(lee)
    assert again["item_id"] == lease["item_id"]


async def test_a_lead_acts_for_an_analyst(kim: httpx.AsyncClient, lead: httpx.AsyncClient) -> None:
    (lease,) = await take(lead, analyst="kim")
    assert (await kim.get("/v1/queries/q/leases")).json()["leases"] == [lease]
    refused = await kim.post("/v1/queries/q/claims", json={"analyst": "lee"})
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    released = await lead.delete(f"/v1/queries/q/leases/{lease['lease_id']}", params={"analyst": "kim"})
    assert released.status_code == 200


async def test_what_happened_is_told(kim: httpx.AsyncClient, lead: httpx.AsyncClient, world: World) -> None:
    (lease,) = await take(kim)
    await kim.delete(f"/v1/queries/q/leases/{lease['lease_id']}")
    while len(world.broker.messages("leases")) < 2:
        await kim.get("/v1/me")
    told = [orjson.loads(message.value or b"") for message in world.broker.messages("leases")]
    assert [(fact["action"], fact["lease_id"]) for fact in told] == [
        ("claimed", lease["lease_id"]),
        ("released", lease["lease_id"]),
    ]
    assert {message.key for message in world.broker.messages("leases")} == {b"q"}
    rows = (await lead.get("/v1/queries/q/export/audit")).text.splitlines()
    assert [orjson.loads(row)["action"] for row in rows] == ["claimed", "released"]


async def test_a_query_that_is_not_open_offers_nothing(kim: httpx.AsyncClient, lead: httpx.AsyncClient) -> None:
    await lead.patch("/v1/queries/q", json={"status": "paused"})
    await kim.get("/v1/queries/q")  # what was known of it is renewed
    answer = await kim.post("/v1/queries/q/claims", json={})
    assert (answer.status_code, answer.json()["code"]) == (409, "query_not_open")


async def test_what_is_not_ranked_yet_is_waited_for_and_then_told_to_come_again(
    kim: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "RANKED_SECONDS", 0.05)
    asked = 0

    async def refuse(*_: object) -> None:
        nonlocal asked
        asked += 1
        raise ClaimRefused(ClaimCode.NOT_RANKED_YET, "all that is ranked yet is leased")

    monkeypatch.setattr(world.store.claims, "claim", refuse)
    answer = await kim.post("/v1/queries/q/claims", json={})
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert "retry-after" in answer.headers
    assert asked > 1


@pytest.mark.parametrize("body", [{"count": 0}, {"count": 101}, {"seconds": 0.5}, {"seconds": 1e6}])
async def test_claims_have_bounds(kim: httpx.AsyncClient, body: dict[str, object]) -> None:
    answer = await kim.post("/v1/queries/q/claims", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "out_of_range")


async def test_an_item_that_is_out_of_scope_since_just_now_is_not_served(
    kim: httpx.AsyncClient, lead: httpx.AsyncClient, world: World
) -> None:
    inside = [replace(item(n), labels=(("k", '"b"'),)) for n in range(100, 103)]
    await world.store.append_items("default", inside)
    assert (await lead.put("/v1/queries/s", json={"scope": {"labels": {"k": "b"}}})).status_code == 201
    await world.processes[0].settled()
    ranked = [entry["item_id"] for entry in (await kim.get("/v1/queries/s/ranking")).json()["items"]]
    assert len(ranked) == 3
    await world.processes[0].crash()  # what is offered stays as it is
    (first,) = [each for each in inside if each.item_id == ranked[0]]
    await world.store.append_items("default", [replace(first, labels=(("k", '"a"'),))])
    answer = await kim.post("/v1/queries/s/claims", json={"count": 2})
    assert [lease["item_id"] for lease in answer.json()["leases"]] == ranked[1:]
    assert [lease["item_id"] for lease in (await kim.get("/v1/queries/s/leases")).json()["leases"]] == ranked[1:]


async def test_whoever_finds_only_what_was_withdrawn_just_now_is_told_to_come_again(
    kim: httpx.AsyncClient, world: World
) -> None:
    ranked = [entry["item_id"] for entry in (await kim.get("/v1/queries/q/ranking")).json()["items"]]
    await world.processes[0].crash()  # what is offered stays as it is
    await world.store.append_items("default", [Withdrawal(item_id, "default") for item_id in ranked[:5]])
    answer = await kim.post("/v1/queries/q/claims", json={})
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert (await kim.get("/v1/queries/q/leases")).json()["leases"] == []
    assert [lease["item_id"] for lease in await take(kim, count=6)] == ranked[5:]
