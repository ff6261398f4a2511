"""`haystream bench pipeline` runs on real servers and says what the contract asks for. Timings are not judged."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from haystream_service import cli
from haystream_service.bench import graphs, pipeline
from haystream_service.bench.pipeline import Case, Load, Measured
from haystream_service.commands import bench_pipeline as command
from haystream_service.wire import decode_item, decode_verdict

LOAD = Load(verdicts_per_s=50, items_per_s=100, seconds=1, flood=100, new_edges=0.5, queries=2, seed=1)


@pytest.fixture
def case() -> Case:
    rng = np.random.default_rng(1)
    return Case(graphs.preferential(50, rng), LOAD, rng)


def test_verdicts_go_to_the_queries_in_turn_and_judge_an_item_once(case: Case) -> None:
    known = {item.item_id for item in case.preloaded()}
    verdicts = [decode_verdict(value, key) for key, value in (case.verdict() for _ in range(60))]
    assert [verdict.query_id for verdict in verdicts[:4]] == ["q0", "q1", "q0", "q1"]
    assert len({(verdict.query_id, verdict.item_id) for verdict in verdicts}) == 60
    assert {verdict.item_id for verdict in verdicts} <= known


def test_some_of_the_items_lie_on_new_edges(case: Case) -> None:
    source: Iterator[Any] = case.items()
    items = [decode_item(value, key) for key, value in (next(source) for _ in range(100))]
    assert len({item.item_id for item in items}) == 100
    known = {frozenset((f"p{u}", f"p{v}")) for u, v in case.pairs}
    new = sum(frozenset(item.people()) not in known for item in items)
    assert 20 < new < 80


def test_the_result_has_the_contracts_shape(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    noop = Measured(0, 1, 1, (0.001, 0.001, 0.003), 1000.0, 0.0, ())
    size = Measured(100, 2, 3, (0.002, 0.002, 0.004), 600.0, 0.5, (0.007, 0.007, 0.008))
    result = pipeline.as_json(noop, [size], LOAD)
    [row] = result["results"]
    assert (row["edges"], row["queries"], row["workers"]) == (100, 2, 3)
    assert (row["p50_ms"], row["items_per_s"]) == (2.0, 600)
    assert (row["p50_ratio"], row["items_ratio"]) == (2.0, 0.6)
    assert row["fresh"]["p50_ms"] == 7.0
    assert result["noop"]["p99_ms"] == pytest.approx(2.96)
    command._print(result)
    assert "100 edges, 2 queries, 3 workers" in capfdbinary.readouterr().out.decode()


@pytest.mark.kafka
@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.usefixtures("kafka", "redis_url")  # skips where there are no servers
def test_the_command_measures_a_small_case(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    stress = ("--burst", 100, "--burst-seconds", 20, "--opening", 600, "--idle", 3)
    traffic = ("--seconds", 1, "--items", 100, "--flood", 200)
    arguments = ("--edges", 100, "--queries", 2, "--workers", 2, *traffic, *stress, "--json")
    monkeypatch.setattr(sys, "argv", ["haystream", "bench", "pipeline", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    out, err = capfdbinary.readouterr()
    assert left.value.code == 0, err.decode()
    result = json.loads(out)
    assert {"p50_ms", "p99_ms", "items_per_s"} <= result["noop"].keys()
    [row] = result["results"]
    assert row["verdicts"] > 0
    assert row["fresh"]["p50_ms"] > 0.0
    assert row["items_per_s"] > 0
    *openings, burst = row["phases"]
    assert [phase["done"] for phase in openings] == [1, 1]
    assert burst["done"] == 100
    for phase in (*openings, burst):
        assert phase["unanswered"] == 0
        assert phase["memory_mib"][1] >= max(phase["memory_mib"])
    assert [phase["unanswered"] for phase in result["noop"]["phases"]] == [0]
    assert row["start"]["queries"] == 3
