"""A graph as it was, against one that got no more than that."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from haystream.collection.graph import Graph
from haystream.engines.local.inverse.prior_inverse import GraphPrecision

people = st.integers(0, 12).map("p{:02d}".format)
pairs = st.lists(st.tuples(people, people).filter(lambda pair: pair[0] < pair[1]), max_size=40)
CLOSE = 1e-9


def graph_of(some: list[tuple[str, str]]) -> Graph:
    graph = Graph()
    graph.intern(some)
    return graph


@given(pairs, st.data())
def test_it_is_as_if_no_more_had_come(some: list[tuple[str, str]], data: st.DataObject) -> None:
    whole = graph_of(some)
    count = data.draw(st.integers(0, whole.edges))
    then, alone = whole.as_of(count), graph_of([whole.names(e) for e in range(count)])
    assert (len(then), then.edges) == (len(alone), alone.edges)
    for of in ("tail", "head", "edge_key", "degree"):
        np.testing.assert_array_equal(getattr(then, of), getattr(alone, of))
    for u in range(len(alone)):
        np.testing.assert_array_equal(then.edges_of(u), alone.edges_of(u))


@given(pairs, st.data())
def test_a_precision_follows_a_graph_from_one_moment_to_a_later_one(
    some: list[tuple[str, str]], data: st.DataObject
) -> None:
    whole = graph_of(some)
    moments = sorted(data.draw(st.lists(st.integers(0, whole.edges), min_size=1, max_size=4)))
    followed = GraphPrecision(whole.as_of(0), 0.9, CLOSE / 10)
    for count in moments:
        then = whole.as_of(count)
        afresh = GraphPrecision(then, 0.9, CLOSE / 10)
        for one, other in zip(followed.settled_on(then), afresh.settled_on(then), strict=True):
            np.testing.assert_allclose(one, other, atol=CLOSE)
