"""What the best sets will score once a verdict has taken the common mean a step on, made before it is there.

A verdict says one of two things, so that the common mean goes to one of two places (`Readings.rounded_after`), and
often to none. While nobody waits, those that are foreseen to lead there are scored: the verdict then scores what it
moves itself, and takes the others as they are here. All of it is dropped as soon as anything is scored anew.
"""

from typing import NamedTuple

from haystream.engines.local import LocalEngine
from haystream.memory.arrays import Ints
from haystream.ranking.scoring import Scored

MOST_FORESEEN = 2
"""So many common means are kept: where a relevant verdict leads to, and where one that is not."""


class Foreseen(NamedTuple):
    """What an engine, as it was told last, says at other common quantities, as if nothing were pending."""

    engine: LocalEngine
    at: Ints
    """The places of the entries that are foreseen to be best, ascending, shape (k,)."""
    least: float
    """The rest is to score less than that."""
    scored: Scored
    """Of the sets at these places."""
