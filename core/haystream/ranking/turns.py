"""Whose turn it is to draw anew, in the time that it takes to name them."""

import numpy as np
from numpy.typing import NDArray

from haystream.memory.arrays import Ints
from haystream.ranking.policies import lap_of


class Turns:
    """The edges by the step, modulo the lap, at which their turn comes."""

    def __init__(self) -> None:
        self.lap = 1
        self._known = 0
        self._order: Ints = np.zeros(0, np.int32)
        self._start: NDArray[np.int64] = np.zeros(2, np.int64)

    def follow(self, keys: NDArray[np.uint64]) -> bool:
        """Take in new edges, by their keys, shape (edges,); True if the lap has changed."""
        before, self.lap = self.lap, lap_of(len(keys))
        # Those that are newer than the last sort are looked through: an eighth of all, at most.
        if self.lap > 1 and (self.lap != before or 8 * self._known < 7 * len(keys)):
            turn = self._turn(keys)
            self._order = np.argsort(turn, kind="stable").astype(np.int32)
            self._start = np.searchsorted(turn[self._order], np.arange(self.lap + 1))
            self._known = len(keys)
        return self.lap != before

    def between(self, before: int, after: int, keys: NDArray[np.uint64]) -> Ints:
        """The edges whose turn came at a step from `before` to `after`, in either order, both included."""
        first, last = sorted((before, after))
        if last - first + 1 >= self.lap:
            return np.arange(len(keys), dtype=np.int32)
        late = self._turn(keys[self._known :])
        parts: list[Ints] = []
        for step in range(first, last + 1):
            turn = step % self.lap
            parts.append(self._order[self._start[turn] : self._start[turn + 1]])
            parts.append((self._known + np.flatnonzero(late == turn)).astype(np.int32))
        return np.concatenate(parts)

    def _turn(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The step modulo the lap at which (key + step) is a multiple of the lap."""
        lap = np.uint64(self.lap)
        return ((lap - keys % lap) % lap).astype(np.int64)
