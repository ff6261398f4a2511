"""Everything that is known of a query, as values: what `haystream replay` prints."""

from dataclasses import dataclass

import numpy as np

from haystream.events import Pair
from haystream.query.state import QueryState
from haystream.ranking.ranked import Estimate


@dataclass(frozen=True, slots=True)
class EdgeReport:
    """Screenings on an edge (an item of k edges counts 1/k), and the moments of its P."""

    participants: Pair
    screened: float
    relevant: float
    mean: float
    variance: float


@dataclass(frozen=True, slots=True)
class ItemReport:
    """An unscreened item, its score, and the posterior of its relevance."""

    item_id: str
    score: float
    mean: float
    sd: float


@dataclass(frozen=True, slots=True)
class Report:
    """The posterior of a query. `participants`: constrained adjusted mean and variance of Z, or of the rate, by id.

    `base_rate`: the adjusted common mean of a model that learns one, else the prior's.
    """

    query_id: str
    screened: int
    found: int
    discrepancy: float
    expected_remaining: Estimate
    base_rate: float
    infeasible_edges: int
    participants: dict[str, tuple[float, float]]
    edges: tuple[EdgeReport, ...]
    items: tuple[ItemReport, ...]


def report(query: QueryState) -> Report:
    """Finish the query and read everything. Participants and edges are sorted by id, items are in rank order."""
    query.finish()
    engine, graph = query.engine, query.collection.graph
    means, variances = engine.readings.participants(np.arange(len(graph), dtype=np.int32))
    which = np.arange(graph.edges, dtype=np.int32)
    columns = [column.tolist() for column in (*engine.readings.counts(which)[:2], *engine.readings.edges(which))]
    people = dict(zip(graph.participants, zip(means.tolist(), variances.tolist(), strict=True), strict=True))
    edges = (EdgeReport(graph.names(e), *row) for e, row in enumerate(zip(*columns, strict=True)))
    items = list(query.queue.items())
    sets = list(dict.fromkeys(which for _, which, _ in items))
    moments = dict(zip(sets, zip(*query.queue.moments(engine, sets), strict=True), strict=True))
    return Report(
        query_id=query.settings.query_id,
        screened=query.screened,
        found=query.found,
        discrepancy=engine.readings.discrepancy(),
        expected_remaining=query.queue.remaining(engine),
        base_rate=engine.readings.common().base_rate,
        infeasible_edges=engine.readings.infeasible(),
        participants=dict(sorted(people.items())),
        edges=tuple(sorted(edges, key=lambda edge: edge.participants)),
        items=tuple(
            ItemReport(query.collection.item_ids[item], score, float(mean), float(np.sqrt(variance)))
            for item, which, score in items
            for mean, variance in [moments[which]]
        ),
    )
