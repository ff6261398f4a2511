"""What item sets score at most that a query's data have not reached: the same in all queries that score alike."""

import numpy as np

from haystream.arrays import Floats, Switches
from haystream.engines.local.budget import TOLD_FACTOR
from haystream.events import Policy, Prior
from haystream.models import MODELS
from haystream.models.base import Ends
from haystream.models.common import Common
from haystream.ranking.scoring import Source, score_all
from haystream.ranking.set_scores import RESOLUTION, SetCounts, SetEdges

LIFT_FACTOR = 25.0
"""Whom readers were told of as without data, to what they are told of at all, stands above the others by so many
times that at most. What they were told is off by once that, and by once more through the reach, as |Δ| < 1; since
then the mean may have moved by once that at the Δ of then, and the reach by one in LEAST_SCALE, which counts by how
far Δ has moved: 2 + 1 + 20."""


class Unreached:
    """Bounds of the scores of sets on which everybody is as without data, by how many items they have.

    For a model with a common mean, and a policy whose scores do not move by themselves.
    """

    def __init__(self, prior: Prior, policy: Policy, common: Common, tolerance: float) -> None:
        """`common`: what scores are made with."""
        self._prior = prior
        self._policy = policy
        self._common = common
        self._told = TOLD_FACTOR * tolerance
        self._most: dict[int, float] = {}

    def apart(self, mean: Floats, reach: Floats) -> Switches:
        """Of whom readers were told something else than of one without data, shape (k,): his mean and his reach."""
        return (np.abs(mean - self._prior.mean) > self._told) | (np.abs(reach - 1.0) > self._told)

    def most(self, items: int) -> float:
        """What a set with so many items scores at most."""
        known = self._most.get(items)
        if known is None:
            known = self._most[items] = self._score(items)
        return known

    def _score(self, items: int) -> float:
        """As of an edge that is new to all (`Ahead`), with what may be untold: a score grows with mean, variance
        and reach, and, by a policy that scores edges, with the items that are left there.

        A set of several edges, each of them at most so, scores no more: they share one record, which is empty.
        """
        prior, common, lift = self._prior, self._common, LIFT_FACTOR * self._told
        model, one, none = MODELS[prior.model](prior), np.ones(1), np.zeros(1)
        mean = one * (common.base_rate + 2.0 * lift)
        apart = float(model.scale(prior.mean * one, one)[0] ** 2) + common.variance
        variance = one * (common.scale * (apart * (1.0 + 4.0 * lift) + 4.0 * lift))
        ends = Ends(mean, mean, variance, variance, variance, one, one)
        moments = model.posteriors(ends, none, none, common)._replace(slope=one + lift)
        left, nobody = np.full(1, items, np.int64), np.zeros(1, np.int64)
        source = Source(
            moments, (none, none, one * np.inf), np.zeros(1, np.int32), np.zeros(1, np.uint64), common.base_rate
        )
        layout = SetEdges(np.arange(2, dtype=np.int64), np.zeros(1, np.int32))
        counts = SetCounts(left, left, nobody, nobody, nobody)
        return float(score_all(layout, counts, source, self._policy).score[0]) + RESOLUTION
