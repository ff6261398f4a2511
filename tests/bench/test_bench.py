"""The benchmarks run and say what the contract asks for. How long things took is nobody's business here."""

import json
import sys
from typing import Any

import numpy as np
import pytest
from support.compiled import callable_here
from support.data import DATA

from haystream.engines.local.solves.sides import MEAN
from haystream.events import Conditional, Outcome, Prior, Query
from haystream.fold import State, step
from haystream.memory.overlay import add_to, add_to_cell
from haystream.models.ranges import check_ranges
from haystream.models.settings import MODEL_SETTINGS
from haystream_service import cli
from haystream_service.bench import audit, baselines, chart, graphs, report
from haystream_service.bench.baselines import Counts, Row
from haystream_service.bench.engine import Measured
from haystream_service.bench.names import GraphName
from haystream_service.bench.samples import FEWEST, Samples, Timing, within
from haystream_service.bench.search import Arrivals, Search
from haystream_service.errors import UserError

OPERATIONS = {
    *("verdict", "posterior", "top-50", "drain", "idle", "changed-verdict", "new-item", "new-edge"),
    *(f"verdict-{policy}" for policy in ("look-ahead-by-set", "look-ahead", "bayes-ucb", "thompson")),
    "cold-start",
}


def run(*arguments: object, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["haystream", "bench", "engine", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    return left.value.code  # type: ignore[return-value]


@pytest.fixture
def nothing_real(monkeypatch, tmp_path):
    """No data: the simulated stand-ins are used."""
    monkeypatch.setenv("HAYSTREAM_DATA", str(tmp_path))


@pytest.fixture(scope="module")
def small() -> State:
    state = State()
    for item in graphs.items(GraphName.PREFERENTIAL, edges=60, items_per_edge=5, seed=1):
        step(state, item)
    step(state, Query("q"))
    return state


@pytest.mark.usefixtures("nothing_real")
@pytest.mark.slow
def test_the_command_prints_one_object_of_the_contracts_shape(monkeypatch, capfdbinary, tmp_path):
    code = run(
        *("--edges", 200, "--edges", 100, "--items-per-edge", 6, "--seconds", 0, "--json"),
        *("--png", tmp_path / "cost.png"),
        monkeypatch=monkeypatch,
    )
    out, err = capfdbinary.readouterr()
    assert code == 0, err.decode()
    result = json.loads(out)
    assert result["failed"] == []

    for edges in (100, 200):
        rows = {row["operation"]: row for row in result["results"] if row["edges"] == edges}
        assert set(rows) == OPERATIONS
        for row in rows.values():
            assert row["graph"] == "preferential"
            assert 0 < row["p50_us"] <= row["p99_us"]
            assert row["samples"] >= (1 if row["operation"] == "cold-start" else FEWEST)
            assert row["ratio_to_edges"] == 100
    assert all(row["ratio_to"] == 1.0 for row in result["results"] if row["edges"] == 100)

    seen = {(row["baseline"], row["edges"]) for row in result["baselines"]}
    assert {("paper-batch", 1836), ("reference", 1836), *(("scipy-cg", e) for e in (100, 200, 1836))} <= seen
    for row in result["baselines"]:
        assert row["operation"] == "verdict"
        if row["max_difference"] is not None:  # the work was the same work
            assert row["max_difference"] < 1e-4
    assert [size["items"] for size in result["memory"]] == [600, 1200]
    assert {target["met"] for target in result["targets"]} <= {True, False, None}
    assert (tmp_path / "cost.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("nothing_real")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--graph", "web-notredame"), "set HAYSTREAM_DATA to a folder that has it (docs/data.md)"),
        (("--graph", "threads-math-sx"), "set HAYSTREAM_DATA"),
        (("--graph", "small-world"), "small-world"),
        (("--edges", "0"), "--edges"),
    ],
)
def test_wrong_use_is_said_in_words(monkeypatch, capfdbinary, arguments, said):
    assert run(*arguments, monkeypatch=monkeypatch) == 2
    out, err = capfdbinary.readouterr()
    assert out == b""
    assert said in err.decode()
    assert "Traceback" not in err.decode()


def test_the_table_names_every_target(monkeypatch, capsys):
    size = Measured(
        edges=1_000_000,
        participants=200_000,
        items=5_000_000,
        operations={name: Timing(2e3, 3e3, 20) for name in OPERATIONS},
        first_start_s={"items": 1.0},
        cold_start_s={"items": 1.0},
        changed_bytes=100.0,
        changed_edges=3.0,
        peak_bytes=5 << 30,
        idle_bytes=0,
        baselines=[Row("scipy-cg", "", "preferential", 1_000_000, 200_000, None, 0, 10, None, "no time")],
    )
    monkeypatch.setattr(
        "haystream_service.commands.bench_engine.alone", lambda work: None if "network" in str(work) else size
    )
    assert run("--edges", 1_000_000, monkeypatch=monkeypatch) == 0
    out = capsys.readouterr().out
    assert "scipy-cg was skipped: no time" in out
    assert [target.met for target in report.targets([size], None)] == [False, None, None, True, None, False, None]


@pytest.mark.parametrize("named", [None, "", "nowhere"])
def test_data_are_looked_for_where_the_user_says_alone(monkeypatch, tmp_path, named):
    (tmp_path / "clone").mkdir()
    (tmp_path / "shared" / "data").mkdir(parents=True)
    (tmp_path / "shared" / "data" / "mails.csv").touch()
    monkeypatch.chdir(tmp_path / "clone")
    monkeypatch.delenv("HAYSTREAM_DATA", raising=False)
    if named is not None:
        monkeypatch.setenv("HAYSTREAM_DATA", named)
    assert graphs.find_data("mails.csv") is None
    with pytest.raises(UserError, match=r"it needs mails\.csv: set HAYSTREAM_DATA .*docs/data\.md"):
        graphs.data_path("mails.csv", "it")
    monkeypatch.setenv("HAYSTREAM_DATA", str(tmp_path / "shared" / "data"))
    assert graphs.data_path("mails.csv", "it") == tmp_path / "shared" / "data" / "mails.csv"


def test_a_preferential_graph_has_hubs_and_no_loops():
    pairs = graphs.preferential(20_000, np.random.default_rng(0))
    assert len(pairs) == len(graphs.distinct(pairs)) == 20_000
    assert (pairs[:, 0] < pairs[:, 1]).all()
    degree = np.bincount(pairs.ravel())
    assert len(degree) == pytest.approx(4000, rel=0.1)
    assert degree.max() > 20 * degree.mean()


def test_threads_lie_on_all_pairs():
    first, second = graphs.threads(np.array([3, 1, 2]), np.array([7, 5, 6, 5, 6, 5]))
    assert first.pairs() == (("p5", "p6"), ("p5", "p7"), ("p6", "p7"))
    assert second.pairs() == (("p5", "p6"),)
    assert first.item_id != second.item_id


@pytest.mark.parametrize("graph", [GraphName.THREADS, GraphName.WEB])
def test_real_graphs_are_read(graph, monkeypatch):
    if not (DATA / graphs.FILES[graph][0]).is_file():
        pytest.skip(f"no {DATA}: set HAYSTREAM_DATA to the folder with the data")
    monkeypatch.setenv("HAYSTREAM_DATA", str(DATA))
    state = State()
    for item in graphs.items(graph, edges=500, items_per_edge=2, seed=0):
        step(state, item)
        if state.collection("default").graph.edges >= 500:
            break
    assert state.collection("default").graph.edges >= 500


def test_an_analyst_concentrates_changes_and_never_repeats(small):
    query = small.queries["q"]
    search = Search("q", query.collection, np.random.default_rng(0))
    for _ in range(40):
        verdict = search.verdict(query.ranking().items)
        assert verdict.outcome in (Outcome.RELEVANT, Outcome.IRRELEVANT)
        step(small, verdict)
    assert len(set(search.screened)) == 40
    for _ in range(20):
        before = dict(search.judged)
        changed = search.change()
        assert before[changed.item_id] != changed.outcome
        step(small, changed)
    assert query.screened == sum(outcome != Outcome.RETRACTED for outcome in search.judged.values())


def test_arrivals_are_what_they_say(small):
    graph = small.collection("default").graph
    arrivals = Arrivals(small.collection("default"), np.random.default_rng(0))
    for arrive, more in ((arrivals.on_known_edge, 0), (arrivals.on_new_edge, 1)):
        for _ in range(30):
            before = graph.edges
            step(small, arrive())
            assert graph.edges == before + more


@pytest.mark.parametrize("graph", ["preferential", "threads"])
def test_every_baseline_does_the_same_work(graph):
    state = State()
    rng = np.random.default_rng(5)
    if graph == "preferential":
        stream = graphs.items(GraphName.PREFERENTIAL, edges=80, items_per_edge=4, seed=2)
    else:
        sizes = rng.integers(2, 5, size=60)
        members = np.concatenate([rng.choice(40, size, replace=False) for size in sizes])
        stream = graphs.threads(sizes, members)
    for item in stream:
        step(state, item)
    step(state, Query("q"))
    query = state.queries["q"]
    query.settle()
    before, search = Counts.of(query), Search("q", query.collection, rng)
    for _ in range(30):
        step(state, search.verdict(query.ranking().items))
    query.settle()
    rows = baselines.on_graph(query, before, search.screenings, 5, graph=graph, tolerance=state.tolerance)
    assert {row.baseline for row in rows} >= {"scipy-cg"}
    for row in rows:
        assert row.skipped is None
        assert row.verdicts == 30
        assert row.max_difference < 1e-4


def test_a_missing_library_is_a_reason_not_an_error(monkeypatch, small):
    monkeypatch.setitem(sys.modules, "bayesianbandits", None)
    query = small.queries["q"]
    query.settle()
    search = Search("q", query.collection, np.random.default_rng(0))
    search.verdict(())
    rows = baselines.on_graph(query, Counts.of(query), search.screenings, 0, graph="g", tolerance=1e-5)
    assert "pip install 'haystream[bench]'" in rows[1].skipped


def test_a_missing_pen_is_said_before_anything_is_measured(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"pip install 'haystream\[bench\]'"):
        chart.check()


def test_a_budget_is_kept_but_for_the_fewest():
    assert list(within(0.0, most=5)) == list(range(5))
    assert list(within(0.0, most=1000)) == list(range(FEWEST))
    assert list(within(1e9, most=30)) == list(range(30))


def test_percentiles_are_in_microseconds():
    samples = Samples()
    for seconds in (1e-6, 2e-6, 3e-6):
        samples.add("op", seconds)
    assert samples.timings()["op"] == Timing(2.0, pytest.approx(2.98), 3)


def test_the_audit_finds_the_engine_exact_and_would_find_it_out(monkeypatch, capfdbinary):
    argv = ["haystream", "bench", "audit", "--edges", "200", "--verdicts", "60", "--sampled", "20", "--json"]
    monkeypatch.setattr(sys, "argv", argv)
    with pytest.raises(SystemExit) as left:
        cli.main()
    out, err = capfdbinary.readouterr()
    assert left.value.code == 0, err.decode()
    result = json.loads(out)
    assert result["verdicts"] == 60
    assert result["sampled"] == 20
    errors = {name: value for name, value in result["at_rest"].items() if name != "drift"}
    assert 0.0 < max(errors.values()) < 1e-4


def test_the_search_over_ranges_says_where_means_are_furthest_off(monkeypatch, capfdbinary):
    def found(*arguments: object) -> list[dict[str, Any]]:
        monkeypatch.setattr(sys, "argv", ["haystream", "bench", "ranges", "--json", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        out, err = capfdbinary.readouterr()
        assert left.value.code == 0, err.decode()
        return json.loads(out)["results"]

    rows = found("--histories", 2)
    assert [row["model"] for row in rows] == ["rates", "relevance"]
    for row in rows:
        assert 0.0 < max(row["participant_error"], row["pair_error"]) < 1e-4
        check_ranges(prior_of(row["worst"]), MODEL_SETTINGS[row["model"]].ranges)
        again = found("--histories", 1, "--first", row["participant_history"])
        assert row["participant_error"] in [other["participant_error"] for other in again]
    looser = found("--histories", 2, "--tolerance", 0.01)
    for row, other in zip(rows, looser, strict=True):
        assert other["participant_error"] > 10 * row["participant_error"]


def prior_of(history: dict[str, Any]) -> Prior:
    said = dict(history["prior"])
    if "conditional" in said:
        said["conditional"] = Conditional(**{name: tuple(four) for name, four in said["conditional"].items()})
    return Prior(**said)


def test_items_of_many_people_are_measured_with_their_pairs(monkeypatch, capfdbinary):
    argv = ["haystream", "bench", "recipients", "--edges", "10000", "--items", "1", "--json"]
    monkeypatch.setattr(sys, "argv", argv)
    with pytest.raises(SystemExit) as left:
        cli.main()
    out, err = capfdbinary.readouterr()
    assert left.value.code == 0, err.decode()
    rows = json.loads(out)["results"]
    assert [(row["kind"], row["people"], row["pairs"]) for row in rows[-2:]] == [
        ("among", 21, 210),
        ("among", 64, 2016),
    ]
    assert rows[0]["ratio_to_pair"] == 1.0
    for row in rows:
        assert 0.0 < row["posterior_p50_ms"] < row["verdict_p50_ms"]
        assert min(row["claim_beside_p50_ms"], row["verdict_beside_p50_ms"]) > 0.0
        assert row["ratio_by_edge"] == pytest.approx(row["by_edge_p50_ms"] / row["posterior_p50_ms"])


def test_the_audit_sees_an_error(small: State) -> None:
    query = small.queries["q"]
    query.finish()
    sample = np.arange(10)
    before = audit.errors(query, sample)
    state = query.engine._columns.state
    add_to_mean, add_to_variance = callable_here(add_to_cell), callable_here(add_to)
    add_to_mean(state.people.x, 3, MEAN, 0.01)
    add_to_variance(state.inverse.on_participant, 3, 0.01)
    after = audit.errors(query, sample)
    add_to_mean(state.people.x, 3, MEAN, -0.01)
    add_to_variance(state.inverse.on_participant, 3, -0.01)
    assert after.mean > before.mean + 1e-4
    assert after.variance > before.variance + 1e-5
