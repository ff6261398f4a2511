"""The commands that read whole topics and write what is made of them: `rebuild`, `repartition`."""

from typing import Annotated

import typer

from haystream_service.cli.options import Config

app = typer.Typer()


@app.command()
def rebuild(
    config: Config = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Restore a lost Redis from the topics. Stop the workers first.

    Wipes what is left under the prefix, replays the topics into it, and
    commits the offsets read up to, so that workers go on from there.

    \b
    haystream rebuild --yes
    """
    from haystream_service.blas import use_one_thread

    use_one_thread()  # as a worker, beside which it may run
    from haystream_service.commands import rebuild as command

    command.run(config=config, yes=yes)


@app.command()
def repartition(
    to: Annotated[str, typer.Option(metavar="PREFIX", help="The new topics are PREFIX.queries, PREFIX.items, …")],
    partitions: Annotated[int, typer.Option(min=1, help="How many partitions they get.")],
    without_collection: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Leave its items out. May be given several times."),
    ] = None,
    config: Config = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Copy the topics to new ones with other partitions, or without what was deleted.

    Stop workers and producers first. Every record goes to the partition that
    its key has there, in the order it came; of a query that was deleted, only
    that. The old topics stay as they are. `haystream rebuild` on the new ones
    is the next step.

    \b
    haystream repartition --to haystream-16 --partitions 16 --yes
    haystream repartition --to haystream-2 --partitions 8 --without-collection mail
    """
    from haystream_service.commands import repartition as command

    command.run(to, partitions, without=without_collection or (), config=config, yes=yes)
