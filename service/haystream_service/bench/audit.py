"""How far the engine is from exact after a long history: whole solutions and sampled columns, solved again."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import cg

from haystream.engines.local.inverse.prior_inverse import shared_precisions
from haystream.events import Outcome, Query, Verdict
from haystream.fold import State, step
from haystream.query.state import QueryState
from haystream.warm import warm
from haystream_service.bench import graphs
from haystream_service.bench.linear import Floats, LinearForm, linear_form
from haystream_service.bench.names import GraphName
from haystream_service.bench.search import Arrivals

QUERY = "audit"
EXACT = 1e-12
"""Relative residual of what the engine is held against."""
LAP = 10
"""Once in so many verdicts new edges come."""
OUTCOMES = (Outcome.IRRELEVANT, Outcome.RELEVANT, Outcome.RETRACTED)
SHARES = (0.75, 0.2, 0.05)
"""How often each outcome is drawn. Items are drawn with repetition, so verdicts change as well."""


@dataclass(frozen=True, slots=True)
class Job:
    """A history, and what is looked at after it."""

    edges: int
    verdicts: int
    new_edges: int
    """At once, in every LAP of the verdicts."""
    tended: int
    """Local solves in idle time after each verdict."""
    sampled: int
    """Participants whose columns are solved exactly."""
    seed: int
    tolerance: float


@dataclass(frozen=True, slots=True)
class Errors:
    """The largest differences, at the model's scale: probabilities and their squares."""

    mean: float
    """Of the adjusted mean of R, before the constraint, over all participants: of D x̂, D being the engine's."""
    variance: float
    """Of σ² D² (Λ⁻¹)_uu, the adjusted variance of R at a known base rate; over the sample."""
    covariance: float
    """Of σ² D_u D_v (Λ⁻¹)_uv, over the edges of the sample."""
    scale: float
    """Of D, relative: (Q⁻¹)_uu is what is solved for; over the sample."""
    drift: float
    """What the engine itself says: by how much the entries that were last healed had been off."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What was done and found."""

    edges: int
    participants: int
    items: int
    verdicts: int
    screened_edges: int
    tended: int
    sampled: int
    tolerance: float
    verdict_us: float
    """Mean time of a verdict with what a busy worker tends after it."""
    under_load: Errors
    at_rest: Errors


def run(job: Job, say: Callable[[str], None]) -> dict[str, Any]:
    """What is found after random verdicts on a preferential-attachment graph with five items an edge."""
    warm()
    rng = np.random.default_rng(job.seed)
    state = State(tolerance=job.tolerance)
    for item in graphs.items(GraphName.PREFERENTIAL, edges=job.edges, items_per_edge=5, seed=job.seed):
        step(state, item)
    step(state, Query(QUERY, collection=graphs.COLLECTION))
    query = state.queries[QUERY]
    query.finish()
    say(f"{job.verdicts:,} verdicts")
    begin = perf_counter()
    ids, arrivals = query.collection.item_ids, Arrivals(query.collection, rng)
    for number in range(job.verdicts):
        for _ in range(job.new_edges if number % LAP == 0 else 0):
            step(state, arrivals.on_new_edge())
        outcome = OUTCOMES[rng.choice(len(OUTCOMES), p=SHARES)]
        verdict = Verdict(f"v{number}", QUERY, ids[rng.integers(len(ids))], "audit", outcome, number)
        step(state, verdict)
        query.settle()
        if job.tended:
            query.tend(job.tended)
        query.drain()
        if (number + 1) % 10_000 == 0:
            say(f"  {number + 1:,}")
    seconds = perf_counter() - begin
    graph = query.collection.graph
    sample = rng.choice(len(graph), min(job.sampled, len(graph)), replace=False)
    say(f"{2 * len(sample):,} columns, exactly")
    under_load = errors(query, sample)
    query.finish()
    everyone = np.arange(graph.edges, dtype=np.int32)
    return asdict(
        Audit(
            edges=graph.edges,
            participants=len(graph),
            items=len(query.collection),
            verdicts=job.verdicts,
            screened_edges=int(np.count_nonzero(query.engine.readings.counts(everyone)[0])),
            tended=job.tended,
            sampled=len(sample),
            tolerance=job.tolerance,
            verdict_us=seconds / max(job.verdicts, 1) * 1e6,
            under_load=under_load,
            at_rest=errors(query, sample),
        )
    )


def errors(query: QueryState, sample: np.ndarray[Any, np.dtype[np.int64]]) -> Errors:
    """How far what the engine says now is from exact solutions; `sample`: participants, shape (k,)."""
    prior, engine, graph = query.settings.prior, query.engine, query.collection.graph
    (precision,) = shared_precisions(query.collection).values()
    form = linear_form(query.collection, prior, precision)
    everyone, edges = np.arange(len(graph), dtype=np.int32), np.arange(graph.edges, dtype=np.int32)
    n, y, _ = engine.readings.counts(edges)
    weight, evidence = form.evidence(edges, n, y)
    matrix = sparse.csr_array(form.precision + form.loadings.T @ sparse.diags_array(weight) @ form.loadings)
    mean, _, variance = engine.readings.given_common(everyone)
    exact = form.adjusted(solved(matrix, form.loadings.T @ evidence))
    off_variance = off_covariance = off_scale = 0.0
    for u in sample.tolist():
        unit = np.zeros(len(graph))
        unit[u] = 1.0
        column = form.scale[u] * form.scale * solved(matrix, unit)
        at = graph.edges_of(u)
        others = np.where(form.tail[at] == u, form.head[at], form.tail[at])
        off_variance = max(off_variance, abs(float(variance[u] - column[u])))
        off_covariance = max(
            off_covariance, float(np.abs(engine.readings.covariances(at) - column[others]).max(initial=0.0))
        )
        off_scale = max(off_scale, scale_error(form, precision.inverse_diagonal, u, unit))
    return Errors(
        mean=float(np.abs(mean - exact).max()),
        variance=engine.readings.common().scale * off_variance,
        covariance=engine.readings.common().scale * off_covariance,
        scale=off_scale,
        drift=query.drift,
    )


def scale_error(form: LinearForm, inverse_diagonal: Floats, u: int, unit: Floats) -> float:
    """|ΔD/D| at u: D goes with the square root of (Q⁻¹)_uu, up or down."""
    exact = float(solved(form.precision, unit)[u])
    return abs(float(np.sqrt(inverse_diagonal[u] / exact)) - 1.0)


def solved(matrix: sparse.csr_array, rhs: Floats) -> Floats:
    """The solution to EXACT. Raises RuntimeError where gradients do not get there."""
    solution, failed = cg(matrix, rhs, rtol=EXACT, maxiter=10_000)
    if failed:
        raise RuntimeError(f"conjugate gradients did not reach a relative residual of {EXACT}")
    return np.asarray(solution, dtype=np.float64)
