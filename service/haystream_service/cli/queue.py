"""The commands of somebody who reads: `next`, `item`, `verdict`."""

from enum import StrEnum
from typing import Annotated

import typer

from haystream_service.cli.options import Config, Json

app = typer.Typer()


class Decision(StrEnum):
    """What can be said of an item."""

    RELEVANT = "relevant"
    IRRELEVANT = "irrelevant"
    SKIPPED = "skipped"
    RETRACTED = "retracted"


@app.command("next")
def next_(
    query_id: Annotated[str, typer.Argument(metavar="QUERY_ID")],
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=100, help="How many items.")] = 1,
    minutes: Annotated[float, typer.Option(min=0.1, max=1440, help="For how long they are yours.")] = 30,
    config: Config = None,
    json: Json = False,
) -> None:
    """Take the next items of a query: nobody else gets them meanwhile.

    Printed are the item's id, how likely it is relevant, who it is between, and
    its subject; of one item its text, too.
    Over the API (HAYSTREAM_API) or, without one, on Kafka and Redis.

    \b
    haystream next case-7 -n 10
    """
    from haystream_service.commands import queue as command

    command.run_next(query_id, count=count, minutes=minutes, config=config, json=json)


@app.command("item")
def item_(
    item_id: Annotated[str, typer.Argument(metavar="ITEM_ID")],
    collection: Annotated[str, typer.Option(help="Whose item it is.")] = "default",
    config: Config = None,
    json: Json = False,
) -> None:
    """Print what is known of an item, and what it says.

    Over the API (HAYSTREAM_API) or, without one, on Kafka and Redis.

    \b
    haystream item m-1 --collection mail
    """
    from haystream_service.commands import queue as command

    command.run_item(item_id, collection=collection, config=config, json=json)


@app.command()
def verdict(
    query_id: Annotated[str, typer.Argument(metavar="QUERY_ID")],
    item_id: Annotated[str, typer.Argument(metavar="ITEM_ID")],
    outcome: Annotated[Decision, typer.Argument(help="retracted takes back whatever was said of the item.")],
    config: Config = None,
    json: Json = False,
) -> None:
    """Decide on an item, and wait until the ranking knows.

    \b
    haystream verdict case-7 m-1 relevant
    haystream verdict case-7 m-1 retracted
    """
    from haystream.events import Outcome
    from haystream_service.commands import queue as command

    command.run_verdict(query_id, item_id, Outcome(outcome.value), config=config, json=json)
