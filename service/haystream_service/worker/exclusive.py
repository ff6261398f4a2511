"""One at a time on a collection: its items are added and its queries settled by turns, the long ones in a thread.

The queries of a collection share its graph and what their priors say of it, and the follower adds to both, so
two of them must never be at work at once. Nor may the event loop stand still for long: Kafka counts a worker
without heartbeats as dead, and every other query of the process would wait.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


class Exclusive:
    """Takes turns. The compiled kernels let go of the interpreter, so the loop goes on beside a thread."""

    def __init__(self) -> None:
        self.wanted: NDArray[np.int32] = np.zeros(1, np.int32)
        """How many wait for a turn, but for the patient: long work that can stop early looks at it."""
        self._lock = asyncio.Lock()

    async def __call__(self, work: Callable[[], T], *, in_thread: bool, patient: bool = False) -> T:
        """The work's result, when its turn has come.

        Cancelled, this returns at once; work that is in a thread by then goes on to its end, and nobody else
        gets a turn before that. Its result is lost.
        """
        self.wanted += not patient
        try:
            await self._lock.acquire()
        finally:
            self.wanted -= not patient
        if not in_thread:
            try:
                return work()
            finally:
                self._lock.release()
        working = asyncio.get_running_loop().run_in_executor(None, work)
        working.add_done_callback(self._done)
        return await asyncio.shield(working)

    def _done(self, working: asyncio.Future[T]) -> None:
        self._lock.release()
        if not working.cancelled():
            working.exception()  # where the caller was cancelled, nobody else asks for it
