"""The commands of those who work with a query: open it, take items, decide, export."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape

from haystream.events import Outcome
from haystream_service.api.messages import ItemAnswer, LeaseAnswer, QueryAnswer
from haystream_service.client import Haystream
from haystream_service.commands.connected import connected
from haystream_service.commands.console import notes, write_json
from haystream_service.errors import UserError


def run_open(
    query_id: str, *, collection: str, top: int | None, watch: list[str], config: Path | None, json: bool
) -> None:
    """Open a query. Raises `UserError`."""
    settings: dict[str, Any] = {"collection": collection}
    if top is not None:
        settings["top"] = top
    if watch:
        settings["prior"] = {"participants": dict(map(_watched, watch))}
    _change(lambda client: client.open(query_id, settings), config=config, json=json)


def run_status(
    query_id: str, status: Literal["open", "paused", "closed"], *, config: Path | None, json: bool
) -> None:
    """Pause, close or reopen a query. Raises `UserError`."""
    _change(lambda client: client.change(query_id, {"status": status}), config=config, json=json)


def run_next(query_id: str, *, count: int, minutes: float, config: Path | None, json: bool) -> None:
    """Take the next items and print them. Raises `UserError`."""
    with connected(config) as client:
        leases = client.next(query_id, count=count, seconds=60 * minutes)
        collection = str(client.query(query_id).settings["collection"])
        rows = [_row(lease, client.item(collection, lease.item_id)) for lease in leases]
    if json:
        write_json({"query_id": query_id, "items": rows})
        return
    out = Console(highlight=False, soft_wrap=True)
    for row in rows:
        people = row.get("participants") or [row["sender"], "→", *row["recipients"]]
        chance = f"{row['mean']:.2f}" if "mean" in row else "?"
        out.print(f"[bold]{escape(row['item_id'])}[/]  {chance}  {escape(' '.join(people))}")
    until = f", yours until {rows[0]['until']}" if rows else ""
    notes.print(f"{len(rows)} items{until}")


def run_verdict(query_id: str, item_id: str, outcome: Outcome, *, config: Path | None, json: bool) -> None:
    """Decide, and say where the query stands then. Raises `UserError`."""
    with connected(config) as client:
        given = client.decide(query_id, item_id, outcome, wait="ranking")
        progress = client.progress(query_id)
    if json:
        write_json(given.model_dump(mode="json") | {"progress": progress.model_dump(mode="json")})
        return
    waits = "" if given.ranked else "; the ranking does not reflect it yet"
    notes.print(
        f"{escape(item_id)} is {outcome.value} (verdict {escape(given.verdict.verdict_id)}){waits}. "
        f"Query {escape(query_id)}: {progress.found} relevant in {progress.screened} screened, "
        f"about {progress.expected_remaining.mean:.1f} ± {progress.expected_remaining.sd:.1f} left"
    )


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
            with to.open("wb") as file:
                file.writelines(pieces)
        except OSError as error:
            raise UserError(f"cannot write {to}: {error.strerror or error}") from None


def _row(lease: LeaseAnswer, item: ItemAnswer) -> dict[str, Any]:
    """What an analyst is told of an item that is hers."""
    served = lease.model_dump(exclude={"query_id", "by", "level"}, exclude_none=True)
    return served | item.model_dump(exclude={"item_id", "collection"}, exclude_none=True)


def _change(ask: Callable[[Haystream], QueryAnswer], *, config: Path | None, json: bool) -> None:
    with connected(config) as client:
        found = ask(client)
    if json:
        write_json(found.model_dump(mode="json"))
        return
    waits = "" if found.applied else "; no worker has taken it in yet: one will when it runs"
    status, collection = found.settings["status"], found.settings["collection"]
    notes.print(f"query {escape(found.query_id)} is {status}, on collection {escape(str(collection))}{waits}")


def _watched(text: str) -> tuple[str, float]:
    name, _, mean = text.rpartition("=")
    try:
        return name, float(mean)
    except ValueError:
        raise UserError(
            f"--watch {text}: expected somebody's id, =, and a prior mean: ann@example.org=0.9"
        ) from None
