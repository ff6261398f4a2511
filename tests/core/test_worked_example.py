"""The example that docs/method.md opens with: three people, four items, two verdicts, worked out by hand."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from support.histories import fold, item, verdict

from haystream.events import Outcome, Policy, Prior, Query
from haystream.query.state import QueryState

METHOD = (Path(__file__).parents[2] / "docs" / "method.md").read_text()
PRIOR = Prior(model="rates", mean=0.2, correlation=0.8, weight=2.0, participant=4.0, edge=4.0)
MAIL = {"i1": ("a", "b"), "i2": ("b", "a"), "i3": ("b", "c"), "i4": ("b", "c")}
ITEMS = [item(name, to, sender=by) for name, (by, to) in MAIL.items()]
VERDICTS = [verdict(1, "i1", Outcome.RELEVANT), verdict(2, "i3", Outcome.IRRELEVANT)]


@pytest.fixture(scope="module", params=["local", "reference"])
def query(request: pytest.FixtureRequest) -> QueryState:
    settings = Query("q", prior=PRIOR, engine=request.param, policy=Policy("greedy"))
    query = fold([settings, *ITEMS, *VERDICTS]).queries["q"]
    query.finish()
    return query


def said(*numbers: float, digits: int = 4) -> None:
    """Each of these stands in the page, so rounded."""
    for number in numbers:
        assert f"{number:.{digits}f}".replace("-", "−") in METHOD, number


def test_the_page_by_hand(query: QueryState) -> None:
    """By the joint specification alone: Cov(Ȳ), the adjustment of M and of each R, and the conjugate step of each
    P."""
    inverse = [[Fraction(21, 17), Fraction(10, 17)], [Fraction(10, 17), Fraction(25, 17)]]  # of a and b
    neighbours = float(inverse[0][1]) / float(inverse[0][0] * inverse[1][1]) ** 0.5
    strangers = 4 / 21  # a and c
    said(neighbours, strangers)
    C = np.array([[1, neighbours, strangers], [neighbours, 1, neighbours], [strangers, neighbours, 1]])
    G = np.array([[0.5, 0.5, 0], [0, 0.5, 0.5]])
    R = 1 / 2 + C / 4
    V = G @ R @ G.T + np.eye(2) * (1 / 4 + 1)
    said(*V[0])
    d = np.array([1.0, 0.0]) - 0.2
    alpha = np.linalg.solve(V, d)
    said(*alpha)
    m = 0.2 + alpha.sum() / 2
    rate = 0.2 + R @ G.T @ alpha
    said(m, *rate)
    ends = G @ rate
    edge = (4 * ends + [1, 0]) / 5
    said(*ends, *edge)

    graph, readings = query.collection.graph, query.engine.readings
    people = np.array([graph.participant(name) for name in "abc"], dtype=np.int32)
    edges = np.array([graph.edge_between(("a", "b")), graph.edge_between(("b", "c"))], dtype=np.int32)
    assert readings.common().base_rate == pytest.approx(m, abs=1e-9)
    np.testing.assert_allclose(readings.participants(people)[0], rate, atol=1e-9)
    np.testing.assert_allclose(readings.edges(edges)[0], edge, atol=1e-9)
    ranked = query.ranking().items
    assert [each.item_id for each in ranked] == ["i2", "i4"]
    np.testing.assert_allclose([each.mean for each in ranked], edge, atol=1e-9)


def test_the_system_that_the_local_engine_solves() -> None:
    """Λ = Q + Σ w β̃β̃ᵀ, two right-hand sides, and the border of the common mean: the same m and rates from
    these."""
    Q = np.array([[1, -0.4, 0], [-0.4, 1, -0.4], [0, -0.4, 1]])
    D = 1 / np.sqrt(4 * np.linalg.inv(Q).diagonal())
    beta = np.array([[0.5, 0.5, 0], [0, 0.5, 0.5]]) * D
    w, d = np.full(2, 4 / 5), np.array([0.8, -0.2])
    Lambda = Q + beta.T @ np.diag(w) @ beta
    said(D[0], D[1], Lambda[0, 0], Lambda[0, 1], Lambda[1, 1])
    x, x_2 = np.linalg.solve(Lambda, beta.T @ (w * d)), np.linalg.solve(Lambda, beta.T @ w)
    said(*x, *x_2)
    v = 1 / (2 + (w * (1 - beta @ x_2)).sum())
    shift = v * (w * d * (1 - beta @ x_2)).sum()
    reach = 1 - D * x_2
    said(v, shift, *reach)
    engine = fold([Query("q", prior=PRIOR), *ITEMS, *VERDICTS]).queries["q"]
    engine.finish()
    readings = engine.engine.readings
    people = np.array([engine.collection.graph.participant(name) for name in "abc"], dtype=np.int32)
    np.testing.assert_allclose(readings.participants(people)[0], 0.2 + D * x + shift * reach, atol=1e-9)
    assert readings.common().variance == pytest.approx(v, abs=1e-9)
