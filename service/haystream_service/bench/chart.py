"""Cost against edges, drawn."""

from pathlib import Path
from typing import Any

from haystream_service.errors import UserError

DRAWN = ("verdict", "posterior", "top-50", "changed-verdict", "new-item", "new-edge")
"""Operations with a line of their own."""
MARKS = "x+*vs^dP"
"""Baselines are told apart by these; all are grey."""


def check() -> None:
    """Raise `UserError` if nothing can be drawn here."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UserError("--png needs matplotlib: pip install 'haystream[bench]'") from None


def draw(result: dict[str, Any], path: Path) -> None:
    """A PNG of the result of `report.as_json`, both axes logarithmic."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.subplots()
    for operation in DRAWN:
        rows = _of(result["results"], "operation", operation)
        edges = [row["edges"] for row in rows]
        (line,) = axes.plot(edges, [row["p50_us"] for row in rows], marker="o", markersize=4, label=operation)
        if operation == DRAWN[0]:
            tail = [row["p99_us"] for row in rows]
            axes.plot(edges, tail, color=line.get_color(), linewidth=0.8, label=f"{operation}, 99th percentile")
    names = dict.fromkeys(row["baseline"] for row in result["baselines"])
    for name, mark in zip(names, MARKS, strict=False):
        rows = sorted(_of(result["baselines"], "baseline", name), key=lambda row: row["edges"])
        points = [row["edges"] for row in rows], [row["p50_us"] for row in rows]
        axes.plot(*points, label=name, marker=mark, markersize=7, color="0.3", linestyle=":", linewidth=1)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="edges",
        ylabel="µs, median",
        title="What an event costs, and (grey) what others need for the posterior after a verdict",
    )
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small", frameon=False)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None


def _of(rows: list[dict[str, Any]], key: str, name: str) -> list[dict[str, Any]]:
    """The rows of this name that have a time."""
    return [row for row in rows if row[key] == name and row["p50_us"] is not None]
