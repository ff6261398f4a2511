"""A start from a snapshot of the prior's inverse gives what a start from nothing gives, and computes less."""

from dataclasses import replace

import numpy as np
import pytest
from support.dense import assert_agrees

from haystream.collection.collection import Collection
from haystream.engines.local.inverse.prior_inverse import shared_precision
from haystream.events import Item, ModelName, Outcome, Query, Verdict
from haystream.models import DEFAULT_PRIORS
from haystream.models.prior_snapshot import Snapshot
from haystream.query.state import QueryState

CORRELATION, TOLERANCE = 0.9, 1e-7  # a snapshot holds float32


def items(count: int, *, seed: int = 0, people: int = 60) -> list[Item]:
    rng = np.random.default_rng(seed)
    pairs = [rng.choice(people, 2, replace=False) for _ in range(count)]
    return [Item(f"i{n}", "default", f"p{u}", (f"p{v}",)) for n, (u, v) in enumerate(pairs)]


def collection_of(some: list[Item]) -> Collection:
    collection = Collection("default")
    for item in some:
        collection.add(item)
    return collection


def snapshot_of(some: list[Item]) -> Snapshot:
    precision = shared_precision(collection_of(some), CORRELATION, TOLERANCE)
    precision.grow()
    while precision.waiting:
        precision.tend(100)
    return precision.snapshot()


@pytest.mark.parametrize("model", ["relevance", "rates"])
@pytest.mark.parametrize("grown", [0, 1, 40])
def test_a_start_from_a_snapshot_equals_a_dense_solve(model: ModelName, grown: int) -> None:
    """Also from a stale one: the graph has got edges since, and the query verdicts."""
    some = items(150 + grown)
    collection = collection_of(some)
    assert shared_precision(collection, CORRELATION, TOLERANCE).restore(snapshot_of(some[:150]))
    settings = Query("q", prior=replace(DEFAULT_PRIORS[model], correlation=CORRELATION))
    query = QueryState(settings, collection, tolerance=TOLERANCE)
    for number in range(0, 150, 7):
        outcome = Outcome.RELEVANT if number % 3 else Outcome.IRRELEVANT
        query.apply_verdict(Verdict(f"v{number}", "q", f"i{number}", "a", outcome, number))
    query.finish()
    assert_agrees(query, 2e-5, shares_close=1e-4)


def test_nothing_is_solved_again_where_nothing_has_come() -> None:
    some = items(150)
    precision = shared_precision(collection_of(some), CORRELATION, TOLERANCE)
    assert precision.restore(snapshot_of(some))
    precision.grow()
    assert not precision.waiting


def test_a_snapshot_of_another_graph_is_not_taken() -> None:
    some = items(150)
    snapshot = snapshot_of(some)
    other = shared_precision(collection_of(items(150, seed=1)), CORRELATION, TOLERANCE)
    shorter = shared_precision(collection_of(some[:100]), CORRELATION, TOLERANCE)
    late = shared_precision(collection_of(some), CORRELATION, TOLERANCE)
    late.grow()
    assert not other.restore(snapshot)
    assert not shorter.restore(snapshot)
    assert not late.restore(snapshot)
    torn = replace(snapshot, on_participant=snapshot.on_participant[:-1])
    assert not shared_precision(collection_of(some), CORRELATION, TOLERANCE).restore(torn)
