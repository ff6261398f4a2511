"""What tables of several benchmarks have alike."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table


def targets_table(targets: Sequence[dict[str, Any]]) -> Table:
    """What was asked, and whether it is met."""
    verdicts = {True: "[green]met[/]", False: "[red]missed[/]", None: "-"}
    against = Table("target", "measured", "", title="targets")
    for target in targets:
        against.add_row(target["target"], target["measured"], verdicts[target["met"]])
    return against


def number(value: float) -> str:
    """For a table: two decimals where there are few."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2f}"
