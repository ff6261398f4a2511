"""What is read off the local engine's state between two settles."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np

from haystream.engines.contract import LargestShares
from haystream.engines.local.inverse.precision import Precision
from haystream.engines.local.pending.pending import Pending
from haystream.engines.local.readings.concentration import Concentrations, fit, fit_variance
from haystream.engines.local.readings.shares import collect_largest
from haystream.engines.local.readings.told_before import ToldBefore
from haystream.engines.local.solves.sides import COMMON, MEAN, REMAINING
from haystream.engines.local.solves.solve import EXCEEDED
from haystream.engines.local.state.columns import Columns
from haystream.engines.local.state.edge_ends import counts_on, edge_ends, told_ends
from haystream.engines.local.state.edge_priors import edge_prior
from haystream.engines.local.state.state import OWN, SQUARE
from haystream.errors import Code, QueryFailed
from haystream.events import Prior
from haystream.memory.arrays import Floats, Ints, Longs, Switches
from haystream.memory.overlay import entries, rows
from haystream.models.base import EdgeCounts, Ends, Posteriors
from haystream.models.common import Common, learned, rounded
from haystream.models.registry import MODELS

EndsAt = Callable[[Ints, Common], Ends]
"""The ends of some edges at common quantities."""


class ShiftsAfter(NamedTuple):
    """Where the common mean goes with one more verdict."""

    irrelevant: float
    """Δ when it finds the item irrelevant."""
    relevant: float
    """Δ when it finds it relevant."""
    chance: float
    """The adjusted expectation of the latter."""
    variance: float
    """v_M, either way."""


class LocalReadings:
    """The posterior of a `LocalEngine`, read off what it keeps up to date (`contract.Readings`)."""

    def __init__(self, columns: Columns, precision: Precision, prior: Prior) -> None:
        self.pending = Pending()
        self.concentrations = Concentrations()
        self.before = ToldBefore()
        """What scores were made of."""
        self._columns = columns
        self._precision = precision
        self._rounded = Common(base_rate=prior.mean)
        self.use(prior)

    def copy(self, columns: Columns) -> "LocalReadings":
        """A copy for columns that say the same, of a query without pending screenings or verdicts."""
        twin = LocalReadings(columns, self._precision, self._prior)
        twin._rounded = self._rounded
        return twin

    def move(self, precision: Precision) -> None:
        """Say of that precision, from now on, whether it has been given up."""
        self._precision = precision

    def use(self, prior: Prior) -> None:
        """Read by this prior from now on."""
        self._prior, self._model = prior, MODELS[prior.model](prior)
        self._known_at, self._known = (np.nan, np.nan, np.nan), self._rounded

    def check_solves(self) -> None:
        """Raise QueryFailed(TOO_MUCH_WORK) where a solve was given up."""
        if self._precision.given_up or self._columns.state.rooms.column.steps[EXCEEDED]:
            people, pairs = self._columns.participants, self._columns.edge_count
            raise QueryFailed(
                Code.TOO_MUCH_WORK,
                f"a solve on {people:,} participants and {pairs:,} pairs takes too many steps. It takes fewer with"
                f" a prior.correlation nearer to 0 (it is {self._prior.correlation:g}), or with a prior in which"
                " a screening weighs less",
            )

    # ---- participants and edges ----

    def counts(self, edges: Ints) -> EdgeCounts:
        """Screened n, relevant y and unscreened items."""
        return counts_on(self._columns.state.data, edges)

    def unconstrained(self, participants: Ints) -> tuple[Floats, Floats]:
        """Adjusted mean and variance of R before the constraint."""
        common, (mean, reach, variance) = self.common(), self.given_common(participants)
        mean, variance = (
            mean + common.mean_shift * reach,
            common.scale * (variance + common.variance * reach * reach),
        )
        if self.pending:
            variance = self.pending.variances(participants, variance, reach, common)
        return mean, variance

    def given_common(self, participants: Ints) -> tuple[Floats, Floats, Floats]:
        """X = μ + D (x + Δ₀ x₂), O = 1 − D x₂ (0 without a common mean), V = D² (Λ⁻¹)_uu."""
        state = self._columns.state
        people, D = state.people, entries(state.people.scale, participants)
        x = rows(people.x, participants)
        mean = people.prior_mean[participants] + D * x[:, MEAN]
        reach = np.zeros(len(mean))
        if x.shape[1] > COMMON:
            reach = 1.0 - D * x[:, COMMON]
            mean += people.reference * (1.0 - reach)
        return mean, reach, D * D * entries(state.inverse.on_participant, participants)

    def covariances(self, edges: Ints) -> Floats:
        """D_u D_v (Λ⁻¹)_uv of each edge's ends, shape (k,)."""
        state = self._columns.state
        D, of = state.people.scale, state.edges
        D_u, D_v = entries(D, of.tail[edges]), entries(D, of.head[edges])
        return np.asarray(D_u * D_v * entries(state.inverse.on_edge, edges))

    def participants(self, participants: Ints) -> tuple[Floats, Floats]:
        """Constrained adjusted mean and variance: m̂ − v and Ĉ + v vᵀ / (1 + q)."""
        mean, variance = self.unconstrained(participants)
        constrained = np.clip(mean, 0.0, 1.0)
        return constrained, variance + (mean - constrained) ** 2 / (1.0 + self.discrepancy())

    def edges(self, edges: Ints) -> tuple[Floats, Floats]:
        """Adjusted mean and variance of P."""
        counts, known = self.counts(edges), self.known_common()
        mean, variance, _ = self._posteriors(edges, counts, known, self.common(), self._ends)
        return mean, variance

    def scoring(self, edges: Ints, counts: EdgeCounts | None = None) -> Posteriors:
        """Adjusted mean, variance and slope of P by what readers were told, at rounded common quantities.

        The inflation of the constraint is left out.
        """
        known = self._rounded if not self.pending else self._round(self.known_common())
        return self._posteriors(edges, counts or self.counts(edges), known, self._rounded, self._told_ends)

    @property
    def scored_by_one(self) -> bool:
        """Whether `scoring` takes means and variances at the same common quantities: then it says what `scoring_at`
        says there, but for edges that pending screenings are in the variances of."""
        return not self.pending or self._round(self.known_common()) == self._rounded

    def scoring_at(self, edges: Ints, common: Common, counts: EdgeCounts) -> Posteriors:
        """What `scoring` says at other common quantities, as if nothing were pending."""
        return self._model.posteriors(self._told_ends(edges, common), counts[0], counts[1], common)

    def as_scored(self) -> AbstractContextManager[None]:
        """Have what readers were told, and counts, be what scores were last made of, until the end of the block."""
        state = self._columns.state
        return self.before.restored(state.news.told, state.data)

    def near_pending(self, edges: Ints) -> Switches:
        """Whether pending screenings are in the variances of these edges, shape (k,)."""
        ends = self._columns.state.edges
        return self.pending.reaches(ends.tail[edges], ends.head[edges])

    def _posteriors(
        self, which: Ints, counts: EdgeCounts, known: Common, common: Common, ends_at: EndsAt
    ) -> Posteriors:
        """`known`: without pending screenings, as means are; `common`: with them, as variances are."""
        edges, (n, y, _) = self._columns.state.edges, counts
        posteriors = self._model.posteriors(ends_at(which, known), n, y, known)
        if not self.pending:
            return posteriors
        p = self.pending.screenings(which)
        ends = ends_at(which, common)
        ends = self.pending.ends(ends, edges.tail[which], edges.head[which], common)
        expected = self._model.posteriors(ends, n + p, y + p * posteriors.mean, common)
        return posteriors._replace(variance=expected.variance)

    def _ends(self, which: Ints, common: Common) -> Ends:
        state, ends = self._columns.state, Ends(*np.empty((7, len(which))))
        edge_ends(state, which, common, self.discrepancy(), ends)
        return ends

    def _told_ends(self, which: Ints, common: Common) -> Ends:
        state, ends = self._columns.state, Ends(*np.empty((7, len(which))))
        told_ends(state, which, common, ends)
        return ends

    # ---- what all share ----

    def common(self) -> Common:
        """What all share, pending screenings counted as made."""
        return self.pending.common(self.known_common()) if self.pending else self.known_common()

    def known_common(self) -> Common:
        """Δ = Σ w d (1 − β̃ᵀx₂) / (k + Σ w (1 − β̃ᵀx₂)), and v_M one over that denominator."""
        weight, state = self._model.common_weight, self._columns.state
        if not weight:
            return self._rounded
        border, reference = state.sums.border, state.people.reference.item()
        made_of = border.item(COMMON), border.item(MEAN), reference
        if made_of != self._known_at:  # it is asked for a dozen times a verdict
            variance = 1.0 / (weight + made_of[0])
            self._known = learned(self._prior.mean, weight, reference + self._border(weight) * variance, variance)
            self._known_at = made_of
        return self._known

    @property
    def reference(self) -> float:
        """Δ₀, the common mean that everybody's right-hand side is taken at."""
        return self._columns.state.people.reference.item()

    def _border(self, weight: float) -> float:
        """Side MEAN's border with the prior's pull, Σ w (d − Δ₀)(1 − β̃ᵀx₂) − k Δ₀: (Δ − Δ₀) / v_M. `weight`: k."""
        return float(self._columns.state.sums.border[MEAN]) - weight * self.reference

    def rounded_common(self) -> Common:
        """What all share, as `scoring` takes it: rounded."""
        return self._rounded

    def rounded_after(self, edge: int) -> tuple[Common, Common]:
        """By the adjusted expectation of M given one more Ȳ, on what all before it say."""
        weight, after = self._model.common_weight, self.shifts_after(edge)
        if after is None:
            return self._rounded, self._rounded
        shifts = after.irrelevant, after.relevant
        no, yes = (self._round(learned(self._prior.mean, weight, shift, after.variance)) for shift in shifts)
        return no, yes

    def shifts_after(self, edge: int) -> ShiftsAfter | None:
        """Where Δ goes with a verdict on one more item of the edge; None where that cannot be, as without a common
        mean."""
        state, common, weight = self._columns.state, self.known_common(), self._model.common_weight
        edges, data, prior = state.edges, state.data, edge_prior(state.edges.prior, edge)
        if not weight or prior.noise == 0.0:
            return None
        fitted, reach = fit(edges, state.people, edge, common)
        ends = fit_variance(edges, state.inverse, edge, reach, common)
        own = float(prior.residual * edges.weight[edge])
        known = float(data.y[edge] / data.n[edge] - prior.mean) if data.n[edge] > 0.0 else 0.0
        mean = prior.mean + (1.0 - own) * fitted + own * known
        through = common.variance * reach * (1.0 - own)
        spread = (1.0 - own) * ((1.0 - own) * ends + prior.residual) + prior.noise
        no, yes = (common.mean_shift + through / spread * (outcome - mean) for outcome in (0.0, 1.0))
        return ShiftsAfter(no, yes, mean, common.variance - through * through / spread)

    def largest_common_variance(self) -> float:
        """v_M, known or rounded: with anything pending it is no larger."""
        known = self.known_common()
        return max(known.variance, self._round(known).variance)

    def take_step(self) -> None:
        """Round what all share anew."""
        self._rounded = self._round(self.common())

    def _round(self, common: Common) -> Common:
        weight = self._model.common_weight
        return rounded(common, self._prior.mean, weight, 1.0 / self._prior.edge) if weight else self._rounded

    # ---- of the whole graph ----

    def discrepancy(self) -> float:
        """q = (Σ w (d − Δ₀)² + k Δ₀² − bᵀx − what the common mean explains beyond the reference) / σ²."""
        common, sums, reference = self.known_common(), self._columns.state.sums, self.reference
        weight = self._model.common_weight
        explained = float(sums.form[MEAN]) + self._border(weight) * (common.mean_shift - reference)
        return max(float(sums.data[SQUARE]) + weight * reference * reference - explained, 0.0) / common.scale

    def remaining_variance(self) -> float:
        """σ² [Σ L² Var(η)(1 − ρ) + hᵀ Λ⁻¹ h + a² v_M], a what a move of the common mean moves the sum by."""
        common, sums = self.common(), self._columns.state.sums
        given_common, reach = float(sums.data[OWN]) + float(sums.form[REMAINING]), float(sums.border[REMAINING])
        if self.pending:
            given_common, reach = self.pending.remaining(given_common, reach)
        return common.scale * (max(given_common, 0.0) + reach * reach * common.variance)

    def learn(self) -> None:
        """Learn from verdicts that nothing was learned from yet, though it may take a while."""
        if self.concentrations.behind:
            self.concentrations.learn(self._columns.state, self.known_common(), self._model.common_weight)

    def concentration(self) -> tuple[float, float]:
        """From the edges that were screened more than once."""
        self._learn()
        return self.concentrations.log_c

    def concentration_slope(self) -> float:
        """Δ k v_M a + Σ ν_e (E[P_e | Y] − Ȳ_e) over the edges that have been screened."""
        self._learn()
        return self.concentrations.slope

    def _learn(self) -> None:
        common, weight = self.known_common(), self._model.common_weight
        self.concentrations.learn_if_due(self._columns.state, common, weight)

    def infeasible(self) -> int:
        """Edges where a Fréchet bound had to replace the prior's covariance."""
        return int(self._columns.bound[: self._columns.edge_count].sum())

    # ---- reasons ----

    def shares(self, edges: Sequence[int]) -> list[tuple[int, float]]:
        """All of them: a screened edge has one at most."""
        start, which = np.array([0, len(edges)]), np.array(edges, np.int32)
        largest = self.largest_shares(start, which, self.concentrations.screened.size)
        return list(zip(largest.edge.tolist(), largest.share.tolist(), strict=True))

    def largest_shares(self, start: Longs, edges: Ints, most: int) -> LargestShares:
        """One local solve for each set, and none where nothing has been screened."""
        sets, screened = len(start) - 1, self.concentrations.screened
        if not len(screened):
            return LargestShares(np.zeros(sets + 1, np.int64), np.zeros(0, np.int32), np.zeros(0))
        largest = LargestShares(
            np.empty(sets + 1, np.int64), np.empty(sets * most, np.int32), np.empty(sets * most)
        )
        shift = self.known_common().mean_shift - self.reference
        collect_largest(self._columns.state, screened, start, edges, shift, most, largest)
        self.check_solves()
        found = largest.start[-1]
        return LargestShares(largest.start, largest.edge[:found], largest.share[:found])

    def deviations(self, edges: Ints) -> Floats:
        """The right-hand side's coefficient over the weight, and what that counts from; NaN of an edge whose
        verdicts have been retracted."""
        of = self._columns.state.edges
        weight = of.weight[edges]
        none = np.full_like(weight, np.nan)
        deviation = np.divide(of.coefficient[MEAN, edges], weight, out=none, where=weight != 0.0)
        return np.asarray(self.reference + deviation)
