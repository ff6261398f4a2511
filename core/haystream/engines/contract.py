"""What an engine offers. `reference` and `local` are held to the same answers on every member of this."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from haystream.events import Prior
from haystream.memory.arrays import Floats, Ints, Longs, Switches, union
from haystream.models.base import EdgeCounts, Posteriors
from haystream.models.common import Common

NEVER: Ints = np.zeros(1, np.int32)
"""Nobody asks to stop (`Engine.tend`)."""


class Moved(NamedTuple):
    """What a settling changed, each member ascending."""

    participants: Ints
    """Those whose `given_common` moved."""
    edges: Ints
    """Those whose screened or relevant count did, or whose covariance (`covariances`)."""
    scores: Ints
    """Those to score again: whatever of them moved, or an end. Where `rounded_common` has moved, all are."""

    def joined(self, before: "Moved") -> "Moved":
        """What this one changed, or the one `before` it."""
        if before is NOTHING_MOVED:
            return self
        return Moved(*(union(*both) for both in zip(self, before, strict=True)))


NOTHING_MOVED = Moved(*np.zeros((3, 0), np.int32))


class LargestShares(NamedTuple):
    """The largest `Readings.shares` of some sets of edges; those of set s are in rows start[s] : start[s + 1]."""

    start: Longs
    """Shape (sets + 1,)."""
    edge: Ints
    """The screened edge, shape (rows,)."""
    share: Floats
    """The same shape; largest first, by size."""


class Readings(Protocol):
    """What is read off a posterior.

    R_u is the participant's variable, whatever the model means by it: relevance Z, or a rate.

    A **pending** screening has been made, and its outcome is not known. It is expected to be what the data already
    say: no mean moves, nor what else outcomes teach (base rate and σ², discrepancy, concentrations, shares). But it
    will have been made, and so variances (of R, P, M, and of what remains) are those that will hold then. Tables do
    not know of it, and so neither do `given_common`, `covariances` and `known_common`, which they hold.
    """

    def counts(self, edges: Ints) -> EdgeCounts:
        """On those edges."""
        ...

    def given_common(self, participants: Ints) -> tuple[Floats, Floats, Floats]:
        """What does not move when the common mean does: X, O and V, of which `posterior.tables.read` is made.

        X: adjusted mean of R at the prior's common mean, unconstrained. O: its reach, d mean / d Δ. V: its variance
        given the common mean, in units of σ².
        """
        ...

    def covariances(self, edges: Ints) -> Floats:
        """Of the edges' two ends, as V."""
        ...

    def unconstrained(self, participants: Ints) -> tuple[Floats, Floats]:
        """Adjusted mean and variance of R before the constraint of section 3.1."""
        ...

    def participants(self, participants: Ints) -> tuple[Floats, Floats]:
        """Constrained adjusted mean and variance of R (Lemma 2)."""
        ...

    def edges(self, edges: Ints) -> tuple[Floats, Floats]:
        """Adjusted mean and variance of P, as the model reads them off the ends and the edge's own counts."""
        ...

    def scoring(self, edges: Ints, counts: EdgeCounts | None = None) -> Posteriors:
        """Mean and variance of P to score by, and d mean / d Δ: at *rounded* common quantities, without inflation.

        Of the ends they are made of what readers were last told (`told`), pending screenings apart.

        What all edges share moves a little with every verdict. Rounded (a function of the data alone, so order
        does not matter), it moves seldom; between, these readings change only where data reach. The same as `edges`
        for a model without a common mean (docs/scores.md, "What scores are made with").

        `counts`: what `counts` says of the edges, for an engine to use if the caller has asked.
        """
        ...

    def common(self) -> Common:
        """What all share, exact."""
        ...

    def known_common(self) -> Common:
        """The same without pending screenings: v_M is larger."""
        ...

    def rounded_common(self) -> Common:
        """What all share, as `scoring` takes it."""
        ...

    def rounded_after(self, edge: int) -> tuple[Common, Common]:
        """What `rounded_common` will be, about, when one more item on an edge is found irrelevant, or relevant."""
        ...

    def discrepancy(self) -> float:
        """(y − E[Y])ᵀ Var(Y)⁻¹ (y − E[Y]): how surprising the data are, about the number of screened edges."""
        ...

    def remaining_variance(self) -> float:
        """Var(Σ_e L_e P_e | Y), L_e the unscreened items on offer: without the items' own coin flips."""
        ...

    def concentration(self) -> tuple[float, float]:
        """E[log c | Y] and Var[log c | Y], c what the concentrations of participants and edges are to be multiplied
        by: from how edges' own verdicts spread about what all others say of them (`models.concentration`). 0 and 0
        for a model without a common mean, whose variances its means fix.
        """
        ...

    def concentration_slope(self) -> float:
        """dE[Σ_e L_e P_e | Y] / d log c at c = 1, before any constraint, were participants and edges c times as
        concentrated about what is expected of them, given the common mean: all their prior variances over c.
        """
        ...

    def shares(self, edges: Sequence[int]) -> list[tuple[int, float]]:
        """Who made the mean of those edges' P what it is: (screened edge, share), largest share first.

        The shares add up, exactly, to the adjusted expectation (before any constraint) of the mean of P over
        `edges`, less its prior expectation and less the shift of the common mean, which is everybody's
        (docs/method.md, "Because"): a screened edge's data speak here by how they differ from the learned base
        rate."""
        ...

    def largest_shares(self, start: Longs, edges: Ints, most: int) -> LargestShares:
        """The first `most` of the `shares` of each of some sets: set s is edges[start[s] : start[s + 1]]."""
        ...

    def deviations(self, edges: Ints) -> Floats:
        """d, how far the mean outcome on some edges is from what the prior expected, shape (k,); NaN of one
        that nobody has screened."""
        ...

    def infeasible(self) -> int:
        """The number of edges whose prior covariance the model's variables cannot have: a bound replaced it."""
        ...


class Engine(Protocol):
    """The posterior of one query: counts in, adjusted expectations and variances out.

    Tell the engine what changed (`record`; growth it sees for itself), then `settle`, then read. Between a change
    and `settle` the readings are of neither state. Indexes are the collection's."""

    def record(
        self,
        edges: int | Ints,
        *,
        screened: float = 0.0,
        relevant: float = 0.0,
        offered: float = 0.0,
        pending: float = 0.0,
    ) -> None:
        """Add to (or, with negative numbers, take from) the counts of an edge, or of each of several, named once.

        `offered` counts the items on the edge that have no verdict, which expected remaining is about; `pending`
        those of them that an analyst has been handed.
        """
        ...

    def offer(self, edges: Ints, items: Floats) -> None:
        """Add new items to those on offer on some edges, each named once; negative numbers take them back."""
        ...

    def watch(self, prior: Prior) -> None:
        """Take another watch-list: a prior that differs from the engine's in `participants` alone."""
        ...

    def settle(self) -> Moved:
        """Bring the posterior up to date, and say what moved."""
        ...

    def told(self, participants: Ints, edges: Ints) -> tuple[Floats, Floats, Floats, Floats]:
        """What readers were last told of these (`Moved`): X, O and V of participants, covariances of edges."""
        ...

    def leave(self, participants: Ints, edges: Ints) -> tuple[Switches, Switches]:
        """Say which of these are as good as without data: readers take the prior for them then. Shape (k,) each.

        The prior on the graph as it is. They are named again (`Moved`) when they differ from it, or it moves.
        """
        ...

    may_leave: bool
    """Whether that may be so of any of those who were named since somebody has put it to False."""

    drift: float
    """By how much the entries of the inverse that were last solved afresh had been off, estimates apart."""

    untold: float
    """At how many participants `tend` may have moved readings since the last `settle`, about; inf where that cannot
    wait."""

    def tend(self, most: int, stop: Ints = NEVER) -> None:
        """Undo drift, when there is time: at most so many local solves. The next `settle` names what changed.

        `stop`, shape (1,): once another thread sets it, this returns after the solve that is in hand.
        """
        ...

    @property
    def participants_left(self) -> int:
        """How many participants wait for `tend`, about."""
        ...

    @property
    def unfinished(self) -> bool:
        """Whether growth was taken in by estimate, and `tend` has not yet healed everybody since, or no `settle`
        has named what that changed."""
        ...

    def foresee(self, edge: int) -> bool:
        """Do ahead of time what a verdict on an item of the edge would take time for; True if anything was done,
        and `tend` has something to do for it. No reading moves by more than the tolerance."""
        ...

    @property
    def waiting(self) -> bool:
        """Whether there is something for `tend` to do."""
        ...

    @property
    def readings(self) -> Readings:
        """The posterior, good from one `settle` until the next change."""
        ...
