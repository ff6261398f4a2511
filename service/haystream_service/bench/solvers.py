"""What haystream's engine is compared with: other ways to get the same posterior after a verdict.

Each takes the counts of all edges, is brought to a point in the search (not timed), and then takes one verdict
more (timed). All but `Reference` solve the same linear form, and have to agree with the engine on the means.
"""

from typing import Protocol

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.linalg import cg

from haystream.collection.collection import Collection
from haystream.engines.reference import ReferenceEngine
from haystream.events import Prior
from haystream_service.bench.linear import Floats, Ints, LinearForm

Edges = tuple[int, ...]


class Solver(Protocol):
    """One way to get the posterior."""

    @property
    def name(self) -> str:
        """What tables call it."""
        ...

    @property
    def what(self) -> str:
        """What it is and does, in a few words."""
        ...

    def bring(self, n: Floats, y: Floats) -> None:
        """Get ready at these counts, in whatever time it takes."""
        ...

    def update(self, n: Floats, y: Floats, edges: Edges) -> None:
        """Take in a verdict: the counts are these now, and differ from the last ones on `edges`."""
        ...

    def mean(self) -> Floats | None:
        """Adjusted mean of Z before the constraint, shape (participants,); None if it is another form."""
        ...


class BatchUpdate:
    """The paper's update as its lemmas are printed: Var(Y) of all screened edges, inverted again per verdict.

    The prior's second moments are computed beforehand; the joint adjusted covariance, which the next verdict's
    edge posteriors are read from, is in the time.
    """

    name = "paper-batch"
    what = "the paper's batch update, dense: mean and covariance of Z"

    def __init__(self, form: LinearForm) -> None:
        loadings = form.loadings.toarray()
        inverse = np.linalg.inv(form.precision.toarray())
        self._form = form
        self._prior = form.scale[:, None] * inverse * form.scale
        self._with_edges = form.scale[:, None] * (inverse @ loadings.T)
        self._edges = loadings @ inverse @ loadings.T + np.diag(form.residual)
        self._n = self._y = np.zeros(len(loadings))
        self.covariance: Floats = self._prior

    def bring(self, n: Floats, y: Floats) -> None:
        """Remember the counts; there is no state."""
        self._n, self._y = n.copy(), y.copy()

    def update(self, n: Floats, y: Floats, edges: Edges) -> None:
        """Lemma 1, with averages in place of counts."""
        form = self._form
        screened = np.flatnonzero(n)
        variance = self._edges[np.ix_(screened, screened)] + np.diag(form.noise[screened] / n[screened])
        across = self._with_edges[:, screened]
        gain = linalg.solve(variance, across.T, assume_a="pos", check_finite=False).T
        self._mean = form.mean + gain @ (y[screened] / n[screened] - form.p_mean[screened])
        self.covariance = self._prior - gain @ across.T

    def mean(self) -> Floats:
        """At the counts that were last brought."""
        self.update(self._n, self._y, ())
        return self._mean


class WarmGradients:
    """Conjugate gradients on the sparse precision, from the last solution. Means only: no variance is kept up.

    Stopped where the residual's 2-norm is below the engine's tolerance, which the engine asks of each entry.
    """

    name = "scipy-cg"
    what = "conjugate gradients on the sparse precision, warm start: means only"

    def __init__(self, form: LinearForm, tolerance: float) -> None:
        self._form = form
        self._tolerance = tolerance
        self._every = np.arange(len(form.p_mean), dtype=np.int32)
        self._x = np.zeros(len(form.mean))

    def bring(self, n: Floats, y: Floats) -> None:
        """Λ and b afresh, and the solution."""
        form = self._form
        self._weight, self._coefficient = form.evidence(self._every, n, y)
        evidence = form.loadings.T @ sparse.diags_array(self._weight) @ form.loadings
        self._matrix = sparse.csr_array(form.precision + evidence)
        self._matrix.sort_indices()
        self._b = form.loadings.T @ self._coefficient
        self._solve()

    def update(self, n: Floats, y: Floats, edges: Edges) -> None:
        """A few entries of Λ and b, then iterations over all of them."""
        form, which = self._form, np.array(edges, dtype=np.int32)
        weight, coefficient = form.evidence(which, n, y)
        for e, dw, dc in zip(
            edges, weight - self._weight[which], coefficient - self._coefficient[which], strict=True
        ):
            ends, loads = (form.tail[e], form.head[e]), form.loadings.data[2 * e : 2 * e + 2]
            for u, at_u in zip(ends, loads, strict=True):
                self._b[u] += dc * at_u
                for v, at_v in zip(ends, loads, strict=True):
                    self._matrix.data[self._place(int(u), int(v))] += dw * at_u * at_v
        self._weight[which], self._coefficient[which] = weight, coefficient
        self._solve()

    def _place(self, u: int, v: int) -> int:
        begin, end = self._matrix.indptr[u : u + 2]
        return int(begin + np.searchsorted(self._matrix.indices[begin:end], v))

    def _solve(self) -> None:
        self._x, failed = cg(self._matrix, self._b, x0=self._x, rtol=0.0, atol=self._tolerance)
        if failed:
            raise ArithmeticError(f"conjugate gradients did not converge in {failed} iterations")

    def mean(self) -> Floats:
        """At the counts that were last taken in."""
        return self._form.adjusted(self._x)


class BayesianBandits:
    """`bayesianbandits.NormalRegressor`: Bayesian linear regression, one `partial_fit` a verdict, then `predict`.

    It does the same work if it is given the graph prior as its first precision and, for each verdict, a row with
    the edge's loadings whose weight is the Δw and whose target the Δ(w d)/Δw of the linear form.

    Raises:
        ImportError: it is not installed.
    """

    def __init__(self, form: LinearForm, *, is_sparse: bool) -> None:
        from bayesianbandits import NormalRegressor

        kind = "sparse" if is_sparse else "dense"
        self.name = f"bayesianbandits-{kind}"
        self.what = f"bayesianbandits' NormalRegressor, {kind}: partial_fit, then predict: means only"
        self._form = form
        self._loadings = sparse.csc_array(form.loadings) if is_sparse else form.loadings.toarray()
        self._rows = form.loadings if is_sparse else self._loadings
        edges, m = form.loadings.shape
        self._weight, self._coefficient = np.zeros(edges), np.zeros(edges)
        self._model = NormalRegressor(alpha=1.0, beta=1.0, sparse=is_sparse)
        nothing = sparse.csc_array((1, m)) if is_sparse else np.zeros((1, m))
        self._model.fit(nothing, np.zeros(1))
        precision = form.precision
        self._model.cov_inv_ = sparse.csc_array(precision) if is_sparse else np.asfortranarray(precision.toarray())

    def bring(self, n: Floats, y: Floats) -> None:
        """All evidence since the last, in one `partial_fit`."""
        self._learn(np.flatnonzero(n).astype(np.int32), n, y)

    def update(self, n: Floats, y: Floats, edges: Edges) -> None:
        """One row, then E[P] of every edge in the linear form."""
        self._learn(np.array(edges, dtype=np.int32), n, y)
        self.scores = self._form.p_mean + self._model.predict(self._loadings)

    def _learn(self, which: Ints, n: Floats, y: Floats) -> None:
        weight, coefficient = self._form.evidence(which, n, y)
        dw, dc = weight - self._weight[which], coefficient - self._coefficient[which]
        changed = dw > 0.0
        self._weight[which], self._coefficient[which] = weight, coefficient
        if changed.any():
            dw, dc = dw[changed], dc[changed]
            self._model.partial_fit(self._rows[which[changed]], dc / dw, sample_weight=dw)

    def mean(self) -> Floats:
        """At the counts that were last taken in."""
        return self._form.adjusted(np.asarray(self._model.coef_))


class Reference:
    """haystream's own `reference` engine: the paper's lemmas with the moments of section 4.1, all from scratch."""

    name = "reference"
    what = "haystream's reference engine, dense, from scratch: all but a ranking"

    def __init__(self, collection: Collection, prior: Prior) -> None:
        self._engine = ReferenceEngine(collection.graph, prior)
        self._n = self._y = np.zeros(collection.graph.edges)

    def bring(self, n: Floats, y: Floats) -> None:
        """Record what came since."""
        for e in np.flatnonzero((n != self._n) | (y != self._y)).tolist():
            self._engine.record(e, screened=float(n[e] - self._n[e]), relevant=float(y[e] - self._y[e]))
        self._n, self._y = n.copy(), y.copy()

    def update(self, n: Floats, y: Floats, edges: Edges) -> None:
        """Record and adjust."""
        self.bring(n, y)
        self._engine.settle()

    def mean(self) -> None:
        """Its moments of P are not those of the linear form."""
