"""The `haystream` program: where its commands come from, in the order of its help."""

from importlib.metadata import version
from typing import Annotated

import typer

from haystream_service.cli import (
    bench,
    collection,
    dead_letters,
    events,
    local,
    query,
    queue,
    services,
    study,
    topics,
)
from haystream_service.cli.options import HELP

app = typer.Typer(
    name="haystream",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings=HELP,
)

for commands in (local, services, queue, topics, events, study):
    app.add_typer(commands.app)
app.add_typer(bench.app, name="bench")
app.add_typer(collection.app, name="collection")
app.add_typer(dead_letters.app, name="dead-letters")
app.add_typer(query.app, name="query")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("haystream"))
        raise typer.Exit


@app.callback()
def haystream(
    _: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Live next-item ranking for review queues.

    haystream learns from every verdict who in a communication network
    matters, and says what to read next. Begin with [bold]haystream demo[/].
    """
