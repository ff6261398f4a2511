"""Leases in this process's memory, beside `MemoryStore`: the contract of `claims`, without a server."""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from uuid import uuid4

import orjson
from typing_extensions import override

from haystream.events import Action, LeaseFact
from haystream_service.logs import CORRELATION
from haystream_service.store.claims import (
    SECOND,
    ClaimCode,
    ClaimRefused,
    Claims,
    Looked,
    Offer,
    Offers,
    Outgoing,
)
from haystream_service.wire import encode_lease


@dataclass(slots=True)
class QueryLeases:
    """What is leased of one query."""

    partition: int = 0
    leases: dict[str, LeaseFact] = field(default_factory=dict)
    """All there ever were, as `Claims` tells them."""
    over: set[str] = field(default_factory=set)
    folded: dict[str, LeaseFact] = field(default_factory=dict)
    """What the query's owner has folded of them, one fact each."""
    held: Counter[str] = field(default_factory=Counter)
    """By item, how many leases on it are not over."""
    offers: Offers | None = None
    ranking: bytes = b""
    outbox: dict[str, tuple[LeaseFact, str]] = field(default_factory=dict)
    """By number, ascending; with the id of the request that did it."""
    put: int = 0
    closed: bool = False
    """Whether the query is being rebuilt."""
    deleted: bool = False

    def add(self, lease: LeaseFact) -> None:
        """Take in a lease that is new and not over."""
        self.leases[lease.lease_id] = lease
        self.held[lease.item_id] += 1

    def end(self, lease_id: str) -> None:
        """Let the lease be over, if it is known."""
        if lease_id in self.leases and lease_id not in self.over:
            self.over.add(lease_id)
            self.held[self.leases[lease_id].item_id] -= 1

    def merge(self, fact: LeaseFact) -> None:
        """Take in a fact from the topic."""
        lease_id = fact.lease_id
        if not (known := self.folded.get(lease_id)) or not known.action.ends:
            at, until = min(known.at if known else fact.at, fact.at), max(known.until if known else 0, fact.until)
            self.folded[lease_id] = replace(fact, at=at, until=until)
        lease = self.leases.get(lease_id)
        if lease is None:
            self.add(replace(fact, action=Action.CLAIMED))
        elif lease_id not in self.over:
            begin, until = min(lease.at, fact.at), max(lease.until, fact.until)
            self.leases[lease_id] = replace(lease, at=begin, until=until)
        if fact.action.ends:
            self.end(lease_id)

    def tell(self, lease: LeaseFact, action: Action, at: int) -> None:
        """Put what happened into the outbox."""
        self.put += 1
        fact = replace(lease, action=action, at=at)
        self.outbox[f"{self.put:020d}"] = fact, "" if action is Action.EXPIRED else CORRELATION.get() or ""

    def offered(self) -> Offers:
        """What there is to be claimed; what was published, of a query that nobody has claimed from."""
        if self.offers is not None:
            return self.offers
        ranked = orjson.loads(self.ranking)
        items = [Offer(item["item_id"], item["score"], item["mean"]) for item in ranked["items"]]
        return Offers(items, complete=not items)


class MemoryClaims(Claims):
    """The leases of a `MemoryStore`'s queries."""

    def __init__(self) -> None:
        self.clock: Callable[[], int] = lambda: time.time_ns() // 1000
        """Says the time in microseconds since the epoch."""
        self.new_id: Callable[[], str] = lambda: uuid4().hex
        self.rebuilding: Callable[[], bool] = lambda: False
        """Whether the store has no mark: then a query that is not there may be one that is not rebuilt yet."""
        self.queries: dict[str, QueryLeases] = {}
        """By id, of the queries that are saved."""

    @override
    async def claim(self, query_id: str, analyst: str, count: int, seconds: float) -> list[LeaseFact]:
        query = self._query(query_id)
        offers, now = query.offered(), self.clock()
        until = now + math.floor(seconds * SECOND)
        free = [(rank, offer) for rank, offer in enumerate(offers.items, 1) if not query.held[offer.item_id]]
        leases = [
            LeaseFact(self.new_id(), query_id, item_id, analyst, Action.CLAIMED, now, until, rank, score, mean)
            for rank, (item_id, score, mean) in free[:count]
        ]
        if not leases and not offers.complete:
            raise ClaimRefused(ClaimCode.NOT_RANKED_YET, f"of query {query_id!r} all that is ranked yet is leased")
        for lease in leases:
            query.add(lease)
            query.tell(lease, Action.CLAIMED, now)
        return leases

    @override
    async def extend(self, query_id: str, lease_id: str, analyst: str, seconds: float) -> LeaseFact:
        query, lease = self._lease(query_id, lease_id, analyst)
        now = self.clock()
        lease = replace(lease, until=max(lease.until, now + math.floor(seconds * SECOND)))
        query.leases[lease_id] = lease
        query.tell(lease, Action.EXTENDED, now)
        return lease

    @override
    async def release(self, query_id: str, lease_id: str, analyst: str) -> LeaseFact:
        query, lease = self._lease(query_id, lease_id, analyst)
        query.end(lease_id)
        query.tell(lease, Action.RELEASED, self.clock())
        return lease

    @override
    async def live(self, query_id: str) -> list[LeaseFact]:
        query = self.queries.get(query_id, QueryLeases())
        return sorted(
            (lease for lease_id, lease in query.leases.items() if lease_id not in query.over),
            key=lambda lease: (lease.until, lease.lease_id),
        )

    @override
    async def outbox(self, query_id: str, most: int) -> list[Outgoing]:
        query = self.queries.get(query_id, QueryLeases())
        return [
            Outgoing(entry, query.partition, query_id.encode(), encode_lease(fact), correlation)
            for entry, (fact, correlation) in list(query.outbox.items())[:most]
        ]

    @override
    async def expire(self, query_id: str, by: int | None = None) -> Looked:
        query, now = self.queries.get(query_id, QueryLeases()), self.clock()
        over = [
            lease for lease in await self.live(query_id) if lease.until <= (now if by is None else min(by, now))
        ]
        for lease in over:
            query.end(lease.lease_id)
            query.tell(lease, Action.EXPIRED, now)
        oldest = min((fact.at for fact, _ in query.outbox.values()), default=now)
        return Looked(len(over), len(await self.live(query_id)), len(query.outbox), (now - oldest) / SECOND, now)

    @override
    async def leased(self, partition: int) -> set[str]:
        return {
            query_id
            for query_id, query in self.queries.items()
            if query.partition == partition and (query.outbox or await self.live(query_id))
        }

    @override
    async def published(self, query_id: str, entries: Sequence[str]) -> None:
        query = self.queries.get(query_id, QueryLeases())
        for entry in entries:
            query.outbox.pop(entry, None)

    def _query(self, query_id: str) -> QueryLeases:
        query = self.queries.get(query_id)
        if query is None:
            if self.rebuilding():
                raise ClaimRefused(ClaimCode.REBUILDING, "the store is being rebuilt")
            raise ClaimRefused(ClaimCode.UNKNOWN_QUERY, f"nobody has opened query {query_id!r}")
        if query.closed:
            raise ClaimRefused(ClaimCode.REBUILDING, f"query {query_id!r} is being rebuilt")
        if query.deleted:
            raise ClaimRefused(ClaimCode.QUERY_DELETED, f"query {query_id!r} was deleted, for good")
        return query

    def _lease(self, query_id: str, lease_id: str, analyst: str) -> tuple[QueryLeases, LeaseFact]:
        query = self._query(query_id)
        lease = query.leases.get(lease_id)
        if lease is None:
            raise ClaimRefused(ClaimCode.UNKNOWN_LEASE, f"query {query_id!r} has no lease {lease_id!r}")
        if lease.analyst != analyst:
            raise ClaimRefused(ClaimCode.NOT_YOURS, f"{lease.analyst!r} has lease {lease_id!r}")
        if lease_id in query.over:
            raise ClaimRefused(ClaimCode.LEASE_OVER, f"lease {lease_id!r} is over")
        return query, lease
