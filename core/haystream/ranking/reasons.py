"""Whose verdicts made the means of the first sets what they are, kept from one ranking to the next."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from haystream.arrays import Ints
from haystream.collection import Collection
from haystream.engines.contract import Engine
from haystream.ranking.ranked import Share

SHARES_NAMED = 5
"""How many shares an item's `because` names: the largest ones."""

REASONS_SHIFT = 0.01
"""By how much the common mean may move until it is looked again whose shares are the largest."""


@dataclass(frozen=True, slots=True)
class _Largest:
    """The largest shares of a set, (screened edge, share), and the shift of the common mean that they were read at.

    A share is in proportion to d − Δ, d the edge's own deviation, so that it follows a move of Δ without a solve.
    """

    shift: float
    shares: list[tuple[int, float]]


class Reasons:
    """Of the sets that were last asked for, unless their posterior has moved since."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._known: dict[int, _Largest] = {}

    def forget(self, sets: Ints) -> None:
        """Take that the posterior of these sets has moved, or what was counted of them.

        What moved no edge of a set by the tolerance has not moved its shares either, but as the common mean moves.
        """
        if self._known:
            for which in self._known.keys() & sets.tolist():
                del self._known[which]

    def of(self, engine: Engine, sets: Sequence[int]) -> list[tuple[Share, ...]]:
        """The largest shares of each set, largest first."""
        readings, edges_of, names = engine.readings, self._collection.sets.edges, self._collection.graph.names
        shift = readings.known_common().mean_shift
        new = [which for which in sets if not self._holds(which, shift)]
        if new:
            largest = readings.largest_shares([edges_of(which) for which in new], SHARES_NAMED)
            self._known.update((which, _Largest(shift, shares)) for which, shares in zip(new, largest, strict=True))
        known = [self._known[which] for which in sets]
        self._known = dict(zip(sets, known, strict=True))
        moved = self._moved(engine, [largest for largest in known if largest.shift != shift], shift)
        return [
            tuple(
                Share(names(edge), share)
                for edge, share in (largest.shares if largest.shift == shift else next(moved))
            )
            for largest in known
        ]

    def _holds(self, which: int, shift: float) -> bool:
        known = self._known.get(which)
        return known is not None and abs(shift - known.shift) <= REASONS_SHIFT

    def _moved(self, engine: Engine, known: Sequence[_Largest], shift: float) -> Iterator[list[tuple[int, float]]]:
        """What shares that were read at other shifts come to at this one."""
        edges = [edge for largest in known for edge, _ in largest.shares]
        deviations = iter(engine.readings.deviations(np.array(edges, dtype=np.int32)).tolist() if edges else ())
        for largest in known:
            moved = []
            for edge, share in largest.shares:
                before = next(deviations) - largest.shift
                now = share * ((before + largest.shift - shift) / before if before else 1.0)
                if math.isfinite(now):
                    moved.append((edge, now))
            yield sorted(moved, key=lambda pair: -abs(pair[1]))
