"""A network's true rates, described."""

import sys

import numpy as np
import pytest

from haystream.events import Item
from haystream_service.study import describe
from haystream_service.study.describe import described
from haystream_service.study.network import network


def test_rates_are_told_by_what_the_ends_show_elsewhere():
    """A star around a, relevant with b and c only, and a pair far away."""
    amounts = {
        ("a", "b"): (10, 8),
        ("a", "c"): (10, 4),
        ("a", "d"): (20, 0),
        ("d", "e"): (40, 2),
        ("x", "y"): (20, 1),
    }
    truth = {f"{u}{v}{i}": i < found for (u, v), (items, found) in amounts.items() for i in range(items)}
    items = [Item(name, "study", name[0], (name[1],)) for name in truth]
    told = described(network("made", items, truth.__getitem__))
    assert told["rate"] == pytest.approx(0.15)
    assert told["edges_without"] == pytest.approx(0.2)
    assert told["edges_half"] == 1
    # a-d alone has two ends with other edges: a is high there (12 of 20), d is not (2 of 40).
    assert told["ends"] == {
        "neither": {"edges": 0, "rate": None},
        "one": {"edges": 1, "rate": 0.0},
        "both": {"edges": 0, "rate": None},
    }
    sizes = {name: told["sets"][name] for name in ("16 to 31", "32 to 63")}
    assert sizes["32 to 63"] == {"sets": 1, "rate": pytest.approx(0.05), "after_one": pytest.approx(1 / 39)}
    of_20 = [(items, found) for items, found in amounts.values() if items == 20]
    assert sizes["16 to 31"]["sets"] == len(of_20)
    assert sizes["16 to 31"]["rate"] == pytest.approx(sum(f for _, f in of_20) / (20 * len(of_20)))
    again = sum(f * (f - 1) / 19 for _, f in of_20) / sum(f for _, f in of_20)
    assert sizes["16 to 31"]["after_one"] == pytest.approx(again)
    by_table = {(row["mean"], row["table"]): row["rate"] for row in told["prior"]}
    assert by_table[0.25, 2] > by_table[0.25, 1] > by_table[0.25, 3]
    assert by_table[0.05, 2] < by_table[0.25, 2]


@pytest.mark.parametrize("spread", [0.0, 0.2])
def test_chance_is_taken_out_of_the_spread(spread):
    rng = np.random.default_rng(0)
    truth: dict[str, bool] = {}
    for number in range(800):
        rate = 0.3 + spread * rng.choice([-1, 1])
        truth |= {f"{number}-{i}": bool(rng.random() < rate) for i in range(20)}
    items = [Item(name, "study", name.split("-")[0], ("z" + name.split("-")[0],)) for name in truth]
    told = described(network("made", items, truth.__getitem__))
    assert told["sd"] == pytest.approx(spread, abs=0.05 if spread == 0.0 else 0.01)


@pytest.mark.parametrize("topics", [(), ("--topics", "label_bug")])
def test_what_is_no_table_is_said_in_a_line(tmp_path, monkeypatch, capsys, topics):
    monkeypatch.setattr(sys, "argv", ["describe", str(tmp_path / "none.csv"), *topics])
    with pytest.raises(SystemExit, match="2"):
        describe.main()
    out, err = capsys.readouterr()
    assert out == ""
    assert "none.csv" in err
