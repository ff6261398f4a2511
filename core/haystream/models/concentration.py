"""How concentrated participants and edges are (docs/method.md, "Expected remaining").

The prior's concentrations are settings, and known to a factor of two at best: they are to be multiplied by c. The
verdicts of an edge, predicted from those of all others, say how large c is.
"""

import math

import numpy as np

from haystream.memory.arrays import Floats
from haystream.memory.compiled import compiled

LOG_FACTOR_SD = math.log(2.0)
"""The prior sd of log c. Searches hardly tell concentrations of 2 from those of 8 (docs/method.md), so neither can
anyone who sets them."""

LOG_FACTORS = np.linspace(-3.0, 3.0, 13) * LOG_FACTOR_SD
"""Where the likelihood of log c is evaluated: to three prior sd, every half."""

FACTORS = np.exp(LOG_FACTORS)
"""c there."""

FLOOR_SHARE = 0.1
"""A prediction is kept above this share of the common level, and as much inside 1 (as
`models.rates.FLOOR_SHARE`)."""

LEAST_DIVISOR = 1e-6
"""What is divided by is kept above this: it is a positive number off by rounding and by drift of the inverse."""


LOGARITHM, PRODUCT = 0, 1
"""Rows of a likelihood: what has been taken the logarithm of, and factors whose turn comes (`add_likelihood`)."""

LEAST_PRODUCT = 1e-150
"""Factors are multiplied until they come to less than this. Each of them is more."""


def no_likelihood() -> Floats:
    """The likelihood on `FACTORS` of no data, shape (2, len(FACTORS))."""
    return np.array([np.zeros(len(FACTORS)), np.ones(len(FACTORS))])


def log_likelihood(likelihood: Floats) -> Floats:
    """The log-likelihood on `LOG_FACTORS`, shape (len(LOG_FACTORS),)."""
    return np.asarray(likelihood[LOGARITHM] + np.log(likelihood[PRODUCT]))


def learned_concentration(likelihood: Floats) -> tuple[float, float]:
    """E[log c | Y] and Var[log c | Y] from the log-likelihood on `LOG_FACTORS`, with the prior N(0, DOUBT²)."""
    log = likelihood - 0.5 * (LOG_FACTORS / LOG_FACTOR_SD) ** 2
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    mean = float(weight @ LOG_FACTORS)
    return mean, float(weight @ (LOG_FACTORS - mean) ** 2)


@compiled
def add_likelihood(likelihood: Floats, level: float, mean: float, spread: float, n: float, y: float) -> None:
    """Add that of one edge: y of n, beta-binomial of a prediction's mean and of concentration c / spread.

    Of an edge with a single screening it is the same for every c. `spread`: the variance of P before its own data
    over what one screening varies by.
    """
    level = min(max(level, LEAST_DIVISOR), 1.0 - LEAST_DIVISOR)
    mean = min(max(mean, FLOOR_SHARE * level), 1.0 - FLOOR_SHARE * (1.0 - level))
    counted, relevant = round(n), round(y)
    whole = abs(n - counted) < LEAST_DIVISOR and abs(y - relevant) < LEAST_DIVISOR and counted <= 16
    for i in range(len(FACTORS)):
        total = FACTORS[i] / max(spread, LEAST_DIVISOR)
        a, b = total * mean, total * (1.0 - mean)
        if not whole:
            likelihood[LOGARITHM, i] += log_rising(a, y) + log_rising(b, n - y) - log_rising(total, n)
            continue
        # The same by products, of many edges until a logarithm is taken, which takes longer than they do.
        above, below = 1.0, 1.0
        for k in range(counted):
            above *= a + k if k < relevant else b + k - relevant
            below *= total + k
        product = likelihood[PRODUCT, i] * (above / below)
        if product < LEAST_PRODUCT:
            likelihood[LOGARITHM, i] += math.log(product)
            product = 1.0
        likelihood[PRODUCT, i] = product


@compiled
def log_rising(start: float, steps: float) -> float:
    """log Γ(start + steps) / Γ(start)."""
    return math.lgamma(start + steps) - math.lgamma(start)
