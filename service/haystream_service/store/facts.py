"""JSON as it lies in the store. Facts are in the wire's form, read back without the border's checks.

They were checked when they came in, and a cold start reads them by the million.
"""

from dataclasses import asdict

import orjson

from haystream.engines.base import Common
from haystream.events import Item, Outcome, Verdict
from haystream.tables import Changes
from haystream_service.wire import finite, times


def read_item(raw: bytes) -> Item:
    """What `wire.encode_item` wrote."""
    value = orjson.loads(raw)
    sender = value.get("sender")
    people = value["participants"] if sender is None else value["recipients"]
    return Item(value["item_id"], value["collection"], sender, tuple(people))


def read_verdict(raw: bytes) -> Verdict:
    """What `wire.encode_verdict` wrote."""
    value = orjson.loads(raw)
    return Verdict(
        verdict_id=value["verdict_id"],
        query_id=value["query_id"],
        item_id=value["item_id"],
        analyst=value["analyst"],
        outcome=Outcome(value["outcome"]),
        decided_at=times.to_microseconds(times.parse(value["decided_at"])),
    )


def encode_shared(tables: Changes) -> bytes:
    """What all rows of the tables are read with. Raises ValueError where a number is not finite."""
    return finite.dumps({**asdict(tables.common), "discrepancy": tables.discrepancy})


def read_shared(raw: bytes) -> tuple[Common, float]:
    """What `encode_shared` wrote."""
    value = orjson.loads(raw)
    discrepancy = value.pop("discrepancy")
    return Common(**value), discrepancy
