"""Where items with a known truth come from: a simulated network, an item table, or a mail archive.

For the demo and benchmarks. Of a mail archive the truth is the paper's rule, `money_or_finance`.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
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
from haystream_service.importers import Imported, Making, Skipped, mail_reader, money_or_finance, read_csv
from haystream_service.wire import to_item

CLIQUE = 8
"""Participants in a cave: 28 pairs."""
REWIRED = 0.1
"""The share of pairs that lead out of their cave."""
RELEVANT_GIVEN = (0.0, 0.2, 0.9)
"""P of an edge with no, one, two relevant participants (section 5.2.1)."""
ITEMS_PER_EDGE = 30.0


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
class LabelledSource:
    """The labelled items of a table or a mail archive, in its order."""

    name: str
    items: tuple[Item, ...]
    labels: dict[str, bool]
    skipped: Counter[str]
    """What was left out, by code; `unlabelled` where a row's `relevant` says neither yes nor no."""

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
    items_per_edge: float = ITEMS_PER_EDGE,
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
        collection="default",
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


def read_source(path: Path, *, collection: str = "default") -> LabelledSource:
    """A mail archive (mbox file, .eml file, Maildir, folder of messages), judged by `money_or_finance`, or else
    a table. Raises `UserError`.
    """
    return mail(path, collection=collection) if mail_reader(path) else table(path, collection=collection)


def table(path: Path, *, collection: str = "default") -> LabelledSource:
    """The items of a table that has a column `relevant`. Raises `UserError` if no row can be used."""
    rows = read_csv(path, Making(collection))
    return _labelled(path, rows, "rows", "it needs a column relevant, with 1 or 0")


def mail(path: Path, *, collection: str = "default") -> LabelledSource:
    """The messages of an archive, relevant if the paper's rule says so. Raises `UserError` if none can be used."""
    read = mail_reader(path)
    if read is None:
        raise UserError(f"{path} is no mail archive: neither a folder, nor an mbox or .eml file")
    messages = read(path, Making(collection), rule=money_or_finance)
    return _labelled(path, messages, "messages", "it needs mail with a sender and a recipient")


def _labelled(path: Path, results: Iterable[Imported], what: str, needs: str) -> LabelledSource:
    items: dict[str, Item] = {}
    labels: dict[str, bool] = {}
    skipped: Counter[str] = Counter()
    for result in results:
        if isinstance(result, Skipped):
            skipped[result.code] += 1
        elif not isinstance(result.labels, dict):
            skipped["unlabelled"] += 1
        elif result.item_id in items:
            skipped["repeated"] += 1
        else:
            items[result.item_id] = to_item(result)
            labels[result.item_id] = bool(result.labels["relevant"])
    if not items:
        why = ", ".join(f"{count} {code}" for code, count in skipped.most_common()) or "it is empty"
        raise UserError(f"{path} has no {what} that can be used ({why}): {needs}")
    # A file's name need not be text.
    name = os.fsencode(path.name or path.resolve().name).decode(errors="replace")
    return LabelledSource(name, tuple(items.values()), labels, skipped)
