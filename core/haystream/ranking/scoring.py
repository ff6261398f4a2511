"""Scores of item sets by a policy, from what is read off an engine at their edges."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from haystream.collection.item_sets import SetEdges
from haystream.events import Policy
from haystream.memory.arrays import Floats, Ints
from haystream.models.base import EdgeCounts
from haystream.models.base import Posteriors as Moments
from haystream.ranking.policies import POLICIES, Posteriors
from haystream.ranking.set_scores import EdgeReadings, SetCounts, score_sets
from haystream.ranking.tournament import TERMS


class Source(NamedTuple):
    """What the scores of some sets are made from, by their edges, every array but `keys` of shape (edges,)."""

    moments: Moments
    counts: EdgeCounts
    edges: Ints
    """Their numbers."""
    keys: NDArray[np.uint64]
    """A stable hash of each edge that there is, by number."""
    base_rate: float
    """The common mean that the moments were read with."""
    step: int = 1
    """As in `policies.Posteriors`."""
    lap: int = 1


class Scored(NamedTuple):
    """The scores of some sets, shape (sets,), and their terms, shape (sets, TERMS)."""

    score: Floats
    terms: Floats


def score_all(layout: SetEdges, counts: SetCounts, source: Source, policy: Policy) -> Scored:
    """The scores by a policy of all the sets in `counts`, and their terms (`score_sets`)."""
    score_edges, (mean, variance, slope) = POLICIES[policy.name].score, source.moments
    screened, _, left = source.counts
    of_edges = mean  # nothing asks for it where sets are scored
    if score_edges is not None:
        posteriors = Posteriors(mean, variance, source.keys[source.edges], left, source.step, source.lap)
        of_edges = score_edges(posteriors, policy)
    readings = EdgeReadings(mean, variance, slope, screened, of_edges)
    sets = len(counts.left)
    scored, which = Scored(np.empty(sets), np.empty((sets, TERMS))), np.arange(sets, dtype=np.int32)
    horizon = policy.horizon if score_edges is None else 0
    score_sets(which, layout, readings, counts, source.base_rate, horizon, *scored)
    return scored


def terms_of(layout: SetEdges, counts: SetCounts, moments: Moments, of_edges: EdgeCounts) -> Floats:
    """What sets add to the totals (`score_sets`), without their scores, shape (sets, TERMS)."""
    mean, variance, slope = moments
    sets, terms = len(counts.left), np.empty((len(counts.left), TERMS))
    readings = EdgeReadings(mean, variance, slope, of_edges[0], mean)
    score_sets(np.arange(sets, dtype=np.int32), layout, readings, counts, 0.0, 0, np.empty(sets), terms)
    return terms
