"""Whatever the document allows, and whatever it does not, is answered as the document says, and never by a bug."""

import asyncio
from typing import Any

import httpx
import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from support.world import World, item

from haystream_service.api import claims, verdicts
from haystream_service.api.access import OPEN, ROUTES

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
TOKENS = {"POST /v1/collections/{collection}/items": "ingest", "POST /v1/queries/{query_id}/release": "operations"}

schemathesis.serializer.alias("application/x-ndjson", "text/plain")


def operations(document: dict[str, Any]) -> dict[str, Any]:
    schema = schemathesis.openapi.from_dict(document)
    return {f"{found.ok().method.upper()} {found.ok().path}": found.ok() for found in schema.get_all_operations()}


@pytest.mark.asyncio
async def test_every_route_answers_as_the_document_says(
    app: FastAPI,
    address: str,
    world: World,
    lead: httpx.AsyncClient,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verdicts, "KNOWN_SECONDS", 0.0)
    monkeypatch.setattr(claims, "RANKED_SECONDS", 0.0)
    examples = request.config.getoption("--api-examples")
    world.say(*(item(n) for n in range(10)))
    await lead.put("/v1/queries/q", json={})
    await world.processes[0].settled()
    found = operations(app.openapi())
    assert {*found} == {*ROUTES, *OPEN}
    for name, operation in found.items():
        if not name.endswith("/stream"):  # which does not end: test_work reads it
            await asyncio.to_thread(fuzz, address, name, operation, examples)


def fuzz(address: str, name: str, operation: Any, examples: int) -> None:
    """Send what is made from the route's description, valid and not, half of it about a query that is there."""
    headers = {"Authorization": f"Bearer {TOKENS.get(name, 'lead')}"}
    known = {"query_id": "q", "item_id": "item-1", "participant": "ann", "collection": "default"}
    mode = st.sampled_from([schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE])
    cases = mode.flatmap(lambda chosen: operation.as_strategy(generation_mode=chosen))

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases, there=st.booleans())
    def ask(case: Any, there: bool) -> None:
        if there and name != "DELETE /v1/queries/{query_id}":
            case.path_parameters |= {k: v for k, v in known.items() if k in case.path_parameters}
        if "wait" in case.query:
            case.query["wait"] = 0 if name.endswith("/{query_id}") else "kafka"
        answer = case.call(base_url=address, headers=headers)
        again = answer.status_code == 503 and "retry-after" in answer.headers  # more has to be ranked first
        case.validate_response(answer, checks=CHECKS[1:] if again else CHECKS)
        assert "Traceback" not in answer.text

    ask()
