"""The sets that a query does not have as its own, as the ranking by the prior has them.

They are ranked and summed up for all queries at once (`prior_rankings`). A query takes out of the sum what it owns.
Where what all share moves, there is a first idea of the next ranking until that is made, and what it says of owned
sets is summed up beside it as these are looked at again, one after the other.
"""

import numpy as np

from haystream.events import Policy
from haystream.memory.arrays import Floats, Ints
from haystream.models.common import Common
from haystream.ranking.prior_rankings import MADE_AT_ONCE, Glimpse, PriorRanking, PriorRankings
from haystream.ranking.tournament import TERMS


class Unowned:
    """The ranking by the prior at the common quantities that a query is at, and what it says of owned sets.

    Nothing is to be asked before `begin`.
    """

    def __init__(self, prior: PriorRankings) -> None:
        self.prior = prior
        self.ranking: PriorRanking | Glimpse | None = None
        """Of all sets, owned or not."""
        self._owned: Floats = np.zeros(TERMS)
        """What it says of those that are owned."""
        self._next: PriorRanking | None = None
        """The one that takes its place when all owned sets have been looked at again, once it is made."""
        self._next_owned: Floats = np.zeros(TERMS)
        """What it says of those that have been."""

    def begin(self, policy: Policy, common: Common) -> None:
        """Take the ranking at these common quantities, as if nobody were owned."""
        self.ranking, self._owned = self.prior.at(policy, common), np.zeros(TERMS)
        self._next = None

    def soon(self, policy: Policy, common: Common) -> bool:
        """Whether `begin` takes little time there."""
        known = self.ranking is None or self.prior.sets <= MADE_AT_ONCE
        return known or self.prior.made(policy, common) is not None

    def move_on(self, policy: Policy, common: Common, shift: float, moved: Floats) -> None:
        """Go on to other common quantities, whose mean is less by `shift`, by which the sum moves so much for each
        item, shape (TERMS,)."""
        if self.ranking is not None:
            self._owned = self._owned + self._owned[-1] * moved
            made = self.prior.made(policy, common)
            self.ranking = made or self.prior.glimpse(policy, common, self.ranking, shift)

    def own(self, sets: Ints, looked_at: int) -> None:
        """Take out sets that have become owned. `looked_at`: those with lower numbers have been looked at again."""
        sets, ranking = sets[sets < self.prior.sets], self.ranking
        if ranking is not None and len(sets):
            self._owned = self._owned + ranking.terms(sets)
            if self._next:
                self._next_owned = self._next_owned + self._next.terms(sets[sets < looked_at])

    def look_again(self) -> None:
        """Begin to look at owned sets again: none has been so far."""
        self._next, self._next_owned = None, np.zeros(TERMS)

    def prepare(self, policy: Policy, common: Common) -> bool:
        """Make a part of the next ranking, a millisecond or two, if it is not made yet; True if there is more."""
        if self._next is None:
            if self.prior.prepare(policy, common):
                return True
            self._next = self.prior.at(policy, common)
        return False

    def look_at(self, sets: Ints) -> None:
        """Sum up owned sets that have been looked at again."""
        assert self._next, "`prepare` makes it"
        self._next_owned = self._next_owned + self._next.terms(sets[sets < self.prior.sets])

    def finish(self) -> None:
        """Take the next ranking: all owned sets have been looked at again."""
        self.ranking, self._owned, self._next = self._next, self._next_owned, None

    @property
    def totals(self) -> Floats:
        """The sum of what the sets add that are not owned, shape (TERMS,)."""
        return np.zeros(TERMS) if self.ranking is None else self.ranking.totals - self._owned
