"""What the commands of `haystream query` are called and take; what they do is in `commands.query`."""

from typing import Annotated

import typer

from haystream_service.cli_bench import Json
from haystream_service.cli_dead_letters import Config

app = typer.Typer(
    no_args_is_help=True,
    help="See where queries stand, let one go on that was stopped, delete one.",
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
    deleted: nothing else is left of it.

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


@app.command()
def delete(
    query_id: QueryId,
    config: Config = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Delete a query, its verdicts and its ranking, for good.

    Its id is never used again. Redis and the workers forget it at once; what
    stays in Kafka, and for how long, is printed.

    \b
    haystream query delete case-7
    haystream query delete case-7 --yes --json
    """
    from haystream_service.commands import deletion as command

    command.run_query(query_id, config=config, yes=yes, json=json)
