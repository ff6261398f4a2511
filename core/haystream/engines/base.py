"""What an engine offers. `reference` and `local` are held to the same answers on every member of this."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


class Engine(Protocol):
    """The posterior of one query: counts in, adjusted expectations and variances out.

    Indexes are the collection's. Tell the engine what changed (`record`; growth it sees for itself), then
    `settle`, then read. Between a change and `settle` the readings are of neither state.
    """

    def record(self, edge: int, *, screened: float = 0.0, relevant: float = 0.0, offered: float = 0.0) -> None:
        """Add to (or, with negative numbers, take from) an edge's counts.

        `offered` counts the unscreened items on the edge, which expected remaining is about.
        """
        ...

    def settle(self) -> tuple[Ints, Ints]:
        """Bring the posterior up to date; the participants and the edges whose readings changed, ascending."""
        ...

    def tend(self, most: int) -> bool:
        """Undo drift, when there is time: at most so many local solves. True if more wait; the next `settle`
        names what changed, by less than the accuracy promised."""
        ...

    def counts(self, edges: Ints) -> tuple[Floats, Floats, Floats]:
        """Screened n, relevant y, and unscreened items on offer, on those edges."""
        ...

    def unconstrained(self, participants: Ints) -> tuple[Floats, Floats]:
        """Adjusted mean and variance of Z before the constraint of section 3.1."""
        ...

    def participants(self, participants: Ints) -> tuple[Floats, Floats]:
        """Constrained adjusted mean and variance of Z (Lemma 2)."""
        ...

    def edges(self, edges: Ints) -> tuple[Floats, Floats]:
        """Adjusted mean and variance of P, the mixture of section 4."""
        ...

    def discrepancy(self) -> float:
        """(y − E[Y])ᵀ Var(Y)⁻¹ (y − E[Y]): how surprising the data are, about the number of screened edges."""
        ...

    def remaining_variance(self) -> float:
        """Var(Σ_e L_e P_e | Y), L_e the unscreened items on offer: without the items' own coin flips."""
        ...

    def shares(self, edges: Sequence[int]) -> list[tuple[int, float]]:
        """Who made the mean of those edges' P what it is: (screened edge, share), largest share first.

        The shares add up, exactly, to the adjusted expectation (before any constraint) of the mean of P over
        `edges`, less its prior expectation (NOTES, section 5).
        """
        ...

    def infeasible(self) -> int:
        """The number of edges whose prior covariance no two binary variables with those means can have."""
        ...
