"""The `haystream` program: its commands, but for those that have names of two words."""

import os
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from haystream_service.cli import bench, collection, dead_letters, query
from haystream_service.cli.options import HELP, Config, Json
from haystream_service.experiments.names import Experiment

app = typer.Typer(
    name="haystream",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings=HELP,
)

app.add_typer(bench.app, name="bench")
app.add_typer(collection.app, name="collection")
app.add_typer(dead_letters.app, name="dead-letters")
app.add_typer(query.app, name="query")


class ImportFormat(StrEnum):
    """What `import` can read."""

    CSV = "csv"
    MBOX = "mbox"
    MAILDIR = "maildir"
    EML = "eml"


class Decision(StrEnum):
    """What can be said of an item."""

    RELEVANT = "relevant"
    IRRELEVANT = "irrelevant"
    SKIPPED = "skipped"
    RETRACTED = "retracted"


class KeyRole(StrEnum):
    """What a key of the API can be for."""

    INGEST = "ingest"
    ANALYST = "analyst"
    LEAD = "lead"
    OPERATIONS = "operations"


class EngineName(StrEnum):
    """What can compute the posterior."""

    LOCAL = "local"
    REFERENCE = "reference"


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
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where Kafka and Valkey keep what is theirs.")],
) -> None:
    """Run everything on this machine: Kafka, Valkey, a worker and the queue API.

    Says where the API is and which token it takes, and stops at Ctrl-C, or when
    one of them ends by itself (exit code 1). The next start in the same folder
    goes on from there. For one machine, to try it or to work alone:
    docs/operations.md says how it is run otherwise.

    \b
    haystream up haystream-data
    """
    from haystream_service.commands import up as command

    command.run(folder)


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


@app.command()
def replay(
    events: Annotated[Path, typer.Argument(metavar="EVENTS.jsonl", help="An event log; .gz is unpacked.")],
    query: Annotated[str | None, typer.Option(metavar="ID", help="Print this query only.")] = None,
    engine: Annotated[EngineName | None, typer.Option(help="For all queries, whatever their settings say.")] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="How exactly the local engine solves, above 0 and up to 0.01.")
    ] = None,
    json: Json = False,
) -> None:
    """Fold an event log offline and print where its queries stand.

    Each line is {"topic": "queries", "items", "verdicts" or "leases", "value": {...}},
    in any order. Lines that are no events are listed as rejected and change
    nothing. With --json, one query's figures are one object; several queries
    are an object with a list, "queries".

    \b
    haystream replay events.jsonl
    haystream replay events.jsonl.gz --query q1 --engine reference --json
    """
    from haystream_service.commands import replay as command

    if tolerance is not None and not 0 < tolerance <= 0.01:
        raise typer.BadParameter("expected a number above 0 and up to 0.01", param_hint="--tolerance")
    command.run(events, query=query, engine=engine.value if engine else None, tolerance=tolerance, json=json)


@app.command("import")
def import_(
    kind: Annotated[ImportFormat, typer.Argument(help="What PATH is.")],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A file, or a folder of mail.")],
    to: Annotated[
        str | None,
        typer.Option(metavar="FILE|kafka", help="An event log to write, or kafka; default: standard output."),
    ] = None,
    collection: Annotated[str, typer.Option(help="The collection that the items go into.")] = "default",
    text: Annotated[bool, typer.Option("--text", help="Take subject and text, too.")] = False,
    aliases: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Who has which address: a table address,person, or JSON lines."),
    ] = None,
    uri: Annotated[
        str | None,
        typer.Option(
            metavar="TEMPLATE", help="Where an item can be opened: https://mail.example.org/{message_id}."
        ),
    ] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Turn a mail archive or a table into items.

    Tables have the columns item_id, sender and recipients (or participants),
    with ; between people, and if you like sent_at, uri and relevant, and with
    --text subject or text. Of mail, addresses, date and Message-ID are taken,
    with --text what a reader is shown, without attachments. What cannot be
    read is counted and listed, and stops nothing.

    In --uri, names in braces are filled in: of mail message_id, item_id and
    file, of a table its columns, and collection.

    \b
    haystream import csv mails.csv.gz --to items.jsonl
    haystream import mbox archive.mbox --text --aliases people.csv --to kafka
    haystream import mbox archive.mbox --collection case-7 > items.jsonl
    HAYSTREAM_KAFKA=broker:9092 haystream import maildir ~/Maildir --to kafka
    """
    from haystream_service.commands import import_ as command

    command.run(
        kind.value,
        path,
        to=to,
        collection=collection,
        text=text,
        aliases=aliases,
        uri=uri,
        config=config,
        json=json,
    )


@app.command()
def simulate(
    items: Annotated[
        Path, typer.Argument(metavar="ITEMS.csv", help="An item table with a column relevant, or --topics.")
    ],
    models: Annotated[str, typer.Option(metavar="A,B", help="What leads the search.")] = (
        "rates,relevance,participant-rate,random"
    ),
    policies: Annotated[str, typer.Option(metavar="P,Q", help="How it chooses.")] = (
        "look-ahead-by-set,look-ahead,greedy"
    ),
    steps: Annotated[int, typer.Option(min=1, help="Screenings of a search.")] = 1000,
    runs: Annotated[int, typer.Option(min=1, help="Searches of every model with every policy.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Of the order of items that tie, run by run.")] = 0,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE[,VALUE]",
            help="A constant of the models or policies that have it (or of one: MODEL.NAME=VALUE). Several values "
            "are each simulated. May be given several times.",
        ),
    ] = None,
    topics: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN[,COLUMN]",
            help="In place of the column relevant. A column of 1 and 0 (or true, yes …) is a query; of any other, "
            "every value is one, to which the items with that value are relevant (empty cells and numbers below 1 "
            "are none).",
        ),
    ] = None,
    two_party: Annotated[bool, typer.Option("--two-party", help="Leave out items on several edges.")] = False,
    processes: Annotated[int | None, typer.Option(min=1, help="Default: one a processor.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="For tables, plots and finished searches: run again, it goes on."),
    ] = None,
    json: Json = False,
) -> None:
    """Search items of known relevance: which model and policy find most?

    Every search screens the item that is ranked first, learns its relevance,
    and so on. An edge's items are drawn without replacement, ties are broken
    at random. It says what was found after 100, 300, 500 and 1,000 screenings
    and at the end.

    \b
    Models
      rates              haystream's: people's rates around a learned base rate
      relevance          the paper's: who is relevant decides what is
      participant-rate   a ten-line script: a pair's rate, shrunk to its ends'
      neighbour-rate     the same, ends' rates shrunk to those around them
      label-propagation  rates that spread from pair to pair through people
      bandit             a linear bandit on indicators of who takes part
      independent        every pair for itself
      mrf                the paper's field, exact; for graphs nearly trees
      random             random order: what there is to beat

    \b
    Policies
      look-ahead-by-set  worth most if a set of people that disappoints is
                         dropped: the default
      look-ahead         the same, made of pairs
      greedy             most likely relevant
      epsilon-greedy     the same, but now and then any item
      bayes-ucb          may well be relevant: a quantile that rises
      thompson           most likely relevant in a draw from the beliefs

    \b
    haystream simulate mails.csv.gz
    haystream simulate mails.csv.gz --models rates,bandit --policies greedy
    haystream simulate mails.csv.gz --runs 50 --out study
    haystream simulate mails.csv.gz --models independent --option p11=0,0.13
    haystream simulate mails.csv.gz --topics label_hr,topic --two-party --json
    """
    from haystream_service.commands import simulate as command

    command.run(
        items,
        models=_names(models),
        policies=_names(policies),
        steps=steps,
        runs=runs,
        seed=seed,
        processes=processes or os.cpu_count() or 1,
        options=option or [],
        topics=None if topics is None else _names(topics),
        two_party=two_party,
        out=out,
        json=json,
    )


@app.command()
def experiments(
    which: Annotated[
        Experiment,
        typer.Argument(
            metavar="line|tanzania|caveman|enron|calibration", help="What of section 5, or calibration."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the figures and the numbers go.")],
    quick: Annotated[bool, typer.Option("--quick", help="A minute's version, of few repetitions.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of networks, items and chance.")] = 0,
    processes: Annotated[int | None, typer.Option(min=1, help="Default: one a processor.")] = None,
    json: Json = False,
) -> None:
    """Run the paper's own experiments anew, or see whether what is expected to remain does.

    line: three participants, exact inference beside Bayes linear (5.1.1).
    tanzania: accuracy and searches on a terrorist network (5.1.2, 5.1.3).
    caveman: simulated communities (5.2). enron: real mail (5.3).
    calibration: expected remaining beside the truth, on mail and on simulated networks.

    \b
    HAYSTREAM_DATA=data haystream experiments enron --out results
    """
    from haystream_service.commands import experiments as command

    command.run(which, out=out, quick=quick, seed=seed, processes=processes or os.cpu_count() or 1, json=json)


def _names(text: str) -> list[str]:
    """The distinct names in a list with commas, in its order."""
    return list(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
