"""`reference` against the paper's lemmas solved another way: enumeration, and numerical optimisation."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray
from scipy.optimize import minimize
from support.dense import assert_agrees
from support.histories import ASYMMETRIC, MODELS, fold, histories, item, line, verdict

from haystream.collection.graph import Graph
from haystream.engines.reference import ReferenceEngine
from haystream.events import (
    TABLE_1,
    TABLE_2,
    Conditional,
    Covariance,
    Event,
    ModelName,
    Outcome,
    Prior,
    Query,
)
from haystream.fold import State, step
from haystream.models import DEFAULT_PRIORS
from haystream.report import report

NAMES = ("z0", "z1", "z2")
PAIRS = [("z0", "z1"), ("z1", "z2")]


def line_network(strength: float = 0.5) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Section 5.1.1: the 8 states of three nodes in a line and their probabilities (clique factors of Table 1a)."""
    z = np.array(list(product((0, 1), repeat=3)), dtype=float)
    same = (z[:, :-1] == z[:, 1:]).sum(axis=1)
    p = (1 + strength) ** same
    return z, p / p.sum()


def moments(z: NDArray[np.float64], p: NDArray[np.float64]) -> tuple[NDArray[np.float64], Covariance]:
    mean = p @ z
    sigma = (z - mean).T @ (p[:, None] * (z - mean))
    return mean, Covariance(NAMES, tuple(map(tuple, sigma.tolist())))


def engine_on_line(conditional: Conditional, data: list[tuple[int, int]]) -> ReferenceEngine:
    """data: (n, y) per edge."""
    z, p = line_network()
    mean, covariance = moments(z, p)
    graph = Graph()
    graph.intern(PAIRS)
    prior = Prior(
        model="relevance",
        conditional=conditional,
        participants=dict(zip(NAMES, mean.tolist(), strict=True)),
        covariance=covariance,
    )
    engine = ReferenceEngine(graph, prior)
    for edge, (n, y) in enumerate(data):
        engine.record(edge, screened=n, relevant=y)
    engine.settle()
    return engine


def exact_second_order(
    conditional: Conditional, n: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """E[Y], E[ZYᵀ] and E[YYᵀ] by enumerating the Markov random field; E[Z]."""
    z, p = line_network()
    a, b = np.array(conditional.a), np.array(conditional.b)
    state = np.stack([2 * z[:, 0] + z[:, 1], 2 * z[:, 1] + z[:, 2]], axis=1).astype(int)
    first = (a / (a + b))[state]
    second = (a * (a + 1) / ((a + b) * (a + b + 1)))[state]
    e_y = n * (p @ first)
    e_zy = np.einsum("s,sk,se->ke", p, z, first) * n
    e_yy = np.einsum("s,se,sf->ef", p, first, first) * np.outer(n, n)
    np.fill_diagonal(e_yy, n * (n - 1) * (p @ second) + n * (p @ first))
    return e_y, e_zy, e_yy, p @ z


CASES = [
    pytest.param(TABLE_1, [(3, 1), (4, 2)], id="the paper's first set"),
    pytest.param(TABLE_1, [(3, 3), (4, 4)], id="the paper's second set: the constraint binds"),
    pytest.param(TABLE_2, [(3, 0), (4, 4)], id="contradicting edges"),
    pytest.param(ASYMMETRIC, [(9, 9), (2, 0)], id="asymmetric table"),
    pytest.param(ASYMMETRIC, [(0, 0), (6, 6)], id="an edge without data"),
]


@pytest.mark.parametrize(("conditional", "data"), CASES)
def test_equals_the_constrained_optimisation_solved_numerically(
    conditional: Conditional, data: list[tuple[int, int]]
) -> None:
    """Problem (2.5): minimise E[(Z_k - h0 - hᵀY)²] with h0 + hᵀy in [0, 1], by a QP solver; then (2.4)."""
    engine = engine_on_line(conditional, data)
    seen = [e for e, (n, _) in enumerate(data) if n]
    n, y = (np.array(column, dtype=float)[seen] for column in zip(*data, strict=True))
    full_n = np.array([row[0] for row in data], dtype=float)
    e_y, e_zy, e_yy, e_z = exact_second_order(conditional, full_n)
    e_y, e_zy, e_yy = e_y[seen], e_zy[:, seen], e_yy[np.ix_(seen, seen)]
    del n
    z, p = line_network()
    e_zz = z.T @ (p[:, None] * z)

    H = np.zeros((3, 1 + len(seen)))
    moment = np.block([[np.ones((1, 1)), e_y[None]], [e_y[:, None], e_yy]])
    point = np.concatenate([[1.0], y])
    for k in range(3):
        against = np.concatenate([[e_z[k]], e_zy[k]])

        def loss(h: NDArray[np.float64], against: NDArray[np.float64] = against) -> float:
            return float(h @ moment @ h - 2 * h @ against)

        def slope(h: NDArray[np.float64], against: NDArray[np.float64] = against) -> NDArray[np.float64]:
            return np.asarray(2 * (moment @ h - against))

        H[k] = minimize(
            loss,
            np.zeros(len(point)),
            jac=slope,
            method="SLSQP",
            constraints=[
                {"type": "ineq", "fun": lambda h: h @ point},
                {"type": "ineq", "fun": lambda h: 1 - h @ point},
            ],
            options={"ftol": 1e-15, "maxiter": 1000},
        ).x
    cross = np.column_stack([e_z, e_zy])
    covariance = e_zz - H @ cross.T - cross @ H.T + H @ moment @ H.T
    np.testing.assert_allclose(engine.mean, H @ point, atol=2e-6)
    np.testing.assert_allclose(engine.covariance, covariance, atol=2e-6)
    if all(relevant == screened for screened, relevant in data):
        assert engine.mean.max() == 1.0  # the case must bind, or it shows nothing


@pytest.mark.parametrize(("conditional", "data"), CASES)
def test_lemma_2_equals_the_clip_and_the_rank_one_inflation(
    conditional: Conditional, data: list[tuple[int, int]]
) -> None:
    """docs/method.md, "The constraint is a clip": mean = m̂ - v, covariance = Ĉ + v vᵀ / (1 + q)."""
    engine = engine_on_line(conditional, data)
    everyone = np.arange(3, dtype=np.int32)
    mean, variance = engine.readings.unconstrained(everyone)
    v = mean - np.clip(mean, 0, 1)
    np.testing.assert_allclose(engine.mean, mean - v, atol=1e-12)
    inflation = v * v / (1 + engine.readings.discrepancy())
    np.testing.assert_allclose(np.diag(engine.covariance), variance + inflation, atol=1e-12)


def test_the_line_network_by_hand() -> None:
    """Section 5.1.1 with one relevant item on the first edge: small enough for a pocket calculator.

    λ = 0.5: P(Z_i = Z_j) = 0.6 for contacts, so E[Z] = ½, Var = ¼, Cov of contacts = 0.6·½ - ¼ = 0.05, and of
    the two ends 0.05²/¼ = 0.01. Table 1: E[P | z] = 0.1, 0.2, 0.2, 0.5, so E[P] = 0.3·0.1 + 0.4·0.2 + 0.3·0.5
    = 0.26. With n = 1 Y is binary: Var(Y) = 0.26·0.74 = 0.1924. E[Z_0 P] = 0.2·0.2 + 0.3·0.5 = 0.19, so
    Cov(Z_0, Y) = 0.19 - 0.13 = 0.06, and the same for Z_1. P is regressed on (Z_0, Z_1) with slopes
    0.06/(0.25 + 0.05) = 0.2 each, so Cov(Z_2, Y) = 0.2·(0.01 + 0.05) = 0.012. d = 1 - 0.26 = 0.74.
    E[Z_0 | Y] = ½ + 0.06·0.74/0.1924 = 0.73077, E[Z_2 | Y] = ½ + 0.012·0.74/0.1924 = 0.54615.
    """
    engine = engine_on_line(TABLE_1, [(1, 1), (0, 0)])
    np.testing.assert_allclose(engine.mean, [0.5 + 3 / 13, 0.5 + 3 / 13, 0.5 + 0.6 / 13], atol=1e-12)
    np.testing.assert_allclose(engine.covariance[0, 0], 0.25 - 0.06**2 / 0.1924, atol=1e-12)
    np.testing.assert_allclose(engine.readings.discrepancy(), 0.74**2 / 0.1924, atol=1e-12)


def test_local_gives_the_same_on_the_line_network() -> None:
    """On a line the linear form is exact: both engines must give the hand-checked values."""
    z, p = line_network()
    mean, covariance = moments(z, p)
    prior = Prior(
        model="relevance",
        conditional=TABLE_1,
        participants=dict(zip(NAMES, mean.tolist(), strict=True)),
        covariance=covariance,
    )
    observed = [(0, 0), (1, 0), (1, 1), (1, 0), (0, 0), (1, 1), (0, 1)]  # the paper's first set
    events: list[Event] = [item(f"i{k}", *PAIRS[edge]) for k, (edge, _) in enumerate(observed)]
    for k, (_, outcome) in enumerate(observed):
        events.append(verdict(k, f"i{k}", Outcome.RELEVANT if outcome else Outcome.IRRELEVANT))
    local = report(fold([Query("q", prior=prior), *events]).queries["q"])
    reference = report(fold([Query("q", prior=prior, engine="reference"), *events]).queries["q"])
    for name in NAMES:
        np.testing.assert_allclose(local.participants[name], reference.participants[name], atol=1e-3)
    np.testing.assert_allclose(local.discrepancy, reference.discrepancy, atol=1e-3)


def test_the_engines_agree_as_closely_as_the_page_says() -> None:
    """docs/method.md, "Two engines, one answer": means of Z within 0.001 to 0.007 on average, of P within 0.0002 to
    0.003."""
    rng = np.random.default_rng(3)
    events: list[Event] = list(line(8))
    events += [item(f"x{k}", *(f"p{i:03d}" for i in rng.choice(9, 2, replace=False))) for k in range(8)]
    ids = [e.item_id for e in events if hasattr(e, "item_id")]
    for k in range(14):
        events.append(verdict(k, ids[k], Outcome.RELEVANT if rng.random() < 0.4 else Outcome.IRRELEVANT))
    relevance = DEFAULT_PRIORS["relevance"]  # of rates the linear form is no approximation
    local = report(fold([Query("q", prior=relevance), *events]).queries["q"])
    reference = report(fold([Query("q", prior=relevance, engine="reference"), *events]).queries["q"])
    z = [abs(local.participants[n][0] - reference.participants[n][0]) for n in local.participants]
    p = [abs(a.mean - b.mean) for a, b in zip(local.edges, reference.edges, strict=True)]
    assert np.mean(z) < 0.007
    assert np.mean(p) < 0.003
    assert local.expected_remaining.sd == pytest.approx(reference.expected_remaining.sd, rel=0.05)


@pytest.mark.parametrize("model", MODELS)
def test_relabelling_changes_nothing_in_the_reference_engine(model: ModelName) -> None:
    names = {f"p{i:03d}": f"p{99 - i:03d}" for i in range(5)}
    verdicts = [verdict(0, "i1", Outcome.RELEVANT), verdict(1, "i2", Outcome.IRRELEVANT)]
    relabelled = [
        item(e.item_id, *(names[p] for p in e.participants), sender=names[e.sender or ""]) for e in line(4)
    ]
    settings = Query("q", prior=DEFAULT_PRIORS[model], engine="reference")
    one = report(fold([settings, *line(4), *verdicts]).queries["q"])
    other = report(fold([settings, *relabelled, *verdicts]).queries["q"])
    for name, value in one.participants.items():
        np.testing.assert_allclose(other.participants[names[name]], value, atol=1e-9)


@given(histories(models=("rates",)))
def test_rates_by_the_joint_specification_agree_with_a_dense_solve(history: list[Event]) -> None:
    state = State()
    for event in history:
        step(state, replace(event, engine="reference") if isinstance(event, Query) else event)
    assert_agrees(state.queries["q"])
