"""`haystream simulate`: the paper's search experiment, on any item table."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from rich.table import Table

from haystream_service.console import notes, plain, results, write_json
from haystream_service.errors import UserError
from haystream_service.study import plots, report
from haystream_service.study.finish import finish
from haystream_service.study.markdown import write_markdown
from haystream_service.study.network import Network, read_network, read_topics
from haystream_service.study.plan import Given, plan
from haystream_service.study.simulation import PERCENTILES, Searches, check

RELEVANT = "relevant"
"""The name of the query where there is one."""


def run(
    items: Path,
    *,
    models: Sequence[str],
    policies: Sequence[str],
    steps: int,
    runs: int,
    seed: int,
    processes: int,
    options: Sequence[str],
    topics: Sequence[str] | None,
    two_party: bool,
    out: Path | None,
    json: bool,
) -> None:
    """Simulate, print, and write into `out`. Raises `UserError`."""
    given = _given(options)
    plan(models, policies, (), runs, given)  # what is misspelt is said before anything is read
    if out is not None:
        plots.check()
    with notes.status(f"reading {plain(str(items))}"):
        networks = _read(items, topics, two_party=two_party)
    planned, searches = plan(models, policies, networks, runs, given), Searches(networks, steps, seed)
    check(planned, searches)
    _introduce(searches)
    finished = finish(planned, searches, processes=processes, out=out)
    several = len(networks) > 1
    result = (report.topics_as_json if several else report.as_json)(planned, searches, finished)
    if out is not None:
        _write(result, out)
    if json:
        write_json(result)
    else:
        screen = results()
        screen.print(_topics_table(result) if several else _table(result))
        if early := [at for at in result["results"][0]["found_at"] if int(at) < steps]:
            screen.print(_early_table(result, early))


def _read(items: Path, topics: Sequence[str] | None, *, two_party: bool) -> dict[str, Network]:
    if topics is None:
        return {RELEVANT: read_network(items, two_party=two_party)}
    by_column = read_topics(items, topics, two_party=two_party)
    return {query: network for queries in by_column.values() for query, network in queries.items()}


def _introduce(searches: Searches) -> None:
    network = next(iter(searches.networks.values()))
    if network.skipped:
        codes = ", ".join(f"{count} {code}" for code, count in network.skipped.most_common())
        notes.print(f"{network.skipped.total():,} left out: {codes}")
    notes.print(
        f"{network.name}: {len(network.relevant):,} items on {network.edges:,} edges between "
        f"{len(network.participants):,} participants",
        markup=False,
    )
    if len(network.relevant) < searches.steps:
        notes.print("there are fewer items than screenings: every search ends with all of them")


def _write(result: dict[str, Any], out: Path) -> None:
    report.write_tables(result, out)
    write_markdown(result, out)
    try:
        (out / "results.json").write_bytes(orjson.dumps(result, option=orjson.OPT_APPEND_NEWLINE))
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}") from None
    drawn = plots.draw(result, out)
    notes.print(f"in {plain(str(out))}: {', '.join(sorted(path.name for path in drawn))}, tables, runs.jsonl")


def _table(result: dict[str, Any]) -> Table:
    title = f"{result['runs']} runs of {result['steps']:,} screenings, {result['relevant']:,} relevant"
    rates = "; ".join(f"> {p}th: above {result['rates'][f'p{p}']:.3g}" for p in PERCENTILES)
    caption = f"± 1 standard error; changes of edge; screened on edges of high true rate ({rates})"
    table = Table(title=title, caption=caption)
    table.add_column("model")
    table.add_column("policy")
    for name in ("found", "changes", *(f"> {p}th" for p in PERCENTILES)):
        table.add_column(name, justify="right", no_wrap=True)
    for row in sorted(result["results"], key=lambda row: -row["found"]["mean"]):
        figures = (row["edge_changes"], *(row[f"above_p{p}"] for p in PERCENTILES))
        found = _estimate(row["found"], decimals=1)
        table.add_row(
            row["label"], row["policy_label"], found, *(_estimate(figure, decimals=0) for figure in figures)
        )
    return table


def _topics_table(result: dict[str, Any]) -> Table:
    """Over topics; each topic's figures are too wide for a screen, and go into files."""
    count = len(result["topics"])
    title = f"found in {result['steps']:,} screenings, mean of {count} topics and {result['runs']} runs"
    table = Table(title=title, caption="± 1 standard error; geometric: mean over topics of found + 1, less 1")
    table.add_column("model")
    table.add_column("policy")
    for name in ("found", "geometric", "topics it is best on"):
        table.add_column(name, justify="right")
    found = np.array([[topic["found"]["mean"] for topic in row["topics"]] for row in result["results"]])
    best = (found == found.max(axis=0)).sum(axis=1).tolist()
    rows = zip(result["results"], best, strict=True)
    for row, won in sorted(rows, key=lambda pair: -pair[0]["geometric_mean"]):
        figures = (_estimate(row["found"], decimals=1), f"{row['geometric_mean']:.2f}", str(won))
        table.add_row(row["label"], row["policy_label"], *figures)
    return table


def _early_table(result: dict[str, Any], early: Sequence[str]) -> Table:
    """In the order of the table above it."""
    topics = "topics" in result
    table = Table(title="found in the first screenings" + (", geometric mean" if topics else ""))
    table.add_column("model")
    table.add_column("policy")
    for at in early:
        table.add_column(f"{int(at):,}", justify="right", no_wrap=True)
    for row in sorted(
        result["results"], key=lambda row: -(row["geometric_mean"] if topics else row["found"]["mean"])
    ):
        found = (
            f"{row['geometric_mean_at'][at]:.2f}" if topics else _estimate(row["found_at"][at], decimals=1)
            for at in early
        )
        table.add_row(row["label"], row["policy_label"], *found)
    return table


def _estimate(value: dict[str, float | None], *, decimals: int) -> str:
    figures = (f"{figure:,.{decimals}f}" for figure in value.values() if figure is not None)
    return "±".join(figures)


def _given(options: Sequence[str]) -> Given:
    given = {}
    for text in options:
        name, _, values = text.partition("=")
        try:
            given[name] = tuple(float(value) for value in values.split(","))
        except ValueError:
            raise UserError(f"--option {text}: expected name=number, or several numbers with commas") from None
    return given
