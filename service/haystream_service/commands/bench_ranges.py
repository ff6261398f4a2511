"""`haystream bench ranges`: whether means are as good as promised under every prior."""

from rich.table import Table

from haystream_service.bench import ranges
from haystream_service.console import notes, results, write_json


def run(*, histories: int, first: int, seed: int, tolerance: float, json: bool) -> None:
    """Search for the worst prior."""
    result = ranges.run(histories=histories, first=first, seed=seed, tolerance=tolerance, say=notes.print)
    if json:
        write_json(result)
        return
    names = ("of a participant's mean", "in history", "of a pair's mean", "in history")
    table = Table("model", "histories", *names, title="largest error")
    for row in result["results"]:
        errors = (f"{row['participant_error']:.1e}", f"{row['participant_history']}")
        table.add_row(row["model"], f"{histories:,}", *errors, f"{row['pair_error']:.1e}", f"{row['pair_history']}")
    results().print(table)
