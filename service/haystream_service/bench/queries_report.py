"""What `haystream bench queries` says: its JSON, which of its targets are met, and a drawing."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haystream_service.bench.queries import FIRST, Measured, Row
from haystream_service.bench.report import GIB, Target, machine
from haystream_service.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axis import Axis

MANY = 1000
"""Open queries that the targets speak of."""
DRAWN = {
    "memory_per_query": ("memory per query", "MiB", 2**20),
    "slim_per_query": ("memory per query that is slim", "MiB", 2**20),
    "open_ms": ("opening a query", "ms", 1),
    "later_verdicts_ms": (f"a verdict after the first {FIRST}, mean", "ms", 1),
    "first_verdicts_ms": (f"a verdict of the first {FIRST}, mean", "ms", 1),
    "slim_verdict_ms": ("a verdict of a slim query, median", "ms", 1),
    "new_item_ms": ("new item on a known edge, median", "ms", 1),
    "new_edge_ms": ("new item on a new edge, median", "ms", 1),
}
"""Panels: the rows' field, title, unit, and how much of the field a unit is. Times are until all rankings that it
changes are there."""


def as_json(found: Sequence[Measured], **run: Any) -> dict[str, Any]:
    """Everything, flat: a row for every graph, way to search and number of queries."""
    sizes = by_graph(found)
    return {
        "results": [asdict(row) for size in sizes for row in size.rows],
        "collections": [
            {key: value for key, value in asdict(size).items() if key not in ("rows", "failed")} for size in sizes
        ],
        "failed": [
            {"graph": size.graph, "edges": size.edges, "reason": reason} for size in sizes for reason in size.failed
        ],
        "targets": [asdict(target) for size in sizes for target in targets(size)],
        "machine": machine(),
        **run,
    }


def by_graph(found: Sequence[Measured]) -> list[Measured]:
    """With all that was measured on a graph together, whatever the verdicts were on."""
    graphs: dict[int, Measured] = {}
    for each in found:
        known = graphs.get(each.edges, replace(each, rows=[], failed=[]))
        graphs[each.edges] = replace(known, rows=known.rows + each.rows, failed=known.failed + each.failed)
    return list(graphs.values())


def targets(size: Measured) -> list[Target]:
    """What is asked of queries on one graph, by the worst of the ways to search."""
    at, rows = f"at {size.edges:,} edges", size.rows
    if not rows:
        return []
    slim, needed = (
        max(size.collection_bytes + row.shared_bytes + MANY * getattr(row, per_query) for row in _most(rows)) / GIB
        for per_query in ("slim_per_query", "memory_per_query")
    )
    ratios = [_ratio(row.first_verdicts_ms, row.later_verdicts_ms) for row in rows]
    return [
        _target(f"{MANY:,} queries {at} in 8 GiB, by what the most that were open took each", needed, 8.0, "GiB"),
        _target(f"the same {at} while nothing comes for them", slim, 8.0, "GiB"),
        _target(f"opening one {at}: under 50 ms", max(row.open_ms for row in rows), 50.0, "ms"),
        _target(f"a query's first {FIRST} verdicts {at} as fast as later ones, means", max(ratios), 1.1, "times"),
        _target(f"a verdict {at} no slower than in the same query alone", _at_worst(rows, "times_alone"), 1.1),
        _target(
            f"a new edge {at} that no query has reached: under twice its cost with one query open",
            _growth(rows, "new_edge_nobody_ms"),
            2.0,
        ),
    ]


def _most(rows: Sequence[Row]) -> list[Row]:
    most = {row.following: max(r.queries for r in rows if r.following == row.following) for row in rows}
    return [row for row in rows if row.queries == most[row.following]]


def _at_worst(rows: Sequence[Row], field: str) -> float | None:
    """The most that it is where several queries are open; None where that was not measured."""
    return max((getattr(row, field) for row in rows if row.queries > 1), default=None)


def _growth(rows: Sequence[Row], field: str) -> float | None:
    """How many times as much it is with most queries as with one, at worst; None where that was not measured."""
    one = {row.following: getattr(row, field) for row in rows if row.queries == 1}
    many = [(getattr(row, field), one[row.following]) for row in _most(rows) if row.queries > 1 and one]
    return max((_ratio(*pair) for pair in many if None not in pair), default=None)


def _ratio(value: float, other: float) -> float:
    return value / max(other, 1e-3)


def _target(what: str, value: float | None, limit: float, unit: str = "times") -> Target:
    if value is None:
        return Target(what, "not measured", None)
    return Target(what, f"{value:.3g} {unit}", value <= limit)


def draw(result: dict[str, Any], path: Path) -> None:
    """A PNG of the result of `as_json`: each quantity against the number of open queries, both axes logarithmic."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 6.5), layout="constrained")
    lines = {(row["edges"], row["following"]): None for row in result["results"]}
    for axes, (field, (title, unit, size)) in zip(figure.subplots(2, 4).flat, DRAWN.items(), strict=True):
        for edges, following in lines:
            rows = [row for row in result["results"] if (row["edges"], row["following"]) == (edges, following)]
            label = f"{edges:,} edges, verdicts on {following}"
            axes.plot(
                [row["queries"] for row in rows], [row[field] / size for row in rows], marker="o", label=label
            )
        axes.set(xscale="log", yscale="log", xlabel="open queries", ylabel=unit, title=title)
        axes.grid(visible=True, which="major", alpha=0.3)
        axes.xaxis.set_major_formatter("{x:,g}")
        _label(axes.yaxis, *axes.get_ylim())
        axes.tick_params(which="both", labelsize="x-small")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize="small", frameon=False)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None


def _label(axis: "Axis", low: float, high: float) -> None:
    """Label so many ticks of a logarithmic axis that its scale can be read, and so few that they can."""
    from matplotlib.ticker import LogLocator

    axis.set_major_formatter("{x:,g}")
    axis.set_minor_formatter("{x:,g}" if high < 1000 * low else "")
    if high >= 10 * low:
        axis.set_minor_locator(LogLocator(subs=(2, 3, 5)))
