"""Expected remaining: rows of the experiment, and its sd where all that the model supposes is true."""

import json

import numpy as np
import pytest
from support.data import DATA

from haystream.engines.reference import ReferenceEngine
from haystream.events import Item, Policy
from haystream.models import DEFAULT_PRIORS
from haystream_service.experiments import calibration, enron
from haystream_service.experiments.calibration import DRAWN, Reading, Rival
from haystream_service.study.models.bayes_linear import BayesLinear
from haystream_service.study.network import network
from haystream_service.study.search import search

pytest.importorskip("matplotlib", reason="needs the extra bench")

RUNS = 30


@pytest.fixture(scope="module")
def drawn():
    size = calibration.Size(runs=RUNS, screened=(30, 150), grounds=(DRAWN,), edges=84)
    return calibration.run(size=size, seed=1)["results"]


@pytest.mark.slow
def test_the_sd_is_complete_where_the_model_is_true(drawn):
    """Errors over the sd given have a mean square of 1: over 30 draws, 0.39 to 2.0 in 999 of 1,000 tries (χ²)."""
    assert {row["policy"] for row in drawn} == {"look-ahead-by-set", "look-ahead", "greedy", "random"}
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
    assert len(made["results"]) == (4 + 6) * 2


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
        Rival("rates", policy) for policy in ("look-ahead-by-set", "look-ahead", "greedy", "random")
    }


def test_items_with_many_recipients_are_read():
    """An item of k recipients is one item that remains, its chance the mean of its k edges'."""
    rng = np.random.default_rng(7)
    people = [f"p{k}" for k in range(9)]
    parties = [rng.permutation(people).tolist()[: 2 + k % 4] for k in range(40)]
    items = (Item(str(k), "study", on[0], tuple(sorted(on[1:]))) for k, on in enumerate(parties))
    searched = network("many", items, lambda item_id: int(item_id) % 5 == 0)
    prior = DEFAULT_PRIORS["rates"]
    chosen = search(searched, BayesLinear(searched, prior), Policy("look-ahead"), steps=10, seed=1)
    (reading,) = calibration.readings(searched, prior, chosen, (10,))

    engine = ReferenceEngine(searched.collection.graph, prior)
    for item in chosen.item.tolist():
        on = searched.edges_of(item)
        for edge in on:
            engine.record(edge, screened=1 / len(on), relevant=searched.relevant[item] / len(on))
    engine.settle()
    mean, _ = engine.readings.edges(np.arange(searched.edges, dtype=np.int32))
    left = np.setdiff1d(np.arange(40), chosen.item)
    assert reading.truth == searched.relevant[left].sum()
    expected = sum(mean[list(searched.edges_of(item))].mean() for item in left)
    assert reading.plain_mean == pytest.approx(expected, rel=1e-3)


def test_every_enron_network_is_a_ground():
    folder = DATA / "enron"
    if not folder.is_dir():
        pytest.skip(f"no {folder}: set HAYSTREAM_DATA to the folder with the data")
    assert {f"enron/{path.name}" for path in folder.glob("*.csv.gz")} == set(enron.FILES.values())
    assert set(calibration.FULL.grounds) >= enron.FILES.keys()
