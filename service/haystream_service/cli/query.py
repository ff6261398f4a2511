"""What the commands of `haystream query` are called and take; what they do is in `commands.query`."""

from pathlib import Path
from typing import Annotated

import typer

from haystream_service.cli.options import HELP, Config, Json

app = typer.Typer(
    no_args_is_help=True,
    help="Open and change queries, see where they stand, let one go on that was stopped, delete one.",
    context_settings=HELP,
)

QueryId = Annotated[str, typer.Argument(metavar="QUERY_ID")]


@app.command("list")
def list_(
    stopped: Annotated[bool, typer.Option("--stopped", help="Only those that are stopped.")] = False,
    config: Config = None,
    json: Json = False,
) -> None:
    """Print every query, what it has found, and whether it runs.

    running: it is ranked. stopped: it could not be computed. released: it is
    about to be tried again. unknown: verdicts or leases name it, and nobody has opened it.
    deleted: nothing else is left of it. Over the API (HAYSTREAM_API) the last two are left out.

    \b
    haystream query list
    haystream query list --stopped --json
    """
    from haystream_service.commands import query as command

    command.run_list(stopped=stopped, config=config, json=json)


@app.command()
def show(query_id: QueryId, config: Config = None, json: Json = False) -> None:
    """Print a query's settings, how far it is, and why it is stopped, if it is.

    \b
    haystream query show case-7
    haystream query show case-7 --json
    """
    from haystream_service.commands import query as command

    command.run_show(query_id, config=config, json=json)


@app.command("open")
def open_(
    query_id: QueryId,
    collection: Annotated[str, typer.Option(help="Whose items it ranks; it can never change.")] = "default",
    top: Annotated[int | None, typer.Option(min=1, max=10_000, help="Length of the published ranking.")] = None,
    watch: Annotated[
        list[str] | None,
        typer.Option(metavar="ID=MEAN", help="On the watch-list, with a prior mean. May be given several times."),
    ] = None,
    sent_from: Annotated[str | None, typer.Option(metavar="TIME", help="Only items sent then or later.")] = None,
    sent_to: Annotated[str | None, typer.Option(metavar="TIME", help="Only items sent before that.")] = None,
    with_: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="ID", help="Only items that somebody of these is on. May be repeated."),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Only items that nobody of these is on. May be repeated."),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="Only items with this label; KEY:=2001 for a number. May be repeated."
        ),
    ] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Open a query, over the API or, without HAYSTREAM_API, on Kafka and Redis.

    To the query it is as if no items had ever come but those that it asks for; that can never change.
    Other settings: `PUT /v1/queries/…` of the API, or the topic queries.

    \b
    haystream query open case-7 --collection mail
    haystream query open case-7 --watch ann@example.org=0.9
    haystream query open case-7 --sent-from 2001-01-01 --without counsel@example.org --label custodian=ann
    """
    from haystream_service.commands import queue as command

    scope = command.scope_of(sent_from=sent_from, sent_to=sent_to, anybody=with_, nobody=without, labels=label)
    command.run_open(
        query_id, collection=collection, top=top, watch=watch or [], scope=scope, config=config, json=json
    )


@app.command()
def pause(query_id: QueryId, config: Config = None, json: Json = False) -> None:
    """Offer nothing of a query for now. Verdicts still count."""
    from haystream_service.commands import queue as command

    command.run_status(query_id, "paused", config=config, json=json)


@app.command()
def close(query_id: QueryId, config: Config = None, json: Json = False) -> None:
    """Offer nothing of a query any more. Verdicts still count."""
    from haystream_service.commands import queue as command

    command.run_status(query_id, "closed", config=config, json=json)


@app.command()
def reopen(query_id: QueryId, config: Config = None, json: Json = False) -> None:
    """Offer items of a query again that was paused or closed."""
    from haystream_service.commands import queue as command

    command.run_status(query_id, "open", config=config, json=json)


@app.command()
def export(
    query_id: QueryId,
    audit: Annotated[bool, typer.Option("--audit", help="Who had what and said what, from Kafka.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="A table, not an object a line.")] = False,
    to: Annotated[Path | None, typer.Option(metavar="FILE", help="Default: standard output.")] = None,
    config: Config = None,
) -> None:
    """Write a query's decisions, with those marked that hold, or its audit trail.

    \b
    haystream query export case-7 --csv --to decisions.csv
    haystream query export case-7 --audit
    """
    from haystream_service.commands import queue as command

    command.run_export(query_id, audit=audit, form="csv" if csv else "ndjson", to=to, config=config)


@app.command()
def release(query_id: QueryId, config: Config = None, json: Json = False) -> None:
    """Let a query that is stopped try again. What came meanwhile counts then.

    \b
    haystream query release case-7
    """
    from haystream_service.commands import query as command

    command.run_release(query_id, config=config, json=json)


@app.command()
def delete(
    query_id: QueryId,
    config: Config = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Delete a query, its verdicts and its ranking, for good.

    Its id is never used again. Redis and the workers forget it at once; what
    stays in Kafka, and for how long, is printed, except where HAYSTREAM_API is
    set.

    \b
    haystream query delete case-7
    haystream query delete case-7 --yes --json
    """
    from haystream_service.commands import deletion as command

    command.run_query(query_id, config=config, yes=yes, json=json)
