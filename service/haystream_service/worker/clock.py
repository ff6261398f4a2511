"""Where the worker's time comes from."""

import time
from typing import Protocol


class Clock(Protocol):
    """What says what time it is."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()


class StoreClock:
    """The store's clock, as it was heard of last: who works on a store has one time, whatever his machine says.

    From then on this machine's monotonic clock goes on; before, there is its date.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead: float | None = None
        """By how much the store's time is above this machine's monotonic clock."""

    def heard(self, now: float) -> None:
        """It is so many seconds since the epoch in the store."""
        self._ahead = now - self._clock.monotonic()

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._clock.now() if self._ahead is None else self._ahead + self._clock.monotonic()

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return self._clock.monotonic()
