"""What a collection's queries begin as copies of: made for a query that opens, or ahead, when nobody waits."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import Context
from functools import partial

from haystream.errors import QueryFailed
from haystream.originals import Original
from haystream.query_state import QueryState
from haystream_service.worker.exclusive import Exclusive, Turn
from haystream_service.worker.shared import Shared

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""It is looked at most so often whether one is to be made ahead: many queries come to rest at once."""
REST = 20.0
"""After one was made ahead none is for so many times as long as that took: a graph that grows all the time takes a
twentieth of a core."""
REST_UNUSED = 200.0
"""The same where nobody has begun with the one before: verdicts go slower while one is made, and not one of a
hundred is to."""


class OriginalMaker:
    """Makes originals, one at a time. That takes seconds on a large graph, and others go on with the collection."""

    def __init__(self, shared: Shared, exclusive: Exclusive) -> None:
        self._shared = shared
        self._exclusive = exclusive
        self._making = Exclusive()
        """Has a thread of its own."""
        self._one = asyncio.Lock()
        self._ahead: asyncio.Task[None] | None = None
        self._next_look = float("-inf")
        self._next_used = self._next_unused = float("-inf")
        """Before that none is made ahead: where the last one was used, and where it was not."""
        self._used = True
        """Whether anybody has begun with one since the last one was made ahead."""

    async def make(self, state: QueryState, *, verdicts: int) -> None:
        """Return when what a query with so many verdicts begins as a copy of is there, if it begins so.

        Raises:
            QueryFailed: TOO_MUCH_WORK.
        """
        self._used = True
        await self._make(state, partial(state.original, verdicts))

    async def _make(self, state: QueryState, begun: Callable[[], Original | None]) -> None:
        async with self._one:
            # Also where it is ahead, at rest: somebody may be waiting to open a query by now.
            original = await self._exclusive(begun, in_thread=True, turn=Turn.GROWTH)
            if original is not None:
                await self._making(partial(original.make, state.settings.policy), in_thread=True)
                await self._exclusive(partial(state.begin_with, original), in_thread=True, turn=Turn.GROWTH)

    def make_ahead(self, state: QueryState) -> None:
        """Begin to make a newer one for whoever opens next with this query's prior, where one is due, or to take in
        for him what the collection got.

        To be called when the query has nothing left to do. Nobody waits for it; who opens meanwhile does.
        """
        now = self._shared.clock.monotonic()
        if self._one.locked() or now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        if now >= (self._next_used if self._used else self._next_unused) and state.original_due:
            self._ahead = asyncio.create_task(self._do_ahead(state, self._make_newer), context=Context())
        elif state.leader_due:
            self._ahead = asyncio.create_task(self._do_ahead(state, self._lead), context=Context())

    async def _do_ahead(self, state: QueryState, work: Callable[[QueryState], Awaitable[None]]) -> None:
        try:
            await work(state)
        except QueryFailed as failure:  # so will who opens, and tells of it
            log.warning("what queries with the prior of %r begin with: %s", state.settings.query_id, failure)
        except Exception:
            # Other queries are none the worse for it; it is who opens, and is made one for, that may be stopped.
            log.exception("what queries with the prior of %r begin with", state.settings.query_id)
            self._next_look = float("inf")

    async def _make_newer(self, state: QueryState) -> None:
        clock = self._shared.clock
        began, self._used = clock.monotonic(), False
        await self._make(state, partial(state.original, 0, ahead=True))
        now = clock.monotonic()
        self._next_used, self._next_unused = (now + rest * (now - began) for rest in (REST, REST_UNUSED))

    async def _lead(self, state: QueryState) -> None:
        async with self._one:
            await self._exclusive(state.lead, in_thread=True, turn=Turn.REST)

    def close(self) -> None:
        """Make no more, and let go of the thread."""
        if self._ahead is not None:
            self._ahead.cancel()
        self._making.close()
