"""What a query's own sets without an entry add to the totals: the rest, of which nothing is kept but its sum.

Where what all share moves, the sum is moved on as a whole. Its sets are then looked at again, one after the other,
and a second sum is made of those that have been, which takes the first one's place when all have.
"""

import numpy as np

from haystream.memory.arrays import Floats, Switches
from haystream.models.common import Common
from haystream.ranking.tournament import TERMS


class Rest:
    """The sum of what sets add, each of shape (TERMS,), which are taken out as they were taken in."""

    def __init__(self) -> None:
        self.begin(None)

    def begin(self, common: Common | None) -> None:
        """Begin anew with nobody, at these common quantities; None where no rest is kept."""
        self.terms: Floats = np.zeros(TERMS)
        """The sum."""
        self.common = common
        """The common quantities at which that was exact."""
        self._moved: Floats = np.zeros(TERMS)
        """How far it has been moved on since (`set_scores.moved_on`)."""
        self._again: Floats | None = None
        """Of those that have been looked at again, at other common quantities; None where none is to be."""

    def look_again(self) -> None:
        """Begin to look at all of them again: nobody has been so far."""
        self._again = np.zeros(TERMS)

    def add(self, terms: Floats, looked_at: Switches) -> None:
        """Take in sets that add so much, shape (k, TERMS). `looked_at`: who of them has been again, (k,)."""
        self.terms = self.terms + terms.sum(axis=0)
        if self._again is not None:
            self._again = self._again + terms[looked_at].sum(axis=0)

    def take_looked_at(self, terms: Floats) -> None:
        """Take out sets that have been looked at again, or are not to be, and add so much, shape (k, TERMS)."""
        gone = terms.sum(axis=0)
        self.terms = self.terms - gone
        if self._again is not None:
            self._again = self._again - gone

    def take(self, terms: Floats) -> None:
        """Take out sets that are still to be looked at, which added so much at `common`, shape (k, TERMS)."""
        moved = terms + terms[:, -1:] * self._moved
        self.terms = self.terms - moved.sum(axis=0)

    def move_on(self, joined: Floats, moved: Floats) -> None:
        """Move the sum on by so much for each item, with what joined it before, shape (TERMS,) each."""
        terms = self.terms + joined
        self.terms, self._moved = terms + terms[-1] * moved, self._moved + moved

    def keep(self, terms: Floats) -> None:
        """Take into the second sum sets that have been looked at again, stay, and add so much, shape (k, TERMS)."""
        assert self._again is not None
        self._again = self._again + terms.sum(axis=0)

    def finish(self, common: Common) -> None:
        """Take the second sum for the first: all have been looked at again, at these common quantities."""
        assert self._again is not None
        self.terms, self.common, self._moved, self._again = self._again, common, np.zeros(TERMS), None
