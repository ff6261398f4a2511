"""`haystream bench analysts`: what several analysts find at the same time, beside one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from haystream.warm import warm
from haystream_service.bench import analysts, graphs
from haystream_service.console import notes, progress, results, write_json
from haystream_service.sources import Source, read_source, synthetic


def run(
    data: Sequence[Path],
    *,
    numbers: Sequence[int],
    screenings: Sequence[int],
    reading: tuple[float, float],
    runs: int,
    seed: int,
    json: bool,
) -> None:
    """Search every network with every team, so many times, and print. Raises `UserError`."""
    warm()
    sources: list[Source] = [read_source(path) for path in data]
    if not data:
        enron = graphs.find_data(graphs.ENRON)
        sources = [synthetic(seed=seed), *([read_source(enron)] if enron else [])]
    teams, marks = analysts.teams(numbers), sorted(set(screenings))
    rows: list[dict[str, Any]] = []
    with progress("searching", len(sources) * len(teams) * runs) as bar:
        for source in sources:
            alone: list[analysts.Found] = []
            for team in teams:
                found = []
                for number in range(runs):
                    found.append(
                        analysts.search(source, team, screenings=marks[-1], reading=reading, seed=seed + number)
                    )
                    bar.advance()
                alone = alone or found
                shares = analysts.shares(alone, found, marks)
                rows.append(
                    {
                        "source": source.name,
                        "analysts": team.analysts,
                        "counted": team.counted,
                        "screenings": marks,
                        "found": [float(sum(f.curve[:mark][-1] for f in found)) / runs for mark in marks],
                        "of_one": [share for share, _ in shares],
                        "of_one_se": [error for _, error in shares],
                    }
                )
    result = {"runs": runs, "seed": seed, "reading_seconds": list(reading), "results": rows}
    if json:
        write_json(result)
    else:
        _print(result, marks)


def _print(result: dict[str, Any], marks: Sequence[int]) -> None:
    out = results()
    for name in dict.fromkeys(row["source"] for row in result["results"]):
        table = Table(
            "analysts", "what they have", *(f"found in {mark}, of one's" for mark in marks), title=f"{name}"
        )
        for row in result["results"]:
            if row["source"] != name:
                continue
            kind = "-" if row["analysts"] == 1 else ("counted as screened" if row["counted"] else "only taken out")
            cells = (
                f"{found:.1f}" if row["analysts"] == 1 else f"{found:.1f}  {share:.3f} ± {error:.3f}"
                for found, share, error in zip(row["found"], row["of_one"], row["of_one_se"], strict=True)
            )
            table.add_row(str(row["analysts"]), kind, *cells)
        out.print(table)
    notes.print(f"means over {result['runs']} orders of ties; ± one standard error of the share")
