"""Drift is undone between batches: in turns of about the same length, with rests while somebody is at work."""

import asyncio
import threading
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from support.held_work import HeldWork

from haystream_service.worker.exclusive import Exclusive, Turn
from haystream_service.worker.mailbox import Mailbox
from haystream_service.worker.tending import (
    FEW_PARTICIPANTS,
    FEWEST,
    LATE_SECONDS,
    MOST,
    RECENT_SECONDS,
    REST_FACTOR,
    RESTS_IN_A_ROW,
    TURN_SECONDS,
    Tending,
)

pytestmark = pytest.mark.asyncio


class Hands:
    """A clock that nothing but work and rests moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def monotonic(self) -> float:
        return self.seconds


class Drifted:
    """A state with so many solves to do, each of which takes so many seconds."""

    unfinished = False

    def __init__(self, clock: Hands, *, solves: int, seconds: float) -> None:
        self.turns: list[int] = []
        self.told: list[int] = []
        """After how many turns readers were told of them."""
        self.foreseen: list[bool] = []
        """Whether fully, each time that it was asked to foresee."""
        self.after_turn: Callable[[], None] = lambda: None
        self._clock = clock
        self._left = solves
        self._seconds = seconds

    def tend(self, most: int, stop: NDArray[np.int32]) -> bool:
        done = min(most, self._left)
        self.turns.append(done)
        self._left -= done
        self._clock.seconds += done * self._seconds
        self.after_turn()
        return self._left > 0

    @property
    def participants_left(self) -> int:
        return self._left

    @property
    def drifts(self) -> bool:
        return self._left > 0

    def foresee(self, *, fully: bool) -> bool:
        self.foreseen.append(fully)
        return False

    def tell(self) -> None:
        self.told.append(len(self.turns))


class Restful(Mailbox[int]):
    """A mailbox whose rests take no time but on the clock."""

    def __init__(self, clock: Hands) -> None:
        super().__init__(self._nothing, max_batch=1, on_bug=lambda _: None)
        self.rests: list[float] = []
        self.late = 0.0
        """By how much each rest lasts longer than it was to."""
        self._clock = clock

    async def _nothing(self, batch: list[int]) -> None: ...

    async def until_due(self, seconds: float) -> None:
        self.rests.append(seconds)
        self._clock.seconds += seconds + self.late


async def test_turns_get_longer_and_shorter_until_they_take_as_long_as_they_should() -> None:
    clock = Hands()
    for seconds, most in ((1e-7, MOST), (1e-5, 100), (1.0, FEWEST)):
        state, mailbox = Drifted(clock, solves=20_000, seconds=seconds), Restful(clock)
        assert await Tending("q", clock).until_due(state, Exclusive(), mailbox)  # type: ignore[arg-type]
        assert sum(state.turns) == 20_000
        assert state.turns[0] == FEWEST
        assert max(state.turns) <= MOST
        assert most * seconds >= TURN_SECONDS / 4 or most == MOST
        assert most / 2 <= np.median(state.turns) <= 2 * most


async def test_it_rests_while_batches_come_one_after_the_other_and_not_else() -> None:
    clock = Hands()
    mailbox, tending, exclusive = Restful(clock), Tending("q", clock), Exclusive()

    async def rests(solves: int) -> list[float]:
        mailbox.rests.clear()
        await tending.until_due(Drifted(clock, solves=solves, seconds=1e-5), exclusive, mailbox)  # type: ignore[arg-type]
        return list(mailbox.rests)

    assert set(await rests(200)) == {0.0}  # the first batch
    clock.seconds += RECENT_SECONDS / 10
    at_work = await rests(10_000)
    assert at_work[0] > 0.0
    assert at_work[-1] == 0.0  # nobody came any more
    assert sum(at_work) * (1 + 1 / REST_FACTOR) == pytest.approx(RECENT_SECONDS, rel=0.1)
    clock.seconds += 2 * RECENT_SECONDS
    assert set(await rests(200)) == {0.0}


async def test_readers_are_told_of_a_turn_before_a_rest_and_later_else_or_where_somebody_waits() -> None:
    clock = Hands()
    mailbox, tending, exclusive = Restful(clock), Tending("q", clock), Exclusive()

    async def told(solves: int) -> list[int]:
        mailbox.rests.clear()
        clock.seconds += RECENT_SECONDS / 10
        state = Drifted(clock, solves=solves, seconds=1e-5)
        await tending.until_due(state, exclusive, mailbox)  # type: ignore[arg-type]
        return state.told

    assert not await told(1)  # the first batch
    exclusive.wanted += 1
    assert not await told(10)
    assert max(mailbox.rests) > 0.0
    exclusive.wanted -= 1
    at_work = await told(10_000)
    assert len(at_work) > 1
    assert at_work == [turn for turn, seconds in enumerate(mailbox.rests, start=1) if seconds]


async def test_all_is_foreseen_in_a_pause_and_little_where_batches_come_one_after_the_other() -> None:
    clock = Hands()
    mailbox, tending, exclusive = Restful(clock), Tending("q", clock), Exclusive()

    async def foreseen() -> list[bool]:
        state = Drifted(clock, solves=1, seconds=1e-5)
        assert await tending.until_due(state, exclusive, mailbox)  # type: ignore[arg-type]
        return state.foreseen

    assert await foreseen() == [True]  # the first batch
    assert not await tending.until_quiet(mailbox)
    clock.seconds += RECENT_SECONDS / 10
    assert await foreseen() == [False]
    assert await tending.until_quiet(mailbox)
    assert mailbox.rests[-1] == RECENT_SECONDS
    assert await foreseen() == [True]
    assert not await tending.until_quiet(mailbox)


async def test_a_batch_that_comes_ends_the_wait_for_a_pause() -> None:
    clock, handled, pauses = Hands(), list[int](), list[bool]()
    tending, came, rested = Tending("q", clock), asyncio.Event(), asyncio.Event()
    for _ in range(2):
        state = Drifted(clock, solves=1, seconds=1e-5)
        assert await tending.until_due(state, Exclusive(), Restful(clock))  # type: ignore[arg-type]

    async def handle(batch: list[int]) -> None:
        handled.extend(batch)
        came.set()

    async def rest() -> None:
        pauses.append(await tending.until_quiet(mailbox))
        if len(pauses) == 2:
            rested.set()

    mailbox = Mailbox(handle, max_batch=1, on_bug=pytest.fail, rest=rest)
    mailbox.post(1)
    await came.wait()
    await asyncio.sleep(0.0)  # it waits for a pause
    mailbox.post(2)
    await rested.wait()
    assert handled == [1, 2]
    assert pauses == [False, True]


async def test_it_is_in_a_thread_where_growth_or_batches_one_after_the_other_leave_much_to_do() -> None:
    clock, threads = Hands(), list[bool]()
    tending, exclusive = Tending("q", clock), Exclusive()

    async def in_thread(*, left: int, unfinished: bool = False) -> bool:
        state = Drifted(clock, solves=left, seconds=1e-7)
        state.unfinished = unfinished
        state.after_turn = lambda: threads.append(threading.current_thread() is not threading.main_thread())
        await tending.until_due(state, exclusive, Restful(clock))  # type: ignore[arg-type]
        first, *_ = threads
        threads.clear()
        return first

    assert not await in_thread(left=10 * FEW_PARTICIPANTS)  # the first batch
    clock.seconds += RECENT_SECONDS / 10
    assert await in_thread(left=10 * FEW_PARTICIPANTS)
    assert not await in_thread(left=FEW_PARTICIPANTS)
    clock.seconds += 2 * RECENT_SECONDS
    assert not await in_thread(left=10 * FEW_PARTICIPANTS)
    clock.seconds += 2 * RECENT_SECONDS
    assert await in_thread(left=1, unfinished=True)


async def test_it_rests_again_while_the_event_loop_wakes_it_late_but_not_for_ever() -> None:
    clock = Hands()
    turns = {}
    for late in (0.0, 2 * LATE_SECONDS):
        state, mailbox = Drifted(clock, solves=500, seconds=1e-5), Restful(clock)
        mailbox.late = late
        assert await Tending("q", clock).until_due(state, Exclusive(), mailbox)  # type: ignore[arg-type]
        turns[late] = len(state.turns) - 1  # nothing is left after the last
        assert len(mailbox.rests) == turns[late] * (RESTS_IN_A_ROW if late else 1)
    assert turns[0.0] == turns[2 * LATE_SECONDS] > 1


async def test_a_batch_ends_it_and_its_rest() -> None:
    clock, batches, order = Hands(), list[list[int]](), list[str]()
    tending, exclusive = Tending("q", clock), Exclusive()
    state = Drifted(clock, solves=10**9, seconds=1e-5)

    async def handle(batch: list[int]) -> None:
        batches.append(batch)
        if batch == [1]:
            assert not await tending.until_due(state, exclusive, mailbox)  # type: ignore[arg-type]
            order.append("ended")

    mailbox = Mailbox(handle, max_batch=1, on_bug=lambda bug: order.append(repr(bug)))
    state.after_turn = lambda: mailbox.post(2) if len(state.turns) == 3 else None
    mailbox.post(1)
    async with asyncio.timeout(30):
        await mailbox.drained()
    assert (batches, order, len(state.turns)) == ([[1], [2]], ["ended"], 3)
    resting = asyncio.create_task(mailbox.until_due(3600.0))
    await asyncio.sleep(0)
    mailbox.post(3)
    async with asyncio.timeout(30):
        await resting


async def test_whom_somebody_waits_for_goes_first_and_who_rests_is_told() -> None:
    exclusive, seen, go = Exclusive(), list[tuple[str, int]](), threading.Event()

    async def turn(turn: Turn) -> None:
        await exclusive(lambda: seen.append((turn.name, int(exclusive.wanted[0]))), in_thread=False, turn=turn)

    await turn(Turn.REST)
    held = asyncio.create_task(exclusive(lambda: go.wait(30), in_thread=True, turn=Turn.REST))
    await asyncio.sleep(0)
    order = (Turn.REST, Turn.GROWTH, Turn.ANSWER, Turn.GROWTH, Turn.ANSWER)
    waiting = [asyncio.create_task(turn(which)) for which in order]
    cancelled = asyncio.create_task(turn(Turn.ANSWER))
    await asyncio.sleep(0)
    assert exclusive.wanted[0] == 5
    cancelled.cancel()
    go.set()
    await asyncio.gather(held, *waiting)
    assert seen == [("REST", 0), ("ANSWER", 3), ("ANSWER", 2), ("GROWTH", 1), ("GROWTH", 0), ("REST", 0)]
    await turn(Turn.ANSWER)
    exclusive.close()


async def test_who_waits_to_tend_goes_first_where_a_batch_comes() -> None:
    clock, order, held = Hands(), list[str](), HeldWork()
    exclusive, mailbox = Exclusive(), Restful(clock)
    state = Drifted(clock, solves=1, seconds=1e-5)
    state.after_turn = lambda: order.append("tended")

    tasks: list[asyncio.Task[object]] = [asyncio.create_task(exclusive(held, in_thread=True))]
    await held.entered.wait()
    for _ in range(3):
        growth = exclusive(lambda: order.append("grown"), in_thread=False, turn=Turn.GROWTH)
        tasks.append(asyncio.create_task(growth))
    tasks.append(asyncio.create_task(Tending("q", clock).until_due(state, exclusive, mailbox)))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    exclusive.hurry("q")
    held.go.set()
    await asyncio.gather(*tasks)
    assert order == ["tended", "grown", "grown", "grown"]


async def test_what_else_is_done_in_a_turn_says_nothing_about_solves() -> None:
    clock = Hands()
    mailbox = Restful(clock)
    state, tending = Drifted(clock, solves=0, seconds=1e-3), Tending("q", clock)
    looks = iter([True] * 50)
    state.foresee = lambda *, fully: next(looks, False)  # type: ignore[method-assign]
    assert await tending.until_due(state, Exclusive(), mailbox)  # type: ignore[arg-type]
    few = Drifted(clock, solves=FEWEST // 2, seconds=1e-6)  # as a verdict leaves them
    for _ in range(20):
        few._left = FEWEST // 2
        assert await tending.until_due(few, Exclusive(), mailbox)  # type: ignore[arg-type]
    state = Drifted(clock, solves=1000, seconds=1e-3)
    assert await tending.until_due(state, Exclusive(), mailbox)  # type: ignore[arg-type]
    assert state.turns[0] == FEWEST


async def test_who_is_due_when_his_turn_comes_does_nothing_with_it() -> None:
    exclusive, held = Exclusive(), HeldWork()
    state, tending, ended = Drifted(Hands(), solves=1000, seconds=1e-5), Tending("q", Hands()), list[bool]()

    async def handle(batch: list[int]) -> None:
        if batch == [1]:
            ended.append(await tending.until_due(state, exclusive, mailbox))  # type: ignore[arg-type]

    holding = asyncio.create_task(exclusive(held, in_thread=True))
    await held.entered.wait()
    mailbox = Mailbox(handle, max_batch=1, on_bug=lambda bug: pytest.fail(repr(bug)))
    mailbox.post(1)
    await asyncio.sleep(0.01)
    assert exclusive._by_whom  # it waits for its turn
    mailbox.post(2)
    held.go.set()
    await asyncio.gather(holding, mailbox.drained())
    assert (ended, state.turns) == ([False], [])
