"""`bench queries` runs and says what it is to say. How long things took is nobody's business here."""

import json
import sys
from dataclasses import asdict, replace
from unittest import mock

import numpy as np
import pytest

from haystream.events import Query
from haystream.fold import State, step
from haystream_service import cli
from haystream_service.bench import graphs, queries, queries_report
from haystream_service.bench.names import GraphName
from haystream_service.bench.queries import Following, Job, Measured, Row, measure
from haystream_service.bench.search import Search


def job(**changes: object) -> Job:
    settings = {
        "graph": GraphName.PREFERENTIAL,
        "edges": 120,
        "items_per_edge": 4,
        "queries": (1, 3),
        "verdicts": 60,
        "following": Following.RANKING,
        "seconds": 0.0,
        "memory": 64 << 30,
        "seed": 0,
        "tolerance": 2e-5,
    }
    return Job(**{**settings, **changes})  # type: ignore[arg-type]


def row(**changes: object) -> Row:
    fields = dict.fromkeys(Row.__dataclass_fields__, 1.0) | {"graph": "preferential", "edges": 1_000_000}
    return Row(**(fields | {"following": "random items", "queries": 1} | changes))  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_command_prints_one_object_with_a_row_for_each_number_of_queries(monkeypatch, capfdbinary, tmp_path):
    arguments = ("--edges", 120, "--items-per-edge", 4, "--queries", 3, "--queries", 1, "--verdicts", 60)
    options = ("--seconds", 0, "--memory", 64, "--png", tmp_path / "queries.png", "--json")
    monkeypatch.setattr(sys, "argv", ["haystream", "bench", "queries", *map(str, (*arguments, *options))])
    with pytest.raises(SystemExit) as left:
        cli.main()
    out, err = capfdbinary.readouterr()
    assert left.value.code == 0, err.decode()
    result = json.loads(out)
    rows = [(row["edges"], row["following"], row["queries"]) for row in result["results"]]
    assert rows == [(120, following, queries) for following in Following for queries in (1, 3)]
    for found in result["results"]:
        times = [value for key, value in found.items() if key.endswith("_ms")]
        assert len(times) == 14
        assert min(value for value in times if value is not None) >= 0
        assert 0 <= found["new_item_concerns"] <= 1
    assert result["collections"][0]["items"] == 480
    assert {target["met"] for target in result["targets"]} <= {True, False, None}
    assert (tmp_path / "queries.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("times", [(3.4, 5.8), (0.15, 2.3), (5.0, 35.0), (0.2, 0.5), (1.0, 900.0), (0.1, 90_000.0)])
def test_the_scale_of_every_panel_can_be_read(monkeypatch, tmp_path, times):
    figure = pytest.importorskip("matplotlib.figure", reason="needs the extra bench")
    drawn = []
    monkeypatch.setattr(figure.Figure, "savefig", lambda self, *_, **__: drawn.append(self))
    rows = [asdict(row(new_item_ms=value, queries=10**at)) for at, value in enumerate(times)]
    queries_report.draw({"results": rows}, tmp_path / "queries.png")
    axes = drawn[0].axes[list(queries_report.DRAWN).index("new_item_ms")]
    drawn[0].canvas.draw()
    low, high = axes.get_ylim()
    ticks = [tick for minor in (False, True) for tick in axes.yaxis.get_ticklabels(minor=minor)]
    labels = [tick.get_text() for tick in ticks if tick.get_text() and low <= tick.get_position()[1] <= high]
    assert 2 <= len(labels) <= 12, labels


def test_what_a_query_stores_is_the_rows_that_its_verdicts_reach():
    measured = measure(job(edges=2000, queries=(1,), verdicts=51))
    size = 28 * (measured.participants + measured.edges)
    assert 51 * 28 < measured.rows[0].stored_per_query < size


def test_queries_are_judged_some_at_a_time_and_those_before_are_slim_then():
    """Each gets all its verdicts, and the last ones that were judged get one more when all are slim."""
    this = job(edges=2000, items_per_edge=5, queries=(5,), verdicts=51, following=Following.RANDOM)
    state, slim = State(), []
    state.collection(graphs.COLLECTION).add_all(graphs.items(this.graph, edges=2000, items_per_edge=5, seed=0))
    bench = queries._Bench(this, state, of_collection=0)
    judge = bench._verdict

    def judged(search, *rest):
        if search.query_id in ("q0", "q1", "q2", "q3", "q4"):  # and not alone
            slim.append(sum(query.is_slim for query in state.queries.values()))
        return judge(search, *rest)

    with mock.patch.object(queries, "IN_TURN", 2), mock.patch.object(bench, "_verdict", judged):
        bench.with_open(5)
    assert [query.screened for query in state.queries.values()] == [51, 51, 51, 52, 52]
    assert slim[102] == 2 + 3  # the third query's first: nobody is awake
    assert slim[2 * 102 - 1] == 2 + 1


@pytest.mark.parametrize("following", list(Following))
def test_queries_are_judged_alone_as_they_were_in_turn(following):
    this = job(edges=2000, items_per_edge=5, queries=(3,), verdicts=51, following=following)
    state, judged = State(), {}
    state.collection(graphs.COLLECTION).add_all(graphs.items(this.graph, edges=2000, items_per_edge=5, seed=0))
    bench = queries._Bench(this, state, of_collection=0)
    judge = bench._verdict

    def noted(search, *rest):
        seconds = judge(search, *rest)
        judged.setdefault(search.query_id, []).append((len(state.queries), search.screened[-1]))
        return seconds

    with mock.patch.object(bench, "_verdict", noted):
        bench.with_open(3)
    assert list(state.queries) == ["q0", "q1", "q2"]
    for name in state.queries:
        in_turn, alone = judged[name][:51], judged[f"{name} alone"]
        assert {number for number, _ in in_turn} == {3}
        assert {number for number, _ in alone} == {1}
        assert [item for _, item in alone] == [item for _, item in in_turn]


def test_first_verdicts_are_compared_with_later_ones_of_the_same_moments():
    """Of two queries with 100 verdicts each the second one's first fifty come in turn with the first one's last."""
    this = job(edges=2000, items_per_edge=5, queries=(2,), verdicts=100, following=Following.RANDOM)
    state, order = State(), []
    state.collection(graphs.COLLECTION).add_all(graphs.items(this.graph, edges=2000, items_per_edge=5, seed=0))
    bench = queries._Bench(this, state, of_collection=0)

    def judged(search, stored=None):
        order.append(search.query_id)
        return {"q0": 1.0, "q1": 3.0}.get(search.query_id, 4.0) + (order.count(search.query_id) > 50)

    with mock.patch.object(bench, "_verdict", judged):
        found = bench.with_open(2)
    in_turn = [name for name in order if name in ("q0", "q1")][:200]
    assert in_turn == ["q0"] * 50 + ["q0", "q1"] * 50 + ["q1"] * 50
    assert (found.first_verdicts_ms, found.later_verdicts_ms) == (3000.0, 2000.0)
    assert found.times_alone == 0.6


def test_what_does_not_fit_is_not_opened_and_said():
    measured = measure(job(memory=1))
    assert measured.rows == []
    assert len(measured.failed) == 2
    assert "--memory" in measured.failed[0]
    assert queries_report.targets(measured) == []


def test_targets_compare_with_one_query_open_by_the_worst_way_to_search():
    rows = [
        row(memory_per_query=4.0, later_verdicts_p50_ms=2.0, new_edge_nobody_ms=2.0, open_ms=49.0),
        row(
            queries=100, memory_per_query=5 * 2**20, later_verdicts_p50_ms=2.0, new_edge_nobody_ms=3.0, open_ms=20.0
        ),
        row(following="its first item", open_ms=51.0),
        row(following="its first item", queries=100, new_edge_nobody_ms=2.5, first_verdicts_ms=1.0),
    ]
    size = Measured("preferential", 1_000_000, 200_000, 5_000_000, 2 << 30, rows, [])
    found = queries_report.targets(size)
    assert [target.met for target in found] == [True, True, False, True, True, False]
    assert found[0].measured == "6.88 GiB"
    reached = [*rows[:3], row(following="its first item", queries=100, new_edge_nobody_ms=None)]
    assert queries_report.targets(replace(size, rows=reached))[-1].measured == "1.5 times"
    alone = Measured("preferential", 1_000_000, 200_000, 5_000_000, 2 << 30, rows[:1], [])
    assert [target.met for target in queries_report.targets(alone)][4:] == [None, None]


@pytest.mark.parametrize("following", [0.0, 1.0])
def test_a_search_follows_its_ranking_or_does_not(following):
    state = State()
    for item in graphs.items(GraphName.PREFERENTIAL, edges=60, items_per_edge=5, seed=1):
        step(state, item)
    step(state, Query("q"))
    query = state.queries["q"]
    search = Search("q", query.collection, np.random.default_rng(0), following=following)
    followed = 0
    for _ in range(30):
        top = query.ranking().items
        verdict = search.verdict(top)
        followed += verdict.item_id == top[0].item_id
        step(state, verdict)
    assert followed == 30 if following else followed < 10
