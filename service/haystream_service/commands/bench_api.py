"""`haystream bench api`: what an analyst waits for over HTTP."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict

from rich.table import Table

from haystream_service.bench.queue import DO_NOTHING, Answered, Desks, measure
from haystream_service.console import notes, results, write_json


def run(edges: Sequence[int], desks: Desks, *, json: bool) -> None:
    """Measure at each size. Raises `UserError` and `ServerUnavailable`."""
    found = [answered for size in edges for answered in asyncio.run(measure(size, desks, notes.print))]
    if json:
        write_json({"think_seconds": desks.think, "seconds": desks.seconds, "results": list(map(asdict, found))})
        return
    results().print(_table(found), _processes(found), sep="\n")


def _table(found: Sequence[Answered]) -> Table:
    table = Table("edges", "analysts", "asked", "requests", "p50 ms", "p99 ms", "p50 beside nothing")
    for answered in found:
        nothing = answered.timings[DO_NOTHING].p50_us
        for name, timing in answered.timings.items():
            row = [f"{timing.p50_us / 1e3:.2f}", f"{timing.p99_us / 1e3:.2f}", f"{timing.p50_us / nothing:.1f}×"]
            table.add_row(f"{answered.edges:,}", str(answered.analysts), name, f"{timing.samples:,}", *row)
    return table


def _processes(found: Sequence[Answered]) -> Table:
    names = list(dict.fromkeys(name for answered in found for name in answered.cpu_ms))
    table = Table("edges", "analysts", *names, title="CPU ms an item that is claimed, read and judged")
    for answered in found:
        row = [f"{answered.cpu_ms.get(name, 0.0):.2f}" for name in names]
        table.add_row(f"{answered.edges:,}", str(answered.analysts), *row)
    return table
