"""How large an event may be. These are bounds of ours, unlike the ranges that the fields themselves have.

What is above one of them is rejected as too large, or cut where it is published.
"""

MESSAGE_BYTES = 1 << 20
"""Kafka's own default bound on a record; more could not be produced with a broker's defaults."""
KEY_BYTES = 2048
"""Of a record's key. An id of 512 characters, the longest that is taken, has no more bytes."""
RECIPIENTS = 1000
"""Of one item with a sender. It adds that many edges at most."""
PARTICIPANTS = 64
"""Of one item without roles. It lies on all pairs: 64 people are 2,016 edges."""
WATCH_LIST = 10_000
"""Participants with a prior mean of their own, in one query."""
SCOPE_LIST = 1000
"""Participants in each of the two lists of one query's scope."""
DEAD_LETTER_BYTES = 512 << 10
"""Of a rejected payload, kept in its dead letter. Base64 adds a third, and all must fit in a record."""
RANKING_BYTES = (16 << 20) - 4096
"""Of a ranking: what next-items is created to take, less the record's key and frame."""
NAMED = 64
"""Of one ranked item's participants in a ranking: as many as an item without roles may have."""
