"""A bounded mailbox: events of one key, handled in batches by one task at a time.

What waits when the handler is free is one batch, so a burst coalesces and a lone event goes straight through.
The task lives only while there is something to do: a million idle mailboxes cost no task.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic, TypeVar

E = TypeVar("E")


class Mailbox(Generic[E]):
    """Events in, batches out, in order, never two batches at once.

    An exception from `handle` is a bug: it goes to `on_bug`, and the mailbox handles nothing more, so nothing
    of that batch or after it is ever acknowledged.
    """

    def __init__(
        self,
        handle: Callable[[list[E]], Awaitable[None]],
        *,
        max_batch: int,
        size: int,
        on_bug: Callable[[BaseException], None],
    ) -> None:
        self._handle = handle
        self._max_batch = max_batch
        self._size = size
        self._on_bug = on_bug
        self._waiting: deque[E] = deque()
        self._poked = False
        self._broken = False
        self._task: asyncio.Task[None] | None = None
        self._space = asyncio.Event()
        self._came = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._waiting)

    async def put(self, event: E) -> None:
        """Leave an event; waits while the mailbox is full."""
        while len(self._waiting) >= self._size:
            self._space.clear()
            await self._space.wait()
        self.post(event)

    def post(self, event: E) -> None:
        """Leave an event even if the mailbox is full."""
        self._waiting.append(event)
        self._came.set()
        self._work()

    def poke(self) -> None:
        """Have the handler called even if no event waits (with an empty batch, then)."""
        self._poked = True
        self._came.set()
        self._work()

    def take(self) -> list[E]:
        """Take what waits, at most a batch. The handler may use it to add to the batch it has."""
        batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._max_batch))]
        self._space.set()
        return batch

    @property
    def due(self) -> bool:
        """Whether the handler is to be called again."""
        return bool(self._waiting) or self._poked

    async def until_due(self, seconds: float) -> None:
        """Return when the handler is to be called again, or after so many seconds. For the handler, to rest."""
        self._came.clear()
        if seconds <= 0.0 or self.due:
            await asyncio.sleep(0)
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._came.wait(), seconds)

    async def drained(self) -> None:
        """Return when nothing waits and nothing is being handled."""
        await self._idle.wait()

    async def drop(self) -> bool:
        """Forget what waits and stop the handler where it is; True if it was in the middle of a batch."""
        task = self._task
        self._waiting.clear()
        self._poked = False
        self._space.set()
        if task is None:
            return False
        task.cancel()
        await asyncio.wait([task])
        return True

    def _work(self) -> None:
        if self._task is None and not self._broken:
            self._idle.clear()
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            while self.due:
                self._poked = False
                await self._handle(self.take())
        except Exception as bug:  # noqa: BLE001 - a bug, whatever it is: told, never swallowed
            self._broken = True
            self._on_bug(bug)
        finally:
            self._task = None
            self._idle.set()
            if self.due:  # left while this task was being cancelled
                self._work()
