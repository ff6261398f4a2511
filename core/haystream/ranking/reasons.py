"""Whose verdicts made the means of the first sets what they are, kept from one ranking to the next."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from haystream.collection.collection import Collection
from haystream.engines.contract import Engine
from haystream.memory.arrays import Floats, Ints, Longs, among, put_largest
from haystream.memory.compiled import allocating
from haystream.ranking.ranked import Share

SHARES_NAMED = 5
"""How many shares an item's `because` names: the largest ones."""

SHARES_KEPT = 64
"""So many of a set are kept, the largest ones: where there are no more, who leads at another common mean is known
without a solve."""

REASONS_SHIFT = 0.01
"""By how much the common mean may move until it is looked again whose shares are the largest, where it may have
more."""


SETS_KEPT = 128
"""Of so many sets reasons are kept: who is among the first now and then need not be looked at each time."""


SETS_FORESEEN = 64
"""Of so many of the sets that are foreseen to lead reasons are read ahead of time: a millisecond or two."""


class _Largest(NamedTuple):
    """The largest shares of a set, largest first, and the shift of the common mean that they were read at.

    A share is in proportion to d − Δ, d the edge's own deviation, so that it follows a move of Δ without a solve.
    """

    shift: float
    edges: Ints
    """Screened ones, shape (k,)."""
    factors: Floats
    """A share over d − Δ, shape (k,)."""


class Reasons:
    """Of the sets that were last asked for, and some before, unless their posterior has moved since."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._known: dict[int, _Largest] = {}

    def forget(self, sets: Ints) -> None:
        """Take that the posterior of these sets has moved, or what was counted of them.

        What moved no edge of a set by the tolerance has not moved its shares either, but as the common mean moves.
        """
        if self._known:
            known = np.fromiter(self._known, np.int32)
            for which in known[among(known, sets)].tolist():
                del self._known[which]

    def of(self, engine: Engine, sets: Sequence[int]) -> list[tuple[Share, ...]]:
        """The largest shares of each set, largest first."""
        shift = self.prepare(engine, sets)
        for which in sets:
            self._known[which] = self._known.pop(which)  # the last to be let go
        for which in list(self._known)[: -max(SETS_KEPT, len(sets))]:
            del self._known[which]
        return self._named(engine, [self._known[which] for which in sets], shift) if sets else []

    def prepare(self, engine: Engine, sets: Sequence[int]) -> float:
        """Have the largest shares of each set at hand when they are asked for next, beside those that were; return
        the shift of the common mean that they are of."""
        shift = engine.readings.known_common().mean_shift
        new = [which for which in sets if not self._holds(which, shift)]
        if new:
            self._known.update(zip(new, self._read(engine, new, shift), strict=True))
        return shift

    def _read(self, engine: Engine, sets: Sequence[int], shift: float) -> list[_Largest]:
        """The largest shares of each of these sets, afresh."""
        layout, edges = self._collection.sets.layout.of(np.array(sets, np.int32))
        start, edge, share = engine.readings.largest_shares(layout.start, edges, SHARES_KEPT)
        apart = engine.readings.deviations(edge) - shift
        with np.errstate(over="ignore"):
            factors = np.divide(share, apart, out=np.zeros_like(apart), where=apart != 0.0)
        return [_Largest(shift, edge[a:b].copy(), factors[a:b].copy()) for a, b in pairwise(start.tolist())]

    def _holds(self, which: int, shift: float) -> bool:
        known = self._known.get(which)
        return known is not None and (len(known.edges) < SHARES_KEPT or abs(shift - known.shift) <= REASONS_SHIFT)

    def _named(self, engine: Engine, known: list[_Largest], shift: float) -> list[tuple[Share, ...]]:
        """Those to name of each of some sets, as they are at this shift."""
        names = self._collection.graph.names_of
        edges, factors = (np.concatenate(columns) for columns in zip(*(each[1:] for each in known), strict=True))
        with np.errstate(over="ignore", invalid="ignore"):  # no number where all verdicts have been retracted
            shares = factors * (engine.readings.deviations(edges) - shift)
        rows, ends = rows_to_name(np.array([len(each.edges) for each in known]), shares)
        named = list(map(Share._make, zip(names(edges[rows]), shares[rows].tolist(), strict=True)))
        return [tuple(named[a:b]) for a, b in pairwise([0, *ends.tolist()])]


@allocating
def rows_to_name(sizes: Longs, shares: Floats) -> tuple[Longs, Longs]:
    """The rows of the largest shares of each set, largest first, and where those of each set end.

    The first sizes[0] of `shares` are those of the first set, and so on.
    """
    rows, ends, begin, count = np.empty(SHARES_NAMED * len(sizes), np.int64), np.empty_like(sizes), 0, 0
    for s in range(len(sizes)):
        count += put_largest(shares, begin, begin + sizes[s], rows[count : count + SHARES_NAMED])
        begin += sizes[s]
        ends[s] = count
    return rows[:count], ends
