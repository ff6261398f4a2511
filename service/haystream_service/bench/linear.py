"""The linear form of a query's posterior (docs/method.md) as whole arrays: what the baselines solve."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haystream.collection.collection import Collection
from haystream.engines.local.inverse.prior_inverse import GraphPrecision
from haystream.events import Prior
from haystream.models.graph_prior import prior_means
from haystream.models.registry import MODELS

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class LinearForm:
    """P = E[P] + β̃ᵀx + η with x of precision Q; R = μ + D x. m participants, E edges.

    Where the model has a common mean, it is taken to be where the prior has it, and all is in units of σ².
    """

    tail: Ints
    """One end of every edge, shape (E,)."""
    head: Ints
    mean: Floats
    """μ = E[R], shape (m,)."""
    scale: Floats
    """D, shape (m,)."""
    precision: sparse.csr_array
    """Q, shape (m, m)."""
    loadings: sparse.csr_array
    """β̃ of every edge, shape (E, m)."""
    p_mean: Floats
    """E[P], shape (E,)."""
    noise: Floats
    """s: what one screening varies by, shape (E,)."""
    residual: Floats
    """Var(η), shape (E,)."""

    def evidence(self, edges: Ints, n: Floats, y: Floats) -> tuple[Floats, Floats]:
        """w and w d of those edges; n and y are the screenings and finds of all, shape (E,)."""
        n, p_mean = n[edges], self.p_mean[edges]
        weight = n / (n * self.residual[edges] + self.noise[edges])
        share = np.divide(y[edges], n, out=p_mean.copy(), where=n > 0)
        return weight, weight * (share - p_mean)

    def adjusted(self, x: Floats) -> Floats:
        """The adjusted mean of R, before the constraint, shape (m,)."""
        return self.mean + self.scale * x


def linear_form(collection: Collection, prior: Prior, precision: GraphPrecision) -> LinearForm:
    """The linear form on the collection's graph; `precision` has followed it."""
    graph = collection.graph
    m, edges = len(graph), graph.edges
    tail, head = graph.tail, graph.head
    mean = prior_means(graph, prior)
    model = MODELS[prior.model](prior)
    scale = model.scale(mean, precision.inverse_diagonal)
    priors = model.priors(tail, head, np.arange(edges, dtype=np.int32), mean, scale, precision.inverse_edge)
    off = sparse.coo_array((precision.off, (tail, head)), shape=(m, m))
    rows = np.arange(edges)
    return LinearForm(
        tail=tail,
        head=head,
        mean=mean,
        scale=scale,
        precision=sparse.csr_array(sparse.diags_array(precision.diagonal) + off + off.T),
        loadings=sparse.csr_array(
            (
                np.concatenate([priors.on_tail, priors.on_head]),
                (np.concatenate([rows, rows]), np.concatenate([tail, head])),
            ),
            shape=(edges, m),
        ),
        p_mean=priors.prior_mean,
        noise=priors.noise,
        residual=priors.residual,
    )
