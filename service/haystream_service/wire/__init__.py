"""The wire format: what travels over the topics, and its translation to and from the core's events.

JSON, UTF-8. Unknown fields are ignored. A value is decoded to one of the core's events or raises
`haystream.errors.Rejected` with a code and a detail that names the field; nothing else is ever raised.
"""

from haystream_service.wire.decoding import (
    decode_dead_letter,
    decode_item,
    decode_lease,
    decode_query,
    decode_ranking,
    decode_stored_query,
    decode_verdict,
    item_record,
    to_item,
    to_verdict,
)
from haystream_service.wire.encoding import (
    dead_letter_key,
    encode_dead_letter,
    encode_item,
    encode_lease,
    encode_query,
    encode_ranking,
    encode_record,
    encode_verdict,
    who_is_on,
)
from haystream_service.wire.fields import as_id
from haystream_service.wire.fitting import fit_letter, fit_ranking
from haystream_service.wire.lines import decode_line, encode_line
from haystream_service.wire.reading import read as read_record
from haystream_service.wire.records import (
    DeadLetter,
    ItemRecord,
    LeaseRecord,
    NextItems,
    QueryRecord,
    VerdictRecord,
)

__all__ = [
    "DeadLetter",
    "ItemRecord",
    "LeaseRecord",
    "NextItems",
    "QueryRecord",
    "VerdictRecord",
    "as_id",
    "dead_letter_key",
    "decode_dead_letter",
    "decode_item",
    "decode_lease",
    "decode_line",
    "decode_query",
    "decode_ranking",
    "decode_stored_query",
    "decode_verdict",
    "encode_dead_letter",
    "encode_item",
    "encode_lease",
    "encode_line",
    "encode_query",
    "encode_ranking",
    "encode_record",
    "encode_verdict",
    "fit_letter",
    "fit_ranking",
    "item_record",
    "read_record",
    "to_item",
    "to_verdict",
    "who_is_on",
]
