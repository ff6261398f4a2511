"""The document that describes the routes, and a page of it that needs no script and nothing from elsewhere."""

import json
import re
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from haystream_service.api.access import OPEN, ROUTES
from haystream_service.api.messages import ProblemRecord
from haystream_service.api.problems import MEDIA_TYPE
from haystream_service.wire import QueryRecord
from haystream_service.wire.fields import NO_CONTROL_CHARACTERS

REF = "#/components/schemas/{model}"
PROBLEM = {
    "description": "A problem (RFC 9457).",
    "content": {MEDIA_TYPE: {"schema": {"$ref": REF.format(model="ProblemRecord")}}},
}
CORRELATION = {
    "name": "X-Correlation-Id",
    "in": "header",
    "description": "Names the request, in its answer, in the log and in what it writes to Kafka: up to 128 "
    "letters, digits and `._:/+=-`. Without it, or with anything else, a name is made.",
    "schema": {"type": "string"},
}
"""A parameter of every request, which is read before it has a route."""
BODIES: dict[str, type[BaseModel]] = {}
"""Records that bodies hold, which FastAPI does not see: the wire reads them."""


def json_body(record: type[BaseModel]) -> dict[str, Any]:
    """What a route says of a body that is such a record."""
    return {"requestBody": _body("application/json", record)}


def ndjson_body(record: type[BaseModel]) -> dict[str, Any]:
    """The same of a body of such records, one a line."""
    BODIES[record.__name__] = record
    text = f"One JSON object a line: see `{record.__name__}`."
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
    document["components"]["parameters"] = {CORRELATION["name"]: CORRELATION}
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            name = f"{method.upper()} {path}"
            parameters = operation.setdefault("parameters", [])
            parameters.append({"$ref": f"#/components/parameters/{CORRELATION['name']}"})
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
    info, components = document["info"], document["components"]
    routes = [
        (f"{method}{escape(path)}", f"{method.upper()} <code>{escape(path)}</code>", operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    parts = [
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
        '<p>The document itself: <a href="openapi.json">openapi.json</a>. A request that is not done is '
        'answered by a <a href="#ProblemRecord">ProblemRecord</a>. With every request may come:</p>',
        _entries(map(_parameter, components["parameters"].values())),
        "<ul>",
        *(f'<li><a href="#{anchor}">{title}</a>' for anchor, title, _ in routes),
        "</ul>",
    ]
    for anchor, title, operation in routes:
        parts.append(f'<h2 id="{anchor}">{title}</h2>')
        parts += [_prose(operation.get("description", "")), _entries(_operation(operation))]
    parts.append("<h1>Records</h1>")
    for name, schema in components["schemas"].items():
        parts += [f'<h2 id="{name}">{name}</h2>', _prose(schema.get("description", ""))]
        parts.append(_entries(_fields(schema)) if "properties" in schema else f"<p>{_type(schema)}</p>")
    return _PAGE.format("".join(parts))


def _operation(operation: dict[str, Any]) -> Iterator[str]:
    """An entry for each parameter, for the body, its own fields, and what is answered where it is done."""
    yield from (_parameter(one) for one in operation["parameters"] if "$ref" not in one)
    body = operation.get("requestBody", {})
    for media, content in body.get("content", {}).items():
        kind = f"{media}, {_value(content['schema'], required=body.get('required', False))}"
        yield _entry("body", kind, body.get("description", ""))
        if "properties" in content["schema"]:
            yield _entries(_fields(content["schema"]))
    for status, answer in operation["responses"].items():
        for media, content in answer.get("content", {}).items() if status.isdigit() else ():
            yield _entry(status, f"{media}, {_type(content['schema'])}", "")


def _parameter(parameter: dict[str, Any]) -> str:
    kind = _value(parameter["schema"], required=parameter.get("required", False))
    return _entry(parameter["name"], f"in {parameter['in']}, {kind}", parameter.get("description", ""))


def _fields(schema: dict[str, Any]) -> Iterator[str]:
    """An entry for each field of an object."""
    for name, field in schema.get("properties", {}).items():
        kind = _value(field, required=name in schema.get("required", ()))
        yield _entry(name, kind, field.get("description", ""))


def _entries(entries: Iterable[str]) -> str:
    return f"<dl>{''.join(entries)}</dl>"


def _entry(name: str, kind: str, text: str) -> str:
    """The HTML of a name, what it may be (HTML already), and what is said of it."""
    return f"<dt><b>{escape(name)}</b> {kind}<dd>{_code(text)}"


def _prose(text: str) -> str:
    return "".join(f"<p>{_code(paragraph)}" for paragraph in text.split("\n\n"))


def _code(text: str) -> str:
    """The text as HTML: what is between backticks is code."""
    return re.sub("`(.*?)`", r"<code>\1</code>", escape(text))


def _value(schema: dict[str, Any], *, required: bool) -> str:
    """The HTML of a value's type, and whether it has to be there, or what it is where it is not."""
    if required:
        return f"{_type(schema)}, required"
    if schema.get("default") is None:
        return _type(schema)
    return f"{_type(schema)}, default {_literal(schema['default'])}"


def _type(schema: dict[str, Any]) -> str:
    """The HTML of a value's type, with its bounds."""
    bounds = [text.format(f"{schema[name]}".removesuffix(".0")) for name, text in BOUNDS.items() if name in schema]
    if schema.get("pattern") == NO_CONTROL_CHARACTERS:
        bounds.append("no control characters")
    return _kind(schema) + (f" ({', '.join(bounds)})" if bounds else "")


def _kind(schema: dict[str, Any]) -> str:
    match schema:
        case {"$ref": str(reference)}:
            name = reference.rpartition("/")[2]
            return f'<a href="#{name}">{name}</a>'
        case {"enum": values}:
            return " or ".join(map(_literal, values))
        case {"const": value}:
            return _literal(value)
        case {"prefixItems": places}:
            return f"[{', '.join(map(_type, places))}]"
        case {"items": each}:
            return f"list of {_type(each)}"
        case {"type": list(names)}:
            return " or ".join(names)
        case {"type": name}:
            return str(name)
        case {"anyOf": choices} | {"oneOf": choices}:
            return " or ".join(map(_type, choices))
    return "any value"


def _literal(value: Any) -> str:
    return f"<code>{escape(json.dumps(value, ensure_ascii=False), quote=False)}</code>"


BOUNDS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "&gt; {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "&lt; {}",
    "minLength": "length ≥ {}",
    "maxLength": "length ≤ {}",
}
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>haystream</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<style>body{{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em;overflow-wrap:anywhere}}
h2{{font-size:1.1em;margin-top:2em}}dd{{margin:0 0 .5em 1.5em}}</style>{}</html>"""
