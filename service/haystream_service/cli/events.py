"""The commands that read and make event logs: `replay`, `import`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from haystream_service.cli.options import Config, Json

app = typer.Typer()


class EngineName(StrEnum):
    """What can compute the posterior."""

    LOCAL = "local"
    REFERENCE = "reference"


class ImportFormat(StrEnum):
    """What `import` can read."""

    CSV = "csv"
    MBOX = "mbox"
    MAILDIR = "maildir"
    EML = "eml"


@app.command()
def replay(
    events: Annotated[Path, typer.Argument(metavar="EVENTS.jsonl", help="An event log; .gz is unpacked.")],
    query: Annotated[str | None, typer.Option(metavar="ID", help="Print this query only.")] = None,
    engine: Annotated[EngineName | None, typer.Option(help="For all queries, whatever their settings say.")] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="How exactly the local engine solves, above 0 and up to 0.01.")
    ] = None,
    json: Json = False,
) -> None:
    """Fold an event log offline and print where its queries stand.

    Each line is {"topic": "queries", "items", "verdicts" or "leases", "value": {...}},
    in any order. Lines that are no events are listed as rejected and change
    nothing. With --json, one query's figures are one object; several queries
    are an object with a list, "queries".

    \b
    haystream replay events.jsonl
    haystream replay events.jsonl.gz --query q1 --engine reference --json
    """
    from haystream_service.commands import replay as command

    if tolerance is not None and not 0 < tolerance <= 0.01:
        raise typer.BadParameter("expected a number above 0 and up to 0.01", param_hint="--tolerance")
    command.run(events, query=query, engine=engine.value if engine else None, tolerance=tolerance, json=json)


@app.command("import")
def import_(
    kind: Annotated[ImportFormat, typer.Argument(help="What PATH is.")],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A file, or a folder of mail.")],
    to: Annotated[
        str | None,
        typer.Option(metavar="FILE|kafka", help="An event log to write, or kafka; default: standard output."),
    ] = None,
    collection: Annotated[str, typer.Option(help="The collection that the items go into.")] = "default",
    text: Annotated[bool, typer.Option("--text", help="Take subject and text, too.")] = False,
    aliases: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Who has which address: a table address,person, or JSON lines."),
    ] = None,
    uri: Annotated[
        str | None,
        typer.Option(
            metavar="TEMPLATE", help="Where an item can be opened: https://mail.example.org/{message_id}."
        ),
    ] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Turn a mail archive or a table into items.

    Tables have the columns item_id, sender and recipients (or participants),
    with ; between people, and if you like sent_at, uri and relevant, and with
    --text subject or text. Of mail, addresses, date and Message-ID are taken,
    with --text what a reader is shown, without attachments. What cannot be
    read is counted and listed, and stops nothing.

    In --uri, names in braces are filled in: of mail message_id, item_id and
    file, of a table its columns, and collection.

    \b
    haystream import csv mails.csv.gz --to items.jsonl
    haystream import mbox archive.mbox --text --aliases people.csv --to kafka
    haystream import mbox archive.mbox --collection case-7 > items.jsonl
    HAYSTREAM_KAFKA=broker:9092 haystream import maildir ~/Maildir --to kafka
    """
    from haystream_service.commands import import_ as command

    command.run(
        kind.value,
        path,
        to=to,
        collection=collection,
        text=text,
        aliases=aliases,
        uri=uri,
        config=config,
        json=json,
    )
