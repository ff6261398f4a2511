"""`haystream bench pipeline`: from a verdict in Kafka to its ranking there, with real servers."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from haystream_service.bench import pipeline
from haystream_service.bench.stress import Stress
from haystream_service.commands.bench_results import number
from haystream_service.console import Upright, notes, results, write_json


def run(
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
    noop, sizes = asyncio.run(_measured(cases, load, stress))
    result = pipeline.as_json(noop, sizes, load)
    if json:
        write_json(result)
    else:
        _print(result)


async def _measured(
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


def _print(result: dict[str, Any]) -> None:
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
