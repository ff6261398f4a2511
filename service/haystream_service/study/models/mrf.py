"""The exact model of Dimitrov, Kress and Nevo: participants are a binary Markov random field (section 2).

The joint of Z given the counts is proportional to the product, over edges, of the clique factor φ(z_u, z_v) and the
beta-binomial likelihood of the edge's counts under Beta(a(z_u, z_v), b(z_u, z_v)). Exact, and exponential in the
graph's tree width. The junction tree is ours; tests hold it to pyAgrum and, on tiny graphs, to enumeration.

Arrays over the pair's states have shape (…, 4), in the order z_u z_v = 00, 01, 10, 11.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln

from haystream.events import Conditional
from haystream_service.errors import UserError
from haystream_service.study.models.base import Build, Counts, Floats, Model, Options
from haystream_service.study.models.junction_tree import JunctionTree
from haystream_service.study.models.tables import table
from haystream_service.study.network import Network

Longs = NDArray[np.int64]

HOMOPHILY: Floats = np.array([1.5, 1.0, 1.0, 1.5])
"""The clique factor of Table 1a, λ₁ = λ₂ = 0.5: two irrelevant ends are rewarded, and two relevant ones."""

MOST_ENUMERATED = 20
"""Participants, at most, whose 2^m states are enumerated."""


@dataclass(frozen=True, slots=True)
class Marginals:
    """What is read off the field: all that a ranking needs."""

    mean: Floats
    """E[Z | Y], shape (participants,)."""
    joint: Floats
    """P(z_u, z_v | Y) of every edge, shape (edges, 4)."""


def moment_factor(mean: float, both: float) -> Floats:
    """The pair's distribution with E[Z] = `mean` and E[Z_u Z_v] = `both` (P₁₁ of section 5.2.3). Shape (4,).

    Raises:
        UserError: no two binary variables have these moments.
    """
    if not max(0.0, 2.0 * mean - 1.0) <= both <= mean:
        raise UserError(f"no pair of binary variables has mean {mean} and second moment {both}")
    return np.array([1.0 - 2.0 * mean + both, mean - both, mean - both, both])


def balanced(pair: Floats, pairs: Longs) -> Floats:
    """Edge factors, shape (edges, 4), whose field gives every edge of a tree the distribution `pair`, shape (4,).

    The plain product of `pair` over edges counts everyone once for each contact: whoever has ten starts as surely
    irrelevant. So everyone's own distribution is divided out for all contacts but one.
    """
    degree = np.bincount(pairs.ravel())
    own = np.array([pair[0] + pair[1], pair[2] + pair[3]])
    surplus = 1.0 / degree[pairs] - 1.0
    tail, head = own[[0, 0, 1, 1]], own[[0, 1, 0, 1]]
    return np.asarray(pair * tail ** surplus[:, :1] * head ** surplus[:, 1:])


def potentials(factor: Floats, conditional: Conditional, n: Floats, y: Floats) -> Floats:
    """φ times the likelihood of y relevant of n screened, shape (edges, 4), each edge scaled to a maximum of 1.

    `factor` is of shape (4,) if it is every edge's, else (edges, 4).

    Unscaled, they underflow after some hundred screenings.
    """
    a, b = np.asarray(conditional.a, float), np.asarray(conditional.b, float)
    likelihood = betaln(a + y[:, None], b + (n - y)[:, None]) - betaln(a, b)
    with np.errstate(divide="ignore"):  # a factor of 0 is a state that cannot be
        logarithm = np.log(factor) + likelihood
    return np.asarray(np.exp(logarithm - logarithm.max(axis=1, keepdims=True)))


def enumerated(participants: int, pairs: Longs, factors: Floats) -> Marginals:
    """The marginals by summing over all 2^m states: what the junction tree is checked against.

    `pairs`: (edges, 2); `factors`: (edges, 4), of `potentials`.

    Raises:
        ValueError: more than `MOST_ENUMERATED` participants.
    """
    if participants > MOST_ENUMERATED:
        raise ValueError(f"{participants} participants are too many to enumerate")
    z = np.arange(2**participants)[:, None] >> np.arange(participants) & 1
    state = 2 * z[:, pairs[:, 0]] + z[:, pairs[:, 1]]
    weight = np.prod(factors[np.arange(len(pairs)), state], axis=1)
    weight /= weight.sum()
    joint = np.stack([weight @ (state == k) for k in range(4)], axis=1)
    return Marginals(weight @ z, joint)


def means_of(participants: int, pairs: Longs, joint: Floats) -> Floats:
    """P(z_v = 1), shape (participants,), from the joints of the edges; everyone is on an edge."""
    mean = np.empty(participants)
    mean[pairs[:, 0]] = joint[:, 2] + joint[:, 3]
    mean[pairs[:, 1]] = joint[:, 1] + joint[:, 3]
    return mean


def prior_moments(participants: int, pairs: Longs, factor: Floats) -> tuple[Floats, Floats]:
    """E[Z], shape (m,), and Var(Z), shape (m, m), of the field before any data: the prior for Bayes linear in 5.1.

    Raises:
        UserError: the graph's tree width is too large.
    """
    tree = JunctionTree(participants, pairs)
    factors = np.tile(factor, (len(pairs), 1))
    mean = tree.means(factors)
    second = np.array([mean[u] * tree.means(factors, given=u) for u in range(participants)])
    return mean, (second + second.T) / 2.0 - np.outer(mean, mean)


def mixture(conditional: Conditional, joint: Floats, n: Floats, y: Floats) -> tuple[Floats, Floats]:
    """E[P | Y] and Var[P | Y]: conjugate betas mixed by the pair's joint (section 4), each of shape (edges,).

    Linear in `joint`, which may have negative entries: the unconstrained update gives such.
    """
    a = np.asarray(conditional.a, float) + y[:, None]
    total = np.asarray(conditional.a, float) + np.asarray(conditional.b, float) + n[:, None]
    mean = (joint * a / total).sum(axis=1)
    square = (joint * a * (a + 1.0) / (total * (total + 1.0))).sum(axis=1)
    return mean, square - mean * mean


class MrfModel:
    """The field as a model to search with: `posteriors` after a verdict is one exact inference.

    Raises:
        UserError: the network's tree width is too large.
    """

    def __init__(self, network: Network, *, factor: Floats, conditional: Conditional) -> None:
        self._pairs = np.column_stack([network.tail, network.head]).astype(np.int64)
        self._tree = JunctionTree(len(network.participants), self._pairs)
        self._factor, self._conditional = np.broadcast_to(factor, (network.edges, 4)), conditional
        self._counts = counts = Counts(network.edges)
        self._factors = potentials(self._factor, conditional, counts.n, counts.y)
        self._posteriors: tuple[Floats, Floats] | None = None

    def observe(self, edges: Sequence[int], relevant: bool) -> None:
        """Multiply the likelihood into the factors of these edges."""
        self._counts.add(edges, relevant)
        which = np.asarray(edges)
        counts = self._counts.n[which], self._counts.y[which]
        self._factors[which] = potentials(self._factor[which], self._conditional, *counts)
        self._posteriors = None

    def marginals(self) -> Marginals:
        """The field given the verdicts so far."""
        joint = self._tree.joints(self._factors)
        return Marginals(means_of(len(self._tree), self._pairs, joint), joint)

    def posteriors(self) -> tuple[Floats, Floats]:
        """Infer, unless nothing was seen since the last time."""
        if self._posteriors is None:
            joint = self._tree.joints(self._factors)
            self._posteriors = mixture(self._conditional, joint, self._counts.n, self._counts.y)
        return self._posteriors


def _mrf(network: Network, options: Options) -> Model:
    factor = moment_factor(options["mean"], options["p11"])
    if options["balanced"]:
        factor = balanced(factor, np.column_stack([network.tail, network.head]).astype(np.int64))
    return MrfModel(network, factor=factor, conditional=table(options["table"]))


MRF = Build(_mrf, {"mean": 0.25, "p11": 0.13, "table": 2, "balanced": 0})
"""`mean` and `p11`: E[Z_u] and E[Z_u Z_v] of the clique factor (section 5.2.3). The field's own moments differ:
whoever is on many edges has as many factors, unless `balanced` is 1."""
