"""How much of which queries is in memory: those untouched for a while are made slim, those untouched for long are
put away, and these are brought back when there are new items.

A query that is put away costs its owner some words. What it is made of lies in the store, so an event for it brings
it back at any time (`QueryOwner`). One that is slim (`QueryState.slim`) is in memory, but for what it computes
again. Nobody waits for what is done here, so it is done by turns.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial

from haystream.events import View
from haystream_service.process_memory import resident_bytes
from haystream_service.store.base import StoreDamaged
from haystream_service.worker.exclusive import Turn
from haystream_service.worker.followers import Followers
from haystream_service.worker.holding import Away, Loaded
from haystream_service.worker.query_owner import QueryOwner
from haystream_service.worker.shared import Shared

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Between two looks at who is in memory."""
REST_FACTOR = 4.0
"""After a query was brought back for new items nobody else is for so many times as long as that took: bringing back
takes a fifth of a core, unless a server keeps it waiting: then `refresh_seconds` are enough. While there is memory
enough, nobody is made slim sooner after another either."""
LEAST_IDLE_SECONDS = 5.0
"""Touched more recently than this, a query is not put away for want of memory, nor made slim: it would come back at
once."""
FOLLOWED_SECONDS = 1.0
"""A query that nobody touches has followed its collection for so long in all when it is put away: to load it takes
less, rests counted, and it knows all that the collection has by then."""
A_PART = 8
"""Where there is too little memory, one in so many queries is made slim at a look; or, once all are, put away."""


class Residents:
    """Makes queries slim, puts them away, and brings them back for new items.

    `owners` are those of all queries of the worker; one is to `forget` who is long gone.
    """

    def __init__(
        self,
        shared: Shared,
        followers: Followers,
        owners: Callable[[], Iterable[QueryOwner]],
        *,
        forget: Callable[[QueryOwner], None],
    ) -> None:
        self._shared = shared
        self._followers = followers
        self._owners = owners
        self._forget = forget
        work = self._watch, self._slim, self._refresh
        self._tasks = [asyncio.create_task(shared.telling_bugs(each)) for each in work]

    def close(self) -> None:
        """Leave everything as it is."""
        for task in self._tasks:
            task.cancel()

    # ---- away ----

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for owner in self._leaving():
                owner.put_away()
            for owner in self._owners():
                if owner.long_gone:
                    self._forget(owner)

    def _leaving(self) -> list[QueryOwner]:
        """Those nobody has touched for `idle_seconds`, or for less while that took much work; more, the longest
        untouched first, where there are too many."""
        limits, now, there = self._shared.limits, self._shared.clock.monotonic(), self._there()
        too_many = max(0, len(there) - limits.queries_in_memory)
        idle = [
            owner
            for owner, loaded in there
            if now - owner.touched >= limits.idle_seconds
            or (loaded.followed > FOLLOWED_SECONDS and now - owner.touched >= limits.refresh_seconds)
        ]
        unlucky = [owner for owner, _ in there[:too_many] if now - owner.touched >= LEAST_IDLE_SECONDS]
        return list(dict.fromkeys(idle + unlucky))

    def _there(self) -> list[tuple[QueryOwner, Loaded]]:
        """Those in memory, the longest untouched first."""
        there = [(owner, loaded) for owner in self._owners() if (loaded := owner.loaded) is not None]
        return sorted(there, key=lambda pair: pair[0].touched)

    # ---- slim ----

    async def _slim(self) -> None:
        clock = self._shared.clock
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._short:
                await self._make_room()
                continue
            for owner in self._resting(self._shared.limits.slim_seconds):
                if self._short:
                    break
                began = clock.monotonic()
                await owner.slim(Turn.REST)
                await asyncio.sleep(REST_FACTOR * (clock.monotonic() - began))

    @property
    def _short(self) -> bool:
        """Whether the process holds more memory than it may."""
        most = self._shared.limits.memory_bytes
        return bool(most and resident_bytes() > most)

    def _resting(self, seconds: float) -> list[QueryOwner]:
        """Those that can be made slim and have not been, of those that nothing was done in for so long."""
        now = self._shared.clock.monotonic()
        there = self._there()
        return [owner for owner, loaded in there if not loaded.slimmed and now - loaded.worked >= seconds]

    async def _make_room(self) -> None:
        """Make some slim; put those away that cannot be, or, if all are, some of these."""
        now, there = self._shared.clock.monotonic(), self._there()
        unlucky = [(owner, loaded) for owner, loaded in there if now - owner.touched >= LEAST_IDLE_SECONDS]
        fat = [(owner, loaded) for owner, loaded in unlucky if not loaded.slimmed]
        for owner, loaded in (fat or unlucky)[: 1 + len(there) // A_PART]:
            if loaded.slimmed or not await owner.slim(Turn.GROWTH):
                owner.put_away()

    # ---- and back ----

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(self._shared.limits.refresh_seconds)
            for owner in await self._behind():
                await self._bring_back(owner)

    async def _behind(self) -> list[QueryOwner]:
        """The queries that are put away and are to be saved anew: those that are outdated, and open ones whose
        collection has grown since, by what they rank.

        Where that is followed, or was a while ago, it is known whether anything came for them. Else it may have.
        """
        shared = self._shared
        following: dict[View, list[QueryOwner]] = {}
        behind = []
        for owner in self._owners():
            match owner.held:
                case Away(outdated=True):
                    behind.append(owner)
                case Away(follows=View() as view):
                    following.setdefault(view, []).append(owner)
        for view, owners in following.items():
            try:
                count = await shared.retry(partial(shared.store.entry_count, view.collection))
            except StoreDamaged as damaged:
                log.error("%s", damaged)
                continue
            last = self._followers.changed(view, count)
            behind += [o for o in owners if isinstance(o.held, Away) and o.held.cursor < last]
        return behind

    async def _bring_back(self, owner: QueryOwner) -> None:
        clock = self._shared.clock
        began = clock.monotonic()
        if isinstance(owner.held, Away):
            await owner.visit()
            await asyncio.sleep(min(REST_FACTOR * (clock.monotonic() - began), self._shared.limits.refresh_seconds))
