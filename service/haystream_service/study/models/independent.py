"""The paper's independent model (section 5.2.2): every edge for itself."""

from collections.abc import Sequence

import numpy as np

from haystream.events import Conditional
from haystream_service.study.models.base import Build, Counts, Floats, Model, Options
from haystream_service.study.models.mrf import mixture, moment_factor, potentials
from haystream_service.study.models.tables import table
from haystream_service.study.network import Network


class Independent:
    """The Markov random field cut into its edges: (Z_u, Z_v) of each has the same prior, and its own data alone.

    Exact: a mixture of four betas, weighted by the prior and by how likely each makes the edge's counts.
    """

    def __init__(self, network: Network, *, prior: Floats, conditional: Conditional) -> None:
        """`prior`: P(z_u, z_v), shape (4,)."""
        self._prior, self._conditional = prior, conditional
        self._counts = Counts(network.edges)
        self._mean, self._variance = np.empty(network.edges), np.empty(network.edges)
        self._update(np.arange(network.edges))

    def observe(self, edges: Sequence[int], relevant: bool) -> None:
        """Update these edges."""
        self._counts.add(edges, relevant)
        self._update(np.asarray(edges))

    def posteriors(self) -> tuple[Floats, Floats]:
        """Mean and variance of the mixtures."""
        return self._mean, self._variance

    def _update(self, edges: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        n, y = self._counts.n[edges], self._counts.y[edges]
        weight = potentials(self._prior, self._conditional, n, y)
        mean, variance = mixture(self._conditional, weight / weight.sum(axis=1, keepdims=True), n, y)
        self._mean[edges], self._variance[edges] = mean, np.maximum(variance, 0.0)


def _independent(network: Network, options: Options) -> Model:
    prior = moment_factor(options["mean"], options["p11"])
    return Independent(network, prior=prior, conditional=table(options["table"]))


INDEPENDENT = Build(_independent, {"mean": 0.25, "p11": 0.13, "table": 2})
"""`p11` is E[Z_u Z_v]: the paper sweeps it over 0, 0.04, 0.08, 0.13, 0.17 and 0.21."""
