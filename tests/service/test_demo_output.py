"""`haystream demo`: what a person sees on the screen, and a program reads."""

import json
import sys
from collections.abc import Callable

import pytest
from rich.console import Console

from haystream_service import cli
from haystream_service.commands import demo
from haystream_service.demo.progress import Progress, Screened
from haystream_service.demo.screen import draw
from haystream_service.demo.stage import OR_NAME_THEM, Stage
from haystream_service.sources import Source, synthetic
from haystream_service.wire.records import EstimateRecord, ShareRecord

pytestmark = pytest.mark.usefixtures("no_pace")

SMALL = synthetic(seed=1, edges=56, items_per_edge=5)
ON = Stage(None, "a Kafka", "a Redis")  # type: ignore[arg-type]


def progress_of(source: Source, *, verdicts: int) -> Progress:
    progress = Progress(source, 50, items=len(source), verdicts=verdicts, screened=verdicts)
    if verdicts:
        because = (ShareRecord(participants=("ann@example.org", "bob"), share=0.25),)
        progress.found, progress.expected_remaining = 1234, EstimateRecord(mean=77.4, sd=5.6)
        progress.latencies = [0.001, 0.0025, 4.0]
        progress.recent.append(Screened("m1", ("ann@example.org", "x" * 30), True, because))
        progress.recent.append(Screened("m2", ("bob", "cho", "dan"), False, because))
    return progress


def test_the_summary_keeps_its_contract():
    summary = demo.summary(progress_of(SMALL, verdicts=40), ON)
    assert json.loads(json.dumps(summary)) == summary
    assert summary["runs_on"] == {"kafka": "a Kafka", "redis": "a Redis"}
    assert (summary["items"], summary["verdicts"], summary["screened"]) == (len(SMALL), 40, 40)
    assert summary["found"] == 1234
    assert summary["random"] == {"found": round(40 * SMALL.relevant / len(SMALL), 1)}
    latency = summary["latency_ms"]
    assert isinstance(latency, dict)
    assert list(latency) == ["p50", "p95", "p99"]
    assert latency["p50"] == 2.5
    assert summary["expected_remaining"] == {"mean": 77.4, "sd": 5.6}


def test_a_summary_of_nothing_has_no_numbers_that_are_none():
    summary = demo.summary(progress_of(SMALL, verdicts=0), ON)
    assert summary["latency_ms"] == {"p50": None, "p95": None, "p99": None}
    assert summary["expected_remaining"] is None
    assert "NaN" not in json.dumps(summary)


def test_the_result_in_words():
    words = demo.in_words(progress_of(SMALL, verdicts=40))
    assert words.isascii()
    assert f"screened 40 of {len(SMALL)} items and found 1,234 of {SMALL.relevant} relevant ones" in words
    assert "p50 2.5 ms" in words


def drawn(progress: Progress, *, width: int, encoding: str = "utf-8") -> str:
    class Sink:
        def __init__(self) -> None:
            self.encoding = encoding

        def write(self, text: str) -> int:
            return len(text.encode(encoding))  # as strict as a terminal of that encoding

        def flush(self) -> None: ...

    console = Console(record=True, width=width + 2, file=Sink(), soft_wrap=True)  # type: ignore[arg-type]
    console.print(draw(progress, "a [bold] title", width=width))
    return console.export_text()


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_screen_shows_how_it_goes(encoding):
    text = drawn(progress_of(SMALL, verdicts=40), width=78, encoding=encoding)
    random = 40 * SMALL.relevant / len(SMALL)
    for shown in (
        "a [bold] title",
        "1,234 relevant",
        f"{random:.0f} relevant",
        f"{len(SMALL)} of {len(SMALL)} items",
        "40 of 50",
        "77 expected, give or take 6",
        "p50 2.5 ms",
        "p99 3,920.1 ms",
        "ann - xxxxxxxxxxxxxxxxxx..",
        "bob - cho - dan",
        "+0.250",
    ):
        assert shown in text


@pytest.mark.parametrize("verdicts", [0, 40])
@pytest.mark.parametrize("width", [30, 78, 100])
def test_the_screen_fits(width, verdicts):
    lines = drawn(progress_of(SMALL, verdicts=verdicts), width=width).splitlines()
    assert {len(line.rstrip()) for line in lines} == {width}
    assert not any("nan" in line.lower() for line in lines)


@pytest.fixture
def haystream(monkeypatch, capfd) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["haystream", "demo", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        out, err = capfd.readouterr()
        return left.value.code, out, err  # type: ignore[return-value]

    return call


@pytest.mark.usefixtures("no_java")
def test_one_json_object_and_nothing_else(haystream, tmp_path):
    mails = tmp_path / "mails.csv"
    rows = "".join(f"m{i},p{i % 3},p{i % 3 + 1},{i % 2}\n" for i in range(20)) + "m99,a,a,1\n"
    mails.write_text("item_id,sender,recipients,relevant\n" + rows)
    code, out, err = haystream("--headless", "--json", "--source", mails)
    assert code == 0
    result = json.loads(out)
    assert (result["screened"], result["verdicts"], result["items"], result["found"]) == (20, 20, 20, 10)
    assert result["runs_on"]["kafka"].startswith("in memory")
    assert "1 left out: 1 too_few_participants" in err
    assert f"runs on in memory (this process): no Java here; {OR_NAME_THEM}; in memory (this process)" in err


@pytest.mark.usefixtures("no_java")
def test_simulations_of_any_size(haystream):
    code, out, _ = haystream("--headless", "--screenings", 3, "--edges", 60)
    assert code == 0
    assert out.startswith("screened 3 of ")
    assert len(demo._simulated(0, 20_000)) < 1.01 * demo.MOST_ITEMS


@pytest.mark.parametrize("arguments", [("--source", "none.csv"), ("--edges", 3), ("--seconds", 0)])
def test_wrong_use_starts_nothing(haystream, arguments):
    code, out, err = haystream(*arguments)
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    assert "starting" not in err
