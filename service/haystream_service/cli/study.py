"""The commands that compare models and policies: `simulate`, `experiments`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from haystream_service.cli.options import Json
from haystream_service.experiments.names import Experiment

app = typer.Typer()


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
