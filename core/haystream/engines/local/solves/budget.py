"""How exact everything is: one promise in probability, and what each approximation may take of it.

Of what an engine approximates, and a factor of its tolerance for each:

- **solved**: the right-hand sides, up to a residual (`solve`);
- **told**: what readers were last told of may lag behind (`announce`);
- **entries**: those of Λ⁻¹, on which the mean of P depends in `relevance` alone, are corrected by columns that
  leave something out (`inverse_entries`), until they are solved afresh (`healing`);
- **common**: the reach of each participant, through which a common mean that is learned, in `rates` alone, moves
  it.

The inequality that a factor has to satisfy stands beside it; `taken` adds up what they take of the promise.
"""

import math
from typing import NamedTuple

import numpy as np

from haystream.engines.local.solves.sides import COMMON, MEAN, REMAINING
from haystream.memory.arrays import Floats

PROMISE = 1e-4
"""No adjusted mean, of an R or a P, is farther than this from a dense solve of the same data once nobody waits for
`tend`. `tests/core/test_ranges.py` holds the engine to it over all settings that the models take."""

DEFAULT_TOLERANCE = 2e-5
"""Residuals are pushed until |r| ≤ tolerance × diagonal, in units of x (standard deviations of R at the prior,
about). All other factors are multiples of this one. AMPLIFIED × tolerance ≤ 0.4 PROMISE."""

AMPLIFIED = 2.0
"""By how much a bound on residuals enters a mean: D/(1 − δ), where Λ is diagonally dominant by 1 − δ and all
residuals are at the bound with one sign. That is 2.2 at the defaults of `relevance`, and 5.8 at those of
`rates`, where everybody has as many contacts; but pushes leave residuals of either sign, and even on a ring of 48
people 2.4 was the most that was found (as tests/core/test_budget.py measures it)."""

MOST_AMPLIFIED = 6.0
"""The D/(1 − |δ|) up to which AMPLIFIED holds. Where it is more, right-hand sides and the entries of Λ⁻¹ are solved
the more closely, in proportion (`closeness`)."""

HEAVY_WEIGHT = 1.0 / 3.0
"""An edge that adds W to entries of Λ's diagonal holds a sum of its ends, and leaves them free to move against each
other: a residual that is small beside the diagonal, 1 + W, is not small beside what holds them there, 1 − |δ|. For
two who have no other contacts all of it enters a mean, which is why an edge counts as heavy before W is 1:
MOST_AMPLIFIED × HEAVY_WEIGHT ≤ AMPLIFIED."""

TOLD_FACTOR = 2.0
"""Readers are told of a participant, and its edges are scored again, when its adjusted mean or variance is so many
tolerances from what they were last told. It halves the work of a verdict near hubs.
TOLD_FACTOR × tolerance ≤ 0.4 PROMISE."""

URGENT_FACTOR = 5.0
"""Whose reading moved by at most so many times what readers are told of anyway may wait until there is time: a
verdict then has a tenth of the edges to score again near hubs. Under load, and only then, an item's score lags by
URGENT_FACTOR × TOLD_FACTOR × tolerance ≤ 2 PROMISE."""

HUB_CONTACTS = 1024
"""A participant with more contacts than this may wait for longer, in proportion: its edges are as many."""

COMMON_FACTOR = 5.0
"""The right-hand side behind the common mean is solved so much less closely: what it leaves out moves a mean by Δ −
Δ₀ times as much, and Δ itself not to first order. COMMON_FACTOR × AMPLIFIED × COMMON_SHIFT × tolerance ≤ 0.05
PROMISE."""

COMMON_OWED_FACTOR = 3.0
"""Verdicts and new edges have it solved so much less closely still; what is owed of that, about half of what a
verdict would take, is done when there is time. COMMON_OWED_FACTOR × COMMON_FACTOR × AMPLIFIED × COMMON_SHIFT ×
tolerance ≤ 0.15 PROMISE: under load, and only then, a mean lags by that."""

COMMON_SHIFT = 0.025
"""Where |Δ − Δ₀| is larger, a new reference is taken (`changes.refer`): some milliseconds on a large graph, at
several of the first fifty verdicts, and between them. The smaller this is, the fewer need to be told of anything
(`At`)."""

COMMON_SHIFT_WAITS = 0.2
"""Where the reference moves by no more, and nobody waits to be told of, all whom it concerns may wait until there
is time. What they were told of is within TOLD_FACTOR × tolerance at the last reference, and off at the new one by
as much of a reach more as that moved; of a reach it is within TOLD_FACTOR × tolerance / LEAST_SCALE. So that nobody
is off by more than may wait anyway, 1 + COMMON_SHIFT_WAITS / LEAST_SCALE ≤ URGENT_FACTOR."""

REMAINING_FACTOR = 25.0
"""The right-hand side behind the variance of what remains is solved so much less closely, in units of the items of
a participant, and a new item then costs a few pushes. That is their root mean square: what hubs have makes most of
that variance. h is about REMAINING_COEFFICIENT an item at each end, and that variance is right to second order in
what the solve leaves out (`state.Sums.form`): (REMAINING_FACTOR × tolerance / REMAINING_COEFFICIENT)² ≤ 2
tolerances of itself, about. What is learned of concentrations moves what is expected to remain by a sum to which
the solution matters to first order: REMAINING_FACTOR × tolerance / REMAINING_COEFFICIENT ≤ 1 % of that."""

REMAINING_OWED_FACTOR = 4.0
"""They have this one solved so much less closely still, likewise: a new edge at a hub leaves residuals at all its
contacts. The variance of what remains lags by no more than (REMAINING_OWED_FACTOR × REMAINING_FACTOR × tolerance /
REMAINING_COEFFICIENT)² ≤ 5e-4 of itself, about, and what concentrations move by 4 % of that."""

REMAINING_COEFFICIENT = 0.1
"""h of one item at an end of its edge, about: (1 − ρ) β̃."""

SHARE_FACTOR = 20.0
"""Shares are solved so much less closely than means: SHARE_FACTOR × AMPLIFIED × tolerance ≤ 8 PROMISE, and their
sum is off by as much, less than a tenth of a percentage point. They are read by people, as reasons."""

LEAST_SCALE = 0.05
"""A variance is σ² D² times an entry of the inverse: where σ² is small, the entry needs to be less exact. Not below
this, or a base rate that turns out much larger than the prior's would find them too rough; nor is what readers were
told of the spread of a rate compared in smaller units, since the variance of a P is up to P (1 − P) times that
spread, however small σ² is."""

FAR_FACTOR = 25.0
"""D of a participant whom data have moved by no more than MOVED_FAR may lag by so many tolerances, relative to
itself: it enters a mean times how far data have moved that. FAR_FACTOR × MOVED_FAR ≤ 1, so that it enters none by
more than one tolerance, as near data."""

MOVED_FAR = 0.04
"""Whose mean or reach is so far from what it is without data is near data; so is whoever has a screened edge."""

ENTRY_IN_PROBABILITY = 0.15
"""What an entry of Λ⁻¹ is worth in the mean of P, at most: D_u D_v (0.25 or less, at the prior) times the 0.6 by
which table 2's mean depends on both being relevant."""

STRAIN_FACTOR = 5.0
"""A participant waits for healing when its strain, about what corrections may have left out of its entries of the
inverse, is so many tolerances. ENTRY_IN_PROBABILITY × STRAIN_FACTOR × tolerance ≤ 0.2 PROMISE."""

DRIFTED_FACTOR = 5.0
"""Whose diagonal entry is found to have drifted by more tolerances than this has its contacts healed too: whoever
has less is within what strain allows. DRIFTED_FACTOR ≤ STRAIN_FACTOR."""

COLUMN_FACTOR = 2.0
"""Columns that entries are read off are solved so much less closely than x: a diagonal entry's error is of second
order, and another entry matters to a probability by a tenth or less. COLUMN_FACTOR ≤ STRAIN_FACTOR, so that who has
been healed does not wait again."""

PRIOR_COLUMN_FACTOR = 5.0
"""The same of Q⁻¹, whose tolerance is the closer one: scales come from its diagonal; off it `rates` needs no more
than the entries of Λ⁻¹ do. PRIOR_COLUMN_FACTOR ≤ STRAIN_FACTOR."""

LEAST_DOMINANCE = 0.1
"""Q is diagonally dominant by 1 − |δ|, and a residual of it enters an entry of Q⁻¹ times one over that. Where it is
less than this, the columns of Q⁻¹ are solved the more closely, in proportion."""

MOST_CORRELATION_WEIGHT = 0.37
"""Where edges' priors are made of Q⁻¹, an error of a correlation enters a mean `Model.correlation_weight` times. A
bound on a column's residuals puts it off by twice that where all are at the bound with one sign, and a mean then by
2 × PRIOR_COLUMN_FACTOR × MOST_CORRELATION_WEIGHT × tolerance ≤ 0.8 PROMISE; pushes leave residuals of either sign,
and half of it is much already. Where the weight is more, Q⁻¹ is solved and followed the more closely
(`prior_closeness`)."""

NEW_COLUMN_FACTOR = 10.0
"""So much less closely at most are the columns of a new edge's ends solved: the entry read off them has an error
of second order, (NEW_COLUMN_FACTOR × tolerance / LEAST_SCALE)² ≤ tolerance / LEAST_SCALE."""

LOOSEST_COLUMN = 0.1
"""No column is solved less closely than this, however small the change of the matrix that it is multiplied with."""

FIRST_ORDER_FACTOR = 50.0
"""A change of Λ, relative to its inverse, by at most so many tolerances of its entries (1 % with σ² = 0.1) is taken
into its inverse to first order; the second order, (FIRST_ORDER_FACTOR × tolerance / LEAST_SCALE)² at most, is no
more than that tolerance, tolerance / LEAST_SCALE."""

NEGLIGIBLE_FACTOR = 1e-3
"""A change of a diagonal entry by less of a tolerance than this is passed on to nobody."""

TAKEN_FACTOR = 0.1
"""An entry of Λ⁻¹ off the diagonal is as Q⁻¹ has it where no data have reached, and follows it there only where it
is off by more than so many tolerances: most that a new edge moves it moves by less, and what is not written takes
no memory. ENTRY_IN_PROBABILITY × TAKEN_FACTOR × tolerance ≤ 0.01 PROMISE."""

THINNED_FACTOR = 0.1
"""What pending screenings do to an entry of Λ⁻¹ is off by at most so many tolerances of it, as what matters less is
not kept. They move no mean."""

LIGHT_FACTOR = 0.2
"""To whom pending screenings of many add d ≤ √(LIGHT_FACTOR × tolerance), that of the inverse, in Λ's diagonal is
light, and moves entries near himself as if nobody else were. That leaves out 2 d² Σ_v (Λ⁻¹)²_uv over all others, of
which the sum is LIGHT_SPREAD or less. 2 × LIGHT_SPREAD × LIGHT_FACTOR ≤ 0.5."""

LIGHT_SPREAD = 1.0
"""As long as Λ's diagonal is 1 or more and its dominance what AMPLIFIED says: Σ_v (Λ⁻¹)_uv ≤ 2.2 over all v, each
of them 0.3 or less."""

LIGHT_COLUMN_FACTOR = 4.0
"""Columns that what is added to light people is multiplied with are solved so much more closely than one of them
would ask. An entry of the inverse misses twice that over this times Σ_v (Λ⁻¹)_uv: 2 × AMPLIFIED ≤
LIGHT_COLUMN_FACTOR."""

NEGLECTED_SHARE = 0.5
"""Columns of pending screenings are left out where they move no entry of the inverse by more than that share of a
tolerance of it: one of length ℓ moves none by more than ℓ², and one that is b or less at everybody, since
Σ_v (Λ⁻¹)_uv ≤ AMPLIFIED, by no more than (AMPLIFIED b)². NEGLECTED_SHARE < 1."""

SEEN_FACTOR = 2.0
"""What pending screenings do to the reach of a participant enters its variance times 2 v_M or less. So it is solved
to corrected/(SEEN_FACTOR v_M), where `corrected` is what entries of the inverse are: 2 ≤ SEEN_FACTOR."""

SEEN_SHARE = 2.0
"""What pending screenings take of the variance of what remains is off by its solve by at most so many tolerances of
that variance, which is as exact itself (REMAINING_FACTOR). It is right to second order in what the solve leaves
out, r; and pushes that go on until no residual is above ε take ‖g‖₁/ε of them, about, so that rᵀΛ⁻¹r ≤ AMPLIFIED ε
‖g‖₁: no solve begins with more left than that (`low_rank.solve_column`). SEEN_SHARE ≤ 2."""

LEAST_SEEN = 1e-3
"""Where next to nothing remains, it is solved no more closely than so many tolerances of ‖g‖₁."""


class EntryTolerances(NamedTuple):
    """How exact the entries of an inverse are (kernels take this)."""

    corrected: float
    """Columns that correct entries as the matrix changes are solved to this. The unit of all others."""
    healed: float
    """Columns that entries are read off are."""
    new: float
    """Columns of a new edge's ends are."""
    strain: float
    """Who has so much strain waits."""
    drifted: float
    """Whose diagonal entry is found off by more has its contacts healed."""
    negligible: float
    """Whose diagonal entry changes by less has not changed."""
    taken: float
    """An entry off the diagonal that is another's is as it was where that has moved by less."""


class Tolerances(NamedTuple):
    """How exact an engine's other numbers are (kernels take this)."""

    sides: Floats
    """Residuals of the right-hand sides, over Λ's diagonal, shape (sides,)."""
    owed: Floats
    """The same while somebody waits."""
    scale: float
    """A relative change of D that priors of edges follow near data. Elsewhere they follow it where it puts a
    variance off by so much; and anywhere Q⁻¹, where it does a covariance."""
    far: float
    """A relative change of D that they follow anywhere."""
    entry: float
    """A change of an entry of Q⁻¹ that they follow anywhere: inf where they are not made of it."""
    first_order: float
    """A change of Λ, relative to its inverse, that its inverse takes to first order."""
    told: float
    """Readers are told, in the end, of what has moved by more."""
    urgent: float
    """Readers are told at once of what has moved by more."""
    share: float
    """Residuals of the solve behind shares."""


def entry_tolerances(tolerance: float, column_factor: float) -> EntryTolerances:
    """The tolerances of an inverse: columns are corrected to `tolerance`, healed to `column_factor` times it."""
    return EntryTolerances(
        corrected=tolerance,
        healed=column_factor * tolerance,
        new=NEW_COLUMN_FACTOR * tolerance,
        strain=STRAIN_FACTOR * tolerance,
        drifted=DRIFTED_FACTOR * tolerance,
        negligible=NEGLIGIBLE_FACTOR * tolerance,
        taken=TAKEN_FACTOR * tolerance,
    )


def closeness(largest_scale: float, correlation: float, heaviest: float) -> float:
    """How many times a tolerance right-hand sides and the entries of Λ⁻¹ are solved to: 1, or a power of 1/2.

    `largest_scale`: of D; `heaviest`: the most that an edge adds to an entry of Λ's diagonal.
    """
    amplified = largest_scale / (1.0 - abs(correlation)) * max(1.0, heaviest / HEAVY_WEIGHT)
    return _step_below(MOST_AMPLIFIED / max(amplified, MOST_AMPLIFIED), 1)


def prior_closeness(weight: float) -> float:
    """How many times a tolerance Q⁻¹ is solved to for a model whose `correlation_weight` is `weight`: 1, or one of
    four steps to an octave, so that priors that are much alike share it. What a small 1 − |δ| asks for is in
    `prior_entries`."""
    return _step_below(MOST_CORRELATION_WEIGHT / max(weight, MOST_CORRELATION_WEIGHT), 4)


def _step_below(ratio: float, steps: int) -> float:
    return float(2.0 ** (math.floor(steps * math.log2(ratio)) / steps))


def prior_entries(tolerance: float, correlation: float) -> EntryTolerances:
    """The tolerances of Q⁻¹ (`prior_inverse`) with δ = `correlation`."""
    return entry_tolerances(tolerance * min(1.0, (1.0 - abs(correlation)) / LEAST_DOMINANCE), PRIOR_COLUMN_FACTOR)


def posterior_entries(tolerance: float, scale: float) -> EntryTolerances:
    """The tolerances of Λ⁻¹, `scale` being σ² before data, and `tolerance` as close as `closeness` asks."""
    return entry_tolerances(tolerance / max(scale, LEAST_SCALE), COLUMN_FACTOR)


def tolerances(
    tolerance: float, entries: EntryTolerances, sides: int, *, closely: float = 1.0, of_prior: float = 1.0
) -> Tolerances:
    """The tolerances of an engine with so many right-hand sides, before it knows of any items (`for_items`).

    `closely`: as `closeness` says; `of_prior`: as `prior_closeness` does.
    """
    told, followed = TOLD_FACTOR * tolerance, of_prior * tolerance
    made = Tolerances(
        sides=np.full(sides, closely * tolerance),
        owed=np.full(sides, closely * tolerance),
        scale=followed,
        far=FAR_FACTOR * followed,
        entry=np.inf if sides > COMMON else followed,
        first_order=FIRST_ORDER_FACTOR * entries.corrected,
        told=told,
        urgent=URGENT_FACTOR * told,
        share=SHARE_FACTOR * tolerance,
    )
    made.sides[COMMON:] *= COMMON_FACTOR
    made.owed[COMMON:] *= COMMON_OWED_FACTOR * COMMON_FACTOR
    return made


def for_items(of: Tolerances, items: float, form: float) -> None:
    """Have the variance of what remains solved as closely as so many items of a participant, in the mean, ask; and
    as so large a hᵀΛ⁻¹h a participant does, which is about the mean square of h."""
    root_mean_square = math.sqrt(max(form, 0.0) / AMPLIFIED) / REMAINING_COEFFICIENT  # rᵀΛ⁻¹r ≤ AMPLIFIED rᵀr
    of.sides[REMAINING] = of.sides[MEAN] * (REMAINING_FACTOR * max(1.0, items, root_mean_square))
    of.owed[REMAINING] = REMAINING_OWED_FACTOR * of.sides[REMAINING]


def seen_tolerances(of: Tolerances, corrected: float, variance: float, remaining: float, size: Floats) -> Floats:
    """The tolerances of what pending screenings see of the common mean, and of what remains, shape (2,)
    (`pending.seen`).

    v_M is `variance`, and is off by no more than `corrected` either; of what remains it is `remaining`. `size`:
    ‖g‖₁ of both.
    """
    tolerance, loosest = of.sides.item(MEAN), np.finfo(np.float64).max
    of_common = max(SEEN_FACTOR * variance, AMPLIFIED * variance * variance * size.item(0))
    of_remaining = SEEN_SHARE * tolerance * remaining / AMPLIFIED
    return np.array(
        [
            corrected / of_common if of_common > 0.0 else loosest,
            max(of_remaining / size.item(1), LEAST_SEEN * tolerance * size.item(1))
            if size.item(1) > 0.0
            else loosest,
        ]
    )


def taken(tolerance: float = DEFAULT_TOLERANCE) -> dict[str, float]:
    """What each approximation takes of the promise at most, as a share of it, by name.

    A model has `entries` or `common`: of `relevance` no mean is common, and in `rates` no covariance enters a mean.
    """
    return {
        "solved": AMPLIFIED * tolerance / PROMISE,
        "told": TOLD_FACTOR * tolerance / PROMISE,
        "entries": ENTRY_IN_PROBABILITY * STRAIN_FACTOR * tolerance / PROMISE,
        "common": COMMON_FACTOR * AMPLIFIED * COMMON_SHIFT * tolerance / PROMISE,
    }
