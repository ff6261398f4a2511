"""Who may compute beside whom, when it may end the process."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class Attempts:
    """Many at once, or one that wants to be alone. First come, first served."""

    def __init__(self) -> None:
        self._entry = asyncio.Lock()
        self._running = 0
        self._left = asyncio.Event()

    @asynccontextmanager
    async def turn(self, *, alone: bool) -> AsyncGenerator[None, None]:
        """Wait for one's turn, and have it."""
        async with self._entry:
            if alone:
                while self._running:
                    self._left.clear()
                    await self._left.wait()
                yield
                return
            self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            self._left.set()
