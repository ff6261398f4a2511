"""What may be late where the common quantities move, so that no verdict waits until everything is scored again.

Scores are made at rounded common quantities (`models.common.rounded`), and where these go a step on, the scores of
all sets move. On a large graph that is hundreds of thousands. Then those are scored at once that were the best, and
whatever a verdict has moved; all others are out of the ranking, *late*, until there is time. What they add to the
totals is moved on meanwhile: what is expected exactly, but for means at 0 or 1, and its variance to first order.
"""

from dataclasses import dataclass, field

import numpy as np

from haystream.arrays import Floats
from haystream.engines.contract import Engine
from haystream.models.common import Common
from haystream.ranking.tournament import TERMS

AT_ONCE = 8192
"""So many sets are scored at once in any case: two milliseconds, about."""

CANDIDATES = 4096
"""Of more, so many are, the best as they stood before. A step is half an octave of the odds, which moves who has
more verdicts less than who has none; who is among the first fifty was among these, but where nearly all scores are
near 1."""

LATE_AT_ONCE = 4096
"""So many late ones are scored in a turn: a millisecond or two."""


@dataclass(slots=True)
class LateSets:
    """How far a queue has come with those that are late."""

    engine: Engine
    """Whose readings they are scored by, at these common quantities, and as of this step."""
    common: Common
    step: int
    made: int = 0
    """So many of the sets that the query owns are done."""
    owned_terms: Floats = field(default_factory=lambda: np.zeros(TERMS))
    """What the prior says that these add to the totals."""


def moved_on(shift: float, base_rate: float) -> Floats:
    """By how much a set's terms (`set_scores`) move with the common mean, over the last of them, shape (TERMS,).

    `base_rate`: the common mean that they move to. Of left × p(1 − p) the derivative is left × (1 − 2p) dp/dΔ, p
    taken as the mean of everybody's, half way.
    """
    return np.array([shift, shift * (1.0 - 2.0 * base_rate + shift), 0.0])
