"""What the scores of edges may come to once the graph is followed, for an engine that has not let them in yet.

Letting an edge in takes local solves, and moves who is near it. Here is a bound instead, for whoever has only to
know that a score will not be as high as another.
"""

from collections.abc import Sequence

import numpy as np

from haystream.collection.graph import Graph
from haystream.engines.local.readings.readings import LocalReadings
from haystream.engines.local.solves.sides import COMMON, MEAN
from haystream.engines.local.state.columns import Columns
from haystream.engines.local.state.edge_priors import NOISE, numbers
from haystream.events import Prior
from haystream.memory.arrays import Flags, Floats, Ints
from haystream.memory.overlay import item
from haystream.models.base import Ends, Model, Posteriors


class Ahead:
    """An engine's readings, and the graph that it is behind of."""

    def __init__(self, columns: Columns, readings: LocalReadings, graph: Graph, prior: Prior, model: Model) -> None:
        self._columns = columns
        self._readings = readings
        self._graph = graph
        self._prior = prior
        self._model = model

    @property
    def known_edges(self) -> int:
        """How many edges the engine knows: the first ones."""
        return self._columns.edge_count

    @property
    def base_rate(self) -> float:
        """The common mean that scores are made with."""
        return self._readings.rounded_common().base_rate

    def scoring(self, edges: Ints) -> tuple[Posteriors, tuple[Floats, Floats, Floats]]:
        """`Readings.scoring` and `counts` of edges; of those that are not let in, at most what they will be."""
        new = ~self._let_in(edges).astype(np.bool_)
        moments, counts = Posteriors(*np.zeros((3, len(edges)))), tuple(np.zeros((3, len(edges))))
        of_known, of_new = self._readings.scoring(edges[~new]), self._at_most(edges[new])
        for column, known, hoped in zip(moments, of_known, of_new, strict=True):
            column[~new], column[new] = known, hoped
        for column, known in zip(counts, self._readings.counts(edges[~new]), strict=True):
            column[~new] = known
        return moments, (counts[0], counts[1], counts[2])

    def mean_at_most(self, participants: Sequence[int]) -> float:
        """What the mean of P to score by is at most on a new edge between two of these, or with somebody else.

        Every query is asked this at every new pair, so that it takes as few look-ups as it can.
        """
        if not self._model.common_weight:
            return 1.0
        columns, listed, common = self._columns, self._prior.participants, self._readings.rounded_common()
        state, at_most = columns.state, common.base_rate
        x, shift = state.people.x, common.mean_shift - state.people.reference.item()
        for participant in participants:
            lift = self._listed_by(participant) if listed else 0.0
            if participant < columns.participants:
                moved = item(x, participant, MEAN) - shift * item(x, participant, COMMON)
                if moved > 0.0 or listed:
                    lift += moved * item(state.people.scale, participant, 0)
            if lift > state.tolerances.told:
                at_most += lift
        return at_most

    def _listed_by(self, participant: int) -> float:
        """How far the watch-list sets a participant above the others."""
        mean = self._prior.mean
        return self._prior.participants.get(self._graph.participants[participant], mean) - mean

    def _let_in(self, edges: Ints) -> Flags:
        let_in = (edges < self._columns.edge_count).astype(np.uint8)
        known = edges[let_in > 0]
        let_in[let_in > 0] = numbers(self._columns.state.edges.prior, known, NOISE) > 0.0
        return let_in

    def _at_most(self, edges: Ints) -> Posteriors:
        """As if what speaks for one end spoke for the other as well, and both were as uncertain as without data.

        Where the ends' lifts are a and b, and the new edge correlates them by ρ ≤ 1, one comes to a + ρb at most,
        and the mean of both to (1 + ρ)(a + b)/2 ≤ a + b.
        """
        if not self._model.common_weight:  # P need not grow with its ends
            return Posteriors(np.ones(len(edges)), np.full(len(edges), 0.25), np.ones(len(edges)))
        common, none = self._readings.rounded_common(), np.zeros(len(edges))
        mean = np.array([self.mean_at_most(self._graph.ends(edge)) for edge in edges.tolist()])
        one = np.ones(1)
        spread = float(self._model.scale(self._prior.mean * one, one)[0] ** 2)
        variance = np.full(len(edges), common.scale * (spread + common.variance))
        ends = Ends(mean, mean, variance, variance, variance, none + 1.0, none + 1.0)
        return self._model.posteriors(ends, none, none, common)
