"""The AsyncAPI 3 document of the topics, made from the wire's records: `python -m haystream_service.wire_asyncapi`.

It says what a schema alone cannot: which topic is read and which is written, by what key, and how a topic is kept.
Its schemas are those of `wire_schemas` in JSON Schema draft 7, which AsyncAPI's tools read.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from haystream_service.kafka.admin import TOPICS as CREATED_WITH
from haystream_service.wire.fields import JsonObject
from haystream_service.wire_schemas import FOLDER, TOPICS

FILE = FOLDER.with_name("asyncapi.json")

KEYS = {
    "queries": "The query_id.",
    "items": "The item_id, or none.",
    "verdicts": "The query_id.",
    "leases": "The query_id.",
    "next-items": "The query_id.",
    "dead-letters": "The rejected record's key, or none where it is too large.",
}
READ = ("queries", "items", "verdicts", "leases")
"""What haystream receives; the others it sends. Leases it writes as well: their facts come back to it."""


def document() -> dict[str, Any]:
    """The whole document, as JSON values."""
    schemas: dict[str, Any] = {}
    for record in TOPICS.values():
        schemas |= _schemas(record)
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "haystream",
            "version": version("haystream"),
            "description": "Live next-item ranking for review queues. docs/wire-format.md is the whole contract.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": {name: _channel(name) for name in TOPICS},
        "operations": {f"{_action(name)}-{name}": _operation(name) for name in TOPICS},
        "components": {
            "messages": {name: _message(name, record) for name, record in TOPICS.items()},
            "schemas": dict(sorted(schemas.items())),
        },
    }


def text() -> str:
    """The document as it is shipped."""
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


def _action(name: str) -> str:
    return "receive" if name in READ else "send"


def _channel(name: str) -> dict[str, Any]:
    config: dict[str, Any] = dict(CREATED_WITH[name])
    config["cleanup.policy"] = [config["cleanup.policy"]]
    numbers = {key: int(config[key]) for key in ("retention.ms", "max.message.bytes") if key in config}
    return {
        "address": f"{{prefix}}.{name}",
        "messages": {name: {"$ref": f"#/components/messages/{name}"}},
        "parameters": {"prefix": {"default": "haystream", "description": "HAYSTREAM_TOPIC_PREFIX"}},
        "bindings": {"kafka": {"topicConfiguration": config | numbers, "bindingVersion": "0.5.0"}},
    }


def _operation(name: str) -> dict[str, Any]:
    return {
        "action": _action(name),
        "channel": {"$ref": f"#/channels/{name}"},
        "messages": [{"$ref": f"#/channels/{name}/messages/{name}"}],
    }


def _message(name: str, record: type[JsonObject]) -> dict[str, Any]:
    return {
        "name": name,
        "summary": (record.__doc__ or "").splitlines()[0],
        "payload": {"$ref": f"#/components/schemas/{record.__name__}"},
        "bindings": {
            "kafka": {"key": {"type": "string", "description": KEYS[name]}, "bindingVersion": "0.5.0"},
        },
    }


def _schemas(record: type[JsonObject]) -> dict[str, Any]:
    """The record's schema and those that it refers to, by name."""
    whole = record.model_json_schema(ref_template="#/components/schemas/{model}")
    parts = whole.pop("$defs", {})
    return {key: _draft_7(schema) for key, schema in {**parts, record.__name__: whole}.items()}


def _draft_7(value: Any) -> Any:
    """The schema in draft 7, where a tuple's elements are `items`."""
    if isinstance(value, list):
        return [_draft_7(each) for each in value]
    if not isinstance(value, dict):
        return value
    plain = {key: _draft_7(each) for key, each in value.items()}
    if "prefixItems" in plain:
        plain["items"] = plain.pop("prefixItems")
    return plain


def main(file: Path = FILE) -> None:
    """Write it."""
    file.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
