"""The AsyncAPI document: current, taken by AsyncAPI's own parser, and true of what a demo run says."""

import json
import shutil
import subprocess
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NoReturn

import pytest
from jsonschema import Draft7Validator

from haystream.events import Action, LeaseFact
from haystream_service.demo import stage as staging
from haystream_service.demo.bus import MemoryBus
from haystream_service.demo.play import play
from haystream_service.sources import synthetic
from haystream_service.wire import encode_lease
from haystream_service.wire_asyncapi import FILE, document, main
from haystream_service.wire_schemas import TOPICS

ROOT = Path(__file__).parents[2]


def payload(topic: str) -> Draft7Validator:
    """What validates the topic's messages, as the document says it."""
    whole = document()
    schema: dict[str, Any] = whole["components"]["messages"][topic]["payload"]
    return Draft7Validator({**schema, "components": whole["components"]})


def test_the_shipped_document_is_up_to_date(tmp_path: Path) -> None:
    main(tmp_path / "asyncapi.json")
    assert FILE.read_text() == (tmp_path / "asyncapi.json").read_text()


def test_its_parser_takes_it_and_would_not_take_anything(
    tmp_path: Path, unavailable: Callable[[str], NoReturn]
) -> None:
    if shutil.which("npm") is None or shutil.which("node") is None:
        unavailable("there is no node and npm for AsyncAPI's parser")
    check = [str(ROOT / "deploy" / "asyncapi-check")]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["AsyncAPI", "3.0.0", *TOPICS]
    broken = document()
    broken["operations"]["receive-items"]["action"] = "swallow"
    (tmp_path / "broken.json").write_text(json.dumps(broken))
    assert subprocess.run([*check, str(tmp_path / "broken.json")], capture_output=True).returncode == 1


@pytest.mark.asyncio
@pytest.mark.usefixtures("no_pace")
async def test_a_demo_runs_messages_are_as_it_says() -> None:
    async with AsyncExitStack() as stack:
        bus = await staging._in_memory(stack)
        assert isinstance(bus, MemoryBus)
        source = synthetic(seed=3, edges=56, items_per_edge=3)
        await play(bus, source, seconds=3600.0, screenings=20, on_progress=lambda _: None)
        broker = bus._broker
        broker.produce("leases", b"q", encode_lease(LeaseFact("l", "q", "m", "kim", Action.CLAIMED, at=0, until=1)))
        broker.produce("verdicts", b"q", b"{")
        await broker.wait_for("dead-letters", lambda message: message.value is not None)
    for topic in TOPICS:
        messages = broker.messages(topic)
        assert messages, topic
        for message in messages:
            if message.value != b"{":
                payload(topic).validate(json.loads(message.value or b"null"))


@pytest.mark.parametrize(
    ("topic", "value"),
    [
        ("verdicts", {"verdict_id": "v", "query_id": "q", "item_id": "m", "analyst": "kim", "outcome": "relevant"}),
        ("queries", {"query_id": "q", "status": "ajar"}),
        (
            "queries",
            {"query_id": "q", "prior": {"conditional": {"00": [1, 9], "01": [1, 4], "10": [1, 4], "11": [0, 1]}}},
        ),
        ("items", {"item_id": "m", "sender": "ann"}),
        ("next-items", {"query_id": "q"}),
    ],
)
def test_what_the_wire_refuses_it_refuses(topic: str, value: dict[str, Any]) -> None:
    assert not payload(topic).is_valid(value)
