"""Writes the JSON Schemas of the topics: `python -m haystream_service.wire_schemas [FOLDER]`."""

import json
import sys
from pathlib import Path

from haystream_service.wire import DeadLetter, ItemRecord, LeaseRecord, NextItems, QueryRecord, VerdictRecord
from haystream_service.wire.fields import JsonObject

FOLDER = Path(__file__).with_name("schemas")

TOPICS: dict[str, type[JsonObject]] = {
    "queries": QueryRecord,
    "items": ItemRecord,
    "verdicts": VerdictRecord,
    "leases": LeaseRecord,
    "next-items": NextItems,
    "dead-letters": DeadLetter,
}


def schemas() -> dict[str, str]:
    """The text of each schema, by file name."""
    return {f"{topic}.json": _text(topic, record) for topic, record in TOPICS.items()}


def _text(topic: str, record: type[JsonObject]) -> str:
    schema = record.model_json_schema()
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": f"haystream {topic}",
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def main(folder: Path = FOLDER) -> None:
    """Write them all."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in schemas().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
