"""Wakes an owner later: once, at the earliest of the times that it was set to."""

import asyncio
from collections.abc import Callable


class Alarm:
    """Calls `ring` when its time has come, in the event loop."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float) -> None:
        """Have it ring after so many seconds, or sooner where it was set to that."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._time_is_up)

    def cancel(self) -> None:
        """Have it not ring, unless it is set anew."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_is_up(self) -> None:
        self._timer = None
        self._ring()
