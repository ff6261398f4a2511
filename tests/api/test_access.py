"""Who may do what: every route × every role × own and other collections, made from the table of routes."""

from dataclasses import dataclass

import httpx
import pytest
from fastapi import FastAPI
from support.queue_api import calling
from support.world import World, item

from haystream_service.api import verdicts
from haystream_service.api.access import OPEN, ROUTES, Role, Where
from haystream_service.api.app import build_app, check_routes, operations

pytestmark = pytest.mark.asyncio

NAMES = {
    "query_id": "q",
    "verdict_id": "v-unknown",
    "lease_id": "none",
    "item_id": "item-1",
    "participant": "ann",
    "collection": "default",
}
BODIES: dict[str, object] = {"PUT /v1/queries/{query_id}": {"collection": "default"}}


@dataclass(frozen=True)
class Asked:
    """A request, by whom, and which answers it may get."""

    name: str
    token: str | None
    allowed: bool
    status: int


def matrix(name: str) -> list[Asked]:
    """Who asks for the route, those first who get nothing."""
    access = ROUTES[name]
    asked = [Asked(name, token, allowed=False, status=401) for token in (None, "unknown")]
    asked.append(Asked(name, "nobody", allowed=False, status=403))
    hidden = 404 if access.where is Where.QUERY else 403
    anywhere = access.where in {Where.NOWHERE, Where.EACH}
    for role in Role:
        may = role in access.roles
        asked.append(Asked(name, role.value, allowed=may, status=403))
        asked.append(
            Asked(name, f"{role.value}-elsewhere", allowed=may and anywhere, status=hidden if may else 403)
        )
    return sorted(asked, key=lambda one: one.allowed)


async def ask(address: str, asked: Asked) -> httpx.Response:
    method, path = asked.name.split(" ")
    for name, value in NAMES.items():
        path = path.replace(f"{{{name}}}", value)
    async with (
        calling(address, asked.token) as client,
        client.stream(method, path, json=BODIES.get(asked.name)) as got,
    ):
        if not path.endswith("/stream"):
            await got.aread()
        return got


@pytest.mark.parametrize("name", ROUTES)
async def test_the_matrix(
    address: str, world: World, lead: httpx.AsyncClient, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "KNOWN_SECONDS", 0.0)
    world.say(*(item(n) for n in range(5)))
    await lead.put("/v1/queries/q", json={"collection": "default"})
    before = written(world)
    for asked in matrix(name):
        answer = await ask(address, asked)
        if asked.allowed:
            assert answer.status_code not in {401, 403, 500}, (asked, answer.text)
        else:
            assert answer.status_code == asked.status, (asked, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"
            assert written(world) == before, asked


def written(world: World) -> list[int]:
    return [len(world.broker.messages(topic)) for topic in ("queries", "items", "verdicts")]


async def test_only_health_is_open(address: str) -> None:
    assert {"GET /healthz"} == OPEN
    async with calling(address, None) as client:
        assert (await client.get("/healthz")).text == "ok\n"


async def test_a_list_has_what_the_caller_may_see(address: str, lead: httpx.AsyncClient) -> None:
    await lead.put("/v1/queries/q", json={"collection": "default"})
    await lead.put("/v1/queries/r", json={"collection": "elsewhere"})
    async with calling(address, "analyst-elsewhere") as client:
        assert [line["query_id"] for line in (await client.get("/v1/queries")).json()["queries"]] == ["r"]


async def test_a_route_that_is_not_in_the_table_is_refused(app: FastAPI) -> None:
    assert {*operations(app)} == {*ROUTES, *OPEN}

    @app.get("/v1/new")
    async def new() -> None: ...

    with pytest.raises(RuntimeError, match="GET /v1/new"):
        check_routes(app)


async def test_building_checks_the_table(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ROUTES, "GET /v1/me")  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="GET /v1/me"):
        build_app(app.state.desk, app.state.gate, app.state.metrics)
