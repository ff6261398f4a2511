"""The linear form on the sparse precision: a verdict costs what its neighbourhood costs (NOTES, sections 1-4).

The state that matters is the solution x of Λx = b with its residual, and the entries of Λ⁻¹ on the graph. All
that happens is local: an edge's data change Λ by rank one, a new edge by a few rows, and what a new edge does
to D and so to the priors of edges near by is taken in edge by edge. Only a graph that is largely new is solved
afresh. A common mean is a border of Λ: one more right-hand side, and a few sums (docs/method.md).
"""

from collections.abc import Sequence

import numpy as np

from haystream.arrays import Floats, Ints
from haystream.engines.contract import NEVER, Moved
from haystream.engines.local.announce import COUNTED, STALE, settle_moved, settle_rows
from haystream.engines.local.healing import COLUMN_TOLERANCE, heal
from haystream.engines.local.inverse_entries import take_entries
from haystream.engines.local.prior_inverse import Change, Precision
from haystream.engines.local.readings import LocalPosterior
from haystream.engines.local.rebuild import solve_afresh
from haystream.engines.local.state import COMMON, ENTRIES, REMAINING
from haystream.engines.local.update_growth import follow, renew, rescale, take_prior
from haystream.engines.local.update_verdict import CLOSELY, MOVED, change_edge, move, move_closely, regress
from haystream.events import Prior
from haystream.graph import Graph
from haystream.models import MODELS
from haystream.models.base import Priors
from haystream.models.graph_prior import prior_means

DEFAULT_TOLERANCE = 2e-5
"""Residuals are pushed until |r| ≤ tolerance × diagonal, in units of x (standard deviations of R at the prior,
about). The error of an adjusted mean of R is at most tolerance × D/(1 − δ), 4e-5 at the defaults of relevance, and
what readers were told of it may lag by TELLING tolerances more. Errors of covariances add up until they are healed
(`tend`); with them the error of a mean was at most 5e-5 after hundreds of verdicts and edges, where 1e-4 is
promised."""

VARIANCE_TOLERANCE = 100.0
"""The right-hand side behind the variance of what remains is solved so much less closely, in units of the items
on an edge: the relative error of that standard deviation is below 1 % at the default tolerance (h is about 0.1
an item, so it is at most 100 × 2e-5 / 0.1 / 2), and a new item then costs a few pushes instead of thousands."""

COMMON_TOLERANCE = 5.0
"""The right-hand side behind the common mean is solved so much less closely: what it leaves out moves a mean by Δ
times as much, and Δ itself not to first order (`recount`)."""

LEAST_SCALE = 0.05
"""A variance is σ² D² times an entry of the inverse: where σ² is small, the entry needs to be less exact. Not below
this, or a base rate that turns out much larger than the prior's would find them too rough; nor is what readers were
told of the spread of a rate compared in smaller units, since the variance of a P is up to P (1 − P) times that
spread, however small σ² is."""

TELLING = 2.0
"""Readers are told of a participant, and its edges are scored again, when its adjusted mean or variance is so many
tolerances from what they were last told. It halves the work of a verdict near hubs."""


class LocalEngine(LocalPosterior):
    """Bayes linear adjustment by local solves.

    `precision` may be shared by all queries of a collection with the same correlation.

    Raises:
        QueryFailed: TOO_MUCH_WORK, from whatever solves; the engine cannot be used any more.
    """

    def __init__(
        self, graph: Graph, prior: Prior, precision: Precision, *, tolerance: float = DEFAULT_TOLERANCE
    ) -> None:
        super().__init__(prior, precision, tolerance)
        self._graph = graph
        self._build = 0
        self._moved_count = 0
        self._estimated = False
        self._later = 0
        """How many participants wait to be told of."""
        self._known: set[int] = set()
        """Those in `_screened`."""
        self._stale = 0
        """How many edges are in `stale`."""
        self.drift = 0.0
        """By how much the entries of the inverse that were last solved afresh had been off, estimates apart."""
        self._offered_total = 0.0
        self._entries_tolerance = tolerance / max(self._model.prior_scale, LEAST_SCALE)

    # ---- data ----

    def record(
        self, edge: int, *, screened: float = 0.0, relevant: float = 0.0, offered: float = 0.0, pending: float = 0.0
    ) -> None:
        """Add to an edge's counts: one local update, or none for what is only pending."""
        self._resize()
        columns = self._columns
        if screened > 0.0 and edge not in self._known:
            self._known.add(edge)
            self._screened.append(edge)
        self._unlearned += int(screened != 0.0)
        columns.data.n[edge] += screened
        columns.data.y[edge] += relevant
        columns.data.offered[edge] += offered
        self._offered_total += offered
        if pending != 0.0:
            self._pending.add(edge, pending)
        if screened != 0.0 or relevant != 0.0 or offered != 0.0:
            self._refresh(edge)
        if (screened != 0.0 or relevant != 0.0) and columns.edge_flags[edge]:  # an edge that is not let in has none
            columns.edge_flags[edge] |= COUNTED

    def offer(self, edges: Ints, items: Floats) -> None:
        """Add new items to those on offer: one local update for all."""
        self._resize()
        self._columns.data.offered[edges] += items
        self._offered_total += float(items.sum())
        known = edges[self._columns.edges.noise[edges] > 0.0]  # the others are not let in yet
        if len(known) > 1:
            self._renew(known)
        elif len(known):
            self._refresh(int(known[0]))

    def watch(self, prior: Prior) -> None:
        """Take another watch-list: new priors for the edges of those whose mean it changes, and for no others."""
        before, self._prior, self._model = self._prior.participants, prior, MODELS[prior.model](prior)
        self._resize()
        graph, precision, columns = self._graph, self._precision, self._columns
        names = (name for name in before.keys() | prior.participants.keys())
        changed = (name for name in names if before.get(name) != prior.participants.get(name))
        which = [index for index in map(graph.participant, changed) if index is not None]
        columns.people.prior_mean[which] = prior_means(graph, prior)[which]
        if precision.builds != self._build:
            return  # the next `settle` computes everything
        here = np.array([index for index in which if index < len(precision.inverse_diagonal)], dtype=np.int32)
        mean, inverse = columns.people.prior_mean[here], precision.inverse_diagonal[here]
        columns.people.scale[here] = self._model.scale(mean, inverse)
        for participant in here.tolist():
            self._moved_count = move(columns.work.moved, columns.work.moved_flags, self._moved_count, participant)
        edges = np.unique(np.concatenate([np.zeros(0, np.int32), *map(graph.edges_of, here.tolist())]))
        self._renew(edges[columns.edges.noise[edges] > 0.0])

    def _resize(self) -> None:
        """Rows for what the graph got; its new edges carry nothing until `settle` lets them in."""
        graph, columns = self._graph, self._columns
        known = columns.participants
        if known == len(graph) and columns.edge_count == graph.edges:
            return
        columns.resize(graph)
        mean = prior_means(graph, self._prior, known)
        columns.people.prior_mean[known : len(graph)] = mean
        columns.people.scale[known : len(graph)] = self._model.scale(mean, np.ones(len(mean)))
        for participant in range(known, len(graph)):
            self._moved_count = move(columns.work.moved, columns.work.moved_flags, self._moved_count, participant)

    def _refresh(self, edge: int) -> None:
        """Bring an edge's weight and coefficients in line with its counts and its prior."""
        edges, data = self._columns.edges, self._columns.data
        noise, residual = float(edges.noise[edge]), float(edges.residual[edge])
        if noise == 0.0:
            return  # not let in yet
        weight, deviation, left = regress(data, edge, float(edges.prior_mean[edge]), noise, residual)
        self._change(edge, weight, deviation, left)
        square, own = weight * deviation * deviation, float(data.offered[edge]) * left * residual
        self._square += square - float(data.square[edge])
        self._own += own - float(data.own[edge])
        data.square[edge], data.own[edge] = square, own

    def _change(self, edge: int, weight: float, deviation: float, left: float) -> None:
        columns = self._columns
        columns.coefficients[:] = (weight * deviation, left, weight)[: len(columns.coefficients)]
        self._moved_count = change_edge(
            columns.system,
            columns.edges,
            columns.people,
            edge,
            weight,
            columns.coefficients,
            self._tolerances(),
            columns.work,
            self._moved_count,
        )
        if not columns.edge_flags[edge]:
            columns.edge_flags[edge] = STALE
            columns.stale[self._stale] = edge
            self._stale += 1
        self._check_solves()

    def _tolerances(self) -> Floats:
        """Shape (sides + 1,): of the right-hand sides, and of the entries of the inverse."""
        items = max(1.0, self._offered_total / max(self._graph.edges, 1))
        tolerances = self._columns.tolerances
        tolerances[:] = self._tolerance
        tolerances[REMAINING] *= VARIANCE_TOLERANCE * items
        tolerances[COMMON:ENTRIES] *= COMMON_TOLERANCE
        tolerances[ENTRIES] = self._entries_tolerance
        return tolerances

    # ---- settling ----

    def settle(self) -> Moved:
        """Take in growth, then say what moved."""
        self._resize()
        self._settled = True
        precision, columns = self._precision, self._columns
        precision.grow()
        changes = precision.changes.unread(self)
        if precision.builds != self._build:
            self._rebuild()
            self._check_solves()
            self._build = precision.builds
            self._estimated = True
            if self._pending:
                self._await(stale=True)
            return self._tell_all()
        if changes:
            self._follow(changes)
        self._check_solves()
        stale = self._stale > 0 or any(len(change.edges) for change in changes)
        pending = self._await(stale=stale) if self._pending else None
        telling, (shift, variance, scale) = TELLING * self._tolerance, self._shared(self._rounded)
        scale = max(scale, LEAST_SCALE)
        people, count, self._later = settle_moved(
            columns.system,
            columns.edges,
            columns.people,
            shift,
            variance,
            scale,
            telling,
            columns.work.moved,
            columns.work.moved_flags,
            self._moved_count,
            columns.later,
            self._later,
            columns.work.changed,
            columns.edge_flags,
            columns.stale,
            self._stale,
        )
        edges, rows = columns.stale[:count], columns.changed_edges
        count = settle_rows(columns.edges, columns.people, scale, telling, columns.edge_flags, edges, rows)
        self._moved_count = self._stale = 0
        self._estimated = self.unfinished
        before, self._rounded = self._rounded, self._round(self.common())
        scores = edges if pending is None else np.union1d(edges, pending)
        if self._rounded != before:
            scores = np.arange(columns.edge_count, dtype=np.int32)
        return Moved(np.sort(columns.work.changed[:people]), np.sort(rows[:count]), np.sort(scores))

    def _await(self, *, stale: bool) -> Ints:
        """Take in pending screenings; the edges whose variance they moved.

        `stale`: Λ or an edge's prior has changed; healing the entries of the inverse changes no solution.
        """
        telling = TELLING * self._tolerance / max(self._rounded.scale, LEAST_SCALE)
        edges = self._pending.settle(self._columns, self._entries_tolerance, telling, stale=stale)
        self._check_solves()
        return edges

    def _tell_all(self) -> Moved:
        """Everything is new."""
        columns, people = self._columns, self._columns.people
        everyone, edges = (np.arange(k, dtype=np.int32) for k in (columns.participants, columns.edge_count))
        self._rounded = self._round(self.common())
        seen = people.seen_mean, people.seen_reach, people.seen_variance
        for column, values in zip(seen, self.given_common(everyone), strict=True):
            column[everyone] = values
        columns.edges.seen_covariance[edges] = self.covariances(edges)
        return Moved(everyone, edges, edges)

    def tend(self, most: int, stop: Ints = NEVER) -> None:
        """Heal the entries of an inverse at up to `most` participants; tell of those who wait for that."""
        columns, estimated = self._columns, self.unfinished
        if self._precision.waiting:
            self._precision.tend(most, stop)
            self._check_solves()
            return
        count, worst = heal(
            columns.system,
            columns.work.healing,
            most,
            self._entries_tolerance,
            COLUMN_TOLERANCE,
            columns.people.variance,
            columns.edges.covariance,
            columns.work.column,
            columns.work.changed,
            stop,
        )
        self._check_solves()
        if count and not estimated:
            self.drift = worst * self._tolerance / self._entries_tolerance  # as a variance, less D²
        self._look_closely(columns.work.changed[:count])
        spare = 0 if stop[0] else most - count
        last, self._later = self._later, max(self._later - spare, 0)
        late = columns.later[self._later : last]
        columns.work.moved_flags[late] &= MOVED | CLOSELY
        self._look_closely(late)

    def _look_closely(self, participants: Ints) -> None:
        """Have `settle` look at these and at all their edges."""
        work = self._columns.work
        self._moved_count = move_closely(work.moved, work.moved_flags, self._moved_count, participants)

    @property
    def unfinished(self) -> bool:
        """Whether growth was taken in by estimate, and `tend` has not yet been everywhere."""
        return self._estimated and self.waiting

    @property
    def waiting(self) -> bool:
        """Whether anybody waits for `tend`."""
        return self._precision.waiting or self._later > 0 or bool(self._columns.work.healing.state[1])

    def _follow(self, changes: Sequence[Change]) -> None:
        """Do to Λ what was done to Q, then renew the priors of the edges that it moved."""
        columns = self._columns
        for change in changes:
            if len(change.edges):
                self._follow_one(change)
        self._take_inverse([change.touched for change in changes if not len(change.edges)])
        touched = np.unique(np.concatenate([change.touched for change in changes]))
        columns.people.prior_variance[touched] = self._precision.inverse_diagonal[touched]
        count, self._moved_count = rescale(
            columns.system,
            columns.people,
            columns.edges.noise,
            self._model.scale(columns.people.prior_mean[touched], self._precision.inverse_diagonal[touched]),
            self._precision.inverse_edge,
            columns.used_edge,
            touched,
            self._tolerance,
            columns.edge_flags,
            columns.changed_edges,
            columns.work,
            self._moved_count,
        )
        self._renew(columns.changed_edges[:count].copy())

    def _follow_one(self, change: Change) -> None:
        columns = self._columns
        if change.row is None:
            self._estimated = True
            columns.work.healing.fresh[:] = 0
        self._moved_count = follow(
            columns.system,
            columns.edges,
            columns.people,
            change.row,
            change.edges,
            change.deltas,
            self._tolerances(),
            columns.work,
            self._moved_count,
        )

    def _take_inverse(self, solved: Sequence[Ints]) -> None:
        """Where Q⁻¹ was solved afresh, so must Λ⁻¹ be.

        The edges that this moves are told with their new priors (`rescale`), or when Λ⁻¹ is healed there.
        """
        columns, people, precision = self._columns, self._columns.people, self._precision
        for participants in solved:
            take_entries(
                columns.system,
                columns.work.healing,
                participants,
                precision.inverse_diagonal,
                precision.inverse_edge,
                people.variance,
                columns.edges.covariance,
                people.prior_variance,
                self._entries_tolerance,
            )

    def _renew(self, which: Ints) -> None:
        """Give these edges the priors that hold now; those that this changes by much are taken out and put back."""
        columns, edges = self._columns, self._columns.edges
        priors = self._priors(which)
        columns.bound[which] = priors.bound
        much = np.empty(len(which), np.int32)
        count, self._stale, self._moved_count, square, own = renew(
            columns.system,
            edges,
            columns.people,
            columns.data,
            which,
            priors,
            self._tolerances(),
            columns.work,
            columns.edge_flags,
            columns.stale,
            self._stale,
            much,
            self._moved_count,
        )
        self._square += square
        self._own += own
        for row in much[:count].tolist():
            edge = int(which[row])
            if edges.weight[edge] > 0.0:
                self._change(edge, 0.0, 0.0, 0.0)
            take_prior(edges, edge, priors, row)
            self._refresh(edge)

    def _priors(self, which: Ints) -> Priors:
        edges, people = self._columns.edges, self._columns.people
        inverse_edge = self._precision.inverse_edge
        return self._model.priors(edges.tail, edges.head, which, people.prior_mean, people.scale, inverse_edge)

    def _rebuild(self) -> None:
        """Solve everything afresh, from the last solution."""
        columns, precision = self._columns, self._precision
        m, count = columns.participants, columns.edge_count
        columns.people.scale[:m] = self._model.scale(columns.people.prior_mean[:m], precision.inverse_diagonal)
        columns.used_edge[:count] = precision.inverse_edge
        solve_afresh(columns, precision, self._priors(np.arange(count, dtype=np.int32)), self._tolerances())
        self._square, self._own = float(columns.data.square[:count].sum()), float(columns.data.own[:count].sum())
        self._moved_count = self._later = self._stale = 0
