"""Trying again while a server does not answer."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from typing import TypeVar

from haystream_service.kafka.records import BrokerUnavailable
from haystream_service.metrics import Metrics
from haystream_service.store.base import StoreDamaged, StoreUnavailable

log = logging.getLogger(__name__)

FIRST_SECONDS = 0.05
LONGEST_SECONDS = 5.0
"""A server that comes back is used again within this time; much less would be a storm from many workers."""

T = TypeVar("T")

FREE_PERMIT = nullcontext()
"""In place of a permit, for what anybody may do at any time."""


class Retry:
    """Calls until there is an answer: what is transient is never skipped and never fails a batch."""

    def __init__(self, metrics: Metrics, *, rng: random.Random | None = None) -> None:
        self._metrics = metrics
        self._rng = rng or random.Random()
        self._troubles: dict[object, str] = {}

    @property
    def troubles(self) -> list[str]:
        """Why the calls that have no answer yet have none, and what else is waited for; each reason once."""
        return sorted(set(self._troubles.values()))

    @contextmanager
    def told(self, trouble: str) -> Iterator[None]:
        """A context in which something else is waited for, which is among the troubles."""
        this = object()
        self._troubles[this] = trouble
        try:
            yield
        finally:
            del self._troubles[this]

    async def __call__(
        self,
        call: Callable[[], Awaitable[T]],
        *,
        until_mended: bool = False,
        permit: AbstractAsyncContextManager[object] = FREE_PERMIT,
    ) -> T:
        """The answer of the first call that gets one. Waits twice as long each time, with full jitter.

        With `until_mended` it waits also where the store holds something else under a key (`StoreDamaged`).
        Each call is made under the `permit`, which others may have meanwhile.
        """
        waited = (StoreUnavailable, BrokerUnavailable, *((StoreDamaged,) if until_mended else ()))
        delay = FIRST_SECONDS
        this = object()
        try:
            while True:
                try:
                    async with permit:
                        return await call()
                except waited as error:
                    server = "kafka" if isinstance(error, BrokerUnavailable) else "redis"
                    self._metrics.server_errors.labels(server).inc()
                    log.warning("%s; trying again", error)
                    self._troubles[this] = str(error)
                await asyncio.sleep(self._rng.uniform(0, delay))
                delay = min(2 * delay, LONGEST_SECONDS)
                self._metrics.server_retries.labels(server).inc()
        finally:
            self._troubles.pop(this, None)
