"""The document that describes the routes, and a page of it that needs no script and nothing from elsewhere."""

from html import escape
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from haystream_service.api.access import OPEN, ROUTES
from haystream_service.api.messages import ProblemRecord
from haystream_service.api.problems import MEDIA_TYPE
from haystream_service.wire import QueryRecord

REF = "#/components/schemas/{model}"
PROBLEM = {
    "description": "A problem (RFC 9457).",
    "content": {MEDIA_TYPE: {"schema": {"$ref": REF.format(model="ProblemRecord")}}},
}
BODIES: dict[str, type[BaseModel]] = {}
"""Records that bodies hold, which FastAPI does not see: the wire reads them."""


def json_body(record: type[BaseModel]) -> dict[str, Any]:
    """What a route says of a body that is such a record."""
    return {"requestBody": _body("application/json", record)}


def ndjson_body(record: type[BaseModel]) -> dict[str, Any]:
    """The same of a body of such records, one a line."""
    BODIES[record.__name__] = record
    text = f"One JSON object a line: see {record.__name__}."
    return {
        "requestBody": {
            "required": True,
            "description": text,
            "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
        }
    }


def settings_body(text: str, *, patch: bool = False) -> dict[str, Any]:
    """The same of a query's settings, whose id is in the path."""
    media = "application/merge-patch+json" if patch else "application/json"
    schema: dict[str, Any] = {"type": "object"}
    if not patch:
        own = QueryRecord.model_json_schema(ref_template=REF)
        schema["properties"] = {name: value for name, value in own["properties"].items() if name != "query_id"}
        BODIES["QueryRecord"] = QueryRecord
    return {"requestBody": {"description": text, "content": {media: {"schema": schema}}}}


def stream(text: str) -> dict[int | str, dict[str, Any]]:
    """What a route says of an answer that is a stream of events."""
    return {200: {"description": text, "content": {"text/event-stream": {"schema": {"type": "string"}}}}}


def export(text: str) -> dict[int | str, dict[str, Any]]:
    """What a route says of an answer that is a file."""
    media = {name: {"schema": {"type": "string"}} for name in ("application/x-ndjson", "text/csv")}
    return {200: {"description": text, "content": media}}


def _body(media: str, record: type[BaseModel]) -> dict[str, Any]:
    BODIES[record.__name__] = record
    return {"required": True, "content": {media: {"schema": {"$ref": REF.format(model=record.__name__)}}}}


def complete(document: dict[str, Any]) -> dict[str, Any]:
    """The document, with what FastAPI does not know: bodies that the wire reads, tokens, problems."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    records: list[type[BaseModel]] = [*BODIES.values(), ProblemRecord]
    for record in records:
        schema = record.model_json_schema(ref_template=REF)
        schemas.update(schema.pop("$defs", {}))
        schemas[record.__name__] = schema
    for leftover in ("HTTPValidationError", "ValidationError"):
        schemas.pop(leftover, None)
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            name = f"{method.upper()} {path}"
            operation["responses"].pop("422", None)
            operation["responses"] |= {"4XX": PROBLEM, "5XX": PROBLEM}
            if name not in OPEN:
                operation["security"] = [{"token": []}]
                roles = ", ".join(sorted(ROUTES[name].roles))
                operation["description"] = f"{operation.get('description', '')}\n\nRoles: {roles}.".strip()
    return document


def install(app: FastAPI) -> None:
    """Have the app answer with the document as it is here."""
    plain = app.openapi
    made: dict[str, Any] = {}

    def document() -> dict[str, Any]:
        if not made:
            made.update(complete(plain()))
        return made

    app.openapi = document  # type: ignore[method-assign]


def page(document: dict[str, Any]) -> str:
    """The document to be read by a person: HTML."""
    parts = [f"<h1>{escape(document['info']['title'])} {escape(document['info']['version'])}</h1>"]
    parts.append('<p>The document itself: <a href="openapi.json">openapi.json</a>.</p>')
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append(f"<h2>{method.upper()} <code>{escape(path)}</code></h2>")
            parts += [f"<p>{escape(text)}</p>" for text in operation.get("description", "").split("\n\n")]
            rows = [
                f"<tr><td><code>{escape(p['name'])}</code><td>{p['in']}<td>{escape(_type(p['schema']))}"
                f"<td>{escape(p.get('description', ''))}"
                for p in operation.get("parameters", [])
            ]
            for media, content in operation.get("requestBody", {}).get("content", {}).items():
                text = operation["requestBody"].get("description", _type(content["schema"]))
                rows.append(f"<tr><td>body<td>{escape(media)}<td><td>{escape(text)}")
            parts.append(f"<table>{''.join(rows)}</table>")
    return _PAGE.format("".join(parts))


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    return " or ".join(schema["enum"]) if "enum" in schema else str(schema.get("type", ""))


_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>haystream</title>
<style>body{{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}}
h2{{font-size:1.1em;margin-top:2em}}
td{{padding:.1em 1em .1em 0;vertical-align:top}}</style>{}</html>"""
