"""What the commands of `haystream dead-letters` are called and take; what they do is in `commands.dead_letters`."""

from enum import StrEnum
from typing import Annotated

import typer

from haystream_service.cli.options import HELP, Config, Json

app = typer.Typer(
    no_args_is_help=True,
    help="See what was rejected and why, and send it again.",
    context_settings=HELP,
)


class Topic(StrEnum):
    """Where rejected records come from."""

    QUERIES = "queries"
    ITEMS = "items"
    VERDICTS = "verdicts"
    LEASES = "leases"


Code = Annotated[str | None, typer.Option(metavar="CODE", help="Only those with this code, such as item_conflict.")]
Of = Annotated[Topic | None, typer.Option("--topic", help="Only those of this topic.")]
Query = Annotated[str | None, typer.Option(metavar="ID", help="Only settings, verdicts and leases of this query.")]
Source = Annotated[str, typer.Argument(metavar="TOPIC/PARTITION/OFFSET", help="As `list` shows it.")]


@app.command("list")
def list_(
    code: Code = None,
    topic: Of = None,
    query: Query = None,
    limit: Annotated[int, typer.Option(min=1, help="Show so many, the newest.")] = 100,
    config: Config = None,
    json: Json = False,
) -> None:
    """Print what was rejected: where it lies, when, why, and what it said.

    \b
    haystream dead-letters list
    haystream dead-letters list --code unknown_query --query case-7 --json
    """
    from haystream_service.commands import dead_letters as command

    wanted = command.Wanted(code=code, topic=topic and topic.value, query=query)
    command.run_list(wanted, limit=limit, config=config, json=json)


@app.command()
def show(
    source: Source,
    payload: Annotated[bool, typer.Option("--payload", help="Print the record's value alone, as it was.")] = False,
    config: Config = None,
    json: Json = False,
) -> None:
    """Print one dead letter, or the record that it is about.

    \b
    haystream dead-letters show haystream.verdicts/3/120
    haystream dead-letters show haystream.verdicts/3/120 --payload > verdict.json
    """
    from haystream_service.commands import dead_letters as command

    command.run_show(source, payload=payload, config=config, json=json)


@app.command()
def replay(
    source: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC/PARTITION/OFFSET", help="Which, as `list` shows them.")
    ] = None,
    corrected: Annotated[
        str | None,
        typer.Option("--from", metavar="FILE|-", help="Send what this file (or standard input) holds instead."),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All of them, or all with the code, topic or query.")] = False,
    code: Code = None,
    topic: Of = None,
    query: Query = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Send nothing; say what would be sent.")] = False,
    config: Config = None,
    json: Json = False,
) -> None:
    """Send rejected records again, as they were or corrected.

    They go to the topic that they came from, keyed by the id that they name.
    What is no event would be rejected again, and is not sent. Items, verdicts
    and leases count once, however often they are sent. Settings hold from then
    on, as the latest of their query.

    With --all, what was sent again before is left out, and so is what stays
    rejected whatever is sent: conflicts, and what is for a query or collection
    that was deleted, or would move one. Settings are sent with --topic queries.
    What is named is sent all the same. It is an error (exit code 2) where some are
    asked for, by name, code, topic or query, and none can be sent; with --all alone
    that only says that nothing is left to be done.

    \b
    haystream dead-letters replay haystream.verdicts/3/120
    haystream dead-letters replay haystream.verdicts/3/120 --from fixed.json
    haystream dead-letters replay --all --code wrong_partition
    """
    from haystream_service.commands import dead_letters as command

    if bool(source) == all_:
        raise typer.BadParameter("name records, or give --all", param_hint="SOURCE")
    wanted = command.Wanted(
        sources=tuple(source) if source else None, code=code, topic=topic and topic.value, query=query
    )
    command.run_replay(wanted, corrected=corrected, dry_run=dry_run, config=config, json=json)
