"""`haystream experiments`: the paper's figures, run anew."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import orjson
from rich.table import Table

from haystream_service.console import notes, progress, results, write_json
from haystream_service.errors import UserError
from haystream_service.experiments import calibration, caveman, enron, figures, line, tanzania
from haystream_service.experiments.names import Experiment
from haystream_service.experiments.summary import mean_se

SIZED: dict[Experiment, ModuleType] = {
    Experiment.TANZANIA: tanzania,
    Experiment.CAVEMAN: caveman,
    Experiment.ENRON: enron,
    Experiment.CALIBRATION: calibration,
}
"""Those that are run at one of two sizes, in several processes."""
WIDTH = 130
"""Of tables in a file or a pipe: none of them is wrapped."""


def run(experiment: Experiment, *, out: Path, quick: bool, seed: int, processes: int, json: bool) -> None:
    """Run it, write its numbers and figures into `out`, and print them. Raises `UserError`."""
    figures.check()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {out}: {error.strerror}") from None
    result, draw = _run(experiment, quick=quick, seed=seed, processes=processes)
    result["quick"] = quick
    numbers = out / f"{experiment}.json"
    try:
        numbers.write_bytes(orjson.dumps(result, option=orjson.OPT_APPEND_NEWLINE))
    except OSError as error:
        raise UserError(f"cannot write {numbers}: {error.strerror}") from None
    written = [numbers, *draw(result, out)]
    if json:
        write_json(result)
    else:
        _print(TABLES[experiment](result))
    notes.print("written: " + ", ".join(map(str, written)))


def _run(
    experiment: Experiment, *, quick: bool, seed: int, processes: int
) -> tuple[dict[str, Any], Callable[[dict[str, Any], Path], list[Path]]]:
    if experiment == Experiment.LINE:
        return line.run(), line.draw
    module = SIZED[experiment]
    size = module.QUICK if quick else module.FULL
    with progress(experiment, size.tasks) as bar:
        made = module.run(size=size, seed=seed, processes=processes, advance=bar.advance)
    return made, module.draw


def _print(tables: list[Table]) -> None:
    out = results()
    if not out.is_terminal:
        out.width = max(out.width, WIDTH)
    for table in tables:
        out.print(table)


def _line(result: dict[str, Any]) -> list[Table]:
    columns = {"E[Z]": "z_mean", "Var[Z]": "z_variance", "E[P]": "p_mean", "Var[P]": "p_variance"}
    table = Table("observations", "model", *columns, title="largest difference from the field")
    for row in result["differences"]:
        worst = (f"{row[name]['max']:.4f}" for name in columns.values())
        table.add_row(row["observations"], row["model"], *worst)
    return [table]


def _tanzania(result: dict[str, Any]) -> list[Table]:
    last = max(row["observations"] for row in result["accuracy"])
    accuracy = Table(
        *(
            "network",
            "prior conditional",
            "quantity",
            "2.5 %",
            "25 %",
            "median",
            "75 %",
            "97.5 %",
            "mean |difference|",
            "below 0.1",
        ),
        title=f"field less Bayes linear after {last} observations",
    )
    for row in result["accuracy"]:
        if row["observations"] == last:
            accuracy.add_row(
                *(row["density"], str(row["conditional"]), row["quantity"]),
                *(f"{value:.3f}" for value in (*row["quantiles"], row["mean_absolute"]["mean"])),
                f"{row['near']:.0%}",
            )
    found = Table("prior conditional", "policy", "model", "found", "field less this", title=_in_steps(result))
    for row in result["decisions"]:
        found.add_row(
            *(str(row["conditional"]), row["policy"], row["model"]), _pm(row["found"]), _pm(row["less_than_mrf"])
        )
    return [accuracy, found]


def _caveman(result: dict[str, Any]) -> list[Table]:
    moran = Table("ρ", "edges", "nodes", "edges, many networks", "nodes, many networks", title="Moran's I")
    for one, many in zip(result["networks"], result["moran"], strict=True):
        numbers = (f"{one['moran_edges']:.2f}", f"{one['moran_nodes']:.2f}")
        moran.add_row(f"{one['rho']:g}", *numbers, _pm(many["edges"], 2), _pm(many["nodes"], 2))
    return [moran, _searches(result, ("networks", "rho", "mean"))]


def _enron(result: dict[str, Any]) -> list[Table]:
    networks = Table(
        *(
            "network",
            "items",
            "relevant",
            "in random order",
            "items on the best 5 %",
            "on the best 10 %",
            "field's E[Z]",
            "of hubs",
        ),
        title=f"what is there, and what random order finds of it in {result['steps']} screenings",
    )
    for made in result["networks"]:
        field = ("", "") if made["field"] is None else (f"{made['field'][of]:.4f}" for of in ("mean", "hubs"))
        networks.add_row(
            *(str(made[name]) for name in ("network", "items", "relevant")),
            f"{result['steps'] * made['relevant'] / made['items']:.1f}",
            *(str(items) for items in made["good_items"].values()),
            *field,
        )
    return [
        networks,
        _searches(result, ("network",)),
        *([_close_look(result["details"])] if result["details"] else []),
    ]


def _close_look(details: dict[str, Any]) -> Table:
    """Of single searches: one network, one policy, two models."""
    title = f"screenings of the best edges of {details['network']}, greedy, search by search"
    table = Table("edges", "model", "mean", "sd", "least", "most", "more than Bayes linear", title=title)
    led = details["models"]["relevance"]["good"]
    for level in led:
        for model, made in details["models"].items():
            good = made["good"][level]
            more = sum(mine > theirs for mine, theirs in zip(good, led[level], strict=True))
            table.add_row(
                *(f"best {100 - int(level)} %", model, _pm(mean_se(good)), f"{np.std(good, ddof=1):.1f}"),
                *(f"{bound:.0f}" for bound in (min(good), max(good))),
                f"{more} of {len(good)}",
            )
    return table


def _searches(result: dict[str, Any], by: tuple[str, ...]) -> Table:
    headings = ("policy", "model", "P₁₁", "found", "Bayes linear less this", "changes of edge")
    table = Table(*by, *headings, title=_in_steps(result))
    for row in result["results"]:
        p11 = "" if row["p11"] is None else f"{row['p11']:g}"
        numbers = (row["found"], row["less_than_relevance"], row["edge_changes"])
        table.add_row(*(str(row[name]) for name in by), row["policy"], row["model"], p11, *map(_pm, numbers))
    return table


def _calibration(result: dict[str, Any]) -> list[Table]:
    """₀: with concentrations as they are set, not learned. `more`: how often more remained than mean + 2 sd."""
    asked = ("network", "model", "policy", "screened")
    numbers = ("remain", "expected", "ratio", "error", "sd", "held", "more", "ratio₀", "held₀")
    table = Table(*asked, *numbers, title=f"expected remaining, over {result['runs']} repetitions")
    for row in result["results"]:
        plain = row["plain"]
        table.add_row(
            *(row["network"], row["model"], row["policy"], str(row["screened"])),
            *(f"{row[name]['mean']:.0f}" for name in ("truth", "expected")),
            *(_ratio(row), f"{row['error']:.0f}", f"{row['sd']['mean']:.0f}"),
            *(f"{row[name]:.0%}" for name in ("covered", "above")),
            *(_ratio(plain), f"{plain['covered']:.0%}"),
        )
    return [table]


def _ratio(row: dict[str, Any]) -> str:
    return "" if row["ratio"] is None else f"{row['ratio']:.2f}"


TABLES: dict[Experiment, Callable[[dict[str, Any]], list[Table]]] = {
    Experiment.LINE: _line,
    Experiment.TANZANIA: _tanzania,
    Experiment.CAVEMAN: _caveman,
    Experiment.ENRON: _enron,
    Experiment.CALIBRATION: _calibration,
}


def _in_steps(result: dict[str, Any]) -> str:
    return f"relevant items found in {result['steps']} screenings, over {result['runs']} repetitions"


def _pm(value: dict[str, float], digits: int = 1) -> str:
    return f"{value['mean']:.{digits}f} ± {value['se']:.{digits}f}"
