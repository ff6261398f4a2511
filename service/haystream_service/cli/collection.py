"""What the commands of `haystream collection` are called and take; what they do is in `commands.deletion`."""

from typing import Annotated

import typer

from haystream_service.cli.options import HELP, Config, Json

app = typer.Typer(
    no_args_is_help=True,
    help="Delete the items of a collection.",
    context_settings=HELP,
)


@app.callback()
def collection() -> None:
    """Delete the items of a collection."""


@app.command()
def delete(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    config: Config = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Delete a collection whose queries are deleted: its items and all that was computed from them.

    Its name takes no items and no queries any more. What stays in Kafka, and
    for how long, is printed: a rebuild would bring that back.

    \b
    haystream collection delete mail
    haystream collection delete mail --yes --json
    """
    from haystream_service.commands import deletion as command

    command.run_collection(name, config=config, yes=yes, json=json)
