"""Acknowledgements of one partition, let through in the order of the offsets.

Batches of different queries finish in any order, but what is committed is one offset: everything below it
counts as done. Faust does not keep this for us: with 10 committed, 10 open and 11 acknowledged, its consumer
commits 12 (its check for a gap is off by one, and there is none before the first commit), and a crash then
loses 10. So an acknowledgement is held back here until all before it are there.
"""

from collections import deque
from collections.abc import Callable


class _Pending:
    __slots__ = ("done", "release")

    def __init__(self, release: Callable[[], object]) -> None:
        self.release = release
        self.done = False


class OrderedAcks:
    """The records of one partition that were delivered and are not acknowledged yet."""

    def __init__(self) -> None:
        self.in_hand = 0
        """How many of them are still being worked on; the others wait for an earlier one."""
        self._pending: deque[_Pending] = deque()

    def __len__(self) -> int:
        return len(self._pending)

    def track(self, release: Callable[[], object]) -> Callable[[], None]:
        """The record's `ack`, to be taken in the order of delivery. It calls `release` once, in that order."""
        entry = _Pending(release)
        self._pending.append(entry)
        self.in_hand += 1

        def ack() -> None:
            self.in_hand -= not entry.done
            entry.done = True
            while self._pending and self._pending[0].done:
                self._pending.popleft().release()

        return ack

    def forget(self) -> None:
        """The partition is taken away: whoever finishes late acknowledges nothing any more."""
        self._pending.clear()
