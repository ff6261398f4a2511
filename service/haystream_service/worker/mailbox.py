"""A mailbox: events of one key, handled in batches by one task at a time.

What waits when the handler is free is one batch, so a burst coalesces and a lone event goes straight through.
The task lives only while there is something to do: a million idle mailboxes cost no task. Leaving an event never
waits, so a slow handler holds up nobody else; whoever brings the events bounds how many are under way.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Generic, TypeVar

E = TypeVar("E")


class Mailbox(Generic[E]):
    """Events in, batches out, in order, never two batches at once.

    `rest` is called after every batch, and should return as soon as the mailbox is `due`. An exception from either
    is a bug: it goes to `on_bug`, and the mailbox handles nothing more, so nothing of that batch or after it is
    ever acknowledged.
    """

    def __init__(
        self,
        handle: Callable[[list[E]], Awaitable[None]],
        *,
        max_batch: int,
        on_bug: Callable[[BaseException], None],
        rest: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._handle = handle
        self._rest = rest
        self._max_batch = max_batch
        self._on_bug = on_bug
        self._waiting: deque[E] = deque()
        self._poked = False
        self._broken = False
        self._dropping = 0
        self._task: asyncio.Task[None] | None = None
        self._came = asyncio.Event()
        self._handled = asyncio.Event()
        self._handled.set()

    def __len__(self) -> int:
        return len(self._waiting)

    def post(self, event: E) -> None:
        """Leave an event."""
        self._waiting.append(event)
        self._work()

    def poke(self) -> None:
        """Have the handler called even if no event waits (with an empty batch, then)."""
        self._poked = True
        self._work()

    def take(self) -> list[E]:
        """Take what waits, at most a batch. The handler may use it to add to the batch it has."""
        return [self._waiting.popleft() for _ in range(min(len(self._waiting), self._max_batch))]

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
            async with asyncio.timeout(seconds):  # `wait_for` would make a task, and come back three turns later
                await self._came.wait()

    @property
    def idle(self) -> bool:
        """Whether nothing waits, nothing is being handled, and resting has come to its end."""
        return self._task is None

    async def drained(self) -> None:
        """Return when nothing waits and nothing is being handled; it may be resting."""
        await self._handled.wait()

    @asynccontextmanager
    async def dropped(self) -> AsyncIterator[bool]:
        """Forget what waits and stop the handler where it is; in the context, whether it was amid a batch.

        Whoever has what the handler works on mends it there: what comes meanwhile is handled after the context.
        """
        task = self._task
        self._waiting.clear()
        self._poked = False
        self._dropping += 1
        try:
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
            yield task is not None
        finally:
            self._dropping -= 1
            self._task = None  # a task that is cancelled before its first step has tidied up nothing
            self._handled.set()
            if self.due:
                self._work()

    def _work(self) -> None:
        self._came.set()
        if not self._broken:
            self._handled.clear()
            if self._task is None and not self._dropping:
                self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            while self.due:
                self._poked = False
                await self._handle(self.take())
                if not self.due:
                    self._handled.set()
                if self._rest is not None:
                    await self._rest()
        except Exception as bug:  # noqa: BLE001 - a bug, whatever it is: told, never swallowed
            self._broken = True
            self._on_bug(bug)
        finally:
            self._task = None
            self._handled.set()
