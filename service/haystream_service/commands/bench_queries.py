"""`haystream bench queries`: what open queries cost."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table

from haystream_service.bench import chart, graphs, queries, queries_report
from haystream_service.commands.bench_results import give, number, targets_table
from haystream_service.console import Upright, results
from haystream_service.processes import alone


def run(jobs: Sequence[queries.Job], *, png: Path | None, json: bool) -> None:
    """Measure every job in a process of its own. Raises `UserError`."""
    graphs.files(jobs[0].graph)
    if png is not None:
        chart.check()
    sizes = [alone(partial(queries.measure, job)) for job in jobs]
    first = jobs[0]
    result = queries_report.as_json(
        sizes, items_per_edge=first.items_per_edge, verdicts=first.verdicts, seed=first.seed
    )
    give(result, json=json, png=png, draw=queries_report.draw, show=_print)


def _print(result: dict[str, Any]) -> None:
    first = queries.FIRST
    measures = (
        *("MiB a query", "slim, MiB", "shared, MiB", "stored kB a query", "open, ms", "load, ms"),
        *(f"first {first} verdicts, mean ms", "p50", "later verdicts, mean ms", "p50", "slim, ms"),
        *("new item, ms", "mean", "concerns %", "later, each, ms"),
        *("new edge, ms", "mean", "concerns %", "later, each, ms"),
    )
    cases = []
    for row in result["results"]:
        memory = (row[which] / 2**20 for which in ("memory_per_query", "slim_per_query", "shared_bytes"))
        sizes = *memory, row["stored_per_query"] / 1e3
        verdicts = (row[f"{part}_verdicts_{what}"] for part in ("first", "later") for what in ("ms", "p50_ms"))
        other = (
            100.0 * row[f"{new}_concerns"] if what == "concerns" else row[f"{new}_{what}"]
            for new in ("new_item", "new_edge")
            for what in ("ms", "mean_ms", "concerns", "later_ms")
        )
        numbers = (*sizes, row["open_ms"], row["load_ms"], *verdicts, row["slim_verdict_ms"], *other)
        case = f"{row['edges']:,} edges, {row['queries']:,} queries, verdicts on {row['following']}"
        cases.append((case, [*map(number, numbers)]))
    out = results()
    out.print(Upright(f"open queries with {result['verdicts']} verdicts each", measures, cases))
    collection = Table("graph", "edges", "participants", "items", "MiB", title="the collection")
    for size in result["collections"]:
        counts = (size[key] for key in ("edges", "participants", "items"))
        collection.add_row(size["graph"], *map(number, (*counts, size["collection_bytes"] / 2**20)))
    out.print(collection)
    for failed in result["failed"]:
        out.print(f"{failed['graph']}, {failed['edges']:,} edges: {failed['reason']}")
    out.print(targets_table(result["targets"]))
