"""The commands that serve: `worker`, and `api` with its keys."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from haystream_service.cli.options import Config, Json

app = typer.Typer()


class KeyRole(StrEnum):
    """What a key of the API can be for."""

    INGEST = "ingest"
    ANALYST = "analyst"
    LEAD = "lead"
    OPERATIONS = "operations"


@app.command()
def worker(config: Config = None) -> None:
    """Run a worker: items, queries and verdicts in from Kafka, rankings out.

    Settings come from the environment, or a TOML file. SIGTERM finishes the
    batches at hand and leaves.

    \b
    HAYSTREAM_KAFKA=broker:9092 HAYSTREAM_REDIS=redis://redis:6379/0 haystream worker
    haystream worker --config worker.toml
    """
    from haystream_service.commands import worker as command

    command.run(config=config)


@app.command()
def api(config: Config = None) -> None:
    """Serve the queue API: queries, items, claims, verdicts and rankings over HTTP.

    Replicas keep nothing, so run several. Settings come from the environment,
    or a TOML file; HAYSTREAM_API_KEYS_FILE names who may use it.

    \b
    haystream api-key kim --role analyst --to keys.json
    HAYSTREAM_API_KEYS_FILE=keys.json haystream api
    """
    from haystream_service.commands import api as command

    command.run(config=config)


@app.command("api-key")
def api_key(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="Who it is for: the analyst of its verdicts.")],
    to: Annotated[Path, typer.Option(metavar="FILE", help="The file of keys, made where there is none.")],
    role: Annotated[
        list[KeyRole] | None,
        typer.Option(metavar="ingest|analyst|lead|operations", help="May be given several times."),
    ] = None,
    collection: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="That it may see; default: all. May be given several times."),
    ] = None,
    revoke: Annotated[bool, typer.Option("--revoke", help="Take all keys of SUBJECT out of the file.")] = False,
    json: Json = False,
) -> None:
    """Make a key for the API and print it, once; the file has only its hash.

    An API that runs notices the change within a second or so.

    \b
    haystream api-key kim --role analyst --collection mail --to keys.json
    haystream api-key kim --revoke --to keys.json
    """
    from haystream_service.commands import api as command

    command.run_key(to, subject, [one.value for one in role or []], collection or [], revoke=revoke, json=json)
