"""Facts as they lie in the store: the wire's JSON, read back without the border's checks.

They were checked when they came in, and a cold start reads them by the million.
"""

import orjson

from haystream.events import Item, Outcome, Verdict
from haystream_service.wire import times


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
