"""The linear form of a query's posterior (docs/method.md) as whole arrays: what the baselines solve."""

from dataclasses import dataclass
from itertools import starmap

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haystream.collection import Collection
from haystream.events import Prior
from haystream.models import MODELS
from haystream.models.relevance import conditional_table, edge_prior
from haystream.prior import GraphPrecision, prior_means

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class LinearForm:
    """P = E[P] + β̃ᵀx + η with x of precision Q; Z = μ + D x. m participants, E edges."""

    tail: Ints
    """One end of every edge, shape (E,)."""
    head: Ints
    mean: Floats
    """μ = E[Z], shape (m,)."""
    scale: Floats
    """D, shape (m,)."""
    precision: sparse.csr_array
    """Q, shape (m, m)."""
    loadings: sparse.csr_array
    """β̃ of every edge, shape (E, m)."""
    p_mean: Floats
    """E[P], shape (E,)."""
    noise: Floats
    """s = E[P (1 − P)], shape (E,)."""
    residual: Floats
    """Var(η), shape (E,)."""

    def evidence(self, edges: Ints, n: Floats, y: Floats) -> tuple[Floats, Floats]:
        """w and w d of those edges; n and y are the screenings and finds of all, shape (E,)."""
        n, p_mean = n[edges], self.p_mean[edges]
        weight = n / (n * self.residual[edges] + self.noise[edges])
        share = np.divide(y[edges], n, out=p_mean.copy(), where=n > 0)
        return weight, weight * (share - p_mean)

    def adjusted(self, x: Floats) -> Floats:
        """The adjusted mean of Z, before the constraint, shape (m,)."""
        return self.mean + self.scale * x


def linear_form(collection: Collection, prior: Prior, precision: GraphPrecision) -> LinearForm:
    """The linear form on the collection's graph; `precision` has followed it."""
    graph = collection.graph
    m, edges = len(graph), graph.edges
    tail, head = graph.tail, graph.head
    mean = prior_means(graph, prior)
    scale = MODELS[prior.model](prior).scale(mean, precision.inverse_diagonal)
    table = conditional_table(prior.conditional)
    covariance = scale[tail] * scale[head] * precision.inverse_edge
    moments = np.array(
        list(starmap(edge_prior, ((table, *row) for row in zip(mean[tail], mean[head], covariance, strict=True))))
    )
    p_mean, noise, on_tail, on_head, residual, _ = moments.T
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
                np.concatenate([scale[tail] * on_tail, scale[head] * on_head]),
                (np.concatenate([rows, rows]), np.concatenate([tail, head])),
            ),
            shape=(edges, m),
        ),
        p_mean=p_mean,
        noise=noise,
        residual=residual,
    )
