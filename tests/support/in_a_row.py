"""How often something is called while nobody else has a turn of the event loop."""

import asyncio
from collections.abc import Callable
from typing import Any, Self


class InARow:
    """A function that counts its calls, and notes how many there were between two turns of others, at most."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.most = 0
        self._function = function
        self._calls = 0
        self._others: asyncio.Task[None] | None = None

    def __call__(self, *args: Any) -> Any:
        self._calls += 1
        self.most = max(self.most, self._calls)
        return self._function(*args)

    async def __aenter__(self) -> Self:
        self._others = asyncio.create_task(self._take_turns())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._others is not None
        self._others.cancel()

    async def _take_turns(self) -> None:
        while True:
            self._calls = 0
            await asyncio.sleep(0)
