"""The commands that run everything on this machine: `demo`, `up`."""

from pathlib import Path
from typing import Annotated

import typer

from haystream_service.cli.options import Json

app = typer.Typer()


@app.command()
def demo(
    headless: Annotated[bool, typer.Option("--headless", help="No live screen; print the summary.")] = False,
    seconds: Annotated[float, typer.Option(min=1, help="How long to go on, at most.")] = 60,
    screenings: Annotated[int, typer.Option(min=1, help="Stop when so many items have been screened.")] = 500,
    source: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="An item table with a column relevant, or a mail archive, of which all mail with the word money "
            "or finance is relevant; default: a simulation.",
        ),
    ] = None,
    edges: Annotated[
        int, typer.Option(min=56, max=1_000_000, help="Pairs who write to each other in the simulation, about.")
    ] = 750,
    seed: Annotated[int, typer.Option(min=0, help="Of the simulation.")] = 0,
    json: Json = False,
) -> None:
    """Watch it find relevant mail.

    Starts Kafka, Redis and a worker on this machine, streams a network's
    items, and plays the analyst: takes the top item, gives the true verdict,
    and so on. Stops all that it started.

    A mail archive is an mbox or .eml file, a Maildir, or a folder of messages.
    It holds no verdicts, so the paper's rule gives them: a mail is relevant if
    its subject or body has the word "money" or "finance".

    \b
    haystream demo
    haystream demo --headless --json --seconds 20
    haystream demo --source mails.csv.gz
    haystream demo --source ~/Maildir
    """
    from haystream_service.commands import demo as command

    command.run(
        headless=headless,
        seconds=seconds,
        screenings=screenings,
        source=source,
        edges=edges,
        seed=seed,
        json=json,
    )


@app.command()
def up(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Where Kafka and Valkey keep what is theirs.")],
) -> None:
    """Run everything on this machine: Kafka, Valkey, a worker and the queue API.

    Says where the API is and which token it takes, and stops at Ctrl-C, or when
    one of them ends by itself (exit code 1). The next start in the same folder
    goes on from there, on the same ports where they are free. For one machine,
    to try it or to work alone: docs/operations.md says how it is run otherwise.

    \b
    haystream up haystream-data
    """
    from haystream_service.commands import up as command

    if not folder.strip():  # a variable that is not set: files would lie wherever one is
        raise typer.BadParameter("expected the name of a folder", param_hint="FOLDER")
    command.run(Path(folder))
