"""Tables labelled by the words that their items hold."""

import csv
import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from haystream_service.errors import UserError
from haystream_service.study.network import read_topics
from haystream_service.study.survey import read_plan
from haystream_service.study.words import write


def table(path: Path, *, columns: tuple[str, ...] = ("subject", "text")) -> Path:
    """A hundred mails; three hold *gasoline* in the subject, four *Pipeline* in the text, all *hello*."""
    header = ("item_id", "sent_at", "sender", "recipients", *columns)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for k in range(100):
            said = ["gasoline hello" if k < 3 else "hello", "the Pipeline, again" if 10 <= k < 14 else "hello"]
            writer.writerow([f"m{k}", "", f"p{k % 7}", f"q{k % 5}", *said[: len(columns)]])
    return path


def test_items_are_labelled_by_the_rare_words_that_they_hold(tmp_path: Path, monkeypatch, capsys) -> None:
    write([table(tmp_path / "mail.csv")], 5, 1, tmp_path / "out")
    assert set(capsys.readouterr().out.removeprefix("mail: ").strip().split(", ")) == {
        "gasoline",
        "pipeline",
        "again",
    }
    monkeypatch.setenv("HAYSTREAM_DATA", str(tmp_path / "out"))
    (planned,) = read_plan(tmp_path / "out" / "plan.toml")
    assert set(planned.columns.values()) == {"words of mail"}
    found = read_topics(planned.path, list(planned.columns))
    relevant = {column: int(next(iter(networks.values())).relevant.sum()) for column, networks in found.items()}
    assert relevant == {"label_gasoline": 3, "label_pipeline": 4, "label_again": 4}


def test_the_same_seed_draws_the_same_words(tmp_path: Path) -> None:
    source = table(tmp_path / "mail.csv")
    for name in ("one", "two"):
        write([source], 2, 9, tmp_path / name)
    tables = [gzip.decompress((tmp_path / name / "mail.csv.gz").read_bytes()) for name in ("one", "two")]
    assert tables[0] == tables[1]


@pytest.mark.parametrize("what", ["absent", "no words"])
def test_what_cannot_be_labelled_is_named(tmp_path: Path, what: str) -> None:
    path = tmp_path / "mail.csv"
    if what == "no words":
        table(path, columns=())
    with pytest.raises(UserError, match="cannot read" if what == "absent" else "no column subject or text"):
        write([path], 2, 1, tmp_path / "out")


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "haystream_service.study.words",
        str(tmp_path / "none.csv"),
        "--out",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "cannot read" in done.stderr
