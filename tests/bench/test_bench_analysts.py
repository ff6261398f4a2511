"""`bench analysts`: who finds what, held against what must be so."""

import sys

import numpy as np
import orjson
import pytest

from haystream_service import cli
from haystream_service.bench.analysts import Found, Team, search, shares, teams
from haystream_service.sources import synthetic

SOURCE = synthetic(seed=3, edges=56, items_per_edge=4)
HOW = {"screenings": 60, "reading": (1.0, 60.0), "seed": 5}


def test_one_analyst_reads_what_is_ranked_first_whatever_is_counted() -> None:
    one, other = (search(SOURCE, Team(1, counted), **HOW).curve for counted in (True, False))
    np.testing.assert_array_equal(one, other)
    assert len(one) == 60


def test_nobody_reads_an_item_twice_and_all_are_read_in_the_end() -> None:
    for counted in (True, False):
        found = search(SOURCE, Team(7, counted), screenings=10_000, reading=(1.0, 60.0), seed=1)
        assert (len(found.curve), found.curve[-1]) == (len(SOURCE), SOURCE.relevant)


def test_as_many_analysts_as_items_find_what_chance_finds_first() -> None:
    """All items are handed out before the first verdict: who is quick says what is found."""
    found = search(SOURCE, Team(len(SOURCE), counted=False), screenings=10_000, reading=(1.0, 60.0), seed=1)
    half = found.curve[len(SOURCE) // 2] / SOURCE.relevant
    assert half == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(SOURCE.relevant))


def test_shares_are_of_what_one_finds() -> None:
    alone, together = (
        [Found(np.array([1, 2])), Found(np.array([1, 4]))],
        [Found(np.array([0, 2])), Found(np.array([1, 1]))],
    )
    (first, first_error), (second, _) = shares(alone, together, [1, 2])
    assert (first, second) == (0.5, 0.5)
    assert first_error == pytest.approx(np.std([-1, 0], ddof=1) / np.sqrt(2))


def test_teams_are_one_and_each_number_twice() -> None:
    assert teams([10, 1]) == [Team(1, True), Team(10, True), Team(10, False)]


def test_the_command_prints_every_team(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    arguments = ["--analysts", "3", "--screenings", "20", "--screenings", "40", "--runs", "2", "--json"]
    monkeypatch.setenv("HAYSTREAM_DATA", "nowhere")
    monkeypatch.setattr(sys, "argv", ["haystream", "bench", "analysts", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    result = orjson.loads(capsysbinary.readouterr().out)
    assert [(row["analysts"], row["counted"]) for row in result["results"]] == [(1, True), (3, True), (3, False)]
    assert result["results"][0]["of_one"] == [1.0, 1.0]
    assert all(0 < share < 2 for row in result["results"] for share in row["of_one"])
