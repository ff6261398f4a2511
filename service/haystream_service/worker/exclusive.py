"""One at a time on a collection: its items are added and its queries settled by turns, the long ones in a thread.

The queries of a collection share its graph and what their priors say of it, and the follower adds to both, so
two of them must never be at work at once. Nor may the event loop stand still for long: Kafka counts a worker
without heartbeats as dead, and every other query of the process would wait.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum
from heapq import heappop, heappush
from itertools import count
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


class Turn(IntEnum):
    """Who goes first where several wait."""

    ANSWER = 0
    """Somebody waits for it: a verdict."""
    GROWTH = 1
    """What can be a little late: new items, a query that is loaded or opened."""
    REST = 2
    """What is done when nobody waits."""


RECENT_SECONDS = 0.25
"""For so long after a verdict for one of a collection's queries, more of them are expected."""
PAUSES = {Turn.ANSWER: 0.0, Turn.GROWTH: 1.0, Turn.REST: 3.0}
"""Then there is none of the kind, nor of one that goes later, for so many times as long as a turn took. Each may be
short, but where items concern a hundred queries, they would take both cores together, and the event loop."""
LONGEST_PAUSE_SECONDS = 1.0
"""Where a turn took so long because the process stood still, there is nothing to pause for."""


class Exclusive:
    """Gives turns, to those first whom somebody waits for.

    Long work has a thread, one that belongs to this collection: no other's work is before it there. The compiled
    kernels let go of the interpreter, so the loop goes on beside it. While verdicts come, there are pauses between
    the turns that nobody waits for.
    """

    def __init__(self) -> None:
        self.wanted: NDArray[np.int32] = np.zeros(1, np.int32)
        """How many wait for a turn, or for the end of their own at rest, but for those at rest: long work that can
        stop early looks at it."""
        self._taken = False
        self._waiting: list[tuple[Turn, int, asyncio.Future[None]]] = []
        self._by_whom: dict[str, asyncio.Future[None]] = {}
        """Those of them that have said who they are."""
        self._at_rest: str | None = None
        """Who has his turn now, where that is at rest and he has said so."""
        self._hurried = False
        """Whether somebody waits for him meanwhile."""
        self._turn, self._began = Turn.ANSWER, 0.0
        """Of whoever has the collection now, or had it last; when it began, on the loop's clock."""
        self._verdict_at = float("-inf")
        self._paused_until = dict.fromkeys(Turn, float("-inf"))
        self._timer: asyncio.TimerHandle | None = None
        """The end of a pause that somebody waits for."""
        self._numbers = count()
        self._thread = _one_thread()
        self._closed = False

    async def __call__(
        self, work: Callable[[], T], *, in_thread: bool, turn: Turn = Turn.ANSWER, who: str | None = None
    ) -> T:
        """The work's result, when its turn has come; `hurry` may be told `who` waits, or is at work.

        Cancelled, this returns at once; work that is in a thread by then goes on to its end, and nobody else
        gets a turn before that. Its result is lost.

        Raises:
            MemoryError: the process gets no thread.
        """
        await self._acquire(turn, who)
        self._turn, self._began = turn, asyncio.get_running_loop().time()
        self._at_rest = who if turn is Turn.REST else None
        if not in_thread or self._closed:
            try:
                return work()
            finally:
                self._release()
        try:
            working = asyncio.get_running_loop().run_in_executor(self._thread, work)
        except RuntimeError as error:  # the system gives no thread: what waits for one would be done later
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = _one_thread()
            self._release()
            raise MemoryError(str(error)) from error
        working.add_done_callback(self._done)
        return await asyncio.shield(working)

    def close(self) -> None:
        """Let go of the thread, once it has done what it has begun; what still comes is done at once."""
        self._closed = True
        self._thread.shutdown(wait=False)

    def verdict_came(self) -> None:
        """Take that a verdict came for one of the queries."""
        self._verdict_at = asyncio.get_running_loop().time()

    def hurry(self, who: str, turn: Turn = Turn.ANSWER) -> None:
        """Have whoever waits by this name go where those of that turn go: he has something of the kind to do now.
        Whoever is at rest by this name is to end soon."""
        mine = self._by_whom.get(who)
        if mine is not None:
            heappush(self._waiting, (turn, next(self._numbers), mine))
            if not self._taken:
                self._pass_on()
        elif who == self._at_rest and not self._hurried:
            self._hurried = True
            self.wanted += 1

    async def _acquire(self, turn: Turn, who: str | None) -> None:
        if not self._taken and self._pause(turn) <= 0.0:
            self._taken = True
            return
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (turn, next(self._numbers), mine))
        self.wanted += turn < Turn.REST
        if who is not None:
            self._by_whom[who] = mine
        if not self._taken:
            self._pass_on()
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self._pass_on()  # the turn had come, and nobody is there to use it
            raise
        finally:
            self.wanted -= turn < Turn.REST
            if who is not None and self._by_whom.get(who) is mine:
                del self._by_whom[who]

    def _release(self) -> None:
        self.wanted -= self._hurried
        self._at_rest, self._hurried = None, False
        now = asyncio.get_running_loop().time()
        pause = min(PAUSES[self._turn] * (now - self._began), LONGEST_PAUSE_SECONDS)
        for later in Turn:
            if later >= self._turn:
                self._paused_until[later] = max(self._paused_until[later], now + pause)
        self._pass_on()

    def _pass_on(self) -> None:
        """Give the turn to whoever is next, or to nobody until the pause is over."""
        self._taken = False
        while self._waiting and not self._taken:
            turn, _, following = self._waiting[0]
            if following.done():
                heappop(self._waiting)
            elif (left := self._pause(turn)) <= 0.0:
                heappop(self._waiting)
                following.set_result(None)
                self._taken = True
            else:
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = asyncio.get_running_loop().call_later(left, self._pause_is_over)
                return

    def _pause(self, turn: Turn) -> float:
        """Seconds until there may be a turn of the kind, or 0."""
        if turn is Turn.ANSWER or self._closed:
            return 0.0
        until = min(self._paused_until[turn], self._verdict_at + RECENT_SECONDS)
        return max(0.0, until - asyncio.get_running_loop().time())

    def _pause_is_over(self) -> None:
        self._timer = None
        if not self._taken:
            self._pass_on()

    def _done(self, working: asyncio.Future[T]) -> None:
        self._release()
        if not working.cancelled():
            working.exception()  # where the caller was cancelled, nobody else asks for it


def _one_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="collection")
