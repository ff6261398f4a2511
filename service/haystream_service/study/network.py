"""A network whose items' relevance is known: what the study's searches go over."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from haystream.collection.collection import Collection
from haystream.collection.item_sets import share_of
from haystream.events import Item
from haystream_service.errors import UserError
from haystream_service.importers import Making, Skipped, read_csv
from haystream_service.importers.tables import FALSE, TRUE
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


def read_topics(path: Path, columns: Sequence[str], *, two_party: bool = False) -> dict[str, dict[str, Network]]:
    """The queries of each of a table's columns: one network for each, by its name. They share one collection.

    A column of yes and no (1, 0, true, false, …) is one query, of the column's name, to which the items with yes
    are relevant. Of any other column each value is a query, to which the items with that value are relevant: it is
    called by its value, or where there are several columns COLUMN=VALUE. Empty cells, and in such a column whole
    numbers below 1, are no topic, but their items are searched as well. Raises `UserError`.
    """
    if not columns:
        raise UserError("name a column of topics")
    items: dict[str, Item] = {}
    cells: dict[str, dict[str, object]] = {}
    skipped: Counter[str] = Counter()
    for row in read_csv(path, Making(COLLECTION), labels=columns):
        if isinstance(row, Skipped):
            skipped[row.code] += 1
            continue
        items.setdefault(row.item_id, to_item(row))
        cells.setdefault(row.item_id, dict(row.labels) if isinstance(row.labels, dict) else {})
    every = network(path.name, items.values(), lambda _: False, two_party=two_party)
    every.skipped.update(skipped)
    _filled(every, path)
    found = {}
    for column in columns:
        of_item = np.array([str(cells[item_id].get(column, "")) for item_id in every.collection.item_ids])
        prefix = f"{column}=" if len(columns) > 1 else ""
        found[column] = {
            name: replace(every, relevant=relevant) for name, relevant in _topics(column, prefix, of_item).items()
        }
        if not found[column]:
            raise UserError(f"{path} names no topic in its column {column}")
    return found


def _topics(column: str, prefix: str, of_item: NDArray[np.str_]) -> dict[str, NDArray[np.bool_]]:
    """By the query's name, which items are relevant to it, shape (items,)."""
    values = {*of_item.tolist()} - {""}
    if {value.lower() for value in values} <= TRUE | FALSE:
        yes = np.isin(of_item, [value for value in values if value.lower() in TRUE])
        return {column: yes} if yes.any() else {}
    topics = sorted(filter(_is_topic, values), key=lambda name: (_number(name) or np.inf, name))
    return {prefix + name: of_item == name for name in topics}


def _filled(known: Network, path: Path) -> Network:
    if not len(known.relevant):
        raise UserError(f"{path} has no item to search")
    return known


def _number(name: str) -> int | None:
    return int(name) if name.removeprefix("-").isdecimal() else None


def _is_topic(name: str) -> bool:
    number = _number(name)
    return number is None or number > 0
