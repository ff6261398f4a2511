"""An event loop in which no time passes but by waiting, and nothing happens but in one order."""

import asyncio
from asyncio import BaseEventLoop
from collections.abc import Callable
from random import Random
from typing import Any

from typing_extensions import override

MOST_TURNS = 1_000_000
"""Turns of the loop after which a run is given up: somebody waits by asking again and again."""


class Stuck(Exception):  # noqa: N818 - it says what became of the run
    """The run can never end: nobody waits for a time, or somebody turns in a circle."""


class VirtualLoop(BaseEventLoop):
    """Its clock stands while anything is ready to run and jumps to the next timer otherwise.

    What is ready runs in the order in which it became ready, as asyncio promises; chance is in how long things
    take. Work for a thread is done in one piece by the loop itself, after a time that `rng` draws.
    """

    def __init__(self, rng: Random) -> None:
        super().__init__()
        self.rng = rng
        self.turns = 0
        self._now = 0.0
        self._selector = self

    @override
    def time(self) -> float:
        return self._now

    def select(self, timeout: float | None) -> list[Any]:
        """What a selector's does: wait for so long. No file or socket is ever ready."""
        if timeout is None:
            raise Stuck("nothing is left that could happen")
        self.turns += 1
        if self.turns > MOST_TURNS:
            raise Stuck(f"more than {MOST_TURNS} turns of the loop")
        self._now += timeout
        return []

    @override
    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        answer = self.create_future()

        def work() -> None:
            if answer.cancelled():
                return
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
                answer.set_exception(error)
            else:
                answer.set_result(result)

        self.call_later(short_time(self.rng), work)
        return answer

    def _process_events(self, events: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


def short_time(rng: Random) -> float:
    """Seconds that something takes: mostly next to nothing, seldom long."""
    dice = rng.random()
    if dice < 0.5:
        return 0.0
    if dice < 0.85:
        return rng.uniform(0.0, 0.005)
    return rng.uniform(0.0, 0.3) if dice < 0.98 else rng.uniform(0.0, 6.0)


class VirtualClock:
    """A process's clock: the loop's time, and the date set wrong by `skew` seconds."""

    def __init__(self, loop: VirtualLoop, *, skew: float = 0.0) -> None:
        self._loop = loop
        self._epoch = 1_700_000_000.0 + skew

    def now(self) -> float:
        """Seconds since the epoch, as this process believes."""
        return self._epoch + self._loop.time()

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return self._loop.time()
