"""A network whose items' relevance is known: what the study's searches go over."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from haystream.collection import Collection
from haystream.events import Item
from haystream.query import share_of
from haystream_service.errors import UserError
from haystream_service.importers import Skipped, read_csv
from haystream_service.sources import Source, read_source
from haystream_service.wire import to_item

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]

COLLECTION = "study"


@dataclass(frozen=True, eq=False)
class Network:
    """Items on the edges between participants, and the truth about each. Not to be changed by a search.

    An item between a sender and k recipients lies on k edges: it is drawn from one of them uniformly, and counts
    1/k on each. Items on the same edges form a set; where every item has two parties, set s is edge s.
    """

    name: str
    collection: Collection
    """Numbers participants, edges, items and sets, in the order in which the items came."""
    relevant: NDArray[np.bool_]
    """Shape (items,)."""
    skipped: Counter[str] = field(default_factory=Counter)
    """What the source left out, by code."""

    @property
    def participants(self) -> list[str]:
        """Ids by index."""
        return self.collection.participants

    @property
    def edges(self) -> int:
        """The number of edges."""
        return self.collection.graph.edges

    @property
    def tail(self) -> Ints:
        """Shape (edges,): the participant whose id sorts first."""
        return self.collection.graph.tail

    @property
    def head(self) -> Ints:
        """Shape (edges,): the participant whose id sorts last."""
        return self.collection.graph.head

    @cached_property
    def item_set(self) -> Ints:
        """Shape (items,): the set of each item; its edge, where items have two parties."""
        return np.array([self.collection.set_of(item) for item in range(len(self.collection))], dtype=np.int32)

    @property
    def set_start(self) -> NDArray[np.int64]:
        """Shape (sets + 1,): the edges of set s are set_edge[set_start[s] : set_start[s + 1]], ascending."""
        return self.collection.sets.start.view()

    @property
    def set_edge(self) -> Ints:
        """The edges of all sets, one set after the other."""
        return self.collection.sets.edge.view()

    @cached_property
    def items_on(self) -> Floats:
        """Shape (edges,): the items on each edge, one of k edges counting 1/k."""
        return self._on_edges(np.ones(len(self.relevant)))

    @cached_property
    def rates(self) -> Floats:
        """Shape (edges,): the true share of relevant items on each edge."""
        return self._on_edges(self.relevant.astype(np.float64)) / self.items_on

    def edges_of(self, item: int) -> tuple[int, ...]:
        """The edges that an item lies on, ascending."""
        return self.collection.sets.edges(int(self.item_set[item]))

    def _on_edges(self, weight: Floats) -> Floats:
        """Sums over items of weight/k on each of their k edges."""
        sizes = np.diff(self.set_start)
        shares = np.array([share_of(int(k)) for k in sizes])
        of_set = np.bincount(self.item_set, weight, len(sizes)) * shares
        return np.bincount(self.set_edge, np.repeat(of_set, sizes), self.edges).astype(np.float64)


def network(name: str, items: Iterable[Item], truth: Callable[[str], bool], *, two_party: bool = False) -> Network:
    """The network that these items span. `truth` says of an item's id whether it is relevant.

    With `two_party`, items that lie on several edges are left out.
    """
    collection = Collection(COLLECTION)
    relevant = [
        truth(item.item_id) for item in items if not (two_party and len(item.pairs()) > 1) and collection.add(item)
    ]
    return Network(name, collection, np.array(relevant, dtype=np.bool_))


def network_of(source: Source, *, two_party: bool = False) -> Network:
    """The network of a simulation, a table or a mail archive."""
    return network(source.name, source, source.truth, two_party=two_party)


def read_network(path: Path, *, two_party: bool = False) -> Network:
    """The network of an item table with a column relevant, or of a mail archive. Raises `UserError`."""
    source = read_source(path, collection=COLLECTION)
    known = network_of(source, two_party=two_party)
    known.skipped.update(source.skipped)
    return _filled(known, path)


def read_topics(path: Path, column: str, *, two_party: bool = False) -> dict[str, Network]:
    """One network for each value of a table's column, in which the items with that value are relevant.

    Empty cells and whole numbers below 1 are no topic, but their items are searched as well. All networks share
    one collection. Raises `UserError`.
    """
    items: dict[str, Item] = {}
    topic: dict[str, str] = {}
    skipped: Counter[str] = Counter()
    for row in read_csv(path, collection=COLLECTION, labels=(column,)):
        if isinstance(row, Skipped):
            skipped[row.code] += 1
            continue
        items.setdefault(row.item_id, to_item(row))
        labels = row.labels if isinstance(row.labels, dict) else {}
        topic.setdefault(row.item_id, str(labels.get(column, "")))
    every = network(path.name, items.values(), lambda _: False, two_party=two_party)
    every.skipped.update(skipped)
    _filled(every, path)
    of_item = np.array([topic[item_id] for item_id in every.collection.item_ids])
    topics = sorted(filter(_is_topic, {*of_item.tolist()}), key=lambda name: (_number(name) or np.inf, name))
    if not topics:
        raise UserError(f"{path} names no topic in its column {column}")
    return {name: replace(every, relevant=of_item == name) for name in topics}


def _filled(known: Network, path: Path) -> Network:
    if not len(known.relevant):
        raise UserError(f"{path} has no item to search")
    return known


def _number(name: str) -> int | None:
    return int(name) if name.removeprefix("-").isdecimal() else None


def _is_topic(name: str) -> bool:
    number = _number(name)
    return bool(name) and (number is None or number > 0)
