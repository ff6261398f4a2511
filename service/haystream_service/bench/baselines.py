"""The baselines, run on the verdicts of a search that haystream's engine has just done."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Self

import numpy as np

from haystream.collection.item_sets import share_of
from haystream.engines.local.inverse.prior_inverse import shared_precisions
from haystream.events import Query
from haystream.fold import State, step
from haystream.models import DEFAULT_PRIORS
from haystream.query.state import QueryState
from haystream.warm import warm
from haystream_service.bench import graphs
from haystream_service.bench.linear import Floats, LinearForm, linear_form
from haystream_service.bench.samples import Samples, Timing, timing
from haystream_service.bench.search import Screening, Search, Truth
from haystream_service.bench.solvers import BatchUpdate, BayesianBandits, Reference, Solver, WarmGradients
from haystream_service.console import notes
from haystream_service.sources import table

QUERY = "bench"
VERDICTS = 1000
"""Of the search on the paper's largest network."""
PAPER_EDGES, PAPER_PARTICIPANTS = 1836, 1444
"""The size of that network."""
POINTS = 40
"""Verdicts of a search, evenly spread, that a baseline is timed on; between them it is brought forward untimed."""
FACTORED = 2500
"""Participants up to which a sparse factorization is tried: beyond, a preferential graph fills in."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one baseline needs for a verdict."""

    baseline: str
    what: str
    graph: str
    edges: int
    participants: int
    timing: Timing | None
    """None if it could not be run."""
    verdicts: int
    """Verdicts of the search that it got through, of `of_verdicts`."""
    of_verdicts: int
    max_difference: float | None
    """From the engine's adjusted means of Z, after the last verdict."""
    skipped: str | None = None


@dataclass(frozen=True, slots=True)
class Search1000:
    """The engine on the paper's largest network."""

    graph: str
    edges: int
    participants: int
    operations: dict[str, Timing]
    baselines: list[Row]


@dataclass(slots=True)
class Counts:
    """Screened and relevant per edge, shape (edges,)."""

    n: Floats
    y: Floats

    @classmethod
    def of(cls, query: QueryState) -> Self:
        """As they are now."""
        n, y, _ = query.engine.readings.counts(np.arange(query.collection.graph.edges, dtype=np.int32))
        return cls(n.copy(), y.copy())

    def take(self, screening: Screening) -> None:
        """One verdict more."""
        share = share_of(len(screening.edges))
        for edge in screening.edges:
            self.n[edge] += share
            self.y[edge] += share * screening.relevant


def on_network(*, seconds: float, seed: int, tolerance: float) -> Search1000:
    """The engine and all baselines on the paper's largest network, over a search of 1,000 verdicts.

    It is the Enron network nearest to the paper's where HAYSTREAM_DATA has it, else a simulated one of that size.
    """
    warm()
    rng = np.random.default_rng([seed, 3])
    path = graphs.find_data(graphs.ENRON)
    truth: Truth | None = None
    if path is not None:
        source = table(path, collection=graphs.COLLECTION)
        name, stream, truth = "enron", iter(source), source.truth
    else:
        pairs = graphs.preferential(PAPER_EDGES, rng, contacts=PAPER_EDGES / PAPER_PARTICIPANTS)
        name, stream = "preferential", graphs.spread(pairs, 6, rng)
    state = State(tolerance=tolerance)
    for item in stream:
        step(state, item)
    step(state, Query(QUERY, prior=DEFAULT_PRIORS["relevance"]))  # the baselines are of the paper's model
    query = state.queries[QUERY]
    top = query.ranking().items
    search, samples, before = Search(QUERY, query.collection, rng, truth), Samples(), Counts.of(query)
    for _ in range(min(VERDICTS, search.unjudged())):
        verdict = search.verdict(top)
        begin = perf_counter()
        step(state, verdict)
        query.settle()
        settled = perf_counter()
        top = query.ranking().items
        samples.add("verdict", perf_counter() - begin)
        samples.add("posterior", settled - begin)
        query.drain()
        query.finish()  # what a worker does when nobody waits
    graph = query.collection.graph
    prior, form = query.settings.prior, _form(query)
    solvers: list[Callable[[], Solver]] = [
        partial(BatchUpdate, form),
        partial(Reference, query.collection, prior),
        partial(WarmGradients, form, tolerance),
        partial(BayesianBandits, form, is_sparse=False),
        partial(BayesianBandits, form, is_sparse=True),
    ]
    rows = [_row(make, query, before, search.screenings, seconds, graph=name) for make in solvers]
    return Search1000(name, graph.edges, len(graph), samples.timings(), rows)


def on_graph(
    query: QueryState,
    before: Counts,
    screenings: Sequence[Screening],
    seconds: float,
    *,
    graph: str,
    tolerance: float,
) -> list[Row]:
    """What can be run at any size, on the verdicts that led the query from `before` to where it is."""
    form = _form(query)
    solvers: list[Callable[[], Solver]] = [partial(WarmGradients, form, tolerance)]
    if len(form.mean) <= FACTORED:
        solvers.append(partial(BayesianBandits, form, is_sparse=True))
    return [_row(make, query, before, screenings, seconds, graph=graph) for make in solvers]


def _form(query: QueryState) -> LinearForm:
    """The linear form of a query whose prior is the graph-structured one."""
    collection, prior = query.collection, query.settings.prior
    known = shared_precisions(collection).items()
    (precision,) = (precision for (correlation, _), precision in known if correlation == prior.correlation)
    return linear_form(collection, prior, precision)


def _row(
    make: Callable[[], Solver],
    query: QueryState,
    before: Counts,
    screenings: Sequence[Screening],
    seconds: float,
    *,
    graph: str,
) -> Row:
    size = query.collection.graph.edges, len(query.collection.graph)
    try:
        solver = make()
    except ImportError as missing:
        reason = f"{missing}: pip install 'haystream[bench]'"
        return Row("bayesianbandits", "not installed", graph, *size, None, 0, len(screenings), None, reason)
    notes.print(f"  {graph} {size[0]:,}: {solver.name}")
    times, verdicts = _timed(solver, before, screenings, seconds)
    return Row(
        solver.name,
        solver.what,
        graph,
        *size,
        timing(times),
        verdicts,
        len(screenings),
        _difference(solver, query),
        None,
    )


def _timed(
    solver: Solver, before: Counts, screenings: Sequence[Screening], seconds: float
) -> tuple[list[float], int]:
    """Seconds of single verdicts, evenly spread over the search; and how many verdicts it got through, all of
    them unless it has used up three times the budget.
    """
    counts = Counts(before.n.copy(), before.y.copy())
    points = np.unique(np.linspace(1, len(screenings), POINTS + 1, dtype=int)[1:]) - 1
    times: list[float] = []
    done, end = 0, perf_counter() + 3 * seconds
    for point in points.tolist():
        for screening in screenings[done:point]:
            counts.take(screening)
        solver.bring(counts.n, counts.y)
        counts.take(screenings[point])
        begin = perf_counter()
        solver.update(counts.n, counts.y, screenings[point].edges)
        times.append(perf_counter() - begin)
        done = point + 1
        if perf_counter() > end:
            break
    for screening in screenings[done:]:
        counts.take(screening)
    solver.bring(counts.n, counts.y)
    return times, done


def _difference(solver: Solver, query: QueryState) -> float | None:
    mean = solver.mean()
    if mean is None:
        return None
    engine, _, _ = query.engine.readings.given_common(np.arange(len(mean), dtype=np.int32))
    return float(np.abs(engine - mean).max())
