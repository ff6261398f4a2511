"""What the commands of `haystream bench` are called and take; what they do is in `commands/bench_*.py`."""

from pathlib import Path
from typing import Annotated

import typer

from haystream_service.bench.names import GraphName
from haystream_service.cli.options import HELP, Json

app = typer.Typer(
    no_args_is_help=True,
    help="Measure what haystream costs on this machine, beside what others cost.",
    context_settings=HELP,
)

Sizes = Annotated[
    list[int] | None,
    typer.Option(min=100, max=10_000_000, help="A size to measure at; may be given several times."),
]
Graph = Annotated[GraphName, typer.Option(help="The last two are read from HAYSTREAM_DATA.")]
ItemsPerEdge = Annotated[int, typer.Option(min=1, help="Items on an edge in the mean.")]
Tolerance = Annotated[
    float | None, typer.Option(min=1e-12, max=0.01, help="How exactly the engine solves; default: its own.")
]


@app.command("engine")
def bench_engine(
    edges: Sizes = None,
    graph: Graph = GraphName.PREFERENTIAL,
    items_per_edge: ItemsPerEdge = 5,
    seconds: Annotated[float, typer.Option(min=0, help="The budget of each operation, at each size.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Of the graph, the search and the truth.")] = 0,
    tolerance: Tolerance = None,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw cost against edges.")] = None,
    json: Json = False,
) -> None:
    """Time the engine event by event, from 1,000 to 1,000,000 edges.

    In the same run: the paper's batch update, the reference engine,
    conjugate gradients and bayesianbandits, on the same verdicts. A million
    edges take minutes to build and gigabytes to hold.

    \b
    haystream bench engine
    haystream bench engine --edges 1000 --edges 100000 --png cost.png
    HAYSTREAM_DATA=data haystream bench engine --graph web-notredame --json
    """
    from haystream_service.bench.engine import Job
    from haystream_service.commands import bench_engine as command

    sizes, solved_to = sorted(set(edges or [1_000, 10_000, 100_000, 1_000_000])), _tolerance(tolerance)
    jobs = [Job(graph, size, items_per_edge, seconds, seed, solved_to) for size in sizes]
    command.run(jobs, png=png, json=json)


@app.command("audit")
def bench_audit(
    edges: Annotated[int, typer.Option(min=100, max=1_000_000, help="Of the simulated graph.")] = 100_000,
    verdicts: Annotated[int, typer.Option(min=1, help="Random ones, some of which change or retract others.")] = (
        100_000
    ),
    new_edges: Annotated[int, typer.Option(min=0, help="New ones at once, in every ten verdicts.")] = 0,
    tended: Annotated[
        int, typer.Option(min=0, help="Local solves in idle time after each verdict; a busy worker has time for 8.")
    ] = 8,
    sampled: Annotated[int, typer.Option(min=1, help="Participants whose columns are solved exactly.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Of the graph, the verdicts and the sample.")] = 0,
    tolerance: Tolerance = None,
    json: Json = False,
) -> None:
    """Say how exact the engine still is after a long history.

    Folds in random verdicts one by one, then holds all adjusted means, and
    variances, covariances and prior scales of sampled participants, against
    conjugate gradients run to 1e-12. Minutes for 100,000 verdicts.

    \b
    haystream bench audit
    haystream bench audit --edges 10000 --verdicts 20000 --json
    haystream bench audit --edges 10000 --verdicts 2000 --new-edges 10
    haystream bench audit --edges 10000 --verdicts 2000 --new-edges 25 --tended 0
    """
    from haystream_service.bench.audit import Job
    from haystream_service.commands import bench_audit as command

    command.run(Job(edges, verdicts, new_edges, tended, sampled, seed, _tolerance(tolerance)), json=json)


@app.command("ranges")
def bench_ranges(
    histories: Annotated[int, typer.Option(min=1, help="Drawn for each model.")] = 1000,
    first: Annotated[int, typer.Option(min=0, help="The number of the first one.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Of all of them.")] = 0,
    tolerance: Tolerance = None,
    json: Json = False,
) -> None:
    """Search for the prior under which means are furthest from exact.

    Draws priors from all that settings may be, with small graphs, items and
    verdicts, and holds the means of participants and pairs against those of
    the engine at a tolerance of 1e-12. --json has the worst history of each
    model. Some minutes.

    \b
    haystream bench ranges
    haystream bench ranges --histories 5000 --seed 1 --json
    haystream bench ranges --first 731 --histories 1 --json
    """
    from haystream_service.commands import bench_ranges as command

    command.run(histories=histories, first=first, seed=seed, tolerance=_tolerance(tolerance), json=json)


@app.command("recipients")
def bench_recipients(
    edges: Annotated[int, typer.Option(min=10_000, max=1_000_000, help="Of the simulated graph.")] = 100_000,
    items: Annotated[int, typer.Option(min=1, max=1000, help="Of each number of people.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Of the graph, and of who is on an item.")] = 0,
    json: Json = False,
) -> None:
    """Say what an item of many people costs.

    Its verdict and its claim, for mails to up to 1,000 people and items
    without roles among up to 64, which lie on 2,016 pairs. Beside them, in
    the same run, verdicts on each of its pairs in turn; and what a claim and
    a verdict cost while several such items are handed out. Some minutes.

    \b
    haystream bench recipients
    haystream bench recipients --edges 20000 --items 50 --json
    """
    from haystream_service.commands import bench_recipients as command

    command.run(edges=edges, items=items, seed=seed, json=json)


@app.command("queries")
def bench_queries(
    edges: Sizes = None,
    queries: Annotated[
        list[int] | None,
        typer.Option(min=1, max=10_000, help="A number of open queries; may be given several times."),
    ] = None,
    graph: Graph = GraphName.PREFERENTIAL,
    items_per_edge: ItemsPerEdge = 5,
    verdicts: Annotated[int, typer.Option(min=60, help="In each query.")] = 100,
    seconds: Annotated[float, typer.Option(min=0, help="For new items, and for new edges, at each number.")] = 5,
    memory: Annotated[float, typer.Option(min=0, help="GiB that the process may take.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Of the graph, the search and the truth.")] = 0,
    tolerance: Tolerance = None,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw cost against open queries.")] = None,
    json: Json = False,
) -> None:
    """Say what open queries on one collection cost, as they become more.

    Memory, rows in the store, and time: to open, to load, from verdict to
    ranking, from a new item or edge to all rankings. Verdicts are on items
    at random, then, in other queries, on the first item of the ranking.

    \b
    haystream bench queries
    haystream bench queries --edges 1000000 --queries 1 --queries 10 --json
    """
    from haystream_service.bench.queries import Following, Job
    from haystream_service.commands import bench_queries as command

    jobs = [
        Job(
            graph=graph,
            edges=size,
            items_per_edge=items_per_edge,
            queries=tuple(sorted(set(queries or [1, 10, 100]))),
            following=following,
            verdicts=verdicts,
            seconds=seconds,
            memory=int(memory * 2**30),
            seed=seed,
            tolerance=_tolerance(tolerance),
        )
        for size in sorted(set(edges or [100_000]))
        for following in Following
    ]
    command.run(jobs, png=png, json=json)


@app.command("analysts")
def bench_analysts(
    data: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Item tables with a column relevant, or mail archives."),
    ] = None,
    analysts: Annotated[
        list[int] | None, typer.Option(min=1, max=1000, help="How many at once; may be given several times.")
    ] = None,
    screenings: Annotated[
        list[int] | None, typer.Option(min=1, help="After how many verdicts of all; may be given several times.")
    ] = None,
    shortest: Annotated[float, typer.Option(min=0, help="Seconds that an item takes to read, at least.")] = 1,
    longest: Annotated[float, typer.Option(min=0, help="And at most, in simulated time.")] = 60,
    runs: Annotated[int, typer.Option(min=1, help="Searches of each team, with other ties and times.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Of the first of them, and of the network.")] = 0,
    json: Json = False,
) -> None:
    """Say what several analysts at once find, of what one finds in as many screenings.

    Each takes the best item that nobody has. With pending screenings counted
    in variances, as haystream does, and without. Of the simulated network,
    and of Enron where HAYSTREAM_DATA has it, or of the files named.

    \b
    haystream bench analysts
    haystream bench analysts mails.csv.gz --analysts 5 --screenings 200 --json
    """
    from haystream_service.commands import bench_analysts as command

    command.run(
        data or [],
        numbers=analysts or [1, 10, 50],
        screenings=screenings or [100, 300, 500],
        reading=(min(shortest, longest), longest),
        runs=runs,
        seed=seed,
        json=json,
    )


@app.command("pipeline")
def bench_pipeline(
    edges: Sizes = None,
    queries: Annotated[
        list[int] | None,
        typer.Option(
            min=1, max=1000, help="Open queries, to which verdicts go in turn; may be given several times."
        ),
    ] = None,
    workers: Annotated[
        list[int] | None, typer.Option(min=1, max=16, help="Worker processes; may be given several times.")
    ] = None,
    verdicts: Annotated[float, typer.Option(min=1, help="Verdicts a second, of all queries together.")] = 50,
    items: Annotated[float, typer.Option(min=50, help="Items a second beside them.")] = 500,
    seconds: Annotated[float, typer.Option(min=1, help="How long, at each size.")] = 20,
    new_edges: Annotated[float, typer.Option(min=0, max=1, help="The share of the items on new edges.")] = 0.01,
    flood: Annotated[int, typer.Option(min=100, help="Items that lie ready when the intake is measured.")] = 20_000,
    burst: Annotated[int, typer.Option(min=0, help="Items on new pairs, all at once, while verdicts come.")] = 0,
    burst_seconds: Annotated[float, typer.Option(min=1, help="How long that lasts at most.")] = 60,
    opening: Annotated[
        int, typer.Option(min=0, help="Items of a collection on which another query opens meanwhile.")
    ] = 0,
    idle: Annotated[int, typer.Option(min=0, help="Queries that nobody touches when a worker starts.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Of the graph and the traffic.")] = 0,
    json: Json = False,
) -> None:
    """Time the whole way: verdict produced to ranking consumed, and items taken in.

    Starts a Kafka and a Valkey of its own, and stops them. In the same run,
    under the same traffic: a Faust agent that does nothing.

    \b
    haystream bench pipeline
    haystream bench pipeline --edges 1000 --seconds 60 --json
    haystream bench pipeline --edges 100000 --burst 200000 --opening 300000 --idle 1000
    haystream bench pipeline --edges 20000 --verdicts 20 --queries 1 --queries 100
    """
    from haystream_service.bench.pipeline import Load
    from haystream_service.bench.stress import Stress
    from haystream_service.commands import bench_pipeline as command

    load = Load(
        verdicts_per_s=verdicts,
        items_per_s=items,
        seconds=seconds,
        flood=flood,
        new_edges=new_edges,
        seed=seed,
    )
    stress = Stress(burst=burst, burst_seconds=burst_seconds, opening=opening, idle=idle)
    counts = {"edges": edges or [1_000, 10_000, 100_000], "queries": queries or [1], "workers": workers or [1]}
    command.run(**counts, load=load, stress=stress, json=json)


@app.command("api")
def bench_api(
    edges: Annotated[
        list[int] | None,
        typer.Option(min=100, max=1_000_000, help="A size to measure at; may be given several times."),
    ] = None,
    analysts: Annotated[
        list[int] | None, typer.Option(min=1, max=1000, help="At once; may be given several times.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="How long, with each number of analysts.")] = 20,
    think: Annotated[float, typer.Option(min=0, help="Seconds in the mean between two items of an analyst.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Of the network and the analysts.")] = 0,
    json: Json = False,
) -> None:
    """Time what an analyst waits for over HTTP: a claim, and a verdict.

    Starts Kafka, Valkey, a worker and one replica of the API, and stops them.
    In the same run: a route that does nothing.

    \b
    haystream bench api
    haystream bench api --edges 100000 --analysts 50 --think 0.5 --json
    """
    from haystream_service.bench.queue import Desks
    from haystream_service.commands import bench_api as command

    desks = Desks(analysts=tuple(sorted(set(analysts or [1, 10, 50]))), seconds=seconds, think=think, seed=seed)
    command.run(sorted(set(edges or [1_000, 100_000])), desks, json=json)


def _tolerance(tolerance: float | None) -> float:
    """The tolerance that was asked for; the engine's own where none was."""
    from haystream.engines.local.solves.budget import DEFAULT_TOLERANCE

    return DEFAULT_TOLERANCE if tolerance is None else tolerance
