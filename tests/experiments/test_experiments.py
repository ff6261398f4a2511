"""The experiments finish, say what the contract asks for, and depend on their seed alone."""

import json
import sys

import numpy as np
import pytest
from support.data import DATA

from haystream.engines.reference import ReferenceEngine
from haystream_service import cli
from haystream_service.errors import UserError
from haystream_service.experiments import calibration, caveman, enron, lemmas, summary, tanzania, terrorists
from haystream_service.experiments.names import Experiment
from haystream_service.experiments.searches import Rival, traces
from haystream_service.sources import synthetic
from haystream_service.study.models.junction_tree import JunctionTree

pytest.importorskip("matplotlib", reason="needs the extra bench")

SMALL_TANZANIA = tanzania.Size(sets=2, checkpoints=(5, 20), runs=2, steps=20, densities=("sparse",))
SMALL_CAVEMAN = caveman.Size(rhos=(0.5, 0.9), runs=2, steps=20, edges=60)
SMALL_ENRON = enron.Size(runs=2, steps=20, networks=(enron.SMALL, enron.DETAILED), p11=(0.0, 0.13))

SMALL_CALIBRATION = calibration.Size(
    runs=2,
    screened=(5, 20),
    grounds=(enron.DETAILED, enron.LARGE, calibration.CAVEMAN, calibration.DRAWN),
    edges=60,
)


@pytest.fixture
def data(monkeypatch):
    if not DATA.is_dir():
        pytest.skip(f"no {DATA}: set HAYSTREAM_DATA to the folder with the data")
    monkeypatch.setenv("HAYSTREAM_DATA", str(DATA))


@pytest.fixture
def small(monkeypatch, data):
    """--quick, in seconds."""
    monkeypatch.setattr(tanzania, "QUICK", SMALL_TANZANIA)
    monkeypatch.setattr(caveman, "QUICK", SMALL_CAVEMAN)
    monkeypatch.setattr(enron, "QUICK", SMALL_ENRON)
    monkeypatch.setattr(calibration, "QUICK", SMALL_CALIBRATION)


def command(monkeypatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["haystream", "experiments", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    return left.value.code  # type: ignore[return-value]


FIGURES = {
    Experiment.LINE: {"line-mixed", "line-all-relevant"},
    Experiment.TANZANIA: {
        *("tanzania-networks", "tanzania-decisions"),
        *("tanzania-differences-sparse-1", "tanzania-differences-sparse-2"),
    },
    Experiment.CAVEMAN: {"caveman-networks", "caveman-one", "caveman-many"},
    Experiment.ENRON: {"enron-totals", "enron-small", "enron-details"},
    Experiment.CALIBRATION: {"calibration"},
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("which", Experiment)
def test_the_command_writes_its_numbers_and_figures(which, monkeypatch, capfdbinary, tmp_path):
    code = command(monkeypatch, which, "--out", tmp_path / "new", "--quick", "--json", "--processes", 1)
    out, err = capfdbinary.readouterr()
    assert code == 0, err.decode()
    result = json.loads(out)
    assert result == json.loads((tmp_path / "new" / f"{which}.json").read_bytes())
    assert (result["experiment"], result["quick"]) == (which, True)
    assert {path.stem for path in (tmp_path / "new").glob("*.png")} == FIGURES[which]
    assert all(path.stat().st_size < 100_000 for path in (tmp_path / "new").glob("*.png"))


@pytest.mark.usefixtures("small")
def test_without_json_it_prints_tables(monkeypatch, capfd, tmp_path):
    assert command(monkeypatch, "tanzania", "--out", tmp_path, "--quick", "--processes", 1) == 0
    assert "field less Bayes linear after 20 observations" in capfd.readouterr().out


@pytest.mark.usefixtures("small")
def test_enrons_tables_have_the_networks_and_single_searches(monkeypatch, capfd, tmp_path):
    assert command(monkeypatch, "enron", "--out", tmp_path, "--quick", "--processes", 1) == 0
    out = capfd.readouterr().out
    assert "what random order finds of it in 20 screenings" in out
    assert "screenings of the best edges of 642/731" in out
    assert "0 of 2" in out  # no search by Bayes linear screened more of them than itself


def test_missing_data_are_said(monkeypatch, capfd, tmp_path):
    monkeypatch.setenv("HAYSTREAM_DATA", str(tmp_path / "nothing"))
    terrorists.world.cache_clear()
    enron.load.cache_clear()
    for which in ("tanzania", "enron", "calibration"):
        assert command(monkeypatch, which, "--out", tmp_path, "--quick", "--processes", 1) == 2
        assert "set HAYSTREAM_DATA" in capfd.readouterr().err


def test_a_folder_that_cannot_be_made_is_said(monkeypatch, capfd, tmp_path):
    (tmp_path / "file").touch()
    assert command(monkeypatch, "line", "--out", tmp_path / "file" / "below") == 2
    assert "cannot make" in capfd.readouterr().err


def test_results_depend_on_the_seed_and_not_on_the_processes():
    size = caveman.Size(rhos=(0.8,), runs=2, steps=15, edges=60)
    alone = caveman.run(size=size, seed=3, processes=1)
    assert json.dumps(caveman.run(size=size, seed=3, processes=2)) == json.dumps(alone)
    assert json.dumps(caveman.run(size=size, seed=4, processes=1)) != json.dumps(alone)


@pytest.mark.usefixtures("data")
def test_tanzanias_rows():
    result = tanzania.run(size=SMALL_TANZANIA, seed=1)
    assert json.dumps(tanzania.run(size=SMALL_TANZANIA, seed=1)) == json.dumps(result)
    assert [(n["conditional"], len(n["participants"]), sum(n["relevant"])) for n in result["networks"]] == [
        (1, 36, 18),
        (2, 36, 18),
    ]
    assert len(result["accuracy"]) == 2 * 4 * 2  # conditionals, quantities, checkpoints
    for row in result["accuracy"]:
        assert row["quantiles"] == sorted(row["quantiles"])
        assert 0 <= row["near"] <= 1
    assert len(result["decisions"]) == 2 * 3 * 2  # conditionals, policies, models
    for row in result["decisions"]:
        assert row["curve"][-1] == pytest.approx(row["found"]["mean"])
        assert len(row["curve"]) == 20


@pytest.mark.usefixtures("data")
def test_enrons_rows():
    result = enron.run(size=SMALL_ENRON, seed=1)
    by_network = {made["network"]: made for made in result["networks"]}
    small = by_network["253/271"]
    assert (small["items"], small["relevant"]) == (4369, 255)
    assert small["good_items"]["95"] < small["good_items"]["90"] < small["items"] / 4
    assert small["field"]["hubs"] < 1e-4 < small["field"]["mean"] < 0.25  # hubs are thought irrelevant
    models = {(row["network"], row["model"], row["p11"]) for row in result["results"]}
    assert ("253/271", "mrf", 0.0) in models
    assert ("642/731", "mrf", 0.0) not in models
    for row in result["results"]:
        assert 0 <= row["found"]["mean"] <= 20
        assert row["edge_changes"]["mean"] <= 19
        assert row["good"]["95"]["mean"] <= row["good"]["90"]["mean"]
        if row["model"] == "relevance":
            assert row["less_than_relevance"] == {"mean": 0.0, "se": 0.0}
    assert {len(made["realisations"]) for made in result["details"]["models"].values()} == {2}


@pytest.mark.usefixtures("data")
def test_the_lemma_engine_is_the_reference_engine():
    made = terrorists.world("sparse", 2, 0)
    rng = np.random.default_rng(0)
    network = made.network(np.ones(len(made.pairs), dtype=np.int64), rng)
    prior, moments = terrorists.linear_prior("sparse", 2, 0)
    model, reference = lemmas.LemmaModel(network, prior, moments), ReferenceEngine(network.collection.graph, prior)
    edges = np.arange(network.edges, dtype=np.int32)
    for batch in range(2):
        for edge in rng.integers(network.edges, size=15).tolist():
            relevant = bool(rng.random() < made.rates[edge])
            model.observe((edge,), relevant)
            reference.record(edge, screened=1.0, relevant=float(relevant))
        reference.settle()
        np.testing.assert_allclose(model.posteriors(), reference.edges(edges), atol=1e-10, err_msg=str(batch))


@pytest.mark.usefixtures("data")
def test_the_terrorists_network():
    sparse, dense = terrorists.bombers("sparse"), terrorists.bombers("dense")
    assert (len(sparse), len(dense)) == (36, 82)
    assert {name for pair in sparse for name in pair} == {name for pair in dense for name in pair}
    made = terrorists.world("sparse", 1, 0)
    irrelevant = np.flatnonzero(~made.relevant)
    assert all((made.pairs == u).any() for u in irrelevant)
    assert len(made.pairs) == 36 + 2 * 18


def test_morans_i_by_hand():
    """On the path 0 - 1 - 2 - 3 with values 1 1 0 0: I = 4/3 · (¼ − ¼ + ¼) / 1."""
    path = [(0, 1), (1, 2), (2, 3)]
    assert caveman.morans_i(path, np.array([1.0, 1.0, 0.0, 0.0])) == pytest.approx(1 / 3)
    assert caveman.morans_i(path, np.array([1.0, 0.0, 1.0, 0.0])) == pytest.approx(-1.0)
    assert np.isnan(caveman.morans_i(path, np.ones(4)))


def test_infection_makes_neighbours_alike():
    """Moran's I of the participants: near what no correlation gives at 0.5, well above it at 0.9."""
    values = {
        rho: [caveman.moran(synthetic(seed=seed, edges=112, rho=rho))[0] for seed in range(60)]
        for rho in (0.5, 0.9)
    }
    means = {rho: summary.mean_se([v for v in each if np.isfinite(v)]) for rho, each in values.items()}
    assert abs(means[0.5]["mean"] + 1 / 31) < 4 * means[0.5]["se"]
    assert means[0.9]["mean"] > 4 * means[0.9]["se"]


def test_items_on_a_network_have_its_rates():
    source = synthetic(seed=2, edges=60, rho=0.8)
    network = caveman.items_on(source, np.random.default_rng(1))
    rates = dict(zip(source.pairs, caveman.true_rates(source), strict=True))
    for edge in range(network.edges):
        rate, n = rates[network.collection.graph.names(edge)], network.items_on[edge]
        assert abs(network.rates[edge] - rate) <= 5 * np.sqrt(rate * (1 - rate) / n)


def test_mean_and_standard_error():
    assert summary.mean_se([1.0, 3.0]) == {"mean": 2.0, "se": 1.0}
    assert summary.mean_se([4.0]) == {"mean": 4.0, "se": 0.0}
    assert summary.paired([2.0, 5.0], [1.0, 2.0]) == {"mean": 2.0, "se": 1.0}


def test_good_edges_are_counted_screening_by_screening():
    source = synthetic(seed=2, edges=60, rho=0.8)
    network = caveman.items_on(source, np.random.default_rng(1))
    rival = Rival("relevance", "greedy")
    trace = traces(network, [rival], steps=40, seed=1)[rival]
    again = traces(network, [rival], steps=40, seed=1)[rival]
    assert (trace.found == again.found).all()
    assert (np.diff(trace.good[1]) >= np.diff(trace.good[0])).all()  # a top-5 % edge is a top-10 % edge
    assert (np.diff(trace.found, prepend=0) <= 1).all()


def test_the_field_is_refused_where_exact_inference_is_out_of_reach():
    grid = [(30 * i + j, 30 * i + j + 1) for i in range(30) for j in range(29)]
    grid += [(30 * i + j, 30 * i + j + 30) for i in range(29) for j in range(60)]
    with pytest.raises(UserError, match="out of reach"):
        JunctionTree(900, np.array(grid))
