"""The commands of those who work with a query: open it, take items, decide, export."""

import sys
from collections.abc import Callable
from json import dumps, loads
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from haystream.events import Outcome
from haystream_service.api.messages import ItemAnswer, LeaseAnswer, QueryAnswer
from haystream_service.client import ApiProblem, ApiUnavailable, Haystream
from haystream_service.commands.connected import connected
from haystream_service.console import notes, plain, results, shown, whole, write_json
from haystream_service.errors import UserError

SAID_TWICE = {"item_id", "collection"}
"""Of an item, what its lease says too, or the query."""


def run_open(
    query_id: str,
    *,
    collection: str,
    top: int | None,
    watch: list[str],
    scope: dict[str, Any],
    config: Path | None,
    json: bool,
) -> None:
    """Open a query. Raises `UserError`."""
    settings: dict[str, Any] = {"collection": collection}
    if scope:
        settings["scope"] = scope
    if top is not None:
        settings["top"] = top
    if watch:
        settings["prior"] = {"participants": dict(map(_watched, watch))}
    _change(lambda client: client.open(query_id, settings), config=config, json=json)


def scope_of(
    *,
    sent_from: str | None = None,
    sent_to: str | None = None,
    anybody: list[str] | None = None,
    nobody: list[str] | None = None,
    labels: list[str] | None = None,
) -> dict[str, Any]:
    """The scope that the options ask for, as the wire has it. Raises `UserError`."""
    given = {
        "sent": [sent_from, sent_to] if sent_from or sent_to else None,
        "with": anybody,
        "without": nobody,
        "labels": _labels(labels or []),
    }
    return {name: what for name, what in given.items() if what}


def run_status(
    query_id: str, status: Literal["open", "paused", "closed"], *, config: Path | None, json: bool
) -> None:
    """Pause, close or reopen a query. Raises `UserError`."""
    _change(lambda client: client.change(query_id, {"status": status}), config=config, json=json)


def run_next(query_id: str, *, count: int, minutes: float, config: Path | None, json: bool) -> None:
    """Take the next items and print them. Raises `UserError`."""
    with connected(config) as client:
        leases = client.next(query_id, count=count, seconds=60 * minutes, with_text=True)
    if json:
        write_json({"query_id": query_id, "items": list(map(_row, leases))})
        return
    out = results()
    for lease in leases:
        chance = "?" if lease.mean is None else f"{lease.mean:.2f}"
        told = "" if lease.item is None else _line(lease.item)
        out.print(f"[bold]{plain(lease.item_id)}[/]  {chance}  {plain(told)}")
    if count == 1 and leases and leases[0].item is not None:
        _print_text(out, leases[0].item)
    until = f", yours until {leases[0].until}" if leases else ""
    notes.print(f"{len(leases)} items{until}")


def run_item(item_id: str, *, collection: str, config: Path | None, json: bool) -> None:
    """Print an item and what it says. Raises `UserError`."""
    with connected(config) as client:
        item = client.item(collection, item_id)
    if json:
        write_json(item.model_dump(mode="json", exclude_none=True))
        return
    out = results()
    out.print(f"[bold]{plain(item_id)}[/]  {plain(_line(item))}")
    for name, value in (("sent", item.sent_at), ("at", item.uri)):
        if value is not None:
            out.print(f"{name} {plain(value)}")
    for label, given in item.labels.items():
        out.print(plain(f"{label}: {given}"))
    _print_text(out, item)


def run_verdict(query_id: str, item_id: str, outcome: Outcome, *, config: Path | None, json: bool) -> None:
    """Decide, and say where the query stands then. Raises `UserError`."""
    with connected(config) as client:
        given = client.decide(query_id, item_id, outcome, wait="ranking")
        progress = client.progress(query_id)
        there = json or _is_there(client, query_id, item_id)
    if json:
        write_json(given.model_dump(mode="json") | {"progress": progress.model_dump(mode="json")})
        return
    waits = "" if given.ranked else "; the ranking does not reflect it yet"
    notes.print(
        f"{plain(item_id)} is {outcome.value} (verdict {plain(given.verdict.verdict_id)}){waits}. "
        f"Query {plain(query_id)}: {progress.found} relevant in {progress.screened} screened, "
        f"about {progress.expected_remaining.mean:.1f} ± {progress.expected_remaining.sd:.1f} left"
    )
    if not there:
        notes.print(f"there is no item {plain(item_id)} yet: the verdict counts when it comes")


def run_export(
    query_id: str, *, audit: bool, form: Literal["ndjson", "csv"], to: Path | None, config: Path | None
) -> None:
    """Write a query's decisions, or its audit trail. Raises `UserError`."""
    with (
        connected(config) as client,
        client.export(query_id, "audit" if audit else "decisions", form=form) as pieces,
    ):
        if to is None:
            for piece in pieces:
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            return
        try:
            with whole(to) as file:
                file.writelines(pieces)
        except OSError as error:
            raise UserError(f"cannot write {to}: {error.strerror or error}") from None


def _is_there(client: Haystream, query_id: str, item_id: str) -> bool:
    """Whether the query's collection has had the item. A verdict may come first, and an id may be mistyped."""
    try:
        client.item(str(client.query(query_id).settings["collection"]), item_id)
    except ApiProblem as problem:
        return problem.code != "not_found"
    except ApiUnavailable:  # the verdict is given, whatever cannot be said of its item just now
        return True
    return True


def _row(lease: LeaseAnswer) -> dict[str, Any]:
    """What an analyst is told of an item that is hers."""
    served = lease.model_dump(exclude={"query_id", "by", "level", "item"}, exclude_none=True)
    return served | ({} if lease.item is None else lease.item.model_dump(exclude=SAID_TWICE, exclude_none=True))


def _line(item: ItemAnswer) -> str:
    """Who an item is between, and its subject."""
    people = item.participants or (item.sender or "", "→", *(item.recipients or ()))
    subject = " ".join(shown(item.subject or "").split())
    return shown(" ".join(people)) + (f"  {subject}" if subject else "")


def _print_text(out: Console, item: ItemAnswer) -> None:
    """What the item says, or why it is not shown."""
    if item.text is not None:
        out.print(f"\n{plain(item.text)}\n")
    elif item.contents == "gone":
        notes.print("what it says is gone: Kafka does not keep the record any more")
    elif item.contents == "unread":
        notes.print("Kafka does not say now what it says: haystream item reads it")


def _change(ask: Callable[[Haystream], QueryAnswer], *, config: Path | None, json: bool) -> None:
    with connected(config) as client:
        found = ask(client)
    if json:
        write_json(found.model_dump(mode="json"))
        return
    waits = "" if found.applied else "; no worker has taken it in yet: one will when it runs"
    status, collection = found.settings["status"], found.settings["collection"]
    scope = f", of which its scope admits {dumps(found.settings['scope'])}" if "scope" in found.settings else ""
    notes.print(
        f"query {plain(found.query_id)} is {status}, on collection {plain(str(collection))}{plain(scope)}{waits}"
    )


def _labels(texts: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in map(_label, texts):
        if name in found:  # of which the last would hold, for good
            raise UserError(f"--label {name}: given twice, and an item has one value of a label")
        found[name] = value
    return found


def _label(text: str) -> tuple[str, Any]:
    name, there, value = text.partition("=")
    other = name.endswith(":")
    name = name.removesuffix(":")
    if not there or not name:
        raise UserError(f"--label {text}: expected a key, =, and a value: custodian=ann, or year:=2001")
    if not other:
        return name, value
    try:
        return name, loads(value)
    except (ValueError, RecursionError):
        raise UserError(f"--label {name}:=…: expected a number, true or false after :=") from None


def _watched(text: str) -> tuple[str, float]:
    name, _, mean = text.rpartition("=")
    try:
        return name, float(mean)
    except ValueError:
        raise UserError(
            f"--watch {text}: expected somebody's id, =, and a prior mean: ann@example.org=0.9"
        ) from None
