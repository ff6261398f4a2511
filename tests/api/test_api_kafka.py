"""The API as a process, on a real Kafka and a real Valkey, which are also taken away from it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import httpx
import orjson
import pytest
from support.forked import ForkedApi
from support.pipeline import Pipeline, page, settings_on
from support.queue_api import EVERYTHING, write_keys

from haystream.events import Event, Item, Outcome, Query, Verdict
from haystream_service.api.access import Role
from haystream_service.client import Haystream
from haystream_service.local import KafkaServer, ValkeyServer
from haystream_service.settings import Settings, variables
from haystream_service.wire import decode_verdict, encode_item

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis]
T = TypeVar("T")

PEOPLE = ("ann", "bo", "cy", "dee")
ITEMS = [Item(f"m-{n}", "mail", PEOPLE[n % 4], (PEOPLE[(n + 1 + n // 8 % 2) % 4],)) for n in range(40)]

SAYS = "/v1/collections/default/items/{}"
SAYING = b"""{"item_id": "s-1", "participants": ["ann", "bo"], "text": "one"}
{"item_id": "s-2", "participants": ["ann", "bo"], "text": "two"}"""


@asynccontextmanager
async def an_api(settings: Settings, tmp_path: Path, count: int = 1) -> AsyncIterator[list[ForkedApi]]:
    """Replicas, ready; `boss` may do everything, `kim` is an analyst."""
    file = tmp_path / "keys.json"
    write_keys(file, ("boss", list(Role), [EVERYTHING]), ("kim", [Role.ANALYST], [EVERYTHING]))
    replicas = [ForkedApi(variables(settings), file) for _ in range(count)]
    try:
        for replica in replicas:
            await asyncio.to_thread(replica.start)
        yield replicas
    finally:
        for replica in replicas:
            await asyncio.to_thread(replica.close)


async def using(address: str, token: str, ask: Callable[[Haystream], T]) -> T:
    def asked() -> T:
        with Haystream(address, token) as client:
            return ask(client)

    return await asyncio.to_thread(asked)


async def test_from_items_to_an_export_over_two_replicas(pipeline: Pipeline, tmp_path: Path) -> None:
    await pipeline.worker()
    async with an_api(pipeline.settings, tmp_path, 2) as (one, other):

        def open_it(client: Haystream) -> None:
            assert client.send_items("mail", map(encode_item, ITEMS)).accepted == len(ITEMS)
            assert client.open("case/7", {"collection": "mail"}).applied

        await using(one.address, "boss", open_it)
        await pipeline.ranked([*ITEMS, Query("case/7", "mail")])

        def work(client: Haystream) -> list[Verdict]:
            given = []
            for number in range(6):
                (lease,) = client.next("case/7")
                outcome = Outcome.RELEVANT if number % 2 else Outcome.IRRELEVANT
                answer = client.decide("case/7", lease.item_id, outcome, wait="ranking")
                assert answer.ranked
                given.append(decode_verdict(answer.verdict.model_dump_json().encode(), b"case/7"))
            client.undo("case/7", given[0].verdict_id, wait="ranking")
            first = given[0]
            undone = replace(
                first,
                verdict_id=f"{first.verdict_id}/undone",
                outcome=Outcome.RETRACTED,
                decided_at=first.decided_at + 1,
            )
            return [*given, undone]

        verdicts = await using(other.address, "kim", work)
        assert len({verdict.item_id for verdict in verdicts}) == 6
        progress = await using(one.address, "boss", lambda client: client.progress("case/7"))
        assert (progress.screened, progress.found) == (5, 3)
        events: list[Event] = [*ITEMS, Query("case/7", "mail"), *verdicts]
        assert await pipeline.records("dead-letters") == []

        def trail(client: Haystream) -> list[dict[str, str]]:
            with client.export("case/7", "audit") as pieces:
                return [orjson.loads(line) for line in b"".join(pieces).splitlines()]

        rows = await using(one.address, "boss", trail)
        assert [row["id"] for row in rows if row["fact"] == "verdict"] == [v.verdict_id for v in verdicts]
        claimed = [row["item_id"] for row in rows if row["action"] == "claimed"]
        assert claimed == list(dict.fromkeys(verdict.item_id for verdict in verdicts))
        (record, *_) = await pipeline.records("verdicts")
        assert "haystream-correlation" in dict(record.headers)
        leases = await pipeline.records("leases")
        requests = {dict(record.headers).get("haystream-correlation") for record in leases}
        assert None not in requests
        assert len(requests) > 1
        text = page(one, "/metrics")[1]
        assert 'haystream_api_requests_total{code="201",method="PUT",route="/v1/queries/{query_id}"} 1.0' in text
        assert "haystream_api_ready 1.0" in text
        assert events


@pytest.mark.parametrize("away", ["redis", "kafka"])
async def test_a_server_that_is_away_is_told_of_and_waited_for(
    own_kafka: KafkaServer, own_valkey: ValkeyServer, tmp_path: Path, away: str, request: pytest.FixtureRequest
) -> None:
    if away == "kafka" and request.config.getoption("--faults") != "all":
        pytest.skip("half a minute: make faults runs it")
    settings = settings_on(own_kafka, own_valkey, "queue")
    body = {"item_id": "m-1", "outcome": "relevant", "decided_at": "2026-01-31T12:00:00Z"}
    verdict = ("PUT", "/v1/queries/q/verdicts/v1?wait=ranking", body)
    asked = verdict if away == "kafka" else ("GET", "/v1/queries/q", None)
    server = own_kafka if away == "kafka" else own_valkey
    async with Pipeline(settings) as pipeline, an_api(settings, tmp_path) as (replica,):
        await pipeline.worker()
        headers = {"Authorization": "Bearer boss"}
        async with httpx.AsyncClient(base_url=replica.address, headers=headers, timeout=60) as client:

            async def ask(method: str, path: str, json: object) -> httpx.Response:
                return await client.request(method, path, json=json)

            assert (await client.put("/v1/queries/q", json={})).status_code == 201
            assert (await client.post("/v1/collections/default/items", content=SAYING)).json()["accepted"] == 2
            await pipeline.drained()
            assert (await client.get(SAYS.format("s-1"))).json()["text"] == "one"
            await asyncio.to_thread(server.kill)
            async with asyncio.timeout(30):  # what it takes at most is less: nobody hangs
                answer = await ask(*asked)
            assert (answer.status_code, answer.json()["code"]) == (503, "unavailable"), answer.text
            assert "retry-after" in answer.headers
            assert (await client.get("/healthz")).status_code == 200
            if away == "kafka":
                assert (await client.get("/v1/queries/q")).status_code == 200  # what is read needs none
                assert (await client.get(SAYS.format("s-1"))).json()["text"] == "one"  # it was read before
                async with asyncio.timeout(15):
                    away_too = await ask("GET", SAYS.format("s-2"), None)
                assert (away_too.status_code, away_too.json()["code"]) == (503, "unavailable")
            await asyncio.to_thread(server.start)
            answers = [await ask(*asked)]
            while answers[-1].status_code == 503 and len(answers) < 100:
                await asyncio.sleep(0.1)
                answers.append(await ask(*asked))
            assert answers[-1].status_code in {200, 201}, answers[-1].text
            assert (await client.get(SAYS.format("s-2"))).json()["text"] == "two"
        assert "Traceback" not in replica.log.read_text()
