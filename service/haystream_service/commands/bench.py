"""`haystream bench`: what it costs, measured on this machine."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from rich.markup import escape
from rich.table import Table

from haystream_service.bench import audit, baselines, chart, engine, graphs, pipeline, ranges, recipients, report
from haystream_service.bench.stress import Stress
from haystream_service.commands.console import Upright, notes, results, write_json
from haystream_service.errors import UserError
from haystream_service.processes import pool

T = TypeVar("T")


def run_engine(jobs: Sequence[engine.Job], *, png: Path | None, json: bool) -> None:
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
    if png is not None:
        chart.draw(result, png)
        notes.print(f"drawn in {png}")
    if json:
        write_json(result)
    else:
        _print(result)


def run_audit(job: audit.Job, *, json: bool) -> None:
    """Audit the engine after a long history."""
    result = audit.run(job, notes.print)
    if json:
        write_json(result)
        return
    what = (
        f"{result['verdicts']:,} verdicts on {result['edges']:,} edges, {result['sampled']:,} participants sampled"
    )
    table = Table("largest error of", "under load", "at rest", title=what)
    for name in result["at_rest"]:
        table.add_row(name, *(f"{result[when][name]:.1e}" for when in ("under_load", "at_rest")))
    results().print(table)


def run_ranges(*, histories: int, first: int, seed: int, tolerance: float, json: bool) -> None:
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


def run_recipients(*, edges: int, items: int, seed: int, json: bool) -> None:
    """Measure items of many people."""
    result = recipients.run(edges=edges, items=items, seed=seed, say=notes.print)
    if json:
        write_json(result)
        return
    what = f"{result['edges']:,} edges, {items:,} items of each kind"
    measures = ("pairs", "verdict → ranking, p50 ms", "p99 ms", "times that of a pair", "claim → ranking, p50 ms")
    keys = ("verdict_p50_ms", "verdict_p99_ms", "ratio_to_pair", "claim_p50_ms")
    beside_keys = ("claim_beside_p50_ms", "verdict_beside_p50_ms", "ratio_by_edge")
    beside = f"where {recipients.ITEMS_OUT} are handed out: a claim, p50 ms", "a verdict on a pair, p50 ms"
    table = Table("an item", *measures, *beside, "verdicts on each pair, times its posterior", title=what)
    for row in result["results"]:
        measured = (number(row[key]) for key in (*keys, *beside_keys))
        table.add_row(f"{row['kind']} {row['people']:,}", f"{row['pairs']:,}", *measured)
    results().print(table)


def run_pipeline(
    *,
    edges: Sequence[int],
    queries: Sequence[int],
    workers: Sequence[int],
    load: pipeline.Load,
    stress: Stress,
    json: bool,
) -> None:
    """Measure the no-op agent, and the pipeline with every number of each. Raises `UserError`."""
    cases = list(product(sorted(set(edges)), sorted(set(queries)), sorted(set(workers))))
    noop, sizes = asyncio.run(_pipeline(cases, load, stress))
    result = pipeline.as_json(noop, sizes, load)
    if json:
        write_json(result)
    else:
        _print_pipeline(result)


async def _pipeline(
    cases: Sequence[tuple[int, int, int]], load: pipeline.Load, stress: Stress
) -> tuple[pipeline.Measured, list[pipeline.Measured]]:
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # topics that are a moment old have no leader yet
    notes.print("starting Kafka and Valkey ...")
    async with pipeline.servers() as (kafka, redis):
        notes.print("a Faust agent that does nothing")
        noop = await pipeline.measure_noop(kafka, redis, load, stress)
        sizes = []
        for edges, queries, workers in cases:
            notes.print(_case(edges, queries, workers))
            this = replace(load, queries=queries, workers=workers)
            sizes.append(await pipeline.measure(kafka, redis, edges, this, stress))
    return noop, sizes


def _case(edges: int, queries: int, workers: int) -> str:
    """What a case is called; one query and one worker go without saying."""
    several = ((queries, "queries"), (workers, "workers"))
    return ", ".join([f"{edges:,} edges", *(f"{count:,} {what}" for count, what in several if count > 1)])


def _print_pipeline(result: dict[str, Any]) -> None:
    keys = ("p50_ms", "p95_ms", "p99_ms", "p50_ratio", "items_per_s", "items_ratio", "opened_s")
    measures = (
        *("p50 ms", "p95 ms", "p99 ms", "times no-op's p50", "items/s", "times no-op's", "opened in s"),
        *("p50 ms just then", "p99 ms just then"),
    )
    rows = [("no-op agent", result["noop"])]
    rows += [(_case(row["edges"], row["queries"], row["workers"]), row) for row in result["results"]]
    cases = []
    for name, row in rows:
        fresh = row.get("fresh", {})
        values = [row.get(key) for key in keys] + [fresh.get(key) for key in ("p50_ms", "p99_ms")]
        cases.append((name, ["" if value is None else number(value) for value in values]))
    table = Upright("pipeline: verdict produced to ranking consumed, and items taken in", measures, cases)
    out = results()
    out.print(table)
    met = [(name, phase) for name, row in rows for phase in row["phases"]]
    if met:
        out.print(_phases(met))
    for name, row in rows:
        if start := row.get("start"):
            out.print(
                f"{name}: a worker is ready in {start['idle_s']} s with {start['queries']:,} idle queries,"
                f" in {start['touched_s']} s where all of them were touched lately, in {start['empty_s']} s without"
            )


def _phases(met: Sequence[tuple[str, dict[str, Any]]]) -> Upright:
    measures = ("p50 ms", "p99 ms", "verdicts", "unanswered", "s", "done", "MiB before", "peak", "after")
    cases = []
    for name, phase in met:
        counts = (
            f"{phase['verdicts']:,}",
            f"{phase['unanswered']:,}",
            number(phase["seconds"]),
            f"{phase['done']:,}",
        )
        memory = (f"{size:,}" for size in phase["memory_mib"])
        values = (number(phase["p50_ms"]), number(phase["p99_ms"]), *counts, *memory)
        cases.append((f"{name}: {phase['phase']}", values))
    return Upright("verdicts while something else goes on", measures, cases)


def alone(work: Callable[[], T]) -> T:
    """What the work comes to in a process of its own: so is its peak of memory, and what it leaves slows nobody."""
    with pool(1) as executor:
        return executor.submit(work).result()


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


def targets_table(targets: Sequence[dict[str, Any]]) -> Table:
    """What was asked, and whether it is met."""
    verdicts = {True: "[green]met[/]", False: "[red]missed[/]", None: "-"}
    against = Table("target", "measured", "", title="targets")
    for target in targets:
        against.add_row(target["target"], target["measured"], verdicts[target["met"]])
    return against


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


def number(value: float) -> str:
    """For a table: two decimals where there are few."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2f}"
