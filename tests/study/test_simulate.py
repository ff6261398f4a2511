"""`haystream simulate`: what it prints and writes, and that chance is the seed's alone."""

import csv
import json
import sys
from typing import NoReturn

import numpy as np
import pytest

from haystream_service.errors import UserError
from haystream_service.study import journal, report
from haystream_service.study.markdown import by_topic, markdown
from haystream_service.study.models import MODELS, Build
from haystream_service.study.network import read_network
from haystream_service.study.plan import Setting, plan
from haystream_service.study.search import Run
from haystream_service.study.simulation import Searches, outcome, simulate

FEW = ("--models", "participant-rate,random", "--policies", "greedy,thompson", "--steps", 30, "--runs", 3)


def test_the_object_is_the_contracts(haystream, table):
    code, out, err = haystream("simulate", table, *FEW, "--json", "--processes", 1)
    assert code == 0, err
    result = json.loads(out)
    assert {name: result[name] for name in ("participants", "edges", "items", "steps", "runs")} == {
        "participants": 8,
        "edges": 28,
        "items": 90,
        "steps": 30,
        "runs": 3,
    }
    assert result["relevant"] == sum(line.split(",")[4] == "1" for line in table.read_text().splitlines()[1:91])
    pairs = [(row["model"], row["policy"]) for row in result["results"]]
    assert pairs == [(m, p) for m in ("participant-rate", "random") for p in ("greedy", "thompson")]
    for row in result["results"]:
        assert len(row["curve"]) == 30
        assert row["found"]["mean"] == pytest.approx(row["curve"][-1], abs=1e-3)
        assert row["found"]["se"] >= 0
        assert 0 <= row["edge_changes"]["mean"] <= 29
        assert 0 <= row["above_p95"]["mean"] <= row["above_p90"]["mean"] <= 30
    assert "90 items on 28 edges between 8 participants" in err
    assert "2 left out" in err


def test_totals_depend_neither_on_the_number_of_processes_nor_on_what_else_runs(haystream, table):
    def rows(*arguments: object) -> dict[tuple[str, str], object]:
        code, out, err = haystream("simulate", table, *arguments, "--json")
        assert code == 0, err
        return {(row["model"], row["policy"]): row for row in json.loads(out)["results"]}

    alone = rows(*FEW, "--processes", 1)
    assert rows(*FEW, "--processes", 2) == alone
    more = (
        "--models",
        "random,bandit,participant-rate",
        "--policies",
        "thompson,greedy",
        "--steps",
        30,
        "--runs",
        3,
    )
    others = rows(*more, "--processes", 1)
    assert all(others[pair] == row for pair, row in alone.items())
    assert rows(*FEW, "--processes", 1, "--seed", 1) != alone


def test_a_simulation_goes_on_where_it_was_stopped(haystream, table, tmp_path, monkeypatch):
    folder = tmp_path / "out"
    arguments = ("simulate", table, *FEW, "--processes", 1, "--out", folder, "--json")
    code, whole, err = haystream(*arguments)
    assert code == 0, err
    made = ["curves.csv", "curves.png", "found.png", "results.csv", "results.json", "results.md", "runs.jsonl"]
    assert sorted(path.name for path in folder.iterdir()) == made
    assert json.loads((folder / "results.json").read_bytes()) == json.loads(whole)
    for png in ("curves.png", "found.png"):
        assert (folder / png).read_bytes().startswith(b"\x89PNG")
    with (folder / "curves.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert (len(header), len(rows)) == (5, 30)
    figures = ("found", "edge_changes", "above_p90", "above_p95")
    with (folder / "results.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    for line, row in zip(read, json.loads(whole)["results"], strict=True):
        assert (line["model"], line["policy"]) == (row["model"], row["policy"])
        assert [float(line[name]) for name in figures] == [row[name]["mean"] for name in figures]
        assert [float(line[f"{name}_se"]) for name in figures] == [row[name]["se"] for name in figures]

    lines = (folder / "runs.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == 1 + 12
    (folder / "runs.jsonl").write_bytes(b"".join(lines[:5]) + lines[5][:40])  # killed in the middle of a line
    searched = []
    monkeypatch.setattr(
        "haystream_service.study.finish.simulate",
        lambda tasks, *given, **more: searched.extend(tasks) or simulate(tasks, *given, **more),
    )
    code, again, err = haystream(*arguments)
    assert (code, json.loads(again)) == (0, json.loads(whole))
    assert len(searched) == 8
    assert "4 of 12 searches are there already" in err

    searched.clear()
    assert haystream(*arguments, "--runs", 4)[0] == 0
    assert len(searched) == 4
    code, _, err = haystream(*arguments, "--seed", 1)
    assert code == 2
    assert "is of another table, other steps or another seed" in err


def test_a_journal_keeps_all_that_it_is_told(table, tmp_path):
    network = read_network(table)
    searches = Searches({"relevant": network}, 20, 0)
    made = plan(["participant-rate"], ["look-ahead"], ["relevant"], 2, {"edge": (0.1, 3.0), "horizon": (5.0,)})
    with journal.Journal(tmp_path, searches) as first:
        for task, result in simulate(made.tasks(), searches, processes=1):
            first.add(task, result)
    with journal.Journal(tmp_path, searches) as second:
        assert second.finished == first.finished
        assert set(second.finished) == set(made.tasks())


def test_several_values_are_several_settings(haystream, table):
    made = plan(
        ["independent", "participant-rate"],
        ["greedy", "look-ahead"],
        ["q"],
        1,
        {"mean": (0.1, 0.2), "independent.p11": (0.0, 0.05), "horizon": (9.0,)},
    )
    assert [setting.label for setting in made.models] == [
        "independent mean=0.1 p11=0",
        "independent mean=0.1 p11=0.05",
        "independent mean=0.2 p11=0",
        "independent mean=0.2 p11=0.05",
        "participant-rate mean=0.1",
        "participant-rate mean=0.2",
    ]
    assert made.policies == (Setting("greedy"), Setting("look-ahead", (("horizon", 9.0),)))
    arguments = ("--models", "independent", "--policies", "greedy", "--option", "p11=0,0.1", "--runs", 1)
    code, out, _ = haystream("simulate", table, *arguments, "--steps", 20, "--processes", 1)
    assert code == 0
    assert "independent p11=0.1" in out


def test_topics_are_queries_of_their_own(haystream, table, tmp_path):
    arguments = ("simulate", table, *FEW, "--topics", "topic", "--two-party", "--processes", 1, "--out", tmp_path)
    code, out, err = haystream(*arguments, "--json")
    assert code == 0, err
    result = json.loads(out)
    assert [topic["topic"] for topic in result["topics"]] == ["1", "2", "3", "4", "5"]
    assert result["items"] == 81
    assert result["relevant"] == sum(topic["relevant"] for topic in result["topics"])
    for row in result["results"]:
        means = [topic["found"]["mean"] for topic in row["topics"]]
        assert row["found"]["mean"] == pytest.approx(np.mean(means))
        assert row["geometric_mean"] == pytest.approx(np.prod(np.array(means) + 1) ** 0.2 - 1)
    assert (tmp_path / "topics.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "topics.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 5 * 4
    code, out, err = haystream(*arguments)
    assert code == 0
    assert "geometric" in out
    assert "60 of 60 searches are there already" in err


def test_what_is_found_early_is_said(haystream, table, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "CHECKPOINTS", (10, 20, 30, 40))
    one, topics = tmp_path / "one", tmp_path / "topics"
    code, out, err = haystream("simulate", table, *FEW, "--processes", 1, "--out", one, "--json")
    assert code == 0, err
    rows = json.loads(out)["results"]
    for row in rows:
        assert list(row["found_at"]) == ["10", "20", "30"]
        assert row["found_at"]["30"] == row["found"]
        assert row["found_at"]["10"]["mean"] == pytest.approx(row["curve"][9], abs=1e-3)
    with (one / "results.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    for line, row in zip(read, rows, strict=True):
        assert float(line["found_at_10"]) == row["found_at"]["10"]["mean"]
        assert float(line["found_at_20_se"]) == row["found_at"]["20"]["se"]
    assert "| found in | 10 | 20 | 30 |" in (one / "results.md").read_text()

    arguments = ("simulate", table, *FEW, "--topics", "topic", "--processes", 1, "--out", topics)
    code, out, err = haystream(*arguments, "--json")
    assert code == 0, err
    for row in json.loads(out)["results"]:
        means = [topic["found_at"]["20"]["mean"] for topic in row["topics"]]
        assert row["found_at"]["20"]["mean"] == pytest.approx(np.mean(means))
        assert row["geometric_mean_at"]["20"] == pytest.approx(np.prod(np.array(means) + 1) ** 0.2 - 1)
        assert row["geometric_mean_at"]["30"] == row["geometric_mean"]
    for name in ("results.csv", "topics.csv"):
        with (topics / name).open(newline="") as file:
            assert {"found_at_10", "found_at_10_se", "found_at_30"} <= set(next(csv.DictReader(file)))

    for shown in (haystream(*arguments)[1], haystream("simulate", table, *FEW, "--processes", 1)[1]):
        _, header = [line for line in shown.splitlines() if "policy" in line]
        assert header.replace("┃", " ").split() == ["model", "policy", "10", "20"]
        assert shown.count("participant-rate") == 4


def test_label_columns_are_queries(haystream, tmp_path):
    path = tmp_path / "mails.csv"
    rows = [f"m{number},p{number % 3},p{number % 3 + 1},{number % 2},{int(number < 9)}" for number in range(30)]
    path.write_text("\n".join(["item_id,sender,recipients,bug,hr", *rows]) + "\n")
    code, out, err = haystream("simulate", path, *FEW, "--processes", 1, "--topics", "bug", "--json")
    assert code == 0, err
    result = json.loads(out)
    assert (result["relevant"], len(result["results"][0]["curve"])) == (15, 30)  # one query: as without --topics
    code, out, err = haystream("simulate", path, *FEW, "--processes", 1, "--topics", "bug,hr", "--json")
    assert code == 0, err
    assert json.loads(out)["topics"] == [{"topic": "bug", "relevant": 15}, {"topic": "hr", "relevant": 9}]


def test_a_table_for_people(haystream, table):
    code, out, err = haystream("simulate", table, *FEW, "--runs", 1, "--steps", 200, "--processes", 1)
    assert code == 0
    assert "participant-rate" in out
    assert "there are fewer items than screenings" in err


def test_items_on_good_edges_are_counted_by_their_share(parties):
    run = Run(np.arange(40, dtype=np.int32), parties.item_set[:40], parties.relevant[:40])
    level = np.percentile(parties.rates, [90, 95])
    expected = [
        sum(np.mean([parties.rates[edge] > bound for edge in parties.edges_of(item)]) for item in range(40))
        for bound in level
    ]
    assert outcome(parties, run).above == pytest.approx(tuple(expected))


def test_the_page_has_models_down_and_policies_across():
    rows = [
        {"label": m, "policy_label": p, "found": {"mean": mean, "se": 1.25}, "geometric_mean": -mean}
        for m, p, mean in (("a", "x", 1.0), ("a", "y", 2.0), ("b x=1", "x", 3.0), ("b x=1", "y", 4.0))
    ]
    assert markdown({"results": rows}).splitlines() == [
        "| model | x | y |",
        "| --- | ---: | ---: |",
        "| a | 1.0 ± 1.2 | 2.0 ± 1.2 |",
        "| b x=1 | 3.0 ± 1.2 | **4.0 ± 1.2** |",
    ]
    assert "| **1.0 ± 1.2 / -1.00** |" in markdown({"results": rows, "topics": []})


def test_every_topic_has_its_line():
    found = (([1.0, 4.0], "a"), ([2.0, 4.0], "b"))
    rows = [
        {"label": m, "policy_label": "x", "topics": [{"found": {"mean": mean, "se": None}} for mean in means]}
        for means, m in found
    ]
    topics = [{"topic": "7", "relevant": 1200}, {"topic": "8", "relevant": 9}]
    assert by_topic({"results": rows, "topics": topics}).strip().splitlines() == [
        "| topic | relevant | a, x | b, x |",
        "| --- | ---: | ---: | ---: |",
        "| 7 | 1,200 | 1.0 | **2.0** |",
        "| 8 | 9 | **4.0** | **4.0** |",
    ]


def test_one_run_has_no_standard_error():
    assert report.estimate(np.array([3.0])) == {"mean": 3.0, "se": None}
    assert report.estimate(np.array([1.0, 3.0])) == {"mean": 2.0, "se": pytest.approx(1.0)}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--models", "oracle"), "there is no model 'oracle': expected one of relevance, "),
        (
            ("--policies", "hope"),
            "there is no policy 'hope': expected one of look-ahead-by-set, look-ahead, greedy",
        ),
        (("--option", "p11=0.1"), "there is no option 'p11'"),
        (("--option", "mean=high"), "--option mean=high: expected name=number"),
        (("--option", "mean"), "--option mean: expected name=number"),
        (("--option", "horizon=0"), "horizon is 0"),
        (("--policies", "epsilon-greedy", "--option", "epsilon=2"), "epsilon is 2"),
        (("--models", "relevance", "--option", "table=7"), "table=1, table=2 or table=3"),
        (("--models", ","), "name a model"),
        (("--topics", "subject"), "no column subject"),
        (("--topics", ","), "name a column"),
    ],
)
def test_wrong_use_is_said_in_a_line(haystream, table, arguments, said):
    code, out, err = haystream("simulate", table, "--runs", 1, "--steps", 5, "--processes", 1, *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1


def test_a_missing_extra_says_how_to_install_it(haystream, table, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = haystream("simulate", table, "--out", tmp_path)
    assert code == 2
    assert "pip install 'haystream[bench]'" in err


def test_a_model_that_cannot_be_made_is_said_before_anything_runs(haystream, table, monkeypatch):
    def none(*_: object) -> NoReturn:
        raise UserError("it needs a library")

    monkeypatch.setattr("haystream_service.study.simulation.MODELS", {**MODELS, "mrf": Build(none)})
    monkeypatch.setattr("haystream_service.study.finish.simulate", None)
    code, _, err = haystream("simulate", table, "--models", "mrf", "--runs", 1)
    assert (code, err.splitlines()[-1]) == (2, "haystream: it needs a library")


def test_a_folder_that_cannot_be_written_is_named(haystream, table):
    code, _, err = haystream("simulate", table, *FEW, "--processes", 1, "--out", table / "inside")
    assert code == 2
    assert "cannot write" in err
