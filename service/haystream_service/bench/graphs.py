"""The graphs that the engine is measured on, as items: simulated ones, and real ones from HAYSTREAM_DATA."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from haystream.events import Item
from haystream_service.bench.names import GraphName
from haystream_service.errors import UserError

Longs = NDArray[np.int64]

COLLECTION = "default"
CONTACTS = 5.0
"""Edges that a newcomer brings to a simulated graph: the mean degree is twice that."""
SPARE = 1.25
"""Edges are drawn with so many to spare, since a draw may repeat a pair or join a participant to itself."""


FILES = {
    GraphName.THREADS: ("scale/threads-math-sx-nverts.txt.gz", "scale/threads-math-sx-simplices.txt.gz"),
    GraphName.WEB: ("scale/web-NotreDame.txt.gz",),
}
ENRON = "enron/dyadic_n1444_e1836.csv.gz"


def find_data(name: str) -> Path | None:
    """The file of real data of that name, in the folder that HAYSTREAM_DATA names; None where it is not there."""
    folder = os.environ.get("HAYSTREAM_DATA")
    path = Path(folder, name) if folder else None
    return path if path is not None and path.is_file() else None


def data_path(name: str, needed_by: str) -> Path:
    """The file of real data of that name. Raises `UserError` where it is not there."""
    path = find_data(name)
    if path is None:
        raise UserError(f"{needed_by} needs {name}: set HAYSTREAM_DATA to a folder that has it (docs/data.md)")
    return path


def files(graph: GraphName) -> tuple[Path, ...]:
    """What the graph is read from; none for a simulated one. Raises `UserError` where a file is not there."""
    return tuple(data_path(name, f"--graph {graph}") for name in FILES.get(graph, ()))


def items(graph: GraphName, *, edges: int, items_per_edge: int, seed: int) -> Iterator[Item]:
    """Items that span `edges` edges, or all that the graph has. threads-math-sx has its own items and goes on
    after that number is reached; the others put each edge's items at random places.

    Raises:
        UserError: a file of the graph cannot be read.
    """
    rng = np.random.default_rng(seed)
    paths = files(graph)
    match graph:
        case GraphName.PREFERENTIAL:
            return spread(preferential(edges, rng), items_per_edge, rng)
        case GraphName.WEB:
            return spread(distinct(_numbers(paths[0]))[:edges], items_per_edge, rng)
        case GraphName.THREADS:
            return threads(*(_numbers(path) for path in paths))


def preferential(edges: int, rng: np.random.Generator, *, contacts: float = CONTACTS) -> Longs:
    """Pairs of a preferential-attachment graph, shape (edges, 2): a newcomer joins the end of a uniformly drawn
    earlier edge, so participants are chosen in proportion to their degrees (Batagelj and Brandes, 2005).
    """
    number = np.arange(int(SPARE * edges) + 16)
    # Place 2i is edge i's newcomer, place 2i + 1 whom it joins, which is what stands at an earlier place.
    drawn = rng.integers(0, 2 * number + 1)
    place = drawn.copy()
    while (joined := place % 2 == 1).any():
        place[joined] = drawn[place[joined] // 2]
    newcomer = (number / contacts).astype(np.int64)
    return distinct(np.column_stack([newcomer, newcomer[place // 2]]))[:edges]


def distinct(pairs: Longs) -> Longs:
    """The pairs of two different ends, each once, in the order in which they first come."""
    pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    _, first = np.unique(pairs[:, 0] << 32 | pairs[:, 1], return_index=True)
    return np.asarray(pairs[np.sort(first)], dtype=np.int64)


def spread(pairs: Longs, items_per_edge: int, rng: np.random.Generator) -> Iterator[Item]:
    """`items_per_edge` items an edge in the mean, at least one on each, in random order."""
    more = rng.integers(0, len(pairs), size=(items_per_edge - 1) * len(pairs))
    order = np.concatenate([np.arange(len(pairs)), more]).astype(np.int32)
    rng.shuffle(order)
    return (
        Item(f"m{number}", COLLECTION, f"p{pairs[edge, 0]}", (f"p{pairs[edge, 1]}",))
        for number, edge in enumerate(order)
    )


def threads(sizes: Longs, members: Longs) -> Iterator[Item]:
    """Items between all participants of a thread; threads of one are left out."""
    begin = 0
    for number, size in enumerate(sizes.tolist()):
        people = {f"p{member}" for member in members[begin : begin + size].tolist()}
        begin += size
        if len(people) > 1:
            yield Item(f"m{number}", COLLECTION, None, tuple(sorted(people)))


def _numbers(path: Path) -> Longs:
    try:
        return np.asarray(np.loadtxt(path, dtype=np.int64, comments="#"), dtype=np.int64)
    except (OSError, EOFError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
