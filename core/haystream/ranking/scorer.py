"""What sets of a query score, and what they add to its totals, by what an engine's readings say."""

from contextlib import AbstractContextManager, nullcontext

import numpy as np

from haystream.collection.collection import Collection
from haystream.collection.item_sets import SetEdges
from haystream.engines.contract import Engine
from haystream.engines.local import LocalEngine
from haystream.events import Policy
from haystream.memory.arrays import Floats, Ints, Switches, union
from haystream.models.common import Common
from haystream.ranking.own_sets import OwnSets
from haystream.ranking.policies import POLICIES, Moves, jump_of
from haystream.ranking.scoring import Scored, Source, score_all, terms_of
from haystream.ranking.set_scores import SetCounts
from haystream.ranking.turns import Turns


class Scorer:
    """Scores sets by a policy, with what an engine says at a step of the query."""

    def __init__(self, collection: Collection, own: OwnSets, policy: Policy) -> None:
        self.policy = policy
        self.engine: Engine
        """Whose readings scores are made of: see `read`."""
        self._collection = collection
        self._own = own
        self._turns = Turns()
        self._read_at = 1
        """The step at which they were read."""
        self._step = -1
        """At which scores last moved by chance; −1 if they never did by this policy."""

    def use(self, policy: Policy) -> None:
        """Score by another policy from now on."""
        self.policy, self._step = policy, -1

    def read(self, engine: Engine, step: int) -> None:
        """Score by this engine's readings from now on, at that step of the query."""
        self.engine, self._read_at = engine, step

    @property
    def by_chance(self) -> bool:
        """Whether scores move by themselves, as steps go on."""
        return POLICIES[self.policy.name].moves is not Moves.NEVER

    def with_moved(self, edges: Ints, step: int) -> Ints:
        """These edges, and all those whose scores move because the step does."""
        moves, keys = POLICIES[self.policy.name].moves, self._collection.graph.edge_key
        before, self._step = self._step, step
        new_lap = self._turns.follow(keys)
        jump = moves is Moves.IN_JUMPS and jump_of(before, self._turns.lap) != jump_of(step, self._turns.lap)
        if before < 0 or new_lap or jump:
            return np.arange(len(keys), dtype=np.int32)
        if moves is Moves.IN_TURN and step != before:
            return union(edges, self._turns.between(before, step, keys))
        return edges

    def score(self, which: Ints, counts: SetCounts) -> tuple[Scored, Switches]:
        """The scores of some sets, and whether pending screenings are in them (False where no rest is kept)."""
        engine, (layout, edges) = self.engine, self._collection.sets.layout.of(which)
        readings, near = engine.readings, np.zeros(len(which), np.bool_)
        if self._own.keeps_rest and isinstance(engine, LocalEngine):
            near = _near_pending(layout, edges, engine)
        of_edges, keys = readings.counts(edges), self._collection.graph.edge_key
        base_rate, lap = readings.rounded_common().base_rate, self._turns.lap
        moments = readings.scoring(edges, of_edges)
        source = Source(moments, of_edges, edges, keys, base_rate, self._read_at, lap)
        return score_all(layout, counts, source, self.policy), near

    def score_at(self, engine: LocalEngine, common: Common, which: Ints, counts: SetCounts) -> Scored:
        """What some sets will score where this is what all share, as if nothing were pending."""
        layout, edges = self._collection.sets.layout.of(which)
        of_edges, keys = engine.readings.counts(edges), self._collection.graph.edge_key
        moments = engine.readings.scoring_at(edges, common, of_edges)
        return score_all(layout, counts, Source(moments, of_edges, edges, keys, common.base_rate), self.policy)

    def near_pending(self, which: Ints, engine: LocalEngine) -> Switches:
        """Whether pending screenings are in what these sets score, shape (len(which),)."""
        return _near_pending(*self._collection.sets.layout.of(which), engine)

    def terms_before(self, which: Ints, common: Common, engine: LocalEngine) -> Floats:
        """What sets of which nothing was counted added to the totals before the last `settle`, at these common
        quantities, shape (k, TERMS)."""
        layout, edges = self._collection.sets.layout.of(which)
        with self.as_scored():
            of_edges = engine.readings.counts(edges)
            moments = engine.readings.scoring_at(edges, common, of_edges)
        return terms_of(layout, self._own.counts_before(which), moments, of_edges)

    def as_scored(self) -> AbstractContextManager[None]:
        """Have the engine's readings be those that scores were made of, while what it tells is not in them yet."""
        engine = self.engine
        return engine.readings.as_scored() if isinstance(engine, LocalEngine) else nullcontext()


def _near_pending(layout: SetEdges, edges: Ints, engine: LocalEngine) -> Switches:
    """Whether pending screenings are in what is known of the sets on these edges, shape (sets,)."""
    if not engine.readings.pending or not len(edges):
        return np.zeros(len(layout.sizes), np.bool_)
    return np.asarray(np.logical_or.reduceat(engine.readings.near_pending(edges), layout.start[:-1]))
