"""What a collection's queries begin as copies of: made for a query that opens, or ahead, when nobody waits."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from functools import partial

from haystream.errors import QueryFailed
from haystream.query.originals import KeptOriginal, Original
from haystream.query.state import QueryState
from haystream_service.worker.clock import Clock
from haystream_service.worker.exclusive import Exclusive, Turn
from haystream_service.worker.shared import Shared

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""It is looked at most so often whether anything is to be done ahead: many queries come to rest at once."""
REST_FACTOR = 20.0
"""After a newer original was made ahead none is for so many times as long as that took, and likewise where growth
was followed: on a graph that grows all the time each takes a twentieth of a core."""
UNUSED_REST_FACTOR = 200.0
"""The same where nobody has begun with what was done: verdicts go slower meanwhile, and at most one of a hundred
is to."""


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
        self._made, self._led = _Rests(shared.clock), _Rests(shared.clock)
        """After newer originals that were made ahead, and growth that was followed."""

    async def make(self, state: QueryState, *, verdicts: int) -> None:
        """Return when what a query with so many verdicts begins as a copy of is there, if it begins so.

        Raises:
            QueryFailed: TOO_MUCH_WORK.
        """
        self._made.used = self._led.used = True
        kept = state.kept_original(verdicts)
        if kept is not None:
            await self._make(state, kept, kept.begun)

    async def _make(self, state: QueryState, kept: KeptOriginal, begun: Callable[[], Original | None]) -> None:
        async with self._one:
            # Also where it is ahead, at rest: somebody may be waiting to open a query by now.
            original = await self._exclusive(begun, in_thread=True, turn=Turn.GROWTH)
            if original is not None:
                await self._making(partial(original.make, state.settings.policy), in_thread=True)
                await self._exclusive(partial(kept.take, original), in_thread=True, turn=Turn.GROWTH)

    def make_ahead(self, state: QueryState) -> None:
        """Begin to make a newer one for whoever opens next with this query's prior, where one is due, or to follow
        what the collection got.

        To be called when the query has nothing left to do. Nobody waits for it; who opens while one is made does.
        """
        now = self._shared.clock.monotonic()
        busy = self._one.locked() or (self._ahead is not None and not self._ahead.done())
        if busy or now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        kept = state.kept_original()
        if kept is None:
            return
        if kept.due and self._made.over:
            self._begin(state, partial(self._make_newer, state, kept))
        elif kept.lags and self._led.over:
            self._begin(state, partial(self._lead, kept))

    def _begin(self, state: QueryState, work: Callable[[], Awaitable[None]]) -> None:
        self._ahead = asyncio.create_task(self._do_ahead(state, work), context=Context())

    async def _do_ahead(self, state: QueryState, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except QueryFailed as failure:  # so will who opens, and tells of it
            log.warning("what queries with the prior of %r begin with: %s", state.settings.query_id, failure)
        except MemoryError as lack:  # later there may be some
            log.warning(
                "what queries with the prior of %r begin with: no memory: %s", state.settings.query_id, lack
            )
        except Exception:
            # Other queries are none the worse for it; it is who opens, and is made one for, that may be stopped.
            log.exception("what queries with the prior of %r begin with", state.settings.query_id)
            self._next_look = float("inf")

    async def _make_newer(self, state: QueryState, kept: KeptOriginal) -> None:
        with self._made.after():
            await self._make(state, kept, partial(kept.begun, ahead=True))

    async def _lead(self, kept: KeptOriginal) -> None:
        def lead() -> None:
            with self._led.after():
                kept.lead()

        await self._exclusive(lead, in_thread=True, turn=Turn.REST)

    def close(self) -> None:
        """Make no more, and let go of the thread."""
        if self._ahead is not None:
            self._ahead.cancel()
        self._making.close()


class _Rests:
    """When something may be done ahead again: later where nobody has begun with what was done."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.used = True
        self._if_used = self._if_unused = float("-inf")

    @property
    def over(self) -> bool:
        """Whether the rest is over, so that something may be done ahead again."""
        return self._clock.monotonic() >= (self._if_used if self.used else self._if_unused)

    @contextmanager
    def after(self) -> Iterator[None]:
        """A context in which something is done ahead; the rest begins where it ends."""
        began, self.used = self._clock.monotonic(), False
        try:
            yield
        finally:
            now = self._clock.monotonic()
            self._if_used, self._if_unused = (
                now + rest * (now - began) for rest in (REST_FACTOR, UNUSED_REST_FACTOR)
            )
