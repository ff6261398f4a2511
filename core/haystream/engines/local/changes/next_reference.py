"""Which reference Δ₀ for the common mean leaves the next verdict none to take (`refer`)."""

from haystream.engines.local.readings.readings import ShiftsAfter
from haystream.engines.local.solves.budget import COMMON_SHIFT

COVERED_SHIFT = 0.95 * COMMON_SHIFT
"""So near a new reference is to what it is taken for, which is foreseen about, and moves a little meanwhile."""


def next_reference(reference: float, now: float, after: ShiftsAfter | None) -> float:
    """The reference from which neither `now`, the present Δ, nor where the next verdict leads is COMMON_SHIFT away;
    where none is, from which the likelier verdict does not lead as far. It is the present one, if that will do."""
    if after is None:
        return reference
    likely = after.relevant if after.chance > 0.5 else after.irrelevant
    for shifts in ((after.irrelevant, now, after.relevant), (likely, now)):
        least, most = min(shifts), max(shifts)
        if most - COMMON_SHIFT <= reference <= least + COMMON_SHIFT:
            return reference
        if most - least <= 2.0 * COVERED_SHIFT:
            return (least + most) / 2.0
    return reference
