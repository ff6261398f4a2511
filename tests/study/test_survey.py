"""A plan's searches and their table: ratios by hand, and the command on small tables."""

import csv
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from haystream.events import Policy
from haystream_service.errors import UserError
from haystream_service.study import survey as command
from haystream_service.study.journal import finished_in
from haystream_service.study.models import MODELS
from haystream_service.study.plan import Setting, pair
from haystream_service.study.regret import Survey, SurveyQuery, by_share, by_sort, worst

AHEAD, GREEDY = pair("rates:look-ahead"), pair("participant-rate:greedy")
SURVEY = Path(__file__).parents[2] / "docs" / "survey.toml"

Command = Callable[..., tuple[str, str]]


@pytest.fixture
def two() -> Survey:
    """Two sorts, of two queries and one."""
    return Survey(
        (AHEAD, GREEDY),
        (
            SurveyQuery("bugs", "rare", 30, 1000),
            SurveyQuery("money", "common", 200, 1000),
            SurveyQuery("hr", "rare", 20, 1000),
        ),
        (100, 1000),
        np.array([[[0.0, 9.5], [19.5, 99.5], [7.5, 1.5]], [[1.5, 19.5], [19.5, 49.5], [1.5, 7.5]]]),
    )


def test_ratios_are_to_the_best_of_all_or_of_some(two):
    first, second = two.ratios(two.pairs)
    assert first == pytest.approx(np.array([[0.25, 0.5], [1, 1], [1, 0.25]]))
    assert second == pytest.approx(np.array([[1, 1], [1, 0.5], [0.25, 1]]))
    assert two.ratios([GREEDY])[0] == pytest.approx(np.array([[0.25, 0.5], [1, 2], [4, 0.25]]))


def test_the_table_by_sort_has_geometric_means(two):
    assert by_sort(two, two.pairs).splitlines() == [
        "| found, to the best | rare (2; 2 to 3 %) | common (1; 20 %) |",
        "| --- | ---: | ---: |",
        "| rates, look-ahead | .50 .35 | 1.00 1.00 |",
        "| participant-rate, greedy | .50 1.00 | 1.00 .50 |",
    ]


def test_the_table_by_share_takes_the_queries_of_all_sorts(two):
    assert by_share(two, two.pairs).splitlines() == [
        "| found, to the best | 1 to 6 % relevant (2) | 6 to 100 % relevant (1) |",
        "| --- | ---: | ---: |",
        "| rates, look-ahead | .50 .35 | 1.00 1.00 |",
        "| participant-rate, greedy | .50 1.00 | 1.00 .50 |",
    ]


def test_the_worst_query_is_named(two):
    assert worst(two, "rare", two.pairs).splitlines() == [
        "| rare | 100 | 1,000 |",
        "| --- | ---: | ---: |",
        "| rates, look-ahead | .25 bugs | .25 hr |",
        "| participant-rate, greedy | .25 hr | 1.00 bugs |",
    ]


def test_a_pair_is_written_as_in_tables():
    model, policy = Setting("rates", (("weight", 30.0), ("edge", 1.0))), Setting("look-ahead", (("horizon", 5.0),))
    assert pair("rates edge=1 weight=30:look-ahead horizon=5") == (model, policy)
    assert pair(f"{model.label}:{policy.label}") == (model, policy)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rates", "expected MODEL:POLICY"),
        ("rates:", "expected MODEL:POLICY"),
        ("oracle:greedy", "there is no model 'oracle'"),
        ("rates:hope", "there is no policy 'hope'"),
        ("rates p11=1:greedy", "there is no option 'rates.p11'"),
        ("rates weight:greedy", "expected name=number, not 'weight'"),
        ("rates:look-ahead horizon=0", "horizon is 0"),
    ],
)
def test_what_is_no_pair_is_said(text, said):
    with pytest.raises(UserError, match=said):
        pair(text)


@pytest.fixture
def data(tmp_path, monkeypatch) -> Path:
    """A table of 60 items and its plan: a rare column, a common one, and topics of which one is very rare."""
    rows = []
    for number in range(60):
        recipients = f"p{number % 4 + 1}" + (";p9" if number % 12 == 0 else "")
        cells = f"{int(number % 4 == 0)},{int(number % 4 < 2)},{'b' if number < 3 else 'ac'[number % 2]}"
        rows.append(f"m{number},p{number % 4},{recipients},{cells}")
    (tmp_path / "mails.csv").write_text("\n".join(["item_id,sender,recipients,bug,hr,topic", *rows]) + "\n")
    (tmp_path / "plan.toml").write_text(
        """
        [[table]]
        name = "mails"
        data = "mails.csv"
        columns = { bug = "rare", hr = "common" }

        [[table]]
        name = "pairs"
        data = "mails.csv"
        two_party = true
        columns = { topic = "topics" }
        """
    )
    monkeypatch.setenv("HAYSTREAM_DATA", str(tmp_path))
    monkeypatch.setattr(command, "ENOUGH_RELEVANT", 10)
    return tmp_path


@pytest.fixture
def run(data, monkeypatch, capfdbinary) -> Command:
    """Runs the command on the plan; standard output and standard error."""

    def call(*arguments: object) -> tuple[str, str]:
        given = [str(data / "plan.toml"), "--out", str(data / "out"), "--processes", "1", *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", ["survey", *given])
        command.main()
        out, err = capfdbinary.readouterr()
        return out.decode(), err.decode()

    return call


def test_a_plan_is_searched_and_goes_on_where_it_was(run, data):
    few = ("--runs", 2, "--steps", 30)
    out, err = run(*few, "--pairs", "random:greedy,participant-rate:greedy")
    assert "mails: 2 queries, 8 searches" in err
    assert "already" not in err
    assert "found in 30 screenings, mean of 2 orders" in out
    assert "to the best of all 2 in hindsight" in out
    assert "| found, to the best | rare (1; 25 %) | common (1; 50 %) | topics (2; 44 to 53 %) |" in out
    assert "| participant-rate, greedy | 1.00 mails hr |" in out
    assert "Left out, with fewer than 10 relevant items: pairs b (2).\n" in out

    finished = finished_in(data / "out" / "mails")
    model, policy = pair("participant-rate:greedy")
    mean = np.mean([outcome.found(30) for task, outcome in finished.items() if task[:3] == (model, policy, "hr")])
    with (data / "out" / "found.csv").open(newline="") as file:
        rows = {(row["query"], row["model"]): row for row in csv.DictReader(file)}
    assert len(rows) == 8
    assert float(rows["mails hr", "participant-rate"]["found_at_30"]) == mean
    assert {name: rows["pairs a", "random"][name] for name in ("sort", "relevant", "items", "policy")} == {
        "sort": "topics",
        "relevant": "24",
        "items": "55",
        "policy": "greedy",
    }

    more = "random:greedy,independent p11=0.1:greedy,participant-rate:greedy"
    again, err = run(*few, "--pairs", more, "--against", "random:greedy")
    assert "8 of 12 searches are there already" in err
    assert "| independent p11=0.1, greedy | " in again
    assert "the best of 1 of them" in again
    assert "| random, greedy | 1.00 | 1.00 | 1.00 |" in again


def test_a_pair_is_searched_again_when_its_code_has_changed(run, monkeypatch):
    few = ("--runs", 2, "--steps", 30, "--pairs", "random:greedy,participant-rate:greedy")
    before, _ = run(*few)
    models = {**MODELS, "participant-rate": MODELS["random"]}
    monkeypatch.setattr("haystream_service.study.simulation.MODELS", models)
    assert run(*few)[0] == before
    again, err = run(*few, "--anew", "participant-rate:greedy")
    assert "4 of 8 searches are there already" in err
    assert "| participant-rate, greedy | 1.00 | 1.00 | 1.00 |" in again
    assert "| random, greedy | 1.00 | 1.00 | 1.00 |" in again
    assert run(*few)[0] == again


def test_checkpoints_and_the_end_are_counted(run, monkeypatch):
    monkeypatch.setattr("haystream_service.study.report.CHECKPOINTS", (10, 20, 40))
    out, _ = run("--runs", 1, "--steps", 30, "--pairs", "random:greedy")
    assert "found in 10, 20 and 30 screenings" in out
    assert "| random, greedy | 1.00 1.00 1.00 | 1.00 1.00 1.00 | 1.00 1.00 1.00 |" in out
    assert "| rare | 10 | 20 | 30 |" in out


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ("[[table", "is not TOML"),
        ("", "table: Field required"),
        ("[[table]]\nname = 'a'\ndata = 'mails.csv'\ncolumns = {}", "table.0.columns: "),
        ("[[table]]\nname = '../a'\ndata = 'mails.csv'\ncolumns = {bug = 'x'}", "table.0.name: "),
        ("[[table]]\nname = 'a'\ndata = 'none.csv'\ncolumns = {bug = 'x'}", "set HAYSTREAM_DATA"),
        ("[[table]]\nname = 'a'\ndata = 'mails.csv'\ncolumns = {bug = 'x'}\n" * 2, "two tables of the name a"),
        ("[[table]]\nname = 'a'\ndata = 'mails.csv'\ncolumns = {none = 'x'}", "has no column none"),
    ],
)
def test_a_plan_that_cannot_be_used_is_said(run, data, capfdbinary, plan, said):
    (data / "plan.toml").write_text(plan)
    with pytest.raises(SystemExit, match="2"):
        run("--runs", 1, "--steps", 5)
    assert said in capfdbinary.readouterr().err.decode()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--pairs", "oracle:greedy"), "there is no model 'oracle'"),
        (("--pairs", ","), "name a pair"),
        (("--seed", "-1"), "expected a number of 0 or more"),
        (("--runs", "0"), "expected a number of 1 or more"),
        (("--pairs", "random:greedy", "--against", "rates:greedy"), "rates:greedy, which is not among --pairs"),
    ],
)
def test_wrong_use_is_said(run, capfdbinary, arguments, said):
    with pytest.raises(SystemExit, match="2"):
        run(*arguments)
    assert said in capfdbinary.readouterr().err.decode()


def test_queries_of_too_few_relevant_items_are_not_searched(run, monkeypatch, capfdbinary):
    monkeypatch.setattr(command, "ENOUGH_RELEVANT", 1000)
    with pytest.raises(SystemExit, match="2"):
        run("--runs", 1, "--steps", 5)
    assert "fewer than 1000 relevant items" in capfdbinary.readouterr().err.decode()


def test_the_plan_of_the_page_is_a_plan():
    """Its tables are data that need not be here."""
    tables = command.File.model_validate(tomllib.loads(SURVEY.read_text())).table
    assert len({table.name for table in tables}) == len(tables)
    assert Policy().name in {policy.name for _, policy in command._pairs(",".join(command.OWN_MODELS))}
