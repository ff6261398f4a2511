"""Reading the local engine's posterior: what is asked of it between two settles."""

from collections.abc import Sequence

import numpy as np

from haystream.arrays import Floats, Growing, Ints
from haystream.engines.local.columns import Columns
from haystream.engines.local.concentration import edges_likelihood, remaining_slope
from haystream.engines.local.edge_ends import edge_ends
from haystream.engines.local.pending import Pending
from haystream.engines.local.prior_inverse import Precision
from haystream.engines.local.shares import collect_shares
from haystream.engines.local.solve import EXCEEDED, VALUE
from haystream.engines.local.state import COMMON, MEAN, REMAINING
from haystream.errors import Code, QueryFailed
from haystream.events import Prior
from haystream.models import MODELS
from haystream.models.base import Ends, Posteriors
from haystream.models.common import Common, learned, rounded
from haystream.models.concentration import learned_concentration, no_likelihood

SHARE_TOLERANCE = 5.0
"""Shares are solved so much less closely than means: they are off by 2e-4 or so, and their sum too."""

LEARN_AT_ONCE = 4096
"""Up to so many screened edges the concentration is learned anew for every ranking: a third of a millisecond. With
more of them it is learned once in as many verdicts as there are multiples of this: a verdict's share of the work
stays the same, and what is learned is behind by one verdict in this many at most."""


class LocalPosterior:
    """What `LocalEngine` keeps up to date, and everything that is read off it."""

    def __init__(self, prior: Prior, precision: Precision, tolerance: float) -> None:
        self._prior = prior
        self._precision = precision
        self._tolerance = tolerance
        self._model = MODELS[prior.model](prior)
        self._columns = Columns(sides=3 if self._model.common_weight else 2)
        self._square = self._own = 0.0
        """Σ w d², and Σ L² Var(η)(1 − ρ)."""
        self._rounded = Common(base_rate=prior.mean)
        self._pending = Pending()
        self._screened = Growing(np.int32)
        """The edges that were ever screened, each once."""
        self._unlearned = 0
        """Verdicts since `_learn`."""
        self._settled = False
        """Whether there was a `settle` since."""
        self._concentration, self._concentration_slope = (0.0, 0.0), 0.0

    def _check_solves(self) -> None:
        """Raise QueryFailed(TOO_MUCH_WORK) where a solve was given up."""
        work = self._columns.work
        if self._precision.given_up or work.column.steps[EXCEEDED] or work.room.steps[EXCEEDED]:
            people, pairs = self._columns.participants, self._columns.edge_count
            raise QueryFailed(
                Code.TOO_MUCH_WORK,
                f"a solve on {people:,} participants and {pairs:,} pairs takes too many steps. It takes fewer with"
                f" a prior.correlation nearer to 0 (it is {self._prior.correlation:g}), or with a prior in which"
                " a screening weighs less",
            )

    def counts(self, edges: Ints) -> tuple[Floats, Floats, Floats]:
        """Screened n, relevant y and unscreened items."""
        return self._columns.data.n[edges], self._columns.data.y[edges], self._columns.data.offered[edges]

    def unconstrained(self, participants: Ints) -> tuple[Floats, Floats]:
        """Adjusted mean and variance of R before the constraint."""
        common, (mean, reach, variance) = self.common(), self.given_common(participants)
        mean, variance = (
            mean + common.mean_shift * reach,
            common.scale * (variance + common.variance * reach * reach),
        )
        if self._pending:
            variance = self._pending.variances(participants, variance, reach, common)
        return mean, variance

    def given_common(self, participants: Ints) -> tuple[Floats, Floats, Floats]:
        """X = μ + D x̂, O = 1 − D x₂ (0 without a common mean), V = D² (Λ⁻¹)_uu."""
        people, D = self._columns.people, self._columns.people.scale[participants]
        mean = people.prior_mean[participants] + D * people.sides[MEAN, participants, VALUE]
        learns = len(people.sides) > COMMON
        reach = 1.0 - D * people.sides[COMMON, participants, VALUE] if learns else np.zeros(len(mean))
        return mean, reach, D * D * people.variance[participants]

    def covariances(self, edges: Ints) -> Floats:
        """D_u D_v (Λ⁻¹)_uv."""
        D, of = self._columns.people.scale, self._columns.edges
        return np.asarray(D[of.tail[edges]] * D[of.head[edges]] * of.covariance[edges])

    def participants(self, participants: Ints) -> tuple[Floats, Floats]:
        """Constrained adjusted mean and variance: m̂ − v and Ĉ + v vᵀ / (1 + q) (NOTES, section 2)."""
        mean, variance = self.unconstrained(participants)
        constrained = np.clip(mean, 0.0, 1.0)
        return constrained, variance + (mean - constrained) ** 2 / (1.0 + self.discrepancy())

    def edges(self, edges: Ints) -> tuple[Floats, Floats]:
        """Adjusted mean and variance of P."""
        mean, variance, _ = self._posteriors(edges, self.known_common(), self.common(), self.discrepancy())
        return mean, variance

    def scoring(self, edges: Ints) -> tuple[Floats, Floats, Floats]:
        """The same and the slope, at rounded common quantities and without the inflation of the constraint."""
        known = self._rounded if not self._pending else self._round(self.known_common())
        return self._posteriors(edges, known, self._rounded, np.inf)

    def _posteriors(self, which: Ints, known: Common, common: Common, discrepancy: float) -> Posteriors:
        """`known`: without pending screenings, as means are; `common`: with them, as variances are."""
        columns = self._columns
        n, y = columns.data.n[which], columns.data.y[which]
        posteriors = self._model.posteriors(self._ends(which, known, discrepancy), n, y, known)
        if not self._pending:
            return posteriors
        edges, p = columns.edges, self._pending.screenings(which)
        ends = self._ends(which, common, discrepancy)
        ends = self._pending.ends(ends, edges.tail[which], edges.head[which], common)
        expected = self._model.posteriors(ends, n + p, y + p * posteriors.mean, common)
        return posteriors._replace(variance=expected.variance)

    def _ends(self, which: Ints, common: Common, discrepancy: float) -> Ends:
        ends = Ends(*np.empty((7, len(which))))
        edge_ends(self._columns.edges, self._columns.people, which, *self._shared(common), discrepancy, ends)
        return ends

    def common(self) -> Common:
        """What all share, pending screenings counted as made."""
        return self._pending.common(self.known_common()) if self._pending else self.known_common()

    def known_common(self) -> Common:
        """Δ = Σ w d (1 − β̃ᵀx₂) / (k + Σ w (1 − β̃ᵀx₂)), and v_M one over that denominator."""
        weight = self._model.common_weight
        if not weight:
            return self._rounded
        border = self._columns.work.sums.border
        variance = 1.0 / (weight + float(border[COMMON]))
        return learned(self._prior.mean, weight, float(border[MEAN]) * variance, variance)

    def rounded_common(self) -> Common:
        """As `scoring` takes it."""
        return self._rounded

    def _round(self, common: Common) -> Common:
        weight = self._model.common_weight
        return rounded(common, self._prior.mean, weight) if weight else self._rounded

    @staticmethod
    def _shared(common: Common) -> tuple[float, float, float]:
        return common.mean_shift, common.variance, common.scale

    def discrepancy(self) -> float:
        """q = (Σ w d² − bᵀx̂ − what the common mean explains) / σ²."""
        common, sums = self.known_common(), self._columns.work.sums
        explained = float(sums.form[MEAN]) + float(sums.border[MEAN]) * common.mean_shift
        return max(self._square - explained, 0.0) / common.scale

    def remaining_variance(self) -> float:
        """σ² [Σ L² Var(η)(1 − ρ) + hᵀ Λ⁻¹ h + a² v_M], a what a move of the common mean moves the sum by."""
        common, sums = self.common(), self._columns.work.sums
        given_common, reach = self._own + float(sums.form[REMAINING]), float(sums.border[REMAINING])
        if self._pending:
            given_common, reach = self._pending.remaining(given_common, reach)
        return common.scale * (max(given_common, 0.0) + reach * reach * common.variance)

    def concentration(self) -> tuple[float, float]:
        """From the edges that were screened more than once."""
        self._learn_if_due()
        return self._concentration

    def concentration_slope(self) -> float:
        """Δ k v_M a + Σ ν_e (E[P_e | Y] − Ȳ_e) over the edges that have been screened."""
        self._learn_if_due()
        return self._concentration_slope

    def _learn_if_due(self) -> None:
        many = self._screened.size > LEARN_AT_ONCE
        if self._settled and not (many and self._unlearned * LEARN_AT_ONCE < self._screened.size):
            self._learn()

    def _learn(self) -> None:
        self._unlearned, self._settled, weight = 0, False, self._model.common_weight
        common, columns, screened = self.known_common(), self._columns, self._screened.view()
        edges, people, shift = columns.edges, columns.people, common.mean_shift
        if weight:
            likelihood = no_likelihood()
            edges_likelihood(
                edges, people, screened, columns.data.n, columns.data.y, shift, common.variance, likelihood
            )
            self._concentration = learned_concentration(likelihood)
        moved = float(columns.work.sums.border[REMAINING]) * common.variance
        of_edges = remaining_slope(edges, people, screened, shift, moved)
        self._concentration_slope = shift * weight * moved + of_edges

    def shares(self, edges: Sequence[int], *, most: int | None = None) -> list[tuple[int, float]]:
        """The additive shares of the screened edges in the mean of P over `edges`, or the `most` largest: one local
        solve."""
        columns, shift = self._columns, self.known_common().mean_shift
        found, values = columns.changed_edges, columns.values
        count = collect_shares(
            columns.system,
            columns.edges,
            self._screened.view(),
            np.asarray(edges, dtype=np.int32),
            shift,
            SHARE_TOLERANCE * self._tolerance,
            columns.work.column,
            columns.edge_flags,
            found,
            values,
        )
        self._check_solves()
        sizes = np.abs(values[:count])
        if most is not None and count > most:
            largest = np.argpartition(sizes, count - most)[count - most :]
        else:
            largest = np.flatnonzero(sizes)
        largest = largest[np.argsort(-sizes[largest], kind="stable")]
        return list(zip(found[largest].tolist(), values[largest].tolist(), strict=True))

    def deviations(self, edges: Ints) -> Floats:
        """Of a weight that is not 0, d is the right-hand side's coefficient over it."""
        columns = self._columns
        return np.asarray(columns.edges.coefficient[MEAN, edges] / columns.edges.weight[edges])

    def infeasible(self) -> int:
        """Edges where a Fréchet bound had to replace the prior's covariance."""
        return int(self._columns.bound[: self._columns.edge_count].sum())
