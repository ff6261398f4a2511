"""What is learned of concentrations: by leaving out each edge in turn, and from draws of a known one."""

from dataclasses import replace
from itertools import product
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betaln
from support.dense import TIGHT, solve
from support.histories import fold, item, verdict

from haystream.engines.local.readings.concentration import LEARNED_AT_ONCE
from haystream.events import Event, Outcome, Query
from haystream.fold import step
from haystream.models import DEFAULT_PRIORS
from haystream.models.concentration import (
    LOG_FACTOR_SD,
    LOG_FACTORS,
    add_likelihood,
    learned_concentration,
    log_likelihood,
    no_likelihood,
)

ENGINES: tuple[Literal["local", "reference"], ...] = ("local", "reference")
SEVERAL = [
    ("a", "b", 4, 1),
    ("b", "c", 3, 0),
    ("c", "d", 5, 4),
    ("a", "d", 1, 0),
    ("d", "e", 2, 1),
    ("e", "f", 0, 0),
]
"""Pairs, their verdicts, and how many of them relevant. Each has two items more."""


def history(settings: Query) -> list[Event]:
    events: list[Event] = [settings]
    for u, v, n, y in SEVERAL:
        for k in range(n + 2):
            events.append(item(f"{u}{v}{k}", u, v))
            if k < n:
                outcome = Outcome.RELEVANT if k < y else Outcome.IRRELEVANT
                events.append(verdict(len(events), f"{u}{v}{k}", outcome))
    return events


def left_out(settings: Query) -> np.ndarray:
    """The log-likelihood: the dense solve of everything else, edge by edge, and a beta-binomial by scipy."""
    pairs = [(u, v) for u, v, _, _ in SEVERAL]
    n, y = np.array([(n, y) for _, _, n, y in SEVERAL], dtype=float).T
    left = np.full(len(n), 2.0)
    every, total = solve(settings, pairs, n, y, left), np.zeros(len(LOG_FACTORS))
    for e in np.flatnonzero(n > 1):
        others_n, others_y = n.copy(), y.copy()
        others_n[e] = others_y[e] = 0
        rest = solve(settings, pairs, others_n, others_y, left)
        level = every.prior_mean[e] + every.shift
        mean = np.clip(rest.linear_mean[e], 0.1 * level, 1 - 0.1 * (1 - level))
        K = np.exp(LOG_FACTORS) / (rest.linear_variance[e] / rest.scale / rest.noise[e])
        total += betaln(K * mean + y[e], K * (1 - mean) + n[e] - y[e]) - betaln(K * mean, K * (1 - mean))
    return total


@pytest.mark.parametrize("engine", ENGINES)
def test_each_edge_is_predicted_from_all_others(engine: Literal["local", "reference"]) -> None:
    settings = Query("q", prior=DEFAULT_PRIORS["rates"], engine=engine)
    query = fold(history(settings), tolerance=TIGHT).queries["q"]
    query.finish()
    expected = learned_concentration(left_out(settings))
    assert query.engine.readings.concentration() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("engine", ENGINES)
def test_binary_relevance_has_no_concentration_to_learn(engine: Literal["local", "reference"]) -> None:
    query = fold(history(Query("q", prior=DEFAULT_PRIORS["relevance"], engine=engine))).queries["q"]
    query.finish()
    assert query.engine.readings.concentration() == (0.0, 0.0)


def test_without_verdicts_it_is_what_it_was() -> None:
    query = fold([Query("q", prior=DEFAULT_PRIORS["rates"]), item("i", "a", "b")]).queries["q"]
    query.finish()
    mean, variance = query.engine.readings.concentration()
    assert mean == pytest.approx(0.0, abs=1e-12)
    assert variance == pytest.approx(LOG_FACTOR_SD**2, rel=0.03)  # the grid ends at three sd
    assert query.engine.readings.concentration_slope() == 0.0


@given(st.floats(0.01, 0.9), st.floats(0.02, 5.0), st.integers(0, 30), st.integers(0, 30), st.booleans())
def test_an_edges_likelihood_is_beta_binomial(
    mean: float, spread: float, hits: int, misses: int, whole: bool
) -> None:
    y, n = (hits, hits + misses) if whole else (hits / 3, (hits + misses) / 3)
    likelihood, K = no_likelihood(), np.exp(LOG_FACTORS) / spread
    add_likelihood(likelihood, 0.1, mean, spread, float(n), float(y))
    expected = betaln(K * mean + y, K * (1 - mean) + n - y) - betaln(K * mean, K * (1 - mean))
    np.testing.assert_allclose(log_likelihood(likelihood), expected, rtol=1e-8, atol=1e-6)


def test_one_screening_says_nothing() -> None:
    likelihood = no_likelihood()
    add_likelihood(likelihood, 0.1, 0.2, 0.5, 1.0, 1.0)
    log = log_likelihood(likelihood)
    np.testing.assert_allclose(log, log[0], atol=1e-12)


def test_the_likelihood_of_many_edges_is_the_sum_of_theirs_however_small_that_is() -> None:
    rng, together, one_by_one = np.random.default_rng(3), no_likelihood(), np.zeros(len(LOG_FACTORS))
    for mean, spread, y in zip(
        rng.random(3000), rng.uniform(0.02, 5.0, 3000), rng.integers(0, 17, 3000), strict=True
    ):
        alone = no_likelihood()
        for likelihood in (together, alone):
            add_likelihood(likelihood, 0.1, mean, spread, 16.0, float(y))
        one_by_one += log_likelihood(alone)
    assert one_by_one.max() < -10_000.0  # whose exponential is no number
    np.testing.assert_allclose(log_likelihood(together), one_by_one, rtol=1e-12)


@pytest.mark.parametrize("octaves", [-1.0, 0.0, 1.0])
def test_it_finds_the_concentration_that_edges_were_drawn_with(octaves: float) -> None:
    """400 edges of 12 screenings, their rates about 0.1 with a concentration of 3 c."""
    rng, likelihood = np.random.default_rng(2), no_likelihood()
    K = 3.0 * 2.0**octaves
    for y in rng.binomial(12, rng.beta(0.1 * K, 0.9 * K, 400)).tolist():
        add_likelihood(likelihood, 0.1, 0.1, 1 / 3, 12.0, float(y))
    mean, variance = learned_concentration(log_likelihood(likelihood))
    assert 0.0 < variance < (0.3 * LOG_FACTOR_SD) ** 2
    assert abs(mean - octaves * LOG_FACTOR_SD) < 3.3 * np.sqrt(variance)


def test_from_many_edges_it_is_learned_now_and_then_and_at_rest() -> None:
    edges = LEARNED_AT_ONCE + 40
    items = [item(f"{e}-{k}", f"p{e:03}", f"p{e + 1:03}") for e in range(edges) for k in range(3)]
    said = [
        verdict(number, f"{e}-{k}", Outcome.RELEVANT if (e + k) % 5 == 0 else Outcome.IRRELEVANT)
        for number, (k, e) in enumerate(product(range(2), range(edges)))
    ]
    opened = Query("q", prior=DEFAULT_PRIORS["rates"])
    state = fold([opened, *items, *said[: edges + 20]])
    query = state.queries["q"]
    query.ranking()
    for event in said[edges + 20 :]:
        step(state, event)
        before = query.engine.readings.concentration()
        query.ranking()
        if query.engine.readings.concentration() == before:
            break
    assert query.engine.waiting
    query.finish()
    assert not query.engine.waiting
    known = fold([opened, *items, *query.verdicts.values()]).queries["q"]
    known.finish()
    learned = query.engine.readings.concentration()
    assert learned != before
    assert learned == pytest.approx(known.engine.readings.concentration(), abs=1e-6)
    slopes = (each.engine.readings.concentration_slope() for each in (query, known))
    assert next(slopes) == pytest.approx(next(slopes), rel=1e-5)


def test_at_rest_it_is_learned_from_the_posterior_that_holds_whatever_moved_that() -> None:
    pairs = LEARNED_AT_ONCE + 40
    items = [item(f"{e}-{k}", f"p{e:03}", f"p{e + 1:03}") for e in range(pairs) for k in range(3)]
    later = [item(f"later-{e}-{k}", f"p{e:03}", f"p{e + 1:03}") for e in range(pairs) for k in range(9)]
    said = [
        verdict(number, f"{e}-{k}", Outcome.RELEVANT if e % 5 == 0 else Outcome.IRRELEVANT)
        for number, (k, e) in enumerate(product(range(2), range(pairs)))
    ]
    opened = Query("q", prior=DEFAULT_PRIORS["rates"])
    listed = replace(opened, prior=replace(opened.prior, participants={"p007": 0.6}))
    state = fold([opened, *items, *said])
    query = state.queries["q"]
    query.finish()
    assert not query.engine.waiting
    for event in (*later, listed):
        step(state, event)
    query.finish()
    known = fold([listed, *items, *later, *said]).queries["q"]
    known.finish()
    for read in (lambda readings: readings.concentration(), lambda readings: readings.concentration_slope()):
        ours, theirs = (read(each.engine.readings) for each in (query, known))
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-6)
    assert not query.engine.waiting


def test_with_items_handed_out_there_is_an_end_to_learning() -> None:
    pairs = LEARNED_AT_ONCE + 40
    state = fold(
        [
            Query("q", prior=DEFAULT_PRIORS["rates"]),
            *(item(f"{e}-{k}", f"p{e:03}", f"p{e + 1:03}") for e in range(pairs) for k in range(2)),
            *(verdict(e, f"{e}-0", Outcome.IRRELEVANT) for e in range(pairs)),
        ]
    )
    query = state.queries["q"]
    query.hold("3-1")
    for _ in range(3):
        query.ranking()
        for _ in range(100):
            if not query.tend(1000):
                break
        assert not query.tend(1000)
