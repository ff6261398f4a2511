"""Expected remaining: rows of the experiment, and its sd where all that the model supposes is true."""

import json

import numpy as np
import pytest

from haystream_service.experiments import calibration
from haystream_service.experiments.calibration import DRAWN, Reading, Rival

pytest.importorskip("matplotlib", reason="needs the extra bench")

RUNS = 30


@pytest.fixture(scope="module")
def drawn():
    size = calibration.Size(runs=RUNS, screened=(30, 150), grounds=(DRAWN,), edges=84)
    return calibration.run(size=size, seed=1)["results"]


def test_the_sd_is_complete_where_the_model_is_true(drawn):
    """Errors over the sd given have a mean square of 1: over 30 draws, 0.39 to 2.0 in 999 of 1,000 tries (χ²)."""
    assert {row["policy"] for row in drawn} == {"look-ahead", "greedy", "random"}
    for row in drawn:
        errors = [(r["plain_mean"] - r["truth"]) / r["plain_sd"] for r in row["readings"]]
        assert 0.39 < np.mean(np.square(errors)) < 2.0, row
        assert abs(np.mean(errors)) < 3.3 / np.sqrt(RUNS), row
        assert row["covered"] >= 0.8, row  # of 30 at 95 %: fewer than 24 in one of 1,000 tries


def test_results_depend_on_the_seed_and_not_on_those_before():
    size = calibration.Size(runs=2, screened=(5, 20), grounds=(DRAWN, calibration.CAVEMAN), edges=60)
    made = calibration.run(size=size, seed=3)
    assert json.dumps(calibration.run(size=size, seed=3)) == json.dumps(made)
    assert json.dumps(calibration.run(size=size, seed=4)) != json.dumps(made)
    assert len(made["results"]) == (3 + 5) * 2


def test_a_row_by_hand():
    row = calibration.row(
        [
            Reading(10.0, 2.0, 14, 9.0, 2.5, 0.5),
            Reading(10.0, 2.0, 15, 9.0, 1.0, 0.5),
            Reading(20.0, 2.0, 15, 13.0, 1.0, 0.5),
        ]
    )
    assert (row["covered"], row["above"], row["below"]) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert row["plain"]["covered"] == pytest.approx(2 / 3)
    assert row["plain"]["ratio"] == pytest.approx(31 / 44)
    assert row["ratio"] == pytest.approx(40 / 44)
    assert row["bias"]["mean"] == pytest.approx(-4 / 3)
    assert row["error"] == pytest.approx(np.sqrt((16 + 25 + 25) / 3))
    assert calibration.row([Reading(1.0, 1.0, 0, 1.0, 1.0, 0.0)])["ratio"] is None


def test_rates_are_drawn_with_the_moments_that_the_model_has():
    case = calibration.Case(DRAWN, 0, 0)
    made = calibration.ground(case, 60)
    prior = calibration.DRAWN_PRIOR
    rng = np.random.default_rng(5)
    P = np.array([calibration.draw_rates(made, prior, rng) for _ in range(2000)])
    scale = prior.mean * (1 - prior.mean)
    lowest, highest = 1 / 30 + 1 / 60 + 1 / 30, 1 / 30 + 1 / 30 + 1 / 30  # of x_u and x_v: correlated by 0 … 1
    assert abs(P.mean() - prior.mean) < 0.01
    assert 0.95 * lowest < P.var(axis=0).mean() / scale < highest
    assert calibration.repeat(case, size=calibration.Size(1, (3,), (DRAWN,), 60)).keys() == {
        Rival("rates", policy) for policy in ("look-ahead", "greedy", "random")
    }
