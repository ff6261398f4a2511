"""What item sets score at most of which a query has no data: the same in all queries that score alike."""

import math

import numpy as np

from haystream.collection.item_sets import SetEdges
from haystream.engines.local.solves.budget import TOLD_FACTOR
from haystream.events import Policy, Prior
from haystream.memory.arrays import Flags, Floats
from haystream.models.base import Ends
from haystream.models.common import Common
from haystream.models.registry import MODELS
from haystream.ranking.scoring import Source, score_all
from haystream.ranking.set_scores import RESOLUTION, SetCounts

STEPS = 20
"""How far somebody stands above the others is rounded up to a multiple of the prior's mean over so many."""
HIGH = 63
"""So many of these, or more, or what there is no bound of."""
UNTOLD_FACTOR = 25.0
"""Somebody stands above the others by more, at most by so many times what readers are told of, than what they were
last told says: by once that at the Δ of then, and, as the reach may be off by that over LEAST_SCALE, by twenty
times it times how far Δ has moved since, which is less than 1."""


def at_most(variance: float) -> float:
    """A variance, or more: a power of 4, so that there are few of them."""
    return float(4.0 ** math.ceil(math.log(variance, 4.0)))


class Unreached:
    """Bounds of the scores of sets on which nobody has judged anything, by how many items they have and by how far
    the people on them stand above the others.

    For a model with a common mean, and a policy whose scores do not move by themselves.
    """

    def __init__(self, prior: Prior, policy: Policy, base_rate: float, variance: float, tolerance: float) -> None:
        """`base_rate`, `variance`: the common mean that scores are made with, and its v_M at most."""
        self._prior = prior
        self._policy = policy
        self._base_rate = base_rate
        self._variance = variance
        self._told = TOLD_FACTOR * tolerance

    def heights(self, mean: Floats, reach: Floats) -> Flags:
        """How far people of whom readers were told that stand above the others, in steps, shape (k,): 0 to HIGH."""
        lift = mean - self._prior.mean + (self._base_rate - self._prior.mean) * (reach - 1.0)
        steps = np.ceil(np.maximum(lift - self._told, 0.0) * (STEPS / self._prior.mean))
        steps[reach > 1.0 + self._told] = HIGH
        return np.minimum(steps, HIGH).astype(np.uint8)

    def most(self, items: int) -> Floats:
        """What a set with so many items scores at most, shape (4 HIGH + 1,): where its edges' means are above the
        others' by half a step, at most, times the place.

        That is as of an edge that is new (`Ahead`), with what may be untold: a score grows with mean, variance and
        reach, and, by a policy that scores edges, with the items that are left there. Nobody is less certain with
        data than without. A set of several edges, each at most so, scores no more: their record is empty.
        """
        prior, base, untold = self._prior, self._base_rate, UNTOLD_FACTOR * self._told
        model, size, half = MODELS[prior.model](prior), 4 * HIGH + 1, 0.5 * prior.mean / STEPS
        one, none = np.ones(size), np.zeros(size)
        mean: Floats = base + half * np.arange(size, dtype=np.float64) + 2.0 * (untold + self._told)
        apart = float(model.scale(prior.mean * one[:1], one[:1])[0] ** 2) + self._variance
        scale = base * (1.0 - base)
        variance = one * (scale * (apart * (1.0 + 4.0 * untold) + 4.0 * untold))
        ends = Ends(mean, mean, variance, variance, variance, one, one)
        common = Common(base, base - prior.mean, self._variance, scale)
        moments = model.posteriors(ends, none, none, common)._replace(slope=one + untold)
        edges = np.arange(size + 1)
        layout = SetEdges(edges, edges[:-1].astype(np.int32))
        left, nobody = np.full(size, items, np.int64), np.zeros(size, np.int64)
        counts = SetCounts(left, left.copy(), nobody, nobody, nobody)
        source = Source(moments, (none, none, one * np.inf), layout.edge, np.zeros(size, np.uint64), base)
        return score_all(layout, counts, source, self._policy).score + RESOLUTION
