"""`haystream bench engine`: what every event costs as the graph grows, beside what others cost."""

from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from haystream_service.bench import baselines, chart, engine, graphs, report
from haystream_service.commands.bench_results import give, number, targets_table
from haystream_service.console import notes, results
from haystream_service.errors import UserError
from haystream_service.processes import alone


def run(jobs: Sequence[engine.Job], *, png: Path | None, json: bool) -> None:
    """Measure the engine at every size of one graph, and the baselines. Raises `UserError`."""
    first = jobs[0]
    graphs.files(first.graph)
    if png is not None:
        chart.check()
    options: dict[str, Any] = {"seconds": first.seconds, "seed": first.seed, "tolerance": first.tolerance}
    sizes: list[engine.Measured] = []
    failed: list[dict[str, Any]] = []
    notes.print("baselines on the paper's largest network")
    network = alone(partial(baselines.on_network, **options))
    for job in jobs:
        notes.print(f"{job.graph}, {job.edges:,} edges")
        try:
            measured = alone(partial(engine.measure, job))
        except BrokenProcessPool:
            reason = "its process came to an early end: too little memory, perhaps"
            failed.append({"graph": job.graph, "edges": job.edges, "reason": reason})
            notes.print(f"  {reason}")
            continue
        if all(measured.edges != size.edges for size in sizes):  # a real graph may be smaller than what is wanted
            sizes.append(measured)
    if not sizes:
        raise UserError("no size could be measured")
    result = report.as_json(
        first.graph, sizes, network, **options, items_per_edge=first.items_per_edge, failed=failed
    )
    give(result, json=json, png=png, draw=chart.draw, show=_print)


def _print(result: dict[str, Any]) -> None:
    out = results()
    out.print(_operations(result))
    out.print(_baselines(result))
    for row in result["baselines"]:
        if row["skipped"] is not None:
            out.print(f"{row['baseline']} was skipped: {escape(row['skipped'])}")
    memory = Table(
        "graph",
        "edges",
        "participants",
        "items",
        "peak MiB",
        "edges/verdict",
        "bytes/verdict",
        title="memory, and what a verdict changes",
    )
    for row in result["memory"]:
        numbers = (row["edges"], row["participants"], row["items"], row["peak_bytes"] >> 20)
        changed = (row["changed_edges_per_verdict"], row["changed_bytes_per_verdict"])
        memory.add_row(row["graph"], *map(number, (*numbers, *changed)))
    out.print(memory)
    out.print(targets_table(result["targets"]))


def _operations(result: dict[str, Any]) -> Table:
    table = Table(
        "operation", "edges", "p50 µs", "p99 µs", "p50, times the smallest size's", "samples", title="engine"
    )
    for row in sorted(result["results"], key=lambda row: (_first(result, row["operation"]), row["edges"])):
        ratio = "" if row["ratio_to"] is None else f"{row['ratio_to']:.2f}"
        numbers = (row["edges"], row["p50_us"], row["p99_us"])
        table.add_row(row["operation"], *map(number, numbers), ratio, number(row["samples"]))
    return table


def _first(result: dict[str, Any], operation: str) -> int:
    return [row["operation"] for row in result["results"]].index(operation)


def _baselines(result: dict[str, Any]) -> Table:
    title = "baselines, a verdict; times haystream's new posterior on the same verdicts"
    table = Table("baseline", "graph", "edges", "p50 µs", "p99 µs", "times", "largest difference", title=title)
    for row in result["baselines"]:
        edges = number(row["edges"])
        if row["p50_us"] is None:
            table.add_row(row["baseline"], row["graph"], edges, "skipped")
            continue
        unfinished = row["verdicts"] < row["of_verdicts"]
        name = (
            f"{row['baseline']} (first {row['verdicts']} of {row['of_verdicts']})"
            if unfinished
            else row["baseline"]
        )
        difference = "" if row["max_difference"] is None else f"{row['max_difference']:.1e}"
        times = "" if row["ratio_to"] is None else f"{row['ratio_to']:,.1f}"
        table.add_row(name, row["graph"], edges, number(row["p50_us"]), number(row["p99_us"]), times, difference)
    return table
