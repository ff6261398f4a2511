"""How benchmarks show what they found, as far as several do it alike."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from haystream_service.console import notes, write_json

Result = dict[str, Any]


def give(
    result: Result,
    *,
    json: bool,
    png: Path | None,
    draw: Callable[[Result, Path], None],
    show: Callable[[Result], None],
) -> None:
    """Draw the result, where a file is named for that, and print it: as JSON, or as `show` does."""
    if png is not None:
        draw(result, png)
        notes.print(f"drawn in {png}")
    if json:
        write_json(result)
    else:
        show(result)


def targets_table(targets: Sequence[dict[str, Any]]) -> Table:
    """A table of what was asked for, with what was measured, and whether it is met."""
    verdicts = {True: "[green]met[/]", False: "[red]missed[/]", None: "-"}
    against = Table("target", "measured", "", title="targets")
    for target in targets:
        against.add_row(target["target"], target["measured"], verdicts[target["met"]])
    return against


def number(value: float) -> str:
    """The value as a cell of a table has it, with two decimals where it is below 10."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2f}"
