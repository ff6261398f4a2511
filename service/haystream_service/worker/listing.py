"""Whether the store still has the lists of which queries there are, by partition.

Nobody asks for a query that is in no list: it is not loaded after a restart, or its leases do not run out. Where
somebody deleted a list it is made anew of what is saved of each query.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial

from haystream_service.store.base import Store
from haystream_service.worker.retry import Retry

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0


class Listing:
    """Looks after the lists of this process's partitions."""

    def __init__(self, store: Store, partitions: Callable[[], Iterable[int]], retry: Retry) -> None:
        self._store = store
        self._partitions = partitions
        self._retry = retry
        self._sizes: dict[int, tuple[int, ...]] = {}
        """How many queries the lists of each partition had at the last look."""

    async def run(self) -> None:
        """Look again and again, for ever."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Make anew what is gone since the last look."""
        before, self._sizes = self._sizes, await self._ask()
        gone = {
            partition for partition, sizes in self._sizes.items() if _is_less(before.get(partition, sizes), sizes)
        }
        if gone:
            await list_anew(gone, self._store, self._retry)
            self._sizes = await self._ask()

    async def _ask(self) -> dict[int, tuple[int, ...]]:
        ask = self._store.list_sizes
        return {number: await self._retry(partial(ask, number)) for number in sorted(self._partitions())}


def _is_less(before: tuple[int, ...], now: tuple[int, ...]) -> bool:
    """Whether lists that had so many queries lack some now: one is empty, or that of all has fewer than it had, as
    those that are deleted stay in it."""
    return now[0] < before[0] or any(was and not size for was, size in zip(before, now, strict=True))


async def list_anew(partitions: Collection[int], store: Store, retry: Retry) -> None:
    """Make the lists of those partitions anew of what is saved of each query, and say so where any lacked one."""
    if lacked := await retry(partial(store.list_anew, partitions), until_mended=True):
        log.error("Redis lacked %d entries in its lists of queries: they are made anew", lacked)
