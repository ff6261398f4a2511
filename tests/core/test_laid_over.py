"""A matrix and priors of edges that lie over somebody else's are as if they were all one's own."""

import numpy as np
import pytest
from support.compiled import callable_here
from support.seeds import seeds

from haystream.collection.graph import Graph
from haystream.engines.local.solves.solve import (
    RESIDUAL,
    VALUE,
    add_off_diagonal,
    begin,
    forget,
    scratch,
    solve,
    system,
)
from haystream.engines.local.state.edge_priors import (
    NOISE,
    PRIOR_COLUMNS,
    edge_prior,
    numbers,
    put_number,
    rows_of,
    whole_priors,
)
from haystream.memory.arrays import bits
from haystream.memory.overlay import BITS, LINE_ENTRIES, flat, over, whole

add_to_entry, put_into_row = callable_here(add_off_diagonal), callable_here(put_number)


@pytest.mark.parametrize("seed", seeds(5))
def test_a_solve_on_entries_that_are_laid_over_others(seed: int) -> None:
    rng, graph = np.random.default_rng(seed), Graph()
    pairs = (sorted(f"p{u}" for u in rng.choice(60, 2, replace=False)) for _ in range(200))
    graph.intern((u, v) for u, v in pairs)
    m = len(graph)
    entries, diagonal, nobody = -rng.random(graph.edges) / 100, whole(np.ones(m), 1), bits(m)
    before = entries.copy()
    mixed = system(graph, over(whole(entries)), nobody, diagonal)
    edges = rng.choice(graph.edges, 12, replace=False).astype(np.int32)
    changes = -rng.random(len(edges)) / 10
    changes[0] = 0.0
    for edge, change in zip(edges, changes, strict=True):
        add_to_entry(mixed, edge, change)
    own = entries.copy()
    own[edges] += changes
    np.testing.assert_array_equal(flat(mixed.off), own)
    np.testing.assert_array_equal(entries, before)  # which is others', too
    room, dense = scratch(m), np.diag(flat(diagonal))
    dense[graph.tail, graph.head] = dense[graph.head, graph.tail] = own
    for matrix in (mixed, system(graph, whole(own), nobody[:0], diagonal)):
        begin(matrix, room, 3, 1.0)
        solve(matrix, 1e-14, room)
        np.testing.assert_allclose(room.cells[:, VALUE], np.linalg.solve(dense, np.eye(m)[3]), atol=1e-12)
        assert np.abs(room.cells[:, RESIDUAL]).max() <= 1e-14
        forget(room)


def test_rows_of_priors_that_are_laid_over_others() -> None:
    rng, count = np.random.default_rng(0), 3 * LINE_ENTRIES + 2
    rows = rng.random((count, PRIOR_COLUMNS))
    below = whole_priors(rows, count)
    ours, theirs = over(below), over(below)
    some = np.array([0, LINE_ENTRIES - 1, LINE_ENTRIES, count - 1], np.int32)
    values = rng.random(len(some))
    for edge, value in zip(some, values, strict=True):
        put_into_row(ours, edge, NOISE, value)
    wanted = rows.copy()
    wanted[some, NOISE] = values
    everywhere = np.arange(count, dtype=np.int32)
    np.testing.assert_array_equal(numbers(ours, everywhere, NOISE), wanted[:, NOISE])
    np.testing.assert_array_equal(rows_of(ours)[:count], wanted)
    np.testing.assert_array_equal(rows_of(theirs)[:count], rows)
    assert edge_prior(ours, LINE_ENTRIES) == tuple(wanted[LINE_ENTRIES, : PRIOR_COLUMNS - 1])
    assert int(np.bitwise_count(ours.chunks[:, BITS]).sum()) == len(
        {edge // LINE_ENTRIES for edge in some.tolist()}
    )
    longer = whole_priors(rows_of(ours), 10 * count)
    np.testing.assert_array_equal(rows_of(longer)[:count], wanted)
