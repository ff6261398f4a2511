"""Whether the store still has the lists of which queries there are, by partition.

Nobody asks for a query that is in no list: it is not loaded after a restart, or its leases do not run out. Where
somebody deleted a list, or some of it, it is made anew of what is saved of each query. How many are in the list of
all is noted, for whoever is given the partition next: he has seen no longer one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
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
        for partition in self._sizes.keys() - before.keys():
            noted = await self._retry(partial(self._store.read_listed, partition), until_mended=True)
            before[partition] = noted, 0, 0
        gone = {partition for partition, sizes in self._sizes.items() if _is_less(before[partition], sizes)}
        if gone:
            await list_anew(gone, self._store, self._retry)
            self._sizes = await self._ask()
        for partition, (listed, *_) in self._sizes.items():
            if listed != before[partition][0]:
                await self._retry(partial(self._store.note_listed, partition, listed), until_mended=True)

    async def _ask(self) -> dict[int, tuple[int, ...]]:
        ask = self._store.list_sizes
        return {number: await self._retry(partial(ask, number)) for number in sorted(self._partitions())}


def _is_less(before: tuple[int, ...], now: tuple[int, ...]) -> bool:
    """Whether lists that had so many queries lack some now.

    Those that are deleted stay in the list of all, and count as if they had not left that of those that have
    leases. That of those that are stopped is to be empty again: one that lacks some is completed at the next start.
    """
    return now[0] < before[0] or now[1] < before[1] or (before[2] > 0 and not now[2])


async def list_anew(partitions: Collection[int], store: Store, retry: Retry) -> None:
    """Make the lists of those partitions anew of what is saved of each query."""
    await told_complete(partial(store.list_anew, partitions), retry)


async def told_complete(complete: Callable[[], Awaitable[int]], retry: Retry) -> None:
    """Complete lists in the store, and say so where any lacked a query."""
    if lacked := await retry(complete, until_mended=True):
        log.error("Redis lacked %d entries in its lists of queries: they are made anew", lacked)
