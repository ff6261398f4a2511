"""How often somebody may ask: a bucket that fills at a rate, and a request takes one out of it."""

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

MOST_BUCKETS = 10_000
"""Of more, the one that was used the longest ago is forgotten: it would be full again by now."""


class Rates:
    """Buckets by name: `rate` requests a second, and `burst` at once. In this process alone: replicas add up."""

    def __init__(self, rate: float, burst: float, *, clock: Callable[[], float] = monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, name: str) -> float:
        """Take one; 0, or in how many seconds there is one to take where there is none now."""
        now = self._clock()
        left, at = self._buckets.pop(name, (self._burst, now))
        left = min(self._burst, left + self._rate * (now - at))
        taken = left >= 1
        self._buckets[name] = (left - taken, now)
        if len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)
        return 0.0 if taken else (1 - left) / self._rate
