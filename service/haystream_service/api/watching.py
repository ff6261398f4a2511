"""Rankings as they come: one look at the store serves everybody who watches a query on this replica."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from haystream_service.store.base import Store, StoreDamaged, StoreUnavailable

LOOK_SECONDS = 0.1
"""Between two looks whether a query that somebody watches has a new ranking."""


@dataclass(eq=False)
class Watched:
    """The newest ranking of a query, for as long as somebody watches it."""

    revision: int = -1
    ranking: bytes | None = None
    """None where there is none: the query is not there any more."""
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    watchers: int = 0

    async def after(self, revision: int, seconds: float) -> bool:
        """Return once there is a ranking of a greater revision, or after so long: whether there is."""
        if self.revision <= revision:
            try:
                await asyncio.wait_for(self.moved.wait(), seconds)
            except TimeoutError:
                return False
        return self.revision > revision


class Watching:
    """The queries that are watched here."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watched: dict[str, tuple[Watched, asyncio.Task[None]]] = {}

    @asynccontextmanager
    async def query(self, query_id: str) -> AsyncIterator[Watched]:
        """The query, watched for the length of the block."""
        if query_id not in self._watched:
            watched = Watched()
            self._watched[query_id] = watched, asyncio.create_task(self._look(query_id, watched))
        watched, looking = self._watched[query_id]
        watched.watchers += 1
        try:
            yield watched
        finally:
            watched.watchers -= 1
            if not watched.watchers:
                del self._watched[query_id]
                looking.cancel()

    async def _look(self, query_id: str, watched: Watched) -> None:
        while True:
            try:
                revision = await self._store.read_revision(query_id)
                if revision is not None and revision > watched.revision:
                    # The revision is read first: what is read after it is at least as new.
                    watched.ranking = await self._store.read_ranking(query_id)
                    watched.revision = revision
                    watched.moved.set()
                    watched.moved = asyncio.Event()
            except (StoreUnavailable, StoreDamaged):
                pass  # watchers keep what they have, and are told when it moves again
            await asyncio.sleep(LOOK_SECONDS)
