"""How large an event may be. These are bounds of ours, unlike the ranges that the fields themselves have."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds above which an event is rejected as too large."""

    message_bytes: int = 1 << 20
    """Kafka's own default bound on a record; more could not be produced with a broker's defaults."""
    key_bytes: int = 2048
    """Of a record's key. An id of 512 characters, the longest that is taken, has no more bytes."""
    recipients: int = 1000
    """Of one item with a sender. It adds that many edges at most."""
    participants: int = 64
    """Of one item without roles. It lies on all pairs: 64 people are 2,016 edges."""
    watch_list: int = 10_000
    """Participants with a prior mean of their own, in one query."""
    scope: int = 1000
    """Participants in each of the two lists of one query's scope."""
    dead_letter_bytes: int = 512 << 10
    """Of a rejected payload, kept in its dead letter. Base64 adds a third, and all must fit in a record."""
    ranking_bytes: int = (16 << 20) - 4096
    """Of a ranking: what next-items is created to take, less the record's key and frame."""
    named: int = 64
    """Of one ranked item's participants in a ranking: as many as an item without roles may have."""


DEFAULT_LIMITS = Limits()
