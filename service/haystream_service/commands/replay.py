"""`haystream replay`: folds an event log offline and prints where every query stands."""

import logging
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeGuard

from rich.table import Table

from haystream.engines.local.solves.budget import DEFAULT_TOLERANCE
from haystream.errors import Code, QueryFailed, Rejected
from haystream.events import Event, Item, LeaseFact, Query, Verdict, Withdrawal
from haystream.fold import State, step
from haystream.report import Report, report
from haystream_service.console import notes, plain, progress, results, size, write_json
from haystream_service.errors import UserError
from haystream_service.importers.results import opened
from haystream_service.wire import decode_line

log = logging.getLogger(__name__)

EngineName = Literal["local", "reference"]
ROWS_SHOWN = 10
"""Rows of each table that people get to see; --json has all."""


@dataclass(frozen=True, slots=True)
class RejectedLine:
    """A line that is no event, or none that can be applied. Lines count from 1."""

    line: int
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """A query that could not be computed, with the reason. Others can."""

    query_id: str
    code: str
    detail: str


@dataclass(slots=True)
class Replayed:
    """What a log came to."""

    state: State
    events: int = 0
    """Lines that hold one."""
    rejected: list[RejectedLine] = field(default_factory=list)
    stopped: dict[str, Stopped] = field(default_factory=dict)

    def stop(self, query_id: str, error: Exception) -> None:
        """Note that the query could not be computed."""
        named = isinstance(error, QueryFailed)
        code = error.code if isinstance(error, QueryFailed) else Code.QUARANTINED
        detail = error.detail if isinstance(error, QueryFailed) else f"computing it raised {error!r}"
        if not named:
            log.error("query %r", query_id, exc_info=error)
        self.stopped.setdefault(query_id, Stopped(query_id, code, detail))

    def reports(self, query_ids: Iterable[str]) -> list[Report]:
        """Where these queries stand, but for those that cannot be computed."""
        reports = []
        for query_id in query_ids:
            if query_id in self.stopped:
                continue
            try:
                reports.append(report(self.state.queries[query_id]))
            except Exception as error:  # noqa: BLE001 - that query's trouble, and told of
                self.stop(query_id, error)
        return reports


def run(
    events: Path,
    *,
    query: str | None = None,
    engine: EngineName | None = None,
    tolerance: float | None = None,
    json: bool = False,
) -> None:
    """Replay and print. Raises `UserError`."""
    with opened(events) as file, progress(f"reading {events.name}", size(events)) as bar:

        def lines() -> Iterable[bytes]:
            for line in file:
                yield line
                bar.advance(len(line))

        replayed = fold(lines(), engine=engine, tolerance=tolerance)
    first = next(iter(replayed.rejected), None)
    if (
        first is not None
        and not replayed.events
        and all(bad.code == Code.MALFORMED_JSON for bad in replayed.rejected)
    ):
        raise UserError(f"{events} is no event log: line {first.line}: {first.detail}")
    opened_queries = replayed.state.queries
    if query is not None and query not in opened_queries:
        known = ", ".join(sorted(opened_queries)) or "none"
        raise UserError(f"{events} opens no query {query!r}; it opens {known}")
    chosen = [query] if query is not None else sorted(opened_queries)
    reports = replayed.reports(chosen)
    stopped = [replayed.stopped[query_id] for query_id in sorted(replayed.stopped)]
    if json:
        write_json(as_json(reports, replayed.rejected) | ({"stopped": stopped} if stopped else {}))
    else:
        _print(reports, replayed.rejected)
        for each in stopped:
            notes.print(f"query {plain(each.query_id)} cannot be computed: {each.code}: {plain(each.detail)}")


def fold(lines: Iterable[bytes], *, engine: EngineName | None = None, tolerance: float | None = None) -> Replayed:
    """What all lines come to; `engine`, where given, serves all queries whatever their settings say."""
    replayed = Replayed(State(tolerance=DEFAULT_TOLERANCE if tolerance is None else tolerance))
    state, rejected = replayed.state, replayed.rejected
    early: list[tuple[int, Verdict | LeaseFact, RejectedLine | None]] = []
    for number, line in enumerate(lines, start=1):
        line = line.removeprefix(BOM_UTF8) if number == 1 else line
        if not line.strip():
            continue
        event, problem = _folded_in(replayed, line, engine)
        bad = None if problem is None else RejectedLine(number, problem.code, problem.detail)
        if _is_early(event, state):
            early.append((number, event, bad))
        elif bad is not None:
            rejected.append(bad)
    rejected.extend(_of_early(early, state))
    rejected.sort(key=lambda rejection: rejection.line)
    return replayed


def _folded_in(replayed: Replayed, line: bytes, engine: EngineName | None) -> tuple[Event | None, Rejected | None]:
    """The event that a line holds, folded in, and why it is rejected, or the line is."""
    event = None
    try:
        event = decode_line(line)
        replayed.events += 1
        if isinstance(event, Query) and engine is not None:
            event = replace(event, engine=engine)
        step(replayed.state, event)
    except Rejected as problem:
        return event, problem
    except Exception as error:
        if event is None or isinstance(event, Item | Withdrawal):
            raise
        replayed.stop(event.query_id, error)
    return event, None


def _of_early(
    early: list[tuple[int, Verdict | LeaseFact, RejectedLine | None]], state: State
) -> Iterator[RejectedLine]:
    """What is rejected of those that came before their query, now that all lines are read."""
    for number, event, bad_then in early:
        if event.query_id in state.deleted:
            continue  # it counted when the query was opened, until it was deleted
        if event.query_id not in state.queries:
            detail = f"no query {event.query_id!r} is opened in the whole log"
            yield RejectedLine(number, Code.UNKNOWN_QUERY, detail)
        elif bad_then is not None:
            yield bad_then


def _is_early(event: Event | None, state: State) -> TypeGuard[Verdict | LeaseFact]:
    if not isinstance(event, Verdict | LeaseFact):
        return False
    return not (event.query_id in state.queries or event.query_id in state.deleted)


def as_json(reports: list[Report], rejected: list[RejectedLine]) -> dict[str, Any]:
    """One query's object where there is one, else all under `queries`; and what was rejected."""
    objects = [_as_json(result) for result in reports]
    whole = objects[0] if len(objects) == 1 else {"queries": objects}
    return {**whole, "rejected": rejected}


def _as_json(result: Report) -> dict[str, Any]:
    people = {name: {"mean": m, "variance": v} for name, (m, v) in result.participants.items()}
    return {
        "query_id": result.query_id,
        "screened": result.screened,
        "found": result.found,
        "discrepancy": result.discrepancy,
        "expected_remaining": asdict(result.expected_remaining),
        "base_rate": result.base_rate,
        "infeasible_edges": result.infeasible_edges,
        "participants": people,
        "edges": result.edges,
        "items": result.items,
    }


def _print(reports: list[Report], rejected: list[RejectedLine]) -> None:

    out = results()
    for result in reports:
        left = result.expected_remaining
        out.print(
            f"[bold]query {plain(result.query_id)}[/]: {result.found} relevant in {result.screened} screened;"
            f" {len(result.items)} items left, about {left.mean:.1f} ± {left.sd:.1f} of them relevant;"
            f" discrepancy {result.discrepancy:.3g}"
        )
        if result.infeasible_edges:
            out.print(
                f"[yellow]{result.infeasible_edges} pairs have prior means too far apart for the prior"
                " correlation; the bound on their joint probability binds (docs/wire-format.md)[/]"
            )
        out.print(_people(result))
        out.print(_items(result))
    if not reports:
        out.print("The log opens no query.")
    if rejected:
        notes.print(f"{len(rejected)} lines were rejected:")
        for rejection in rejected[:ROWS_SHOWN]:
            notes.print(f"  line {rejection.line}: {rejection.code}: {plain(rejection.detail)}")
        if len(rejected) > ROWS_SHOWN:
            notes.print(f"  and {len(rejected) - ROWS_SHOWN} more; --json lists them all")


def _people(result: Report) -> Table:
    ordered = sorted(result.participants.items(), key=lambda entry: (-entry[1][0], entry[0]))
    table = Table("participant", "E(Z)", "sd", title=_title("participants", len(ordered)))
    for name, (mean, variance) in ordered[:ROWS_SHOWN]:
        table.add_row(plain(name), f"{mean:.4f}", f"{variance**0.5:.4f}")
    return table


def _items(result: Report) -> Table:
    table = Table("rank", "item", "score", "mean", "sd", title=_title("what to read next", len(result.items)))
    for rank, item in enumerate(result.items[:ROWS_SHOWN], start=1):
        table.add_row(str(rank), plain(item.item_id), f"{item.score:.4f}", f"{item.mean:.4f}", f"{item.sd:.4f}")
    return table


def _title(what: str, count: int) -> str:
    return what if count <= ROWS_SHOWN else f"{what} ({ROWS_SHOWN} of {count})"
