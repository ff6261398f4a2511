"""What every request passes: names, sizes, origins, rates, and what is answered where something is wrong."""

import asyncio
import json
from contextlib import suppress
from time import monotonic

import httpx
import pytest
from fastapi import FastAPI
from support.queue_api import MemoryFacts, an_app, calling, listening
from support.world import World

from haystream_service.api import edge
from haystream_service.api.guards import FAILURES_A_SECOND
from haystream_service.api.rates import Rates
from haystream_service.api.tokens import KeyFile
from haystream_service.kafka.records import BrokerUnavailable
from haystream_service.store.base import StoreUnavailable

pytestmark = pytest.mark.asyncio


async def test_a_correlation_id_is_taken_or_made(lead: httpx.AsyncClient) -> None:
    given = await lead.get("/v1/me", headers={"X-Correlation-Id": "case-7:42"})
    assert given.headers["x-correlation-id"] == "case-7:42"
    made = {(await lead.get("/v1/me")).headers["x-correlation-id"] for _ in range(3)}
    assert len(made) == 3
    bad = await lead.get("/v1/me", headers={"X-Correlation-Id": "a b"})
    assert bad.headers["x-correlation-id"] != "a b"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "http://{host}"}, 201),
        ({}, 201),
    ],
)
async def test_pages_of_other_origins_write_nothing(
    lead: httpx.AsyncClient, world: World, headers: dict[str, str], status: int
) -> None:
    host = lead.base_url.netloc.decode()
    headers = {name: value.replace("{host}", host) for name, value in headers.items()}
    answer = await lead.put("/v1/queries/q", json={}, headers=headers)
    assert answer.status_code == status, answer.text
    assert bool(world.broker.messages("queries")) == (status == 201)
    read = await lead.get("/v1/me", headers=headers)
    assert read.status_code == 200
    assert "access-control-allow-origin" not in read.headers


async def test_an_origin_that_is_named_may_read_and_write(world: World, keys: KeyFile) -> None:
    app = an_app(world.store, MemoryFacts(world.broker), keys, origins=["https://queue.example"])
    async with listening(app) as address, calling(address, "lead") as lead:
        ours, theirs = {"Origin": "https://queue.example"}, {"Origin": "https://evil.example"}
        answer = await lead.put("/v1/queries/q", json={}, headers={**ours, "Sec-Fetch-Site": "cross-site"})
        assert answer.status_code == 201
        assert answer.headers["access-control-allow-origin"] == "https://queue.example"
        assert (await lead.put("/v1/queries/r", json={}, headers=theirs)).status_code == 403
        assert "access-control-allow-origin" not in (await lead.get("/v1/me", headers=theirs)).headers


async def test_a_page_of_a_named_origin_sends_every_header_there_is_and_reads_every_answer(
    world: World, keys: KeyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise StoreUnavailable("no answer from Redis")

    app = an_app(world.store, MemoryFacts(world.broker), keys, origins=["https://queue.example"])
    asked = {
        parameter["name"]
        for path in app.openapi()["paths"].values()
        for operation in path.values()
        for parameter in operation.get("parameters", ())
        if parameter.get("in") == "header"
    }
    assert {"If-Match", "If-None-Match", "Last-Event-ID"} <= asked
    monkeypatch.setattr(world.store, "query_ids", broken)
    async with listening(app) as address, calling(address, "lead") as lead:
        ours = {"Origin": "https://queue.example"}
        for name in sorted(asked | {"Authorization", "Content-Type", "X-Correlation-Id"}):
            preflight = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": name}
            assert (await lead.options("/v1/queries", headers=ours | preflight)).status_code == 200, name
        away = await lead.get("/v1/queries", headers=ours)
        large = await lead.put("/v1/queries/q", content=b" " * (edge.BODY_BYTES + 1), headers=ours)
        for answer, status in ((away, 503), (large, 413)):
            assert answer.status_code == status
            assert answer.headers["access-control-allow-origin"] == "https://queue.example"
            assert "X-Correlation-Id" in answer.headers["access-control-expose-headers"]
        assert "Retry-After" in away.headers["access-control-expose-headers"]


async def test_what_a_browser_asks_before_a_request_is_named_and_counted_like_any(
    world: World, keys: KeyFile
) -> None:
    app = an_app(world.store, MemoryFacts(world.broker), keys, origins=["https://queue.example"])
    preflight = {"Access-Control-Request-Method": "GET", "X-Correlation-Id": "case-7:42"}
    async with listening(app) as address, calling(address, "lead") as lead:
        for origin, status in (("https://queue.example", 200), ("https://evil.example", 400)):
            answer = await lead.options("/v1/queries", headers={"Origin": origin, **preflight})
            assert (answer.status_code, answer.headers["x-correlation-id"]) == (status, "case-7:42")
            counted = app.state.metrics.api_requests.labels("", edge.NO_ROUTE, str(status))
            assert counted._value.get() == 1


async def test_a_body_that_is_too_large_is_not_read_to_its_end(lead: httpx.AsyncClient, world: World) -> None:
    async def endless():  # type: ignore[no-untyped-def]
        while True:
            yield b" " * 65536

    answer = await lead.put("/v1/queries/q", content=b" " * (edge.BODY_BYTES + 1))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    async with asyncio.timeout(30):
        with suppress(httpx.TransportError):  # it was cut off while it was still sending
            assert (await lead.put("/v1/queries/q", content=endless())).status_code == 413
    assert not world.broker.messages("queries")


async def test_a_body_that_stops_coming_is_given_up(
    lead: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge, "BODY_SECONDS", 0.05)

    async def stuck():  # type: ignore[no-untyped-def]
        yield b"{"
        await asyncio.sleep(5)

    answer = await lead.put("/v1/queries/q", content=stuck())
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_json")


async def test_whoever_goes_amid_a_body_is_no_bug(
    app: FastAPI, lead: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    url = lead.base_url
    _, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(b"PUT /v1/queries/q HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer lead\r\n")
    writer.write(b"Content-Length: 100\r\n\r\n{")
    await writer.drain()
    writer.close()
    counted: list[str] = []
    while not counted:
        await lead.get("/v1/me")
        samples = [sample for family in app.state.metrics.api_requests.collect() for sample in family.samples]
        counted = [sample.labels["code"] for sample in samples if sample.labels["method"] == "PUT"]
    assert counted == ["400"]
    assert "ERROR" not in {record.levelname for record in caplog.records}


async def test_what_is_not_there_is_a_problem_too(lead: httpx.AsyncClient) -> None:
    for method, path, status, code in (
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", "/v1/me/", 404, "not_found"),
        ("GET", "/v1/queries/q/ranking/", 404, "not_found"),
        ("POST", "/v1/queries/q", 405, "method_not_allowed"),
        ("GET", "/v1/queries?limit=0", 422, "out_of_range"),
        ("GET", "/v1/queries?limit=x", 422, "wrong_type"),
        ("GET", "/v1/queries/%00", 422, "invalid_value"),
        ("GET", "/v1/queries/%FF", 422, "invalid_value"),
        ("GET", "/v1/queries/" + "x" * 600, 413, "too_large"),
    ):
        answer = await lead.request(method, path)
        assert (answer.status_code, answer.json()["code"]) == (status, code), (path, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"


async def test_what_an_address_takes_is_told_with_what_it_does_not(lead: httpx.AsyncClient) -> None:
    for method, path, allowed in (
        ("POST", "/v1/queries/q", "DELETE, GET, HEAD, PATCH, PUT"),
        ("PATCH", "/v1/queries/q%2F1/verdicts/v", "DELETE, GET, HEAD, PUT"),
        ("PUT", "/v1/queries/q/claims", "POST"),
        ("HEAD", "/v1/queries/q/claims", "POST"),
        ("TRACE", "/v1/me", "GET, HEAD"),
    ):
        answer = await lead.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
        assert method == "HEAD" or answer.json()["detail"] == f"this address takes {allowed}"


async def test_what_can_be_got_can_be_asked_about(
    app: FastAPI, lead: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lead.put("/v1/queries/q", json={})
    for path in ("/healthz", "/v1/me", "/v1/queries/q", "/v1/queries/none", "/v1/queries?limit=0", "/v1/nothing"):
        got, asked = await lead.get(path), await lead.head(path)
        ours = {"x-correlation-id": None}
        assert (asked.status_code, asked.content) == (got.status_code, b"")
        assert {**asked.headers, **ours} == {**got.headers, **ours}
    stream = await lead.head("/v1/queries/q/ranking/stream", timeout=5)  # which of itself never ends
    assert stream.headers["content-type"].startswith("text/event-stream")
    samples = [sample for family in app.state.metrics.api_requests.collect() for sample in family.samples]
    assert "HEAD" in {sample.labels["method"] for sample in samples}
    monkeypatch.setattr(app.state.desk.store, "query_ids", None)
    assert (await lead.head("/v1/queries")).status_code == 500


async def test_a_body_that_lacks_is_said_to(lead: httpx.AsyncClient) -> None:
    await lead.put("/v1/queries/q", json={})
    answer = await lead.post("/v1/queries/q/claims")
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_json")
    assert answer.json()["detail"] == "there is nothing, where a JSON object should be"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (StoreUnavailable("no answer from Redis"), 503, "unavailable"),
        (BrokerUnavailable("Kafka did not acknowledge"), 503, "unavailable"),
        (ZeroDivisionError("secret"), 500, "internal"),
    ],
)
async def test_what_goes_wrong_inside_is_told_without_a_traceback(
    app: FastAPI,
    lead: httpx.AsyncClient,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    status: int,
    code: str,
) -> None:
    async def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(world.store, "query_ids", broken)
    answer = await lead.get("/v1/queries")
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert ("retry-after" in answer.headers) == (status == 503)
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert caplog.records[-1].levelname == ("ERROR" if status == 500 else "WARNING")


async def test_requests_are_counted_by_route_and_code(app: FastAPI, lead: httpx.AsyncClient) -> None:
    for path in ("/v1/me", "/v1/queries/none", "/v1/queries/none-either", "/nothing"):
        await lead.get(path)
    metrics = app.state.metrics
    counted = {
        (sample.labels["method"], sample.labels["route"], sample.labels["code"]): sample.value
        for family in metrics.api_requests.collect()
        for sample in family.samples
    }
    assert counted == {
        ("GET", "/v1/me", "200"): 1,
        ("GET", "/v1/queries/{query_id}", "404"): 2,
        ("", "none", "404"): 1,
    }


async def test_whoever_asks_too_often_is_told_when_to_come_again(world: World, keys: KeyFile) -> None:
    app = an_app(world.store, MemoryFacts(world.broker), keys, rate=1.0)
    async with listening(app) as address, calling(address, "lead") as lead, calling(address, "kim") as kim:
        answers = [await lead.get("/v1/me") for _ in range(4)]
        assert [answer.status_code for answer in answers][:2] == [200, 200]
        assert answers[-1].status_code == 429
        assert answers[-1].json()["code"] == "rate_limited"
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert (await kim.get("/v1/me")).status_code == 200


async def test_a_bucket_fills_at_its_rate() -> None:
    now = 0.0
    rates = Rates(2.0, 3.0, clock=lambda: now)
    assert [rates.wait("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert rates.wait("b") == 0
    now = 0.5
    assert [rates.wait("a"), rates.wait("a")] == [0, 0.5]


async def test_guessing_tokens_is_slowed_down(address: str) -> None:
    async with calling(address, "guess") as client:
        began = monotonic()
        answers = [await client.get("/v1/me")]
        answers += await asyncio.gather(*(client.get("/v1/me") for _ in range(80)))
        seconds = monotonic() - began
    codes = [answer.status_code for answer in answers]
    assert codes[0] == 401
    assert set(codes) == {401, 429}
    assert codes.count(401) <= 4 * FAILURES_A_SECOND + FAILURES_A_SECOND * seconds  # however slow the machine is


async def test_the_page_of_the_routes_is_for_whoever_has_a_token(address: str, lead: httpx.AsyncClient) -> None:
    async with calling(address, None) as anybody:
        asked = await anybody.get("/docs")
        assert (asked.status_code, asked.headers["www-authenticate"]) == (
            401,
            'Basic realm="haystream", charset="UTF-8"',
        )
        page = await anybody.get("/docs", auth=("any", "kim"))
        assert page.status_code == 200
        assert "/v1/queries/{query_id}/ranking/stream" in page.text
        assert "<script" not in page.text
        assert (await anybody.get("/v1/me", auth=("any", "kim"))).status_code == 401
    document = (await lead.get("/openapi.json")).json()
    assert document["paths"]["/v1/me"]["get"]["security"] == [{"token": []}]
    json.dumps(document)
