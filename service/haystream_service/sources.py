"""Where items with a known truth come from: a simulated network, or an item table. For the demo and benchmarks."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Protocol

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from haystream.events import Item, Pair
from haystream_service.errors import UserError
from haystream_service.importers import Skipped, read_csv
from haystream_service.wire import to_item

CLIQUE = 8
"""Participants in a cave: 28 pairs."""
REWIRED = 0.1
"""The share of pairs that lead out of their cave."""
RELEVANT_GIVEN = (0.0, 0.2, 0.9)
"""P of an edge with no, one, two relevant participants (section 5.2.1)."""


class Source(Protocol):
    """Items in the order in which they are sent, and the truth about each."""

    @property
    def name(self) -> str:
        """What to call it on a screen."""
        ...

    @property
    def edges(self) -> int:
        """The number of pairs that have items."""
        ...

    @property
    def relevant(self) -> int:
        """The number of relevant items."""
        ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Item]: ...

    def truth(self, item_id: str) -> bool:
        """Whether the item is relevant. Raises KeyError if it is none of this source's."""
        ...


@dataclass(frozen=True, eq=False)
class SyntheticSource:
    """A simulated network; items are made as they are read, so that millions cost little."""

    name: str
    collection: str
    pairs: tuple[Pair, ...]
    """The network's edges."""
    relevance: NDArray[np.bool_]
    """z of each participant, shape (participants,)."""
    edge: NDArray[np.int32]
    """The edge that each item is on, shape (items,)."""
    outcome: NDArray[np.bool_]
    """Whether each item is relevant, shape (items,)."""

    @cached_property
    def edges(self) -> int:
        """The number of pairs that have items."""
        return len(np.unique(self.edge))

    @cached_property
    def relevant(self) -> int:
        """The number of relevant items."""
        return int(self.outcome.sum())

    def __len__(self) -> int:
        return len(self.edge)

    def __iter__(self) -> Iterator[Item]:
        for number, edge in enumerate(self.edge):
            sender, recipient = self.pairs[edge]
            yield Item(f"m{number:07}", self.collection, sender, (recipient,))

    def truth(self, item_id: str) -> bool:
        """Whether the item is relevant."""
        number = int(item_id[1:]) if item_id[:1] == "m" and item_id[1:].isdecimal() else len(self)
        if number >= len(self):
            raise KeyError(item_id)
        return bool(self.outcome[number])


@dataclass(frozen=True, slots=True)
class TableSource:
    """The labelled rows of an item table, in the table's order."""

    name: str
    items: tuple[Item, ...]
    labels: dict[str, bool]
    skipped: Counter[str]
    """Rows that were left out, by code; `unlabelled` where `relevant` says neither yes nor no."""

    @property
    def edges(self) -> int:
        """The number of pairs that have items."""
        return len(set(chain.from_iterable(item.pairs() for item in self.items)))

    @property
    def relevant(self) -> int:
        """The number of relevant items."""
        return sum(self.labels.values())

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def truth(self, item_id: str) -> bool:
        """Whether the item is relevant."""
        return self.labels[item_id]


def synthetic(
    *,
    seed: int = 0,
    edges: int = 750,
    rho: float = 0.9,
    items_per_edge: float = 30,
    collection: str = "default",
) -> SyntheticSource:
    """The network of sections 5.2.1 and 5.1.3: a relaxed caveman graph of about so many edges, relevance that
    neighbours share with probability `rho`, and Poisson(`items_per_edge`) items an edge, sent in random order.
    """
    rng = np.random.default_rng(seed)
    caves = max(2, round(edges / (CLIQUE * (CLIQUE - 1) / 2)))
    graph = nx.relaxed_caveman_graph(caves, CLIQUE, REWIRED, seed=int(rng.integers(2**32)))
    relevance = infect(graph, rho, rng)
    links = np.array(sorted((min(u, v), max(u, v)) for u, v in graph.edges if u != v), dtype=np.int32)
    p = np.array(RELEVANT_GIVEN)[relevance[links].sum(axis=1)]
    edge = np.repeat(np.arange(len(links), dtype=np.int32), rng.poisson(items_per_edge, size=len(links)))
    rng.shuffle(edge)
    width = len(str(len(graph) - 1))
    return SyntheticSource(
        name=f"simulated network (relaxed caveman graph, infection {rho:g}, seed {seed})",
        collection=collection,
        pairs=tuple((f"p{u:0{width}}", f"p{v:0{width}}") for u, v in links.tolist()),
        relevance=relevance,
        edge=edge,
        outcome=rng.random(len(edge)) < p[edge],
    )


def infect(graph: "nx.Graph[int]", rho: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Relevance of nodes 0 … n-1 by the infection of section 5.2.1, begun anew in every component."""
    relevance = np.zeros(len(graph), dtype=bool)
    reached = np.zeros(len(graph), dtype=bool)
    for start in rng.permutation(len(graph)).tolist():
        if reached[start]:
            continue
        relevance[start], reached[start] = rng.random() < 0.5, True
        infected = [start]
        while infected:
            chosen = int(rng.integers(len(infected)))
            infected[chosen], infected[-1] = infected[-1], infected[chosen]
            node = infected.pop()
            for neighbour in sorted(graph[node]):
                if not reached[neighbour]:
                    same = rng.random() < rho
                    relevance[neighbour], reached[neighbour] = relevance[node] == same, True
                    infected.append(neighbour)
    return relevance


def table(path: Path, *, collection: str = "default") -> TableSource:
    """The items of a table that has a column `relevant`. Raises `UserError` if no row can be used."""
    items: dict[str, Item] = {}
    labels: dict[str, bool] = {}
    skipped: Counter[str] = Counter()
    for row in read_csv(path, collection=collection):
        if isinstance(row, Skipped):
            skipped[row.code] += 1
        elif not isinstance(row.labels, dict):
            skipped["unlabelled"] += 1
        elif row.item_id in items:
            skipped["repeated"] += 1
        else:
            items[row.item_id] = to_item(row)
            labels[row.item_id] = bool(row.labels["relevant"])
    if not items:
        raise UserError(f"{path} has no row that can be used: it needs a column relevant, with 1 or 0")
    return TableSource(path.name, tuple(items.values()), labels, skipped)
