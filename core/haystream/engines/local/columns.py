"""The local engine's arrays, which follow the graph with spare room so that growth is amortised."""

from copy import copy
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from haystream.arrays import Flags, Floats, Ints, marked
from haystream.copies import Template
from haystream.engines.local.budget import EntryTolerances, Tolerances
from haystream.engines.local.healing import Inverse, healing
from haystream.engines.local.solve import DIAGONAL, fresh_cells, resized, scratch, system
from haystream.engines.local.state import Data, Edges, News, People, Rooms, State, Sums, Told
from haystream.graph import Graph

_T = TypeVar("_T", bound=np.generic)

Arrays = tuple[State, Floats, Floats, Flags, Floats]
"""What `Columns` has of its own: all of it, but for the graph."""

SPARE = 8
"""Arrays that are too short get an eighth more than is needed: spare room is memory of every query."""


def _grown(array: NDArray[_T], room: int, fill: float = 0.0) -> NDArray[_T]:
    """A copy with `room` entries along the last axis, the new ones holding `fill`."""
    grown = np.full((*array.shape[:-1], room), fill, dtype=array.dtype)
    grown[..., : array.shape[-1]] = array
    return grown


class Columns:
    """State and scratch of one engine. Arrays are longer than what is in use; `state` bundles them for the kernels,
    and is a new object after `resize`.
    """

    def __init__(self, sides: int, tolerances: Tolerances, entries: EntryTolerances) -> None:
        self.participants = 0
        self.edge_count = 0
        none, ints, flags = np.zeros(0), np.zeros(0, np.int32), np.zeros(0, np.uint8)
        self.state = State(
            system(Graph(), none),
            Inverse(none, none, entries, healing(0)),
            Edges(ints, ints, none, none, none, none, none, none, np.zeros((sides, 0))),
            Data(none, none, none, none, none),
            People(none, none, none, fresh_cells(sides, 0), np.zeros((0, sides))),
            Sums(np.zeros(sides), np.zeros(sides), np.zeros(2), *np.zeros((4, sides))),
            News(Told(none, none, none, none), marked(0), flags, marked(0), marked(0), flags),
            Rooms(scratch(0), scratch(0), marked(0), marked(0)),
            tolerances,
        )
        self.coefficients: Floats = np.zeros(sides)
        self.used_edge: Floats = none
        """The entry of Q⁻¹ that each edge's prior was made with."""
        self.bound: Flags = flags
        """As in `models.base.Priors`, of each edge."""
        self.shares: Floats = none
        """Scratch, as long as there is room for edges."""

    def resize(self, graph: Graph) -> None:
        """Follow the graph: its new participants and edges get rows that say nothing yet."""
        self.participants, self.edge_count = len(graph), graph.edges
        if len(self.state.people.scale) < len(graph):
            self._grow_people(16 + len(graph) + len(graph) // SPARE)
        if len(self.state.system.off) < graph.edges:
            self._grow_edges(16 + graph.edges + graph.edges // SPARE)
        self.state = self._on(graph)

    def template(self) -> Template[Arrays]:
        """The arrays as they are now, for `copy`."""
        return Template((self._on(Graph()), self.coefficients, self.used_edge, self.bound, self.shares))

    def copy(self, template: Template[Arrays], graph: Graph) -> "Columns":
        """The columns as they were when the template was made, which take memory where they are changed.

        They follow the graph (which is the same) from then on.
        """
        twin = copy(self)
        twin.state, twin.coefficients, twin.used_edge, twin.bound, twin.shares = template.copy()
        twin.state = twin._on(graph)
        return twin

    def _on(self, graph: Graph) -> State:
        """The state, with this graph's arrays for the ends of edges and for contacts."""
        state = self.state
        return state._replace(
            system=system(graph, state.system.off),
            edges=state.edges._replace(tail=graph.tail, head=graph.head),
        )

    def _grow_people(self, room: int) -> None:
        state = self.state
        people, inverse, news, rooms = state.people, state.inverse, state.news, state.rooms
        known = len(people.scale)
        sides = fresh_cells(len(people.sides), room)
        sides[:, :known] = people.sides
        column, other = resized(rooms.column, room), resized(rooms.other, room)
        for cells in (column.cells, other.cells):
            cells[:known, DIAGONAL] = sides[0, :known, DIAGONAL]
        self.state = state._replace(
            people=People(
                prior_mean=_grown(people.prior_mean, room, 0.5),
                scale=_grown(people.scale, room, 0.5),
                prior_variance=_grown(people.prior_variance, room, 1.0),
                sides=sides,
                rhs=np.concatenate([people.rhs, np.zeros((room - known, len(sides)))]),
            ),
            inverse=inverse._replace(
                on_participant=_grown(inverse.on_participant, room, 1.0), healing=healing(room, inverse.healing)
            ),
            news=news._replace(
                told=news.told._replace(
                    mean=_grown(news.told.mean, room, np.inf),
                    reach=_grown(news.told.reach, room),
                    variance=_grown(news.told.variance, room, np.inf),
                ),
                moved=marked(room, news.moved),
                closely=_grown(news.closely, room),
                later=marked(room, news.later),
            ),
            rooms=rooms._replace(column=column, other=other, people=marked(room)),
        )

    def _grow_edges(self, room: int) -> None:
        state = self.state
        edges, inverse, news = state.edges, state.inverse, state.news
        self.state = state._replace(
            system=state.system._replace(off=_grown(state.system.off, room)),
            edges=Edges(edges.tail, edges.head, *(_grown(a, room) for a in edges[2:])),
            inverse=inverse._replace(on_edge=_grown(inverse.on_edge, room)),
            data=Data(*(_grown(a, room) for a in state.data)),
            news=news._replace(
                told=news.told._replace(covariance=_grown(news.told.covariance, room, np.inf)),
                stale=marked(room, news.stale),
                counted=_grown(news.counted, room),
            ),
            rooms=state.rooms._replace(edges=marked(room)),
        )
        self.used_edge, self.bound = _grown(self.used_edge, room), _grown(self.bound, room)
        self.shares = np.zeros(room)

    def everyone(self) -> Ints:
        """The indexes of all participants, ascending."""
        return np.arange(self.participants, dtype=np.int32)

    def everywhere(self) -> Ints:
        """The indexes of all edges, ascending."""
        return np.arange(self.edge_count, dtype=np.int32)
