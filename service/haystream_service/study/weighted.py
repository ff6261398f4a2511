"""An item table from a weighted edge list, with a simulated relevance: networks whose items nobody has judged.

    python -m haystream_service.study.weighted EDGES.csv --seed 0 > items.csv

A line is `u v weight`, with any separators; a weight is a number of items, and lines of the same pair add up.
Relevance is the paper's simulation: an infection (section 5.2.1) with ρ = 0.9 says who is relevant, and an item is
relevant with probability 0, 0.2 or 0.9 where none, one or both of its pair are.
"""

import argparse
import csv
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import networkx as nx
import numpy as np

from haystream_service.errors import UserError
from haystream_service.sources import RELEVANT_GIVEN, infect

INFECTION = 0.9
Row = tuple[str, str, str, int]


def rows(lines: Iterable[str], *, seed: int, infection: float = INFECTION) -> Iterator[Row]:
    """(item_id, sender, recipient, relevant) of every item. Raises `UserError` for a line that is no edge."""
    items: Counter[tuple[str, str]] = Counter()
    for line in filter(str.strip, lines):
        try:
            u, v, weight = re.split(r"[\s,;]+", line.strip())
            amount = int(float(weight))
        except (ValueError, OverflowError):
            raise UserError(f"{line.strip()!r} is no edge: a line is `u v weight`") from None
        if u != v:
            items[min(u, v), max(u, v)] += amount
    place = {name: number for number, name in enumerate(sorted({name for pair in items for name in pair}))}
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(len(place)))
    graph.add_edges_from((place[u], place[v]) for u, v in items)
    rng = np.random.default_rng(seed)
    relevance = infect(graph, infection, rng)
    number = 0
    for (u, v), weight in sorted(items.items()):
        p = RELEVANT_GIVEN[int(relevance[place[u]]) + int(relevance[place[v]])]
        for relevant in rng.random(weight) < p:
            yield f"m{number}", u, v, int(relevant)
            number += 1


def main() -> None:
    """Write the table to standard output. Exit code 2: that cannot be done."""
    parser = argparse.ArgumentParser(
        description="An item table with simulated relevance, from a weighted edge list."
    )
    parser.add_argument("edges", type=Path, metavar="EDGES.csv")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    try:
        with given.edges.open(encoding="utf-8") as lines:
            items = list(rows(lines, seed=given.seed))
    except (OSError, UnicodeDecodeError) as error:
        parser.error(f"cannot read {given.edges}: {error}")
    except UserError as error:
        parser.error(f"{given.edges}: {error}")
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(("item_id", "sender", "recipients", "relevant"))
    table.writerows(items)


if __name__ == "__main__":
    main()
