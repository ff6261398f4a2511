"""Whom it makes wait for healing that somebody's entry of the inverse is found to have drifted."""

from dataclasses import replace

import numpy as np
import pytest
from support.histories import item, verdict

from haystream.collection.collection import Collection
from haystream.engines.contract import NEVER
from haystream.engines.local import LocalEngine
from haystream.engines.local.inverse.prior_inverse import GraphPrecision
from haystream.events import ModelName, Outcome, Query
from haystream.memory.overlay import flat
from haystream.models import DEFAULT_PRIORS
from haystream.query.state import QueryState

TOLERANCE = 1e-5


def precision_of_hub(contacts: int) -> tuple[GraphPrecision, int]:
    """Q⁻¹, healed, of a hub with contacts that know one another two by two; and the hub."""
    collection = Collection("default")
    for n in range(contacts):
        collection.add(item(f"h{n}", "hub", f"p{n}"))
        collection.add(item(f"o{n}", f"p{n}", f"p{(n + 1) % contacts}"))
    precision = GraphPrecision(collection.graph, 0.5, TOLERANCE)
    precision.grow()
    heal_everybody(precision)
    hub = collection.graph.participant("hub")
    assert hub is not None
    return precision, hub


def heal_everybody(precision: GraphPrecision) -> int:
    """Return how many times ten are healed until nobody waits."""
    times = 0
    while precision.waiting:
        precision.tend(10, NEVER)
        times += 1
    return times


def make_wait(precision: GraphPrecision, who: int) -> None:
    queue = precision._healing
    queue.fresh[:] = 0
    queue.ring[queue.state[0]], queue.state[1], queue.waiting[who] = who, 1, 1


@pytest.mark.parametrize(
    ("contacts", "drift", "wait", "strained"),
    [(8, 0.001, True, True), (2000, 0.001, False, False), (2000, 0.5, False, True)],
)
def test_contacts_wait_where_somebodys_entry_had_drifted_that_may_be_by_theirs(
    contacts: int, drift: float, wait: bool, strained: bool
) -> None:
    precision, hub = precision_of_hub(contacts)
    exact = precision.inverse_diagonal[hub]
    assert drift > precision._tolerances.drifted
    precision.inverse_diagonal[hub] += drift
    make_wait(precision, hub)
    precision.tend(1, NEVER)
    assert precision.inverse_diagonal[hub] == pytest.approx(exact, abs=TOLERANCE)
    queue = precision._healing
    assert queue.state[1] == (contacts if wait else 0)
    strain = np.delete(flat(queue.strain)[: contacts + 1], hub)
    assert (strain > 0.0).all() == strained  # of a hub's contacts, for what has moved with it


@pytest.mark.parametrize("contacts", [8, 2000])
def test_what_is_found_by_the_drift_of_a_contact_is_healed(contacts: int) -> None:
    """A hub's contact had drifted: from where that is found its own contacts are healed, as far as it goes."""
    precision, _ = precision_of_hub(contacts)
    exact = precision.inverse_diagonal.copy()
    drifted = [3, 4, 5]  # neighbours of one another
    precision.inverse_diagonal[drifted] += 20.0 * precision._tolerances.drifted
    make_wait(precision, 4)
    heal_everybody(precision)
    np.testing.assert_allclose(precision.inverse_diagonal, exact, atol=5.0 * TOLERANCE)


@pytest.mark.parametrize(("model", "people", "correlation"), [("relevance", 12, 0.2), ("rates", 8, 0.2)])
def test_whom_data_on_one_pair_have_moved_is_healed(model: ModelName, people: int, correlation: float) -> None:
    """All know one another. Data that are there at the start say much of what two have together, and little of
    either alone: all others are moved by what they have in common with both."""
    collection, count = Collection("default"), people * (people - 1) // 2
    for u in range(people):
        for v in range(u):
            collection.add(item(f"i{len(collection)}", f"p{u}", f"p{v}"))
    for n in range(50):
        collection.add(item(f"s{n}", "p0", "p1"))
    prior = replace(DEFAULT_PRIORS[model], mean=0.5, correlation=correlation)
    query = QueryState(Query("q", prior=prior), collection)
    for n in range(50):
        query.apply_verdict(verdict(n, f"s{n}", Outcome.RELEVANT if n % 3 else Outcome.IRRELEVANT))
    query.finish()
    assert isinstance(query.engine, LocalEngine)
    state, graph = query.engine._columns.state, collection.graph
    matrix = np.diag(flat(state.system.diagonal)[:people])
    matrix[graph.tail, graph.head] = matrix[graph.head, graph.tail] = flat(state.system.off)[:count]
    exact, entries = np.linalg.inv(matrix), state.inverse
    wanted = exact.diagonal(), exact[graph.tail, graph.head]
    for got, exactly in zip((entries.on_participant, entries.on_edge), wanted, strict=True):
        np.testing.assert_allclose(flat(got)[: len(exactly)], exactly, atol=entries.tolerances.strain)
