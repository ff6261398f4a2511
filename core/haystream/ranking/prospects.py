"""What sets will score with the items that a query has not taken in yet."""

import math

import numpy as np

from haystream.collection.collection import Collection
from haystream.engines.local.readings.ahead import Ahead
from haystream.memory.arrays import Floats, Ints
from haystream.memory.places import NOWHERE
from haystream.ranking.scoring import Source, score_all
from haystream.ranking.set_ranking import SetRanking
from haystream.ranking.set_scores import ONE_MATTER, OPTIMISM, SetCounts


class Prospects:
    """Of the sets of a ranking, for a policy whose scores do not move by themselves."""

    def __init__(self, collection: Collection, ranking: SetRanking) -> None:
        self._collection = collection
        self._ranking = ranking

    def not_own(self, sets: tuple[int, ...], known_edges: int) -> tuple[tuple[int, ...], list[int]]:
        """Those of the sets that are as the prior says, or as it will say, and the others, in the same order.

        The former are not the query's own, or none of their edges is among the first so many, which are known.
        """
        has, known, edges = self._ranking.own.has, self._ranking.own.known, self._collection.sets.edges
        own = [which for which in sets if (has(which) if which < known else edges(which)[0] < known_edges)]
        return (tuple(which for which in sets if which not in own), own) if own else (sets, own)

    def most_by_prior(self, which: int, mean: float) -> float:
        """What a set that is as the prior says scores at most with the items that it has got; inf where that is not
        plain.

        That is a bound of `score_ahead` at a glance, for policies that score sets: it comes to
        M L / (1 + (L - 1) M) at most by M⁺ ≤ 1 (`stopping_score`), and to (Q L + M) / (Q L + 1), Q = q/(1 - q),
        by T ≥ 1 (`streak_score`), `mean` being the most that its edges' means are.
        """
        hoped, count = (1.0 + OPTIMISM) * mean, self._collection.items_left(which)
        if hoped >= 1.0:
            return math.inf
        rest = min(count, self._ranking.policy.horizon) - 1.0
        whole = ONE_MATTER * hoped / (1.0 - ONE_MATTER * hoped) * count
        return max(hoped * (1.0 + rest) / (1.0 + rest * hoped), (whole + hoped) / (whole + 1.0))

    def stays_below(self, which: int, score: float) -> bool:
        """Whether it is plain that one of the query's own sets will score less than that with the items that it has
        got, for policies that score sets.

        One that has items left comes to as many times its score as it has items then, unless all that was screened
        of it is relevant.
        """
        own = self._ranking.own
        if which >= own.known:
            return False
        known = own.counted(which)
        if known is None:
            most, left = self._ranking.rest_below, own.left_before(which)
            items = left
        else:
            place, left, items, streak = known
            if streak or own.flags.data[place]:
                return False
            most = self._ranking.score_at(place)
        count = self._collection.items_left(which)
        return left > 0 and most * (left + count - items) < score * left

    def score_ahead(self, ahead: Ahead, which: Ints, more: int) -> Floats:
        """What sets will score at most with all items that the collection has, `more` than were added here.

        For a policy whose scores do not move by themselves; shape (len(which),).
        """
        sets = self._collection.sets
        layout, edges = sets.layout.of(which)
        moments, (screened, relevant, left) = ahead.scoring(edges)
        keys, base_rate = self._collection.graph.edge_key, ahead.base_rate
        source = Source(moments, (screened, relevant, left + more), edges, keys, base_rate)
        return score_all(layout, self._counts_ahead(which), source, self._ranking.policy).score

    def _counts_ahead(self, which: Ints) -> SetCounts:
        items = np.array([self._collection.items_left(each) for each in which.tolist()], np.int64)
        counts = SetCounts(items, items.copy(), *np.zeros((3, len(which)), np.int64))
        at = self._ranking.own.places(which)
        known = np.flatnonzero(at != NOWHERE)
        now = self._ranking.own.counts(at[known])
        counts.left[known] += now.left - now.items
        for column, of_known in zip(counts[2:], now[2:], strict=True):
            column[known] = of_known
        return counts
