"""What results look like on standard output."""

import io
import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from rich.console import Console

from haystream_service import cli
from haystream_service.api.messages import ItemAnswer
from haystream_service.commands import queue, replay
from haystream_service.console import Upright, results

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


def test_nobody_on_an_item_turns_the_line_around(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names are whatever an address says, and may hold what turns the direction of all that follows."""

    class Client:
        def item(self, collection: str, item_id: str) -> ItemAnswer:
            people = ("bob@\u202ex", "cho@x")
            return ItemAnswer(item_id=item_id, collection=collection, sender="\u2067ann@x", recipients=people)

    monkeypatch.setattr(queue, "connected", lambda _: nullcontext(Client()))
    queue.run_item("m-1", collection="default", config=None, json=False)
    assert capsys.readouterr().out == "m-1  ann@x → bob@x cho@x\n"


def test_no_id_and_no_error_turns_the_line_around(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    turned, log = "\u202ea\u2066[/b]", tmp_path / "log.jsonl"
    item = {"item_id": f"m{turned}", "participants": [f"p{turned}", "q"]}
    lines = [
        ("queries", {"query_id": f"q{turned}"}),
        ("items", item),
        ("items", {**item, "participants": ["q", "r"]}),
    ]
    log.write_text("".join(json.dumps({"topic": topic, "value": value}) + "\n" for topic, value in lines))
    replay.run(log)
    monkeypatch.setattr("sys.argv", ["haystream", "replay", str(tmp_path / f"no{turned}")])
    with pytest.raises(SystemExit):
        cli.main()
    out, err = capsys.readouterr()
    assert all(f"{name}a[/b]" in out for name in "qmp")
    assert "noa[/b]: No such file" in err
    assert not {"\u202e", "\u2066"} & {*out, *err}
