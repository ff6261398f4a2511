"""The worker's log, as JSON: a line each, with the query that it is about."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from support.world import World, item, verdict

from haystream.events import Query
from haystream_service.logs import JsonLines
from haystream_service.store.base import StoreUnavailable
from haystream_service.store.memory import MemoryStore


class Lines(logging.Handler):
    """Every line, read."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonLines())
        self.read: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        assert "\n" not in text
        self.read.append(json.loads(text))


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


def test_a_line_says_when_how_bad_and_who_and_carries_its_traceback(lines: Lines) -> None:
    try:
        raise ValueError("Ünsinn\nin two lines")
    except ValueError:
        logging.getLogger("haystream_service.x").exception("it %s", "broke")
    [line] = lines.read
    assert line["time"].endswith("+00:00")
    assert (line["level"], line["logger"], line["message"]) == ("ERROR", "haystream_service.x", "it broke")
    assert "Ünsinn\nin two lines" in line["error"]
    assert "query" not in line


class Flaky(MemoryStore):
    """Fails the first save of each query, and the first read of each collection."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: set[str] = set()

    async def save_query(self, change: Any, *, claimable: bool = True) -> bool:
        self._fail_once(f"saving {change.query_id}")
        return await super().save_query(change, claimable=claimable)

    async def read_items(self, collection: str, after: int, *, limit: int, wait: float = 0.0) -> Any:
        self._fail_once(f"reading {collection}")
        return await super().read_items(collection, after, limit=limit, wait=wait)

    def _fail_once(self, what: str) -> None:
        if what not in self.failed:
            self.failed.add(what)
            raise StoreUnavailable(what)


@pytest.mark.asyncio
async def test_a_line_about_a_query_has_its_id_and_no_other_has(world: World, lines: Lines) -> None:
    world.store = Flaky()
    process = await world.process()
    world.say(Query("q"), Query("r"), item(1), item(2), verdict(1), verdict(2, "r"))
    world.broker.produce("verdicts", b"s", b"{}")
    world.broker.produce("items", b"i", b"{}")
    await process.settled()
    about = {line["message"].split(";")[0].split(": ")[-1]: line.get("query") for line in lines.read}
    assert about["saving q"] == "q"
    assert about["saving r"] == "r"
    assert about["reading default"] is None
    rejected = {
        line["message"].split()[0]: line.get("query") for line in lines.read if "rejected" in line["message"]
    }
    assert rejected == {"verdicts": "s", "items": None}
