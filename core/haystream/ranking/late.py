"""What may be late where the common quantities move, so that no verdict waits until everything is scored again.

Scores are made at rounded common quantities (`models.common.rounded`), and where these go a step on, the scores of
all sets move. On a large graph that is hundreds of thousands. Then those are scored at once that will be the best,
as far as can be foreseen, and whatever a verdict has moved; all others are out of the ranking, *late*, until there
is time. What they add to the totals is moved on meanwhile: what is expected exactly, but for means at 0 or 1, and
its variance to first order.
"""

import math
from dataclasses import dataclass

from haystream.models.common import Common

AT_ONCE = 2048
"""So many sets are scored at once in any case: to choose among so few saves little."""

CANDIDATES = 4096
"""So many entries may lead. Of more than AT_ONCE sets a fourth of as many are scored at once, those that are
foreseen to be best (`tournament.foresee`)."""

LATE_AT_ONCE = 2048
"""So many late ones are scored in a turn: a millisecond or two."""


@dataclass(slots=True)
class LateSets:
    """How far a queue has come with those that are late, by their numbers."""

    common: Common
    """By which they are scored."""
    known_above: float = -math.inf
    """Whoever scores so much is in the ranking already."""
    made: int = 0
    """The number of the first set that is not looked at yet."""
