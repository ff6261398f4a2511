"""The paper's search experiment: screen the item that a policy ranks first, tell the model, and so on.

Items are ranked as a worker ranks them: by the mean of their edges' scores, or by the score of their set. Ties go
by a random order of all items, drawn from the run's seed: so an edge's items are drawn without replacement, and of
edges that tie, one with many items is as much more likely to be first.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from haystream.collection.item_sets import SetEdges, share_of
from haystream.events import Policy
from haystream.ranking.policies import POLICIES, Posteriors
from haystream.ranking.set_scores import EdgeReadings, SetCounts, score_sets
from haystream.ranking.tournament import TERMS
from haystream_service.study.models.base import Learning, Model
from haystream_service.study.network import Ints, Network


@dataclass(frozen=True, slots=True)
class Run:
    """What one search screened, in order; every array of shape (screened,)."""

    item: Ints
    choice: Ints
    """The item's set: its edge, where items have two parties."""
    relevant: NDArray[np.bool_]

    @property
    def found(self) -> int:
        """The relevant items it found."""
        return int(self.relevant.sum())

    @property
    def curve(self) -> NDArray[np.int64]:
        """Relevant items found by each screening."""
        return np.cumsum(self.relevant, dtype=np.int64)

    @property
    def changes(self) -> NDArray[np.int64]:
        """How often it had gone to another edge by each screening."""
        return np.cumsum(np.diff(self.choice, prepend=self.choice[:1]) != 0, dtype=np.int64)

    @property
    def edge_changes(self) -> int:
        """How often it went to another edge."""
        return int((np.diff(self.choice) != 0).sum())


def search(network: Network, model: Model, policy: Policy, *, steps: int, seed: int) -> Run:
    """Screen `steps` items, or all if there are fewer. `seed` (in place of the policy's) decides all chance."""
    items = len(network.relevant)
    order = np.random.default_rng(seed).permutation(items).astype(np.int32)
    queue, policy = _Queue(network, order), replace(policy, seed=seed)
    entry, key = POLICIES[policy.name], network.collection.graph.edge_key
    left, seen = network.items_on.copy(), np.zeros(network.edges)
    of_edges = np.zeros(network.edges)  # nothing asks for it where sets are scored
    slope, base_rate = np.zeros(network.edges), 0.0
    edges_of = [network.collection.sets.edges(which) for which in range(len(network.collection.sets))]

    screened = np.empty(min(steps, items), dtype=np.int32)
    for place in range(len(screened)):
        mean, variance = model.posteriors()
        if entry.score is not None:
            of_edges = entry.score(Posteriors(mean, variance, key, left, place + 1), policy)
        if isinstance(model, Learning):
            slope, base_rate = model.common()
        readings = EdgeReadings(mean, variance, slope, seen, of_edges)
        which = queue.first(readings, base_rate, horizon=policy.horizon if entry.score is None else 0)
        item = screened[place] = queue.take(which)
        relevant, share = bool(network.relevant[item]), share_of(len(edges_of[which]))
        for edge in edges_of[which]:
            left[edge] -= share
            seen[edge] += share
        queue.judge(which, relevant)
        model.observe(edges_of[which], relevant)
    return Run(screened, network.item_set[screened], network.relevant[screened])


class _Queue:
    """The unscreened items by set, each set's in the run's random order."""

    def __init__(self, network: Network, order: Ints) -> None:
        sets = len(network.collection.sets)
        by_set = np.argsort(network.item_set[order], kind="stable")
        self._item = order[by_set]
        self._place = by_set
        """Of each entry of `_item` in the random order: ascending within a set."""
        self._end = np.cumsum(np.bincount(network.item_set, minlength=sets))
        self._next = np.concatenate([[0], self._end[:-1]])
        self._tie = self._place[self._next]
        self._edges = SetEdges(network.set_start, network.set_edge)
        self._all = np.arange(sets, dtype=np.int32)
        items = np.bincount(network.item_set, minlength=sets).astype(np.int64)
        none = np.zeros(sets, np.int64)
        self._counts = SetCounts(items.copy(), items, none.copy(), none.copy(), none)
        self._score, self._terms = np.empty(sets), np.empty((sets, TERMS))

    def first(self, readings: EdgeReadings, base_rate: float, *, horizon: int) -> int:
        """The set of the item that comes first."""
        score_sets(self._all, self._edges, readings, self._counts, base_rate, horizon, self._score, self._terms)
        best = np.flatnonzero(self._score == self._score.max())
        return int(best[np.argmin(self._tie[best])])

    def judge(self, which: int, relevant: bool) -> None:
        """Count a verdict on an item of a set."""
        self._counts.screened[which] += 1
        self._counts.relevant[which] += relevant

    def take(self, which: int) -> int:
        """The first unscreened item of a set, which leaves the queue."""
        place = self._next[which]
        self._next[which] += 1
        self._counts.left[which] -= 1
        if self._next[which] < self._end[which]:
            self._tie[which] = self._place[place + 1]
        return int(self._item[place])
