"""`haystream bench recipients`: what items of many people cost."""

from rich.table import Table

from haystream_service.bench import recipients
from haystream_service.commands.bench_results import number
from haystream_service.console import notes, results, write_json


def run(*, edges: int, items: int, seed: int, json: bool) -> None:
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
