"""The document of the routes, and the page that is made of it: what a request may hold, with its bounds."""

import re
from html import unescape
from typing import Any

import pytest
from fastapi import FastAPI

from haystream_service.api import openapi

pytestmark = pytest.mark.asyncio


@pytest.fixture
def document(app: FastAPI) -> dict[str, Any]:
    return app.openapi()


def text_of(page: str, heading: str) -> str:
    """The text below a heading, up to the next one."""
    found = re.search(f"<h2[^>]*>{re.escape(heading)}</h2>(.*?)(?=<h[12]|</html>)", page, re.DOTALL)
    assert found, heading
    inline = re.sub("</?(a|b|code)( [^>]*)?>", "", found[1])
    return " ".join(unescape(re.sub("<[^>]*>", " ", inline)).split())


def route(method: str, path: str) -> str:
    return f"{method} <code>{path}</code>"


@pytest.mark.parametrize(
    ("path", "method", "header"),
    [
        ("/v1/queries/{query_id}", "patch", "If-Match"),
        ("/v1/queries/{query_id}/ranking", "get", "If-None-Match"),
        ("/v1/queries/{query_id}/ranking/stream", "get", "Last-Event-ID"),
    ],
)
async def test_headers_are_declared(document: dict[str, Any], path: str, method: str, header: str) -> None:
    operation = document["paths"][path][method]
    (declared,) = [one for one in operation["parameters"] if one.get("in") == "header"]
    assert (declared["name"], declared["required"]) == (header, False)
    assert declared["description"]
    assert header in text_of(openapi.page(document), route(method.upper(), path))


async def test_every_request_may_name_itself(document: dict[str, Any]) -> None:
    (name,) = document["components"]["parameters"]
    assert name == "X-Correlation-Id"
    reference = {"$ref": f"#/components/parameters/{name}"}
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    assert all(reference in operation["parameters"] for operation in operations)
    assert openapi.page(document).count(name) == 1, "once for all of them"


async def test_the_page_has_parameters_with_defaults_and_bounds(document: dict[str, Any]) -> None:
    text = text_of(openapi.page(document), route("GET", "/v1/queries"))
    assert "limit in query, integer (≥ 1, ≤ 1000), default 100" in text
    text = text_of(openapi.page(document), route("GET", "/v1/queries/{query_id}/export/decisions"))
    assert 'format in query, "ndjson" or "csv", default "ndjson"' in text
    assert "query_id in path, string (length ≥ 1, length ≤ 512, no control characters), required" in text


async def test_the_page_has_the_fields_of_bodies(document: dict[str, Any]) -> None:
    page = openapi.page(document)
    assert 'href="#VerdictBody"' in page
    text = text_of(page, "VerdictBody")
    assert "decided_at string (length ≤ 4096), required When it was decided" in text
    assert "outcome Outcome, required" in text
    assert '"relevant" or "irrelevant"' in text_of(page, "Outcome")
    assert "count integer (≥ 1, ≤ 100), default 1" in text_of(page, "ClaimBody")
    settings = text_of(page, route("PUT", "/v1/queries/{query_id}"))
    assert "top integer (≥ 1, ≤ 10000), default 50" in settings
    assert "ItemRecord" in text_of(page, route("POST", "/v1/collections/{collection}/items"))


async def test_every_link_of_the_page_leads_somewhere(document: dict[str, Any]) -> None:
    page = openapi.page(document)
    assert set(re.findall('href="#(.*?)"', page)) <= set(re.findall('id="(.*?)"', page))


async def test_the_page_shows_code_as_code_and_fits_a_phone(document: dict[str, Any]) -> None:
    page = openapi.page(document)
    assert "`" not in page
    assert "<code>{&quot;status&quot;: &quot;paused&quot;}</code>" in page
    assert '<meta name="viewport" content="width=device-width' in page


async def test_the_page_leads_to_every_route_and_record_and_suits_a_dark_screen(document: dict[str, Any]) -> None:
    page = openapi.page(document)
    there, linked = re.findall(r' id="([^"]*)"', page), re.findall(r'href="#([^"]*)"', page)
    assert len(set(there)) == len(there)
    assert set(linked) <= set(there)
    routes = {f"{method}{path}" for path, methods in document["paths"].items() for method in methods}
    assert routes <= set(linked)
    assert '<meta name="color-scheme" content="light dark">' in page
