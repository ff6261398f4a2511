"""Finished simulations side by side: differences are paired, by hand and on the journals of the program."""

import sys

import numpy as np
import pytest

from haystream_service.errors import UserError
from haystream_service.study import compare
from haystream_service.study.journal import finished_in
from haystream_service.study.paired import Study, read_study
from haystream_service.study.plan import Setting
from haystream_service.study.report import geometric_mean

RATES, SCRIPT = Setting("rates"), Setting("participant-rate")
TUNED = Setting("participant-rate", (("edge", 1.0),))
AHEAD, GREEDY = Setting("look-ahead"), Setting("greedy")


def by_run(*found: float) -> dict[int, np.ndarray]:
    return {run: np.array([value]) for run, value in enumerate(found)}


@pytest.fixture
def study() -> Study:
    return Study(
        "made",
        {
            (SCRIPT, AHEAD): by_run(10, 20, 33),
            (TUNED, AHEAD): by_run(20, 30, 43),
            (SCRIPT, GREEDY): by_run(9, 9, 9),
            (RATES, AHEAD): by_run(12, 23, 34, 51),
        },
    )


def test_a_total_has_the_usual_standard_error(study):
    total = study.total((RATES, AHEAD))
    found = np.array([12, 23, 34, 51])
    assert total.value == pytest.approx(found.mean())
    assert total.se == pytest.approx(found.std(ddof=1) / 2)


def test_a_difference_is_taken_over_the_runs_that_both_have(study):
    less = study.less((SCRIPT, AHEAD), (RATES, AHEAD))
    apart = np.array([-2, -3, -1])
    assert less.value == pytest.approx(apart.mean())
    assert less.se == pytest.approx(apart.std(ddof=1) / 3**0.5)
    assert f"{less:+}" == "−2.0 ± 0.6"


def test_over_queries_it_is_the_geometric_mean_and_its_error_that_of_chance():
    """Of many studies of 20 runs: the errors it gives are near the spread of what it gives (a tenth is 2 %)."""
    rng = np.random.default_rng(0)
    totals = []
    for _ in range(400):
        found = rng.poisson([0.5, 4.0, 60.0], size=(20, 3)).astype(float)
        study = Study("made", {(RATES, AHEAD): dict(enumerate(found))})
        totals.append(study.total((RATES, AHEAD)))
    assert totals[-1].value == pytest.approx(geometric_mean(found.mean(axis=0)))
    spread = np.std([total.value for total in totals])
    assert np.mean([total.se for total in totals]) == pytest.approx(spread, rel=0.1)


def test_the_ratio_is_over_queries():
    found = {(RATES, AHEAD): {0: np.array([1.0, 9.0])}, (SCRIPT, AHEAD): {0: np.array([0.0, 79.0])}}
    ratio = Study("made", found).ratio((SCRIPT, AHEAD), (RATES, AHEAD))
    assert ratio.value == pytest.approx((1 / 2 * 80 / 10) ** 0.5)
    assert ratio.se == pytest.approx(ratio.value * np.std(np.log([1 / 2, 8]), ddof=1) / 2**0.5)
    (row,) = [line for line in compare.by_policy(Study("made", found)).splitlines() if "| participant" in line]
    assert row.endswith(f" {ratio} |")


def test_the_page(study):
    assert compare.by_policy(study).splitlines() == [
        "| model | look-ahead | greedy | its best − rates, look-ahead |",
        "| --- | ---: | ---: | ---: |",
        "| rates | **30.0 ± 8.3** |  |  |",
        "| participant-rate | 21.0 ± 6.7 | 9.00 ± 0.00 | −2.0 ± 0.6 |",
    ]


def test_the_best_in_hindsight(study):
    (row,) = compare.swept(study).splitlines()[2:]
    assert row == (
        "| participant-rate | look-ahead | 21.0 ± 6.7 | 31.0 ± 6.7 | edge=1 | 2 | +10.00 ± 0.00 | +8.0 ± 0.6 |"
    )


def test_journals_are_read_and_drawn(haystream, table, tmp_path, monkeypatch, capfdbinary):
    def run(*arguments: object) -> None:
        assert haystream("simulate", table, "--runs", 3, "--steps", 30, "--processes", 1, *arguments)[0] == 0

    one, topics = tmp_path / "one", tmp_path / "topics"
    run("--models", "rates,random", "--policies", "look-ahead,greedy", "--out", one)
    run("--models", "rates,random", "--policies", "look-ahead", "--topics", "topic", "--out", topics)
    with (topics / "runs.jsonl").open("a") as file:
        file.write('{"torn')

    figure = tmp_path / "all.png"
    monkeypatch.setattr(sys, "argv", ["compare", str(one), str(topics), "--figure", str(figure)])
    compare.main()
    page = capfdbinary.readouterr().out.decode()
    assert page.count("| rates |") == 2
    assert "### one\n| model | look-ahead | greedy | its best − rates, look-ahead |\n" in page
    assert figure.read_bytes().startswith(b"\x89PNG")
    found, early = (read_study(topics, at=at).found[RATES, AHEAD] for at in (None, 10))
    assert [run.shape for run in found.values()] == [(5,)] * 3
    assert all((early[run] <= found[run]).all() for run in found)
    assert 0 < sum(run.sum() for run in early.values()) < sum(run.sum() for run in found.values())


def test_what_is_no_journal_is_said(tmp_path, monkeypatch, capsys):
    with pytest.raises(UserError, match="cannot read"):
        finished_in(tmp_path)
    (tmp_path / "runs.jsonl").write_text('{"version":0}\n')
    with pytest.raises(UserError, match="no journal of this version"):
        finished_in(tmp_path)
    (tmp_path / "runs.jsonl").write_text('{"version":1,"items":""}\n')
    monkeypatch.setattr(sys, "argv", ["compare", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        compare.main()
    assert "has no finished search" in capsys.readouterr().err
