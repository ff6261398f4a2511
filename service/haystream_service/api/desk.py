"""What the routes work with: the store that they read, the facts that they write, what is known for a moment."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic, time
from typing import NamedTuple

from haystream.errors import Code
from haystream.events import Query, Status
from haystream_service.api.access import Caller
from haystream_service.api.contents import ContentReader
from haystream_service.api.facts import Facts
from haystream_service.api.on_demand import GraphsOnDemand
from haystream_service.api.outbox import Outbox
from haystream_service.api.problems import Problem, not_found, unavailable
from haystream_service.api.watching import Watching
from haystream_service.store.base import Head, Store
from haystream_service.store.claims import Claims
from haystream_service.wire import encode_query

HEAD_SECONDS = 1.0
"""For how long a query's settings are believed where that saves a question: the worker checks what is written."""
MOST_HEADS = 10_000
FIRST_LOOK_SECONDS = 0.004
LONGEST_LOOK_SECONDS = 0.1


class Opened(NamedTuple):
    """A query that is there, and that the caller may see."""

    query_id: str
    settings: Query
    head: Head

    @property
    def collection(self) -> str:
        """Whose items it ranks."""
        return self.settings.collection


@dataclass(frozen=True)
class Desk:
    """A replica's collaborators, as the routes see them."""

    store: Store
    claims: Claims
    facts: Facts
    contents: ContentReader
    outbox: Outbox
    graphs: GraphsOnDemand
    watching: Watching
    now: Callable[[], float] = time
    """Seconds since the epoch."""
    body_bytes: int = 16 << 20
    """The largest body of items."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the replica is to end: streams end then."""
    _heads: "OrderedDict[str, tuple[float, Head]]" = field(default_factory=OrderedDict)

    async def opened(self, caller: Caller, query_id: str, *, fresh: bool = True) -> Opened:
        """The query. Raises a `Problem` where it is not there, was deleted, or is not for the caller to see."""
        head = await self.head(query_id, fresh=fresh)
        if head is None:
            raise await self.missing(f"query {query_id!r}")
        if head.partition < 0:
            raise unavailable(f"Redis has something else of query {query_id!r}: a person has to mend that")
        if head.settings is None:
            raise Problem(Code.UNSUPPORTED, f"the settings of query {query_id!r} are of another version")
        if head.settings.status == Status.DELETED:
            raise Problem(Code.QUERY_DELETED, f"query {query_id!r} was deleted")
        if not caller.sees(head.settings.collection):
            raise not_found(f"query {query_id!r}")
        return Opened(query_id, head.settings, head)

    async def missing(self, what: str) -> Problem:
        """The problem that there is no such thing. Raises a `Problem` where nobody can say so."""
        await self.check_in_use()
        return not_found(what)

    async def check_in_use(self) -> None:
        """Raise a `Problem` while the store is empty, or is being made anew: what is not there may be to come."""
        if await self.store.generation() is None:
            raise unavailable("Redis is empty, or is being made anew: nobody can say what there is")

    async def head(self, query_id: str, *, fresh: bool = True) -> Head | None:
        """What is saved of the query; one that is not `fresh` may be a second old."""
        read, head = self._heads.get(query_id, (0.0, None))
        if not fresh and head is not None and monotonic() - read < HEAD_SECONDS:
            return head
        (found,) = await self.store.read_heads([query_id])
        self._heads.pop(query_id, None)
        if found is not None:
            self._heads[query_id] = monotonic(), found
            if len(self._heads) > MOST_HEADS:
                self._heads.popitem(last=False)
        return found


async def until(condition: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    """Return as soon as the condition holds, or when the time is over: whether it does."""
    give_up, look = monotonic() + seconds, FIRST_LOOK_SECONDS
    while not await condition():
        left = give_up - monotonic()
        if left <= 0:
            return False
        await asyncio.sleep(min(look, left))
        look = min(1.5 * look, LONGEST_LOOK_SECONDS)
    return True


def etag(settings: Query) -> str:
    """What If-Match compares: a digest of the settings."""
    return f'"{hashlib.blake2b(encode_query(settings), digest_size=12).hexdigest()}"'
