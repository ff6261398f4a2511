"""Work in a thread that goes on until the test lets it go."""

import asyncio
import threading


class HeldWork:
    """To be called in a thread; `entered` says that it is, and `go` ends it."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.go = threading.Event()
        self._loop = asyncio.get_running_loop()

    def __call__(self) -> None:
        self._loop.call_soon_threadsafe(self.entered.set)
        assert self.go.wait(30)
