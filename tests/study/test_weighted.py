"""Edge lists become item tables that `simulate` reads."""

import csv
import sys

import pytest

from haystream_service.errors import UserError
from haystream_service.study import weighted
from haystream_service.study.network import read_network


def test_a_weight_is_a_number_of_items(tmp_path, monkeypatch, capsys):
    path = tmp_path / "edges.csv"
    path.write_text("a\tb\t40\nb\ta\t20\n\nb c 30\nc,d,25\nd\td\t9\n")
    monkeypatch.setattr(sys, "argv", ["weighted", str(path), "--seed", "4"])
    weighted.main()
    (tmp_path / "items.csv").write_text(capsys.readouterr().out)
    network = read_network(tmp_path / "items.csv")
    assert network.items_on.tolist() == [60, 30, 25]
    with (tmp_path / "items.csv").open(newline="") as file:
        assert len({row["item_id"] for row in csv.DictReader(file)}) == 115
    assert list(weighted.rows(["a b 9"], seed=1)) == list(weighted.rows(["a b 9"], seed=1))


def test_rates_are_the_papers():
    """Of many pairs, one infected network each: 0, 0.2 or 0.9, five standard errors."""
    lines = ["a b 2000", "b c 2000"]
    shares = []
    for seed in range(20):
        found = {"a": 0, "b": 0}
        for _, sender, _, relevant in weighted.rows(lines, seed=seed):
            found[sender] += relevant
        shares += [count / 2000 for count in found.values()]
    for share in shares:
        assert min(abs(share - p) for p in (0.0, 0.2, 0.9)) < 5 * (0.25 / 2000) ** 0.5
    assert len({round(share) for share in shares}) == 2


def test_a_line_that_is_no_edge_is_an_error():
    for line in ("a b", "a b c", "a b inf"):
        with pytest.raises(UserError, match=f"'{line}' is no edge"):
            list(weighted.rows([line], seed=0))


@pytest.mark.parametrize(
    ("lines", "said"), [(None, "cannot read"), ("a b 3\na b\n", "'a b' is no edge"), ("\xff b 3", "cannot read")]
)
def test_what_is_no_edge_list_is_said_in_a_line(tmp_path, monkeypatch, capsys, lines, said):
    path = tmp_path / "edges.csv"
    if lines is not None:
        path.write_bytes(lines.encode("latin-1"))
    monkeypatch.setattr(sys, "argv", ["weighted", str(path)])
    with pytest.raises(SystemExit, match="2"):
        weighted.main()
    out, err = capsys.readouterr()
    assert out == ""
    assert "edges.csv" in err
    assert said in err
