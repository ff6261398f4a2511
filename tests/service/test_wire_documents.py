"""The shipped schemas, the page about the wire and that about error codes say what the code does."""

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from haystream.errors import Code
from haystream.models.settings import MODEL_SETTINGS
from haystream_service.commands.replay import fold
from haystream_service.wire import decode_item, decode_lease, decode_query, decode_verdict
from haystream_service.wire.fields import JsonObject
from haystream_service.wire_schemas import FOLDER, TOPICS, main, schemas

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "wire-format.md"
CODES = (DOCS / "error-codes.md").read_text()
SECTIONS = dict(re.findall(r"^## `(\w+)`\n(.*?)(?=^## |\Z)", CODES, re.MULTILINE | re.DOTALL))
NO_EXAMPLE = {
    Code.TOO_MUCH_WORK,
    Code.KEY_MISMATCH,
    Code.TOO_LARGE,
    Code.WRONG_PARTITION,
    Code.QUARANTINED,
    Code.COLLECTION_DELETED,
}


def examples(topic: str) -> list[str]:
    section = PAGE.read_text().split(f"\n## {topic}\n")[1].split("\n## ")[0]
    return re.findall(r"```json\n(.*?)```", section, re.DOTALL)


def test_the_shipped_schemas_are_up_to_date(tmp_path):
    main(tmp_path)
    written = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert {file.name: file.read_text() for file in FOLDER.iterdir()} == written == schemas()


@pytest.mark.parametrize("name", schemas())
def test_schemas_are_schemas(name):
    Draft202012Validator.check_schema(json.loads(schemas()[name]))


@pytest.mark.parametrize("topic", ["queries", "items", "verdicts", "leases"])
def test_the_pages_examples_are_taken(topic):
    schema = Draft202012Validator(json.loads(schemas()[f"{topic}.json"]))
    decode = {"queries": decode_query, "items": decode_item, "verdicts": decode_verdict, "leases": decode_lease}[
        topic
    ]
    found = examples(topic)
    for value in found:
        schema.validate(json.loads(value))
        assert decode(value.encode(), b"m-1" if topic == "items" else b"case-7")
    assert found


def test_settings_that_are_the_defaults_of_the_schema_are_those_of_a_query_without_any():
    fields = json.loads(schemas()["queries.json"])["properties"]
    defaults = {name: field["default"] for name, field in fields.items() if "default" in field}
    without = {"query_id": "case-7"}
    assert defaults.keys() == fields.keys() - without.keys()
    taken = [decode_query(json.dumps(settings).encode(), b"case-7") for settings in (without | defaults, without)]
    assert taken[0] == taken[1]


@pytest.mark.parametrize("topic", TOPICS)
def test_the_page_names_every_field(topic):
    section = PAGE.read_text().split(f"\n## {topic}\n")[1].split("\n## ")[0]
    for field in TOPICS[topic].model_fields:
        assert re.search(rf"`{field}[`.\[]", section), field


def test_the_page_has_the_ranges_of_every_model():
    section = PAGE.read_text().split("\n## queries\n")[1].split("\n## ")[0]
    found = dict(re.findall(r"^\| `prior\.(\w+)` \| (.* to .*|.*\| .* to .*) \|$", section, re.MULTILINE))
    models = list(MODEL_SETTINGS.values())
    names = dict.fromkeys(name for model in models for name in model.ranges)
    cells = {name: [str(model.ranges.get(name, "")) for model in models] for name in names}
    assert {name: [cell.strip() for cell in row.split("|")] for name, row in found.items()} == cells


@pytest.mark.parametrize("code", Code)
def test_every_code_is_on_the_page_with_an_example(code):
    section = SECTIONS[code]
    if code in NO_EXAMPLE:
        assert "```" not in section
        return
    block = re.search(r"```jsonl\n(.*?)```", section, re.DOTALL)
    assert block is not None
    lines = block[1].encode().splitlines()
    assert [(rejected.line, rejected.code) for rejected in fold(lines).rejected] == [(len(lines), code)]


def test_the_page_has_no_code_that_there_is_not():
    assert set(SECTIONS) == set(Code)


def test_every_topic_is_a_record():
    assert all(issubclass(record, JsonObject) for record in TOPICS.values())
