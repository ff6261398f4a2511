"""An item that says something, from HTTP to Kafka and back, until it is withdrawn: real servers."""

import asyncio
from pathlib import Path

import orjson
import pytest
from support.forked import ForkedApi
from support.pipeline import Pipeline, page, program, until
from support.queue_api import EVERYTHING, write_keys

from haystream.events import Outcome
from haystream_service.api.access import Role
from haystream_service.client import ApiProblem, Haystream
from haystream_service.settings import variables

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis]

COUNT = 12


def line(number: int) -> bytes:
    people = {"sender": "ann", "recipients": [f"p{number % 3}"]}
    said = {"subject": f"subject {number}", "text": f"text {number}\n" * 500, "uri": f"https://x/{number}"}
    return orjson.dumps({"item_id": f"m-{number}", "labels": {"n": number}, **people, **said})


async def test_what_an_item_says_is_served_until_it_is_withdrawn(pipeline: Pipeline, tmp_path: Path) -> None:
    await pipeline.worker()
    keys = tmp_path / "keys.json"
    write_keys(keys, ("boss", list(Role), [EVERYTHING]))
    replica = ForkedApi(variables(pipeline.settings), keys)
    try:
        await asyncio.to_thread(replica.start)
        with Haystream(replica.address, "boss") as client:
            await _served(client, pipeline)
        text = page(replica, "/metrics")[1]
        assert 'haystream_api_records_total{outcome="unavailable"} 0.0' in text
        assert 'haystream_api_records_total{outcome="gone"} 0.0' in text
        assert "Traceback" not in replica.log.read_text()
        assert await pipeline.records("dead-letters") == []
    finally:
        await asyncio.to_thread(replica.close)


async def _served(client: Haystream, pipeline: Pipeline) -> None:
    assert client.send_items("default", map(line, range(COUNT))).accepted == COUNT
    assert client.open("q").applied

    def ranked() -> int:
        return len(client.ranking("q").items)

    async def all_in() -> bool:
        return await asyncio.to_thread(ranked) == COUNT

    await until(all_in, "all items are ranked")
    leases = await asyncio.to_thread(lambda: client.next("q", count=4, with_text=True))
    for lease in leases:
        number = int(lease.item_id.removeprefix("m-"))
        assert lease.item is not None
        assert (lease.item.contents, lease.item.subject) == ("here", f"subject {number}")
        assert await asyncio.to_thread(client.item, "default", lease.item_id) == lease.item
    other = next(f"m-{n}" for n in range(COUNT) if f"m-{n}" not in {lease.item_id for lease in leases})
    alone = await asyncio.to_thread(client.item, "default", other)
    number = int(other.removeprefix("m-"))
    assert (alone.text, alone.labels, alone.uri) == (f"text {number}\n" * 500, {"n": number}, f"https://x/{number}")
    printed = await program(pipeline.environment(), "item", other)
    assert (printed.code, f"subject {number}" in printed.out) == (0, True), printed.err

    gone = [leases[0].item_id, other]
    client.decide("q", gone[0], Outcome.RELEVANT, wait="ranking")
    client.send_items("default", [orjson.dumps({"item_id": item_id, "withdrawn": True}) for item_id in gone])

    async def withdrawn() -> bool:
        def asked() -> bool:
            progress = client.progress("q")
            return (progress.screened, progress.found) == (0, 0) and ranked() == COUNT - len(gone) - 3

        return await asyncio.to_thread(asked)

    await until(withdrawn, "what was withdrawn has left the ranking")
    for item_id in gone:
        with pytest.raises(ApiProblem, match="withdrawn") as refused:
            await asyncio.to_thread(client.item, "default", item_id)
        assert (refused.value.code, refused.value.status) == ("withdrawn", 410)
    rest = await asyncio.to_thread(lambda: client.next("q", count=COUNT))
    assert len(rest) == COUNT - len(gone) - 3
    assert {lease.item_id for lease in rest}.isdisjoint(gone)
