"""Event logs as files: one JSON object a line, `{"topic": "queries"|"items"|"verdicts"|"leases", "value": {…}}`."""

from typing import Literal

from pydantic import JsonValue
from pydantic_core import to_json

from haystream.events import Event
from haystream_service.wire import limits
from haystream_service.wire.decoding import to_item_fact, to_lease, to_query, to_verdict
from haystream_service.wire.fields import JsonObject
from haystream_service.wire.reading import read
from haystream_service.wire.records import ItemRecord, LeaseRecord, QueryRecord, VerdictRecord

FRAME_BYTES = 1024
"""What a line may have beyond its value."""


class Line(JsonObject):
    """A line of an event log; the value is checked by its topic's record."""

    topic: Literal["queries", "items", "verdicts", "leases"]
    value: JsonValue


def decode_line(line: bytes) -> Event:
    """The event that the line holds. Raises `Rejected`."""
    frame = read(Line, line, limit=limits.MESSAGE_BYTES + FRAME_BYTES)
    value = to_json(frame.value, inf_nan_mode="constants")
    match frame.topic:
        case "queries":
            return to_query(read(QueryRecord, value, limit=limits.MESSAGE_BYTES))
        case "items":
            return to_item_fact(read(ItemRecord, value, limit=limits.MESSAGE_BYTES))
        case "verdicts":
            return to_verdict(read(VerdictRecord, value, limit=limits.MESSAGE_BYTES))
        case "leases":
            return to_lease(read(LeaseRecord, value, limit=limits.MESSAGE_BYTES))


def encode_line(topic: str, value: bytes) -> bytes:
    """A line, with its end, of a value that is JSON already."""
    return b'{"topic":"%b","value":%b}\n' % (topic.encode(), value)
