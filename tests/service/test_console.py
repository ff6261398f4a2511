"""What results look like on standard output."""

import io

import pytest
from rich.console import Console

from haystream_service.commands.console import Upright, results

MEASURES = ("MiB a query", "opening, ms")
CASES = [
    (f"{edges:,} edges, {n} queries", (f"{edges}.25", f"{n}.5")) for edges in (1_000, 10_000) for n in range(6)
]


def lines(console_width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=console_width, soft_wrap=True).print(Upright("open queries", MEASURES, CASES))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [30, 80, 130, 400])
def test_no_number_is_cut_off_however_little_room_there_is(width: int) -> None:
    printed = lines(width)
    words = " ".join(printed).replace("│", " ").split()
    for _, values in CASES:
        for value in values:
            assert value in words
    assert "…" not in " ".join(printed)
    assert max(map(len, printed)) <= width
    assert sum(line.startswith("│ MiB a query") for line in printed) == {30: 12, 80: 3, 130: 2, 400: 1}[width]


def test_a_table_in_a_file_takes_the_room_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    results().print(Upright("open queries", MEASURES, CASES))
    assert capsys.readouterr().out.count("MiB a query") == 1
    monkeypatch.setenv("COLUMNS", "60")
    results().print(Upright("open queries", MEASURES, CASES))
    assert capsys.readouterr().out.count("MiB a query") > 1
