"""What the commands of `haystream query` are called and take; what they do is in `commands.query`."""

from typing import Annotated

import typer

from haystream_service.cli_bench import Json
from haystream_service.cli_dead_letters import Config

app = typer.Typer(
    no_args_is_help=True,
    help="See where queries stand, and let one go on that was stopped.",
    context_settings={"help_option_names": ["-h", "--help"]},
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
    about to be tried again. unknown: verdicts name it, and nobody has opened it.

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


@app.command()
def release(query_id: QueryId, config: Config = None, json: Json = False) -> None:
    """Let a query that is stopped try again. What came meanwhile counts then.

    \b
    haystream query release case-7
    """
    from haystream_service.commands import query as command

    command.run_release(query_id, config=config, json=json)
