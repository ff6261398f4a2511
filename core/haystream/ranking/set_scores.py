"""The score of an item set: of the mean of its edges' scores, or of what is known of the very set.

An item of k edges lies between the same people as the others of its set, and what these people write to each other
together may be another matter than what any two of them do. A policy that scores edges takes the mean of theirs;
`look-ahead-by-set` scores the set (docs/policies.md, "The policy `look-ahead-by-set`").
"""

from typing import NamedTuple

import numpy as np

from haystream.collection.item_sets import SetEdges
from haystream.memory.arrays import Floats, Ints, Longs
from haystream.memory.compiled import allocating, compiled, inlined

SET_CONCENTRATION = 3.0
"""How many screenings of a set what its edges say is worth: κ's default, since a set of one edge is that edge."""

LARGE_SET = 8
"""Items beyond which a set is the more concentrated about what is expected of it, in proportion: mail of 64 items
between the same people is of more matters than mail of 8, so that a relevant item says less of the rest."""

RESOLUTION = 2.0**-30
"""Scores are multiples of this, about 1e-9. Sums taken in another order differ by 1e-15 or so: that must not decide
between scores that are equal, or the ranking would depend on the order of events."""

OPTIMISM = 0.25
"""By which share of itself the common mean is taken as larger where nobody has looked: whom no data reach stands
above the mediocre that some do, until a verdict says otherwise."""

ONE_MATTER = 0.01
"""Of what is expected of a set, the share that is due to all of its items being relevant: mail to a list, say."""


class EdgeReadings(NamedTuple):
    """What scores are made of, every member of shape (edges,)."""

    mean: Floats
    """E[P | Y]."""
    variance: Floats
    """Var[P | Y]."""
    slope: Floats
    """d mean / d Δ: 1 where no data reach, 0 where an edge's own data say everything, or without a common mean."""
    screened: Floats
    """n."""
    score: Floats
    """The policy's, where it scores edges."""


class SetCounts(NamedTuple):
    """Items of each set, every member of shape (sets,)."""

    left: Longs | Ints
    """On offer: neither screened nor handed out."""
    items: Longs | Ints
    """All that there ever were, but for those withdrawn."""
    screened: Longs | Ints
    """With a verdict that counts."""
    relevant: Longs | Ints
    """Those of them that were found relevant."""
    pending: Longs | Ints
    """Handed out, without a verdict."""


@allocating
def numbers_of(of: Ints, number: Ints, at: Ints, rest: Ints) -> Ints:
    """The numbers of the sets at some places, and behind them `rest`, shape (len(at) + len(rest),).

    `of`: by place, the set's number, or −1 − its row in `number` and in the counts of `counts_of`.
    """
    numbers, entered = np.empty(len(at) + len(rest), np.int32), len(at)
    for i in range(entered):
        which = of[at[i]]
        numbers[i] = number[-1 - which] if which < 0 else which
    for i in range(len(rest)):
        numbers[entered + i] = rest[i]
    return numbers


@allocating
def counts_of(
    of: Ints, before: Longs, counts: SetCounts, at: Ints, rest: Ints
) -> tuple[Longs, Longs, Longs, Longs, Longs]:
    """The counts (`SetCounts`) of the same sets, of the same shape. Of a set without a row nothing is left but what
    there was `before`, by set, or nothing if it is beyond these."""
    sets = len(at) + len(rest)
    left, items, screened = np.zeros(sets, np.int64), np.zeros(sets, np.int64), np.zeros(sets, np.int64)
    relevant, pending = np.zeros(sets, np.int64), np.zeros(sets, np.int64)
    for i in range(sets):
        which = of[at[i]] if i < len(at) else rest[i - len(at)]
        if which < 0:
            row = -1 - which
            left[i], items[i] = counts.left[row], counts.items[row]
            screened[i], relevant[i] = counts.screened[row], counts.relevant[row]
            pending[i] = counts.pending[row]
        elif which < len(before):
            left[i] = items[i] = before[which]
    return left, items, screened, relevant, pending


@compiled
def stopping_score(mean: float, spread: float, left: float, horizon: int) -> float:
    """Expected finds over expected screenings of 'try one; go on with the rest only if it was relevant'.

    P is a beta of that mean and of the concentration 1/spread; of the `left` items at most `horizon` are looked at.
    That is M (1 + R M⁺) / (1 + R M), M⁺ = (M + S) / (1 + S), of R more items: over one denominator here.
    """
    rest = min(max(left, 1.0), float(horizon)) - 1.0
    sure = 1.0 + spread
    return mean * (sure + rest * (mean + spread)) / (sure * (1.0 + rest * mean))


@compiled
def streak_score(mean: float, before: float, own: float, size: float, hits: int, left: float) -> float:
    """Expected finds over expected screenings of 'go on for as long as everything is relevant'.

    Of a set in which `hits` were screened, all of them relevant. Either it is of one matter, and so is the rest; or
    P is a beta of mean `before` and concentration `size`/`own` before any verdict, and of mean `mean` now.
    """
    whole = ONE_MATTER * own * before
    other = 1.0 - whole
    for hit in range(hits):
        other *= (size * before + own * hit) / (size + own * hit)
        if other < 1e-9 * whole:
            break
    if whole > 0.0:
        whole /= whole + other
    tried = left  # until one is not relevant, or nothing is left
    if left > 1.0 and mean < 1.0:
        tried = (1.0 - mean**left) / (1.0 - mean)
    return (whole * left + (1.0 - whole) * mean * tried) / (whole * left + (1.0 - whole) * tried)


@compiled
def streak_may_exceed(score: float, mean: float, before: float, own: float, left: float, hits: int) -> bool:
    """Whether `streak_score` may come to more than that.

    It is (w L + (1 - w) M) / (w L + (1 - w)) at most without a verdict, with one item tried: the more items are
    tried at a mean below 1, the less it comes to. After a verdict it is 1 at most. With one item left it always
    is more; a processor guesses that seldom, and so is told it by the count, which is known first.
    """
    whole = ONE_MATTER * own * before
    return hits > 0 or left == 1.0 or score * (whole * left + 1.0 - whole) < whole * left + (1.0 - whole) * mean


@compiled
def mean_before(which: int, edges: SetEdges, readings: EdgeReadings, hits: int) -> float:
    """What was expected of a set before its own verdicts, all of them relevant: the mean over its k edges, each of
    which has 1/k of them."""
    first, last = edges.start[which], edges.start[which + 1]
    before, y = 0.0, hits / (last - first)
    for j in range(first, last):
        edge = edges.edge[j]
        known = SET_CONCENTRATION + readings.screened[edge]  # what m is worth: nobody knows of those pending
        before += max((readings.mean[edge] * known - y) / max(known - y, SET_CONCENTRATION), 0.0)
    return float(before / (last - first))


@inlined
def own_score(
    which: int,
    mean: float,
    slope: float,
    edges: SetEdges,
    readings: EdgeReadings,
    counts: SetCounts,
    base_rate: float,
    horizon: int,
) -> float:
    """The score of one set, from its edges' moments and its own record (docs/policies.md).

    `mean` and `slope`: the means of its edges'. This is a part of the loop that calls it: a call that hands on so
    many arrays takes longer than what is done here.

    An edge's spread 1/K is 1/(κ + n) for what is its own, and the more the less is known of its ends, which is the
    doubt. A model that is surer of an edge than 1/(κ + n) is believed.
    """
    first, last = edges.start[which], edges.start[which + 1]
    hits, k = counts.relevant[which], last - first
    pending, y, screened = float(counts.pending[which]), float(hits), float(counts.screened[which])
    streak = screened == y and pending <= y
    part = 1.0 / k
    doubt, own = 0.0, 0.0
    for j in range(first, last):
        edge = edges.edge[j]
        m, v = readings.mean[edge], readings.variance[edge]
        worth = SET_CONCENTRATION + readings.screened[edge] + part * pending
        spread = v / max(m * (1.0 - m) - v, 1e-12)
        doubt += max(spread - 1.0 / worth, 0.0)
        own += min(spread * worth, 1.0)
    own, doubt, hope = part * own, part * doubt, OPTIMISM * base_rate * slope
    before = mean_before(which, edges, readings, hits) if streak and hits else mean
    before = min(before + hope, 1.0)
    mean = min(mean + hope, 1.0)
    if k > 1:
        missing = 1.0 - part  # of the set's record, what its edges do not hold already
        mean = (SET_CONCENTRATION * mean + missing * y) / (SET_CONCENTRATION + missing * screened)
    else:
        screened = readings.screened[edges.edge[first]]
    concentration = SET_CONCENTRATION * max(1.0, counts.items[which] / LARGE_SET)
    left = float(counts.left[which])
    score = stopping_score(mean, own / (concentration + screened + pending) + doubt, left, horizon)
    if streak and streak_may_exceed(score, mean, before, own, left, hits):
        score = max(score, streak_score(mean, before, own, concentration, hits, left))
    return score


@compiled
def score_sets(
    sets: Ints,
    edges: SetEdges,
    readings: EdgeReadings,
    counts: SetCounts,
    base_rate: float,
    horizon: int,
    set_score: Floats,
    terms: Floats,
) -> None:
    """Give `sets` their scores, into `set_score`, shape (sets,), and their terms, shape (len(sets), 3).

    With a horizon of 0 a score is the mean of the edges' scores, else `own_score`; −inf where nothing is left.
    `base_rate`: the common mean that the readings were made with.

    The terms are what its unscreened items add to expected remaining, to its variance by being coin flips given
    P, and to how it moves with the common mean: left × E[p], left × E[p(1 - p)] and left × dE[p]/dΔ, p the mean of
    the edges' P's, taken as uncorrelated.
    """
    for i in range(len(sets)):
        which = sets[i]
        left = counts.left[which]
        if left == 0:
            set_score[which] = -np.inf
            terms[i, :] = 0.0
            continue
        total_score, total_mean, total_variance, total_slope = 0.0, 0.0, 0.0, 0.0
        for j in range(edges.start[which], edges.start[which + 1]):
            edge = edges.edge[j]
            total_score += readings.score[edge]
            total_mean += readings.mean[edge]
            total_variance += readings.variance[edge]
            total_slope += readings.slope[edge]
        part = 1.0 / (edges.start[which + 1] - edges.start[which])
        m, slope, spread = part * total_mean, part * total_slope, part * part * total_variance
        if horizon:
            score = own_score(which, m, slope, edges, readings, counts, base_rate, horizon)
        else:
            score = part * total_score
        set_score[which] = np.rint(score / RESOLUTION) * RESOLUTION
        terms[i, 0] = left * m
        terms[i, 1] = left * max(m - m * m - spread, 0.0)
        terms[i, 2] = left * slope


def moved_on(shift: float, base_rate: float) -> Floats:
    """By how much a set's terms (`score_sets`) move with the common mean, over the last of them, shape (3,).

    `base_rate`: the common mean that they move to. Of left × p(1 − p) the derivative is left × (1 − 2p) dp/dΔ, p
    taken as the mean of everybody's, half way.
    """
    return np.array([shift, shift * (1.0 - 2.0 * base_rate + shift), 0.0])
