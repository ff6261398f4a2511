"""Whose verdicts made the means of the first sets what they are, kept from one ranking to the next."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from haystream.arrays import Floats, Ints
from haystream.collection import Collection
from haystream.engines.contract import Engine
from haystream.ranking.ranked import Share

SHARES_NAMED = 5
"""How many shares an item's `because` names: the largest ones."""

SHARES_KEPT = 64
"""So many of a set are kept, the largest ones: where there are no more, who leads at another common mean is known
without a solve."""

REASONS_SHIFT = 0.01
"""By how much the common mean may move until it is looked again whose shares are the largest, where it may have
more."""


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
        names, shift = self._collection.graph.names, engine.readings.known_common().mean_shift
        new = [which for which in sets if not self._holds(which, shift)]
        if new:
            self._known.update(zip(new, self._read(engine, new, shift), strict=True))
        self._known = {which: self._known[which] for which in sets}
        return [
            tuple(Share(names(edge), share) for edge, share in named)
            for named in _named(engine, list(self._known.values()), shift)
        ]

    def _read(self, engine: Engine, sets: Sequence[int], shift: float) -> list[_Largest]:
        """The largest shares of each of these sets, afresh."""
        found = engine.readings.largest_shares(list(map(self._collection.sets.edges, sets)), SHARES_KEPT)
        edges = np.array([edge for shares in found for edge, _ in shares], np.int32)
        largest = np.array([share for shares in found for _, share in shares])
        apart = engine.readings.deviations(edges) - shift
        with np.errstate(over="ignore"):
            factors = np.divide(largest, apart, out=np.zeros_like(apart), where=apart != 0.0)
        ends = np.cumsum([0, *map(len, found)]).tolist()
        return [_Largest(shift, edges[a:b].copy(), factors[a:b].copy()) for a, b in pairwise(ends)]

    def _holds(self, which: int, shift: float) -> bool:
        known = self._known.get(which)
        return known is not None and (len(known.edges) < SHARES_KEPT or abs(shift - known.shift) <= REASONS_SHIFT)


def _named(engine: Engine, known: Sequence[_Largest], shift: float) -> list[list[tuple[int, float]]]:
    """Those to name of some sets, (screened edge, share), as they are at this shift."""
    if not known:
        return []
    edges, factors = (np.concatenate(columns) for columns in zip(*(each[1:] for each in known), strict=True))
    with np.errstate(over="ignore", invalid="ignore"):
        now = factors * (engine.readings.deviations(edges) - shift)
    of = np.repeat(np.arange(len(known)), [len(each.edges) for each in known])
    order = np.lexsort((-np.abs(now), of))
    order = order[np.isfinite(now[order])]  # but for those whose verdicts have been retracted
    begin = np.searchsorted(of[order], np.arange(len(known)))
    end = np.minimum(np.append(begin[1:], len(order)), begin + SHARES_NAMED)
    columns = edges[order].tolist(), now[order].tolist()
    return [list(zip(*(column[a:b] for column in columns), strict=True)) for a, b in zip(begin, end, strict=True)]
