"""Which model and policy come near the best on every sort of search: a plan's searches, and their table.

    python -m haystream_service.study.survey PLAN.toml --out DIR [--pairs MODEL:POLICY,…] [--against MODEL:POLICY,…]

Standard output has the tables as Markdown. DIR keeps found.csv and the searches, one folder a table as of
`haystream simulate --out`, so that the command goes on where it was stopped, or with other pairs. It knows a search
by the names of its model and policy: when their code has changed, say so with --anew, or give another DIR.
"""

import argparse
import os
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from haystream.events import Policy
from haystream_service.bench.graphs import data_path
from haystream_service.console import notes
from haystream_service.errors import UserError
from haystream_service.study.finish import finish
from haystream_service.study.network import Network, read_topics
from haystream_service.study.plan import Pair, Plan, pair
from haystream_service.study.regret import Floats, Survey, SurveyQuery, by_share, by_sort, worst
from haystream_service.study.report import checkpoints, write_csv
from haystream_service.study.simulation import Searches, check

ENOUGH_RELEVANT = 20
"""Relevant items that a query must have: ratios of the counts of fewer are chance."""

OWN_MODELS = tuple(f"rates:{policy}" for policy in dict.fromkeys((Policy().name, "look-ahead", "greedy")))
SCRIPTS = tuple(
    f"{script}:{policy}" for script in ("participant-rate", "neighbour-rate") for policy in ("look-ahead", "greedy")
)


class Table(BaseModel):
    """A table of the plan, and its columns that are searched."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*$")]
    """A folder's, and in the tables that are made."""
    data: str
    """Below HAYSTREAM_DATA."""
    columns: Annotated[dict[str, str], Field(min_length=1)]
    """The sort of each column's queries."""
    two_party: bool = False
    """Leave out items on several edges."""

    @property
    def path(self) -> Path:
        """Where it is. Raises `UserError` where it is not there."""
        return data_path(self.data, f"the table {self.name}")


class File(BaseModel):
    """A plan."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    table: Annotated[list[Table], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is searched, and with what."""

    pairs: tuple[Pair, ...]
    runs: int
    steps: int
    seed: int
    processes: int
    anew: tuple[Pair, ...] = ()
    """Pairs whose finished searches are not to be used."""

    @property
    def at(self) -> tuple[int, ...]:
        """The screenings at which found is counted: the checkpoints, and the end."""
        return tuple(sorted({*checkpoints(self.steps), self.steps}))


def read_plan(path: Path) -> list[Table]:
    """Its tables. Raises `UserError` where the plan or a table's file cannot be used."""
    try:
        with path.open("rb") as file:
            tables = File.model_validate(tomllib.load(file)).table
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise UserError(f"{path}: {'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None
    except ValueError as error:
        raise UserError(f"{path} is not TOML: {error}") from None
    names = [table.name for table in tables]
    for table in tables:
        if names.count(table.name) > 1:
            raise UserError(f"{path} has two tables of the name {table.name}")
        data_path(table.data, str(path))
    return tables


def survey(tables: Sequence[Table], effort: Effort, out: Path) -> tuple[Survey, list[SurveyQuery]]:
    """What was found, and the queries that were left out: they have fewer relevant items than `ENOUGH_RELEVANT`.

    Raises:
        UserError: a table cannot be searched, no query is left, or `out` cannot be used.
    """
    queries, left_out, founds = list[SurveyQuery](), list[SurveyQuery](), list[Floats]()
    for table in tables:
        by_column = read_topics(table.path, list(table.columns), two_party=table.two_party)
        single = sum(map(len, by_column.values())) == 1
        kept: dict[str, Network] = {}
        for column, networks in by_column.items():
            for name, network in networks.items():
                shown = table.name if single else f"{table.name} {name}"
                relevant = int(network.relevant.sum())
                query = SurveyQuery(shown, table.columns[column], relevant, len(network.relevant))
                if relevant < ENOUGH_RELEVANT:
                    left_out.append(query)
                else:
                    queries.append(query)
                    kept[name] = network
        if kept:
            founds.append(_found(table, kept, effort, out / table.name))
    if not queries:
        raise UserError(f"every query of the plan has fewer than {ENOUGH_RELEVANT} relevant items")
    return Survey(effort.pairs, tuple(queries), effort.at, np.concatenate(founds, axis=1)), left_out


def _found(table: Table, networks: dict[str, Network], effort: Effort, out: Path) -> Floats:
    """Mean over runs, shape (pairs, queries, at)."""
    planned = Plan(effort.pairs, tuple(networks), effort.runs)
    searches = Searches(networks, effort.steps, effort.seed)
    check(planned, searches)
    tasks = planned.tasks()
    notes.print(f"{table.name}: {len(networks)} queries, {len(tasks):,} searches", markup=False)
    finished = finish(planned, searches, processes=effort.processes, out=out, anew=effort.anew)
    found = np.array([[finished[task].found(at) for at in effort.at] for task in tasks], dtype=np.float64)
    by_run = found.reshape(effort.runs, len(networks), len(effort.pairs), len(effort.at))
    return np.asarray(by_run.mean(axis=0).swapaxes(0, 1))


def page(surveyed: Survey, left_out: Sequence[SurveyQuery], against: Sequence[Pair], runs: int) -> str:
    """The tables, and what they are."""
    counts = [f"{at:,}" for at in surveyed.at]
    at = f"{', '.join(counts[:-1])} and {counts[-1]}" if len(counts) > 1 else counts[0]
    best = (
        f"the best of all {len(against)}"
        if set(against) == set(surveyed.pairs)
        else f"the best of {len(against)} of them"
    )
    parts = [
        f"Relevant items found in {at} screenings, mean of {runs} orders (½ is added to every count), as a ratio "
        f"to {best} in hindsight. Geometric mean over queries, by sort (queries; their share of relevant items):\n",
        by_sort(surveyed, against),
        "The same over the queries of all sorts, by their share of relevant items (queries):\n",
        by_share(surveyed, against),
        "The least ratio of a query:\n",
        *(worst(surveyed, sort, against) for sort in surveyed.sorts),
    ]
    if left_out:
        names = ", ".join(f"{query.name} ({query.relevant})" for query in left_out)
        parts.append(f"Left out, with fewer than {ENOUGH_RELEVANT} relevant items: {names}.\n")
    return "\n".join(parts)


def _write(surveyed: Survey, out: Path) -> None:
    write_csv(
        out / "found.csv",
        ("sort", "query", "relevant", "items", "model", "policy", *(f"found_at_{at}" for at in surveyed.at)),
        (
            (query.sort, query.name, query.relevant, query.items, model.label, policy.label, *found.tolist())
            for query, by_pair in zip(surveyed.queries, surveyed.found.swapaxes(0, 1), strict=True)
            for (model, policy), found in zip(surveyed.pairs, by_pair, strict=True)
        ),
    )


def _pairs(text: str) -> tuple[Pair, ...]:
    try:
        made = tuple(dict.fromkeys(pair(name) for name in text.split(",") if name.strip()))
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not made:
        raise argparse.ArgumentTypeError("name a pair: MODEL:POLICY")
    return made


def _from(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected a number of {least} or more, not {text!r}")
        return int(text)

    return number


def main() -> None:
    """Search what the plan says, and print its tables. Exit code 2: that cannot be done."""
    parser = argparse.ArgumentParser(
        description="How near models and policies come to the best in hindsight, by sort of search.",
        epilog="A pair is MODEL:POLICY, as in haystream simulate --help, with options after a space: "
        "'rates weight=30:greedy'.",
    )
    parser.add_argument("plan", type=Path, metavar="PLAN.toml")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="for searches and found.csv")
    parser.add_argument("--pairs", type=_pairs, default=",".join((*OWN_MODELS, *SCRIPTS)), metavar="MODEL:POLICY,…")
    parser.add_argument(
        "--against", type=_pairs, metavar="MODEL:POLICY,…", help="the best of these; default: of all pairs"
    )
    parser.add_argument(
        "--anew",
        type=_pairs,
        default=(),
        metavar="MODEL:POLICY,…",
        help="search these again: their code has changed",
    )
    parser.add_argument("--runs", type=_from(1), default=20, metavar="N", help="orders of the items; default: 20")
    parser.add_argument("--steps", type=_from(1), default=1000, metavar="N", help="screenings; default: 1000")
    parser.add_argument("--seed", type=_from(0), default=0, metavar="N")
    parser.add_argument("--processes", type=_from(1), default=os.cpu_count() or 1, metavar="N")
    given = parser.parse_args()
    against = given.against or given.pairs
    for missing in set(against) - set(given.pairs):
        parser.error(f"--against names {missing[0].label}:{missing[1].label}, which is not among --pairs")
    effort = Effort(given.pairs, given.runs, given.steps, given.seed, given.processes, given.anew)
    try:
        surveyed, left_out = survey(read_plan(given.plan), effort, given.out)
        _write(surveyed, given.out)
    except UserError as error:
        parser.error(str(error))
    sys.stdout.write(page(surveyed, left_out, against, given.runs))


if __name__ == "__main__":
    main()
