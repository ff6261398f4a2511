"""Who has which item: leases, as those see them who hand items out. `memory_claims` and `redis_claims` keep this.

Claiming is one atomic step of the store and waits for no worker. What happened is put into the query's *outbox*
in the same step: facts for the topic `leases`, which whoever claimed publishes and then confirms. What nobody
published (its process died in between) the owner of the query does. A fact may be published twice; facts are
idempotent.

There is one clock, the store's: it says when a lease began and when it is over.
"""

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from haystream.events import LeaseFact

SECOND = 1_000_000
"""In microseconds, in which the store's clock counts."""


class Offer(NamedTuple):
    """An item that a query ranks, and may be claimed."""

    item_id: str
    score: float
    mean: float


class Offers(NamedTuple):
    """The best items of a query as its owner writes them with each save, for those who claim."""

    items: Sequence[Offer]
    """In rank order, the first has rank 1. Nobody has them, and nobody has judged them, as far as is saved."""
    complete: bool
    """Whether these are all that are left."""


class Outgoing(NamedTuple):
    """A record that has to be written to the topic `leases`, to this partition and under this key."""

    entry: str
    """Its name in the outbox, for `Claims.published`."""
    partition: int
    key: bytes
    value: bytes
    correlation: str = ""
    """The id of the request that did what the record tells of, where one did."""


class Looked(NamedTuple):
    """What the owner of a query sees of its leases."""

    expired: int
    """Leases that are over since just now."""
    live: int
    waiting: int
    """Records in the outbox."""
    age: float
    """Seconds that the oldest of them has been there; 0 where none is, less where the clock was set back."""
    now: int = 0
    """The store's clock, in microseconds."""
    lost: int = 0
    """Leases whose time was over just now and of which nothing is known any more: somebody was at the store."""


class ClaimCode(StrEnum):
    """Why a claim, or what is asked of a lease, is refused."""

    UNKNOWN_QUERY = "unknown_query"
    """Nobody has opened the query, or it is not saved yet."""
    QUERY_DELETED = "query_deleted"
    REBUILDING = "rebuilding"
    """`haystream rebuild` restores the query: try again when it is done."""
    NOT_RANKED_YET = "not_ranked_yet"
    """Everything that is ranked in the store is leased, and more is left: try again in some milliseconds."""
    UNKNOWN_LEASE = "unknown_lease"
    LEASE_OVER = "lease_over"
    """It was released, has run out, or ended with its analyst's verdict."""
    NOT_YOURS = "not_yours"
    """Another analyst has the lease."""


class ClaimRefused(Exception):  # noqa: N818 - a word about the claim, not a failure of ours
    """Nothing was done, with the code and a sentence."""

    def __init__(self, code: ClaimCode, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class Claims(Protocol):
    """Leases of queries. Every method may raise `StoreUnavailable`: it is unknown then whether it was carried out.

    A lease is told as the fact that it was claimed: `at` says when that was, and `until` how long it is now.

    A claim whose answer was lost is found by `live`, or runs out.
    """

    async def claim(self, query_id: str, analyst: str, count: int, seconds: float) -> list[LeaseFact]:
        """Lease up to `count` items to the analyst for so long: the best that nobody has and nobody has judged.

        In rank order; fewer, or none, where so many are not left (or the query is not open).

        Raises:
            ClaimRefused: UNKNOWN_QUERY, QUERY_DELETED, REBUILDING or NOT_RANKED_YET.
        """
        ...

    async def extend(self, query_id: str, lease_id: str, analyst: str, seconds: float) -> LeaseFact:
        """Let the analyst keep the item for so long from now, or for as long as before if that is longer.

        Raises:
            ClaimRefused: as `claim` does, or UNKNOWN_LEASE, LEASE_OVER or NOT_YOURS.
        """
        ...

    async def release(self, query_id: str, lease_id: str, analyst: str) -> LeaseFact:
        """Give the item back, unread: others are offered it again.

        After a verdict it need not be said, and ought not to be: the verdict ends the lease when it is counted.

        Raises:
            ClaimRefused: as `claim` does, or UNKNOWN_LEASE, LEASE_OVER or NOT_YOURS.
        """
        ...

    async def live(self, query_id: str) -> list[LeaseFact]:
        """The query's leases that are not over, those that end first first."""
        ...

    async def outbox(self, query_id: str, most: int) -> list[Outgoing]:
        """Up to `most` records that are not confirmed yet, the oldest first; none of a query that is not there.

        What cannot be read is left out, and told (`StoreDamaged`) once nothing else is there.
        """
        ...

    async def expire(self, query_id: str, by: int | None = None) -> "Looked":
        """End the leases whose time is over, with their facts in the outbox. For the query's owner alone.

        Those stay that end after `by`, in microseconds on the store's clock, where that is given.
        """
        ...

    async def leased(self, partition: int) -> set[str]:
        """The queries of that partition that have leases which are not over, or records in their outbox."""
        ...

    async def published(self, query_id: str, entries: Sequence[str]) -> None:
        """Confirm that these records of the outbox are in the topic."""
        ...


PUBLISHED_AT_ONCE = 500
"""Records of an outbox that are written to the topic in one go."""


async def publish_outbox(
    claims: Claims, publish: Callable[[Sequence[Outgoing]], Awaitable[None]], query_id: str
) -> None:
    """Return when all that is in the query's outbox now is in the topic, and confirmed.

    Once more does no harm where this raised: it raises what the store and `publish` do.
    """
    more = True
    while more and (records := await claims.outbox(query_id, PUBLISHED_AT_ONCE)):
        more = len(records) == PUBLISHED_AT_ONCE
        await publish(records)
        await claims.published(query_id, [record.entry for record in records])
