"""The local engine's arrays: columns per participant and per edge, with spare room so that growth is amortised."""

import numpy as np
from numpy.typing import NDArray

from haystream.arrays import Flags, Floats, Ints
from haystream.engines.local.healing import healing, regrown
from haystream.engines.local.solve import DIAGONAL, fresh_cells, resized, scratch, system
from haystream.engines.local.state import Data, Edges, People, Sums, Work
from haystream.graph import Graph


def _grown(array: NDArray[np.generic], room: int, fill: float, *, axis: int = 0) -> NDArray[np.generic]:
    """A copy with `room` entries along the axis, the new ones holding `fill`."""
    shape = list(array.shape)
    shape[axis] = room
    grown = np.full(shape, fill, dtype=array.dtype)
    grown[tuple(map(slice, array.shape))] = array
    return grown


class Columns:
    """State and scratch of one engine. Arrays are longer than what is in use; `people` and `edges` bundle them
    for the kernels, and are new objects after `resize`. An edge that has no noise yet (0) is not let in yet.

    `sides`: how many right-hand sides there are (`state`).
    """

    def __init__(self, sides: int) -> None:
        self.participants = 0
        self.edge_count = 0
        none, rows = np.zeros(0), np.zeros((0, sides))
        self.people = People(none, none, none, none, fresh_cells(sides, 0), rows, none, none, none)
        ints = np.zeros(0, np.int32)
        self.edges = Edges(ints, ints, none, none, none, none, none, none, np.zeros((sides, 0)), none, none)
        self.system = system(Graph(), none)
        flags = np.zeros(0, np.uint8)
        sums = Sums(*np.zeros((6, sides)))
        self.work = Work(sums, healing(0), scratch(0), scratch(0), ints, flags, ints)
        self.coefficients: Floats = np.zeros(sides)
        self.tolerances: Floats = np.zeros(sides + 1)
        self.off: Floats = none
        self.data = Data(none, none, none, none, none)
        self.used_edge: Floats = none
        """The entry of Q⁻¹ that the edge's prior was made with."""
        self.bound: Flags = flags
        self.edge_flags: Flags = flags
        self.stale: Ints = ints
        """Edges that are to be scored again, marked in `edge_flags`."""
        self.changed_edges: Ints = ints
        self.values: Floats = none
        self.later: Ints = ints

    def resize(self, graph: Graph) -> None:
        """Follow the graph: its new participants and edges get rows that say nothing yet."""
        self.participants, self.edge_count = len(graph), graph.edges
        if len(self.later) < len(graph):
            self._grow_people(max(16, 2 * len(graph)))
        if len(self.off) < graph.edges:
            self._grow_edges(max(16, 2 * graph.edges))
        self.edges = self.edges._replace(tail=graph.tail, head=graph.head)
        self.system = system(graph, self.off)

    def _grow_people(self, room: int) -> None:
        people, work, known = self.people, self.work, len(self.later)
        sides = fresh_cells(len(people.sides), room)
        sides[:, :known] = people.sides
        fill = People(0.5, 0.5, 1.0, 1.0, people.sides, 0.0, np.inf, 0.0, np.inf)  # type: ignore[arg-type]
        grown = (a if a is f else _grown(a, room, f) for a, f in zip(people, fill, strict=True))  # type: ignore[arg-type]
        self.people = People(*grown)._replace(sides=sides)  # type: ignore[arg-type]
        self.later = _grown(self.later, room, 0)  # type: ignore[assignment]
        self.work = Work(
            sums=work.sums,
            healing=regrown(work.healing, room),
            column=resized(work.column, room),
            room=resized(work.room, room),
            moved=_grown(work.moved, room, 0),  # type: ignore[arg-type]
            moved_flags=_grown(work.moved_flags, room, 0),  # type: ignore[arg-type]
            changed=np.zeros(room, np.int32),
        )
        for cells in (self.work.column.cells, self.work.room.cells):
            cells[:known, DIAGONAL] = sides[0, :known, DIAGONAL]

    def _grow_edges(self, room: int) -> None:
        floats = (_grown(a, room, 0.0, axis=-1) for a in self.edges[2:-1])
        seen = _grown(self.edges.seen_covariance, room, np.inf)
        self.edges = Edges(*self.edges[:2], *floats, seen)  # type: ignore[arg-type, call-arg]
        self.data = Data(*(_grown(a, room, 0.0) for a in self.data))  # type: ignore[arg-type]
        for name in ("off", "used_edge", "bound", "edge_flags", "stale"):
            setattr(self, name, _grown(getattr(self, name), room, 0))
        self.changed_edges = np.zeros(room, np.int32)
        self.values = np.zeros(room)
