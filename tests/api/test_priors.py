"""What readers take those for of whom tables say nothing: computed once, and followed as the graph grows."""

from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest

from haystream.collection.graph import Graph
from haystream.engines.local.inverse.prior_inverse import GraphPrecision
from haystream.events import Prior, View
from haystream.memory.arrays import Floats
from haystream.posterior.tables import settled_inverse
from haystream_service.api import priors as module
from haystream_service.api.priors import Priors
from haystream_service.api.problems import Problem
from haystream_service.store.memory import MemoryStore
from haystream_service.store.snapshots import inverse_name, write_snapshot

pytestmark = pytest.mark.asyncio

CORRELATION, TOLERANCE, CLOSE = 0.9, 1e-10, 1e-9
PRIOR = Prior(correlation=CORRELATION)


def a_graph() -> Graph:
    graph = Graph()
    edges = nx.barabasi_albert_graph(200, 3, seed=1).edges
    graph.intern((f"p{min(u, v):03d}", f"p{max(u, v):03d}") for u, v in edges)
    return graph


def assert_is(found: tuple[Floats, Floats], graph: Graph) -> None:
    wanted = settled_inverse(graph, PRIOR, TOLERANCE)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=CLOSE)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The edges of each graph that a precision was made on."""
    edges = list[int]()

    class Counted(GraphPrecision):
        def __init__(self, graph: Graph, *given: Any) -> None:
            edges.append(graph.edges)
            super().__init__(graph, *given)

    monkeypatch.setattr(module, "GraphPrecision", Counted)
    return edges


async def test_it_follows_its_graph_and_one_of_before_is_kept_beside_it(made: list[int]) -> None:
    priors, graph = Priors(MemoryStore(), View("mail", None), TOLERANCE), a_graph()
    for edges in (300, 302, 500, 200, graph.edges, 200, graph.edges):
        then = graph.as_of(edges)
        assert_is(await priors.inverse(PRIOR, then), then)
    assert made == [300, 200]


async def test_it_starts_from_a_snapshot_that_is_no_newer(made: list[int]) -> None:
    store, view, graph = MemoryStore(), View("mail", None), a_graph()
    precision = GraphPrecision(graph.as_of(400), CORRELATION, TOLERANCE)
    precision.settled_on(graph.as_of(400))
    snapshot = precision.snapshot()
    marked = replace(snapshot, on_edge=snapshot.on_edge + np.float32(0.5))  # as nobody would compute it
    await store.save_snapshot("mail", inverse_name(CORRELATION, TOLERANCE, None), write_snapshot(marked))
    found = await Priors(store, view, TOLERANCE).inverse(PRIOR, graph.as_of(400))
    np.testing.assert_array_equal(found[1], marked.on_edge)
    before = graph.as_of(399)
    assert_is(await Priors(store, view, TOLERANCE).inverse(PRIOR, before), before)
    assert made == [400, 399]


async def test_who_asks_for_what_takes_long_is_told_to_come_again(
    made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.0)
    priors, graph = Priors(MemoryStore(), View("mail", None), TOLERANCE), a_graph()
    with pytest.raises(Problem, match="is being computed") as refused:
        await priors.inverse(PRIOR, graph)
    assert refused.value.headers["Retry-After"]
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 30.0)
    assert_is(await priors.inverse(PRIOR, graph), graph)
    assert len(made) == 1
    await priors.close()
