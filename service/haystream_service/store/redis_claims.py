"""Leases in Redis or Valkey: each step is one script on the slot of its query.

A claim whose process dies before the facts are in the topic has happened all the same: the item is held, and the
fact lies in the outbox, from which the owner of the query publishes it. What the scripts do not prevent: where a
server forgets what it had acknowledged (a replica that lags is promoted, or the machine loses power), a lease may
be gone whose fact was published, and the item be claimed again beside it. The owner folds that fact and puts it
back.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from typing_extensions import override

from haystream.events import Action, LeaseFact
from haystream_service.logs import CORRELATION
from haystream_service.store.base import StoreUnavailable
from haystream_service.store.claims import (
    SECOND,
    ClaimCode,
    ClaimRefused,
    Claims,
    Looked,
    Outgoing,
)
from haystream_service.store.damage import unreadable
from haystream_service.store.facts import read_lease, read_outgoing, read_partition
from haystream_service.store.redis_calls import RedisCalls, Script
from haystream_service.store.shapes import Unreadable, read_text
from haystream_service.wire import encode_lease

EXPIRED_AT_ONCE = 1000
"""A script holds up every other client while it runs."""

QUERIES_AT_ONCE = 500

LEASE_PARTS = ("meta", "leases", "held", "live", "outbox")
"""The keys of a query that every script about leases is given first, in this order."""

NOT_LISTED = b"index"
"""What a script answers that would store a lease of a query which is not in the set of those that have any."""

_WHY = {
    ClaimCode.UNKNOWN_QUERY: "nobody has opened it",
    ClaimCode.QUERY_DELETED: "it was deleted, for good",
    ClaimCode.REBUILDING: "it is being rebuilt",
    ClaimCode.NOT_RANKED_YET: "all that is ranked yet is leased",
    ClaimCode.UNKNOWN_LEASE: "it has no such lease",
    ClaimCode.LEASE_OVER: "the lease is over",
    ClaimCode.NOT_YOURS: "another analyst has the lease",
}


class RedisClaims(Claims):
    """The leases of a `RedisStore`'s queries."""

    def __init__(self, calls: RedisCalls) -> None:
        self._calls = calls
        self.taken_out = Counter[int]()
        """By partition, how many queries were taken out of the list of those that have leases, as they were
        deleted."""
        self._claim = Script("claim.lua", leases=True)
        self._lease = Script("lease.lua", leases=True)
        self._expire = Script("expire.lua", leases=True)
        self._live = Script("live.lua", leases=True)
        self._outbox = Script("outbox.lua", leases=True)
        self._published = Script("published.lua")

    @override
    async def claim(self, query_id: str, analyst: str, count: int, seconds: float) -> list[LeaseFact]:
        ids = [uuid4().hex for _ in range(count)]
        keys = self._keys(query_id, "offers", "ranking")
        arguments = [analyst, math.floor(seconds * SECOND), "", CORRELATION.get() or "", *ids]
        code, *found = await self._calls.run(self._claim, keys, arguments)
        if code == NOT_LISTED:
            # Before anything is claimed: the owner is sure to look into the outbox then.
            with self._calls.reading(keys[0]):
                leased = self._calls.keys.leased(read_partition(found[0]))
            async with self._calls.answering(leased):
                await self._calls.redis.sadd(leased, query_id)
            arguments[2] = "1"
            code, *found = await self._calls.run(self._claim, keys, arguments)
        await self._check(query_id, code)
        with self._calls.reading(keys[1]):
            return [_lease(query_id, *pair) for pair in zip(found[::2], found[1::2], strict=True)]

    @override
    async def extend(self, query_id: str, lease_id: str, analyst: str, seconds: float) -> LeaseFact:
        return await self._act("extended", query_id, lease_id, analyst, math.floor(seconds * SECOND))

    @override
    async def release(self, query_id: str, lease_id: str, analyst: str) -> LeaseFact:
        return await self._act("released", query_id, lease_id, analyst, 0)

    @override
    async def live(self, query_id: str) -> list[LeaseFact]:
        keys = self._keys(query_id)
        found = await self._calls.run(self._live, keys, [])
        with self._calls.reading(keys[1]):
            return [_lease(query_id, *pair) for pair in zip(found[::2], found[1::2], strict=True)]

    @override
    async def outbox(self, query_id: str, most: int) -> list[Outgoing]:
        keys = self._keys(query_id)
        found = await self._calls.run(self._outbox, keys, [most])
        if found is None:
            return []
        with self._calls.reading(keys[0]):
            partition = read_partition(found[0])
        outgoing: list[Outgoing] = []
        for entry, fields in found[1]:
            try:
                fact = read_outgoing(query_id, fields[1])
                said = read_text(b"".join(fields[3:]), "correlation")  # which an earlier version did not say
            except Unreadable as error:
                damaged = unreadable(self._calls.keys, keys[-1:], error)
            else:
                outgoing.append(Outgoing(entry.decode(), partition, query_id.encode(), encode_lease(fact), said))
        if found[1] and not outgoing:  # what can be read does not wait for what cannot
            raise damaged
        return outgoing

    @override
    async def published(self, query_id: str, entries: Sequence[str]) -> None:
        if entries:
            keys = [self._calls.keys.query(query_id, part) for part in ("meta", "outbox")]
            await self._calls.run(self._published, keys, entries)

    @override
    async def expire(self, query_id: str, by: int | None = None) -> Looked:
        arguments = [EXPIRED_AT_ONCE, "" if by is None else by]
        found = await self._calls.run(self._expire, self._keys(query_id), arguments)
        expired, live, waiting, since, now, lost = found
        age = (int(now) // 1000 - int(since)) / 1000 if since else 0.0
        return Looked(expired, live, waiting, age, int(now), lost)

    @override
    async def leased(self, partition: int) -> set[str]:
        leased = self._calls.keys.leased(partition)
        async with self._calls.answering(leased):
            members = await self._calls.redis.smembers(leased)
        with self._calls.reading(leased):
            ever = sorted(read_text(member, "a query's id") for member in members)
        listed, over = set[str](), list[str]()
        for start in range(0, len(ever), QUERIES_AT_ONCE):
            some = ever[start : start + QUERIES_AT_ONCE]
            for query_id, (live, waiting, state) in zip(some, await self._found(some), strict=True):
                if live or waiting:
                    listed.add(query_id)
                elif state == b"deleted":
                    over.append(query_id)
        if over:
            # Nobody claims from these any more. From all others somebody may at any moment, and the set may be on
            # another server: one taken out between a claim's two steps would have a lease that nobody looks after.
            async with self._calls.answering(leased):
                self.taken_out[partition] += await self._calls.redis.srem(leased, *over)
        return listed

    async def _found(self, query_ids: Sequence[str]) -> list[list[Any]]:
        """Of each query the leases that are not over, the records in its outbox, what was saved last. What cannot
        be said is taken for something, so that whoever looks at the query finds out why.
        """
        try:
            async with self._calls.answering(), self._calls.redis.pipeline(transaction=False) as pipeline:
                for query_id in query_ids:
                    pipeline.zcard(self._calls.keys.query(query_id, "live"))
                    pipeline.xlen(self._calls.keys.query(query_id, "outbox"))
                    pipeline.hget(self._calls.keys.query(query_id, "meta"), "fingerprint")
                found = await pipeline.execute(raise_on_error=False)
        except StoreUnavailable as away:  # raised of all where a part of a cluster is away
            return [[away, away, away]] * len(query_ids)
        return [found[at : at + 3] for at in range(0, len(found), 3)]

    async def _act(self, action: str, query_id: str, lease_id: str, analyst: str, microseconds: int) -> LeaseFact:
        arguments = [action, lease_id, analyst, microseconds, CORRELATION.get() or ""]
        keys = self._keys(query_id)
        code, *found = await self._calls.run(self._lease, keys, arguments)
        await self._check(query_id, code)
        with self._calls.reading(keys[1]):
            return _lease(query_id, lease_id.encode(), found[0])

    def _keys(self, query_id: str, *more: str) -> list[str]:
        return [self._calls.keys.query(query_id, part) for part in (*LEASE_PARTS, *more)]

    async def _check(self, query_id: str, answer: bytes) -> None:
        if answer == b"ok":
            return
        code = ClaimCode(answer.decode())
        if code is ClaimCode.UNKNOWN_QUERY:
            mark = self._calls.keys.generation
            async with self._calls.answering(mark):
                if await self._calls.redis.get(mark) is None:
                    code = ClaimCode.REBUILDING
        raise ClaimRefused(code, f"query {query_id!r}: {_WHY[code]}")


def _lease(query_id: str, lease_id: bytes, raw: bytes) -> LeaseFact:
    stored = read_lease(raw)
    return stored.fact(query_id, read_text(lease_id, "the id of a lease"), Action.CLAIMED, stored.begun)
