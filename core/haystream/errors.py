"""What can be wrong with an event, as named codes.

There are three kinds of error and no more: *try again* (a server did not answer; the shell's business),
*reject* (`Rejected`: the event is bad, it goes to the dead letters; `QueryFailed`: a whole query is, it stops)
and *bug* (everything else).
"""

from enum import StrEnum


class Code(StrEnum):
    """Why an event was rejected. The value is the `error.code` of its dead letter."""

    MALFORMED_JSON = "malformed_json"
    """Not UTF-8, not JSON, or not a JSON object (an empty value included)."""
    MISSING_FIELD = "missing_field"
    """A required field is absent."""
    WRONG_TYPE = "wrong_type"
    """A field has the wrong JSON type."""
    INVALID_VALUE = "invalid_value"
    """A field has the right type but a value outside its set (unknown outcome, unknown policy, bad id, …)."""
    NOT_FINITE = "not_finite"
    """A number is NaN or infinite."""
    OUT_OF_RANGE = "out_of_range"
    """A number is outside its range: a probability outside (0, 1), a concentration not above 0, …"""
    TOO_LARGE = "too_large"
    """The message, an id, or a list is larger than the configured bound."""
    TOO_FEW_PARTICIPANTS = "too_few_participants"
    """An item needs at least two distinct participants."""
    KEY_MISMATCH = "key_mismatch"
    """The Kafka key is not the id inside the value: the event is on a partition it does not belong to."""
    ITEM_CONFLICT = "item_conflict"
    """The item id is known with other content. The first content stands."""
    VERDICT_CONFLICT = "verdict_conflict"
    """The verdict id is known with other content. The first content stands."""
    LEASE_CONFLICT = "lease_conflict"
    """The lease id is known with another item or analyst. The first content stands."""
    UNKNOWN_QUERY = "unknown_query"
    """A verdict or a lease names a query that nobody has opened yet. It is kept, and counts when somebody does."""
    WRONG_PARTITION = "wrong_partition"
    """The event is not on the partition on which its query was opened."""
    QUARANTINED = "quarantined"
    """The query is stopped, as it could not be computed. The event is kept, and counts when it is released."""
    QUERY_DELETED = "query_deleted"
    """The query was deleted, for good."""
    COLLECTION_DELETED = "collection_deleted"
    """The collection was deleted: it takes no items and no queries."""
    COLLECTION_CHANGED = "collection_changed"
    """A query cannot be moved to another collection."""
    SCOPE_CHANGED = "scope_changed"
    """A query cannot be given another scope."""
    UNSUPPORTED = "unsupported"
    """The settings are well formed, but no engine of this version can serve them."""
    TOO_MUCH_WORK = "too_much_work"
    """The query's graph, under its settings, takes more work or memory than its engine is given."""


class Rejected(ValueError):  # noqa: N818 - it names a verdict on the event, not a failure of ours
    """The event is bad: it becomes a dead letter with this code and detail, and the partition goes on."""

    def __init__(self, code: Code, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class QueryFailed(Exception):  # noqa: N818 - as `Rejected`
    """The query cannot be answered: it stops, with this code and detail, and every other query goes on."""

    def __init__(self, code: Code, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
