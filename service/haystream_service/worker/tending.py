"""Undoing drift of a query's posterior between its batches, a turn at a time."""

from functools import partial
from typing import Any

from haystream.query.state import QueryState
from haystream_service.worker.clock import Clock
from haystream_service.worker.exclusive import Exclusive, Turn
from haystream_service.worker.mailbox import Mailbox

TURN_SECONDS = 0.001
"""What a turn takes where the event loop runs, about."""
TURN_SECONDS_IN_THREAD = 0.003
"""The same in a thread, where it ends after the solve in hand if somebody else wants one."""
FEW_PARTICIPANTS = 64
"""What so many participants wait for is done in a turn or two of the event loop."""
FEWEST, MOST = 8, 1024
"""Local solves a turn: one takes from a microsecond to a millisecond, near hubs."""
GROWTH_A_TURN = 2
"""A turn has at most so many times as many as the last one, since solves are not alike."""
RECENT_SECONDS = 0.25
"""Batches that come closer than this have somebody waiting for them."""
REST_FACTOR = 5.0
"""Then tending rests for so many times as long as it worked. Else it would take a core from the event loop, the
broker and the store, through which the next verdict has to go."""
LATE_SECONDS = 0.002
"""A rest that ends so late says that the event loop is busy: a thread would get into its way."""
RESTS_IN_A_ROW = 5
"""At most so many in a row, or a loop that is always busy would let drift add up."""


class Tending:
    """What the owner of a query does when it has nothing else to do: undo drift, and then foresee."""

    def __init__(self, query_id: str, clock: Clock) -> None:
        self._query_id = query_id
        self._clock = clock
        self._solves = FEWEST
        self._began = float("-inf")
        self._busy = False

    async def until_quiet(self, mailbox: Mailbox[Any]) -> bool:
        """Wait until no batch has come for RECENT_SECONDS, if some did: then there is time to foresee more, with
        `until_due` (True); there is none where nothing was left out, or the mailbox is due."""
        if self._busy:
            await mailbox.until_due(RECENT_SECONDS)
        return self._busy and not mailbox.due

    async def until_due(self, state: QueryState, exclusive: Exclusive, mailbox: Mailbox[Any]) -> bool:
        """Tend until nothing is left to do (True), or the mailbox is due. Where batches come one after the other,
        no more is foreseen than takes little time."""
        before, self._began = self._began, self._clock.monotonic()
        while not mailbox.due:
            busy = max(self._began - before, self._clock.monotonic() - self._began) < RECENT_SECONDS
            self._busy = busy
            # Longer turns do more in as much time. In a thread they hold up nobody: where a graph grew at once, or
            # batches come one after the other and leave much to do.
            in_thread = state.unfinished or (busy and state.participants_left > FEW_PARTICIPANTS)
            wanted = TURN_SECONDS_IN_THREAD if in_thread else TURN_SECONDS
            more, took = await exclusive(
                partial(self._turn, state, exclusive, mailbox, wanted, rests=busy),
                in_thread=in_thread,
                turn=Turn.REST,
                who=self._query_id,
            )
            if not more:
                return True
            await self._rest(REST_FACTOR * took if busy else 0.0, mailbox)
        return False

    async def _rest(self, seconds: float, mailbox: Mailbox[Any]) -> None:
        for _ in range(RESTS_IN_A_ROW):
            began = self._clock.monotonic()
            await mailbox.until_due(seconds)
            if mailbox.due or self._clock.monotonic() - began < seconds + LATE_SECONDS:
                return

    def _turn(
        self, state: QueryState, exclusive: Exclusive, mailbox: Mailbox[Any], wanted: float, *, rests: bool
    ) -> tuple[bool, float]:
        """Whether there is more to do, and the seconds that this turn took. Where it `rests` then, a batch may come
        before the next turn, which is not to have anything to do for this one."""
        if mailbox.due:  # since it began to wait for its turn
            return True, 0.0
        began, solves = self._clock.monotonic(), state.drifts
        more = state.tend(self._solves, stop=exclusive.wanted) or state.foresee(fully=not rests)
        took = self._clock.monotonic() - began
        all_of_them = state.drifts and not exclusive.wanted[0]
        if solves and (all_of_them or took > wanted):
            self._adapt(took, wanted)
        if rests and not exclusive.wanted[0]:
            state.tell()
        return more, self._clock.monotonic() - began

    def _adapt(self, took: float, wanted: float) -> None:
        """Have the next turn with solves take as long as is wanted, by what this one took."""
        share = min(wanted / took, GROWTH_A_TURN) if took > 0.0 else GROWTH_A_TURN
        self._solves = min(max(round(share * self._solves), FEWEST), MOST)
