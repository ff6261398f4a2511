"""The local engine's arrays, which follow the graph with spare room so that growth is amortised."""

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from haystream.collection.graph import Graph
from haystream.engines.local.solves.budget import EntryTolerances, Tolerances
from haystream.engines.local.solves.healing import Inverse, healing
from haystream.engines.local.solves.solve import fresh_steps, system
from haystream.engines.local.state.edge_priors import rows_of, whole_priors
from haystream.engines.local.state.slim import Remains, give_up, take_up
from haystream.engines.local.state.state import (
    NO_DATA,
    NO_EDGES,
    NO_ROOMS,
    NOT_TOLD,
    Data,
    Edges,
    News,
    People,
    State,
    Sums,
    Told,
    Workspace,
)
from haystream.memory.arrays import (
    Flags,
    Floats,
    Ints,
    Marked,
    bits,
    mark_as,
    marked,
    members_of,
    room_for,
    unmark_all,
)
from haystream.memory.copies import Template, bring_pages, give_back
from haystream.memory.held import held
from haystream.memory.overlay import (
    MOST_SPARE,
    Overlay,
    flat,
    flattened,
    is_whole,
    lay_like,
    over,
    packed,
    whole,
    whole_table,
)

_T = TypeVar("_T", bound=np.generic)

Arrays = tuple[State, Overlay, Floats, Flags]
"""What `Columns` has of its own: all of it, but for the graph and the rooms."""

DATA_COLUMNS = 6
"""What an edge has by its data (`Data` and `Edges.weight`), but for its coefficients."""

MOST_SPARE_SLIM = 0.05
"""As `overlay.MOST_SPARE`, in a query that nothing comes for."""


def _grown(array: NDArray[_T], room: int, fill: float = 0.0) -> NDArray[_T]:
    """A copy with `room` entries along the last axis, the new ones holding `fill`."""
    grown = np.full((*array.shape[:-1], room), fill, dtype=array.dtype)
    grown[..., : array.shape[-1]] = array
    return grown


def _wider(column: Overlay, room: int, fill: float = 0.0) -> Overlay:
    """A column with `room` entries, the new ones holding `fill`: it is whole then."""
    return whole(_grown(flat(column), room, fill), column.own.shape[1])


def _changed(state: State, change: Callable[[Overlay], Overlay]) -> State:
    """The state with all its overlays changed."""
    told = Told(*map(change, state.news.told))
    inverse, matrix = state.inverse, state.system
    strain = inverse.healing._replace(strain=change(inverse.healing.strain))
    on_participant, on_edge = change(inverse.on_participant), change(inverse.on_edge)
    inverse = inverse._replace(on_participant=on_participant, on_edge=on_edge, healing=strain)
    matrix = matrix._replace(off=change(matrix.off), diagonal=change(matrix.diagonal))
    people = state.people
    scale, prior_variance = change(people.scale), change(people.prior_variance)
    people = people._replace(scale=scale, prior_variance=prior_variance, x=change(people.x))
    return state._replace(system=matrix, inverse=inverse, people=people, news=state.news._replace(told=told))


def _longer(rows: NDArray[_T], room: int, fill: Floats | float = 0.0) -> NDArray[_T]:
    """A copy with `room` rows, the new ones holding `fill`."""
    longer = np.full((room, rows.shape[1]), fill, rows.dtype)
    longer[: len(rows)] = rows
    return longer


def _longer_table(table: Overlay, room: int, fill: Floats | float = 0.0) -> Overlay:
    """A table with `room` rows, the new ones holding `fill`: it is whole then."""
    return whole_table(_longer(flat(table).reshape(-1, table.own.shape[1]), room, fill))


def _no_rows(columns: int) -> Overlay:
    return whole_table(np.zeros((0, columns)))


def _give_back(numbers: Marked) -> None:
    """Have a set take the memory that its members need now: in the template it was empty."""
    members = members_of(numbers).copy()
    flags = numbers.flags[members >> 2] >> (2 * (members & 3)) & 3
    unmark_all(numbers)
    give_back(numbers.members)
    give_back(numbers.flags)
    for member, flag in zip(members.tolist(), flags.tolist(), strict=True):
        mark_as(numbers, member, flag)


class Columns:
    """State of one engine, on rooms that others use, too. Arrays are longer than what is in use; `state` bundles
    them for the kernels, and is a new object after `resize`.
    """

    def __init__(self, tolerances: Tolerances, entries: EntryTolerances, workspace: Workspace) -> None:
        self.participants = 0
        self.edge_count = 0
        self._workspace = workspace
        self._steps = fresh_steps()
        none, sides = np.zeros(0), len(tolerances.sides)
        nobody = whole(none, 1)
        self._state = State(
            system(Graph(), whole(none), bits(0), nobody),
            Inverse(nobody, whole(none), entries, healing(0)),
            NO_EDGES,
            NO_DATA,
            People(none, nobody, nobody, bits(0), _no_rows(sides), np.zeros((0, sides)), np.zeros(1)),
            Sums(np.zeros(sides), np.zeros(sides), np.zeros(2), *np.zeros((4, sides))),
            News(Told(_no_rows(len(NOT_TOLD)), whole(none)), *(marked(0) for _ in range(3))),
            NO_ROOMS,
            tolerances,
        )
        self._priors: Overlay = NO_EDGES.prior
        self._data_rows: Floats = np.zeros((0, DATA_COLUMNS + sides))
        """What the state has of each edge by its data. Side by side it takes one page of a copy's own, and not one
        for each number."""
        self._remains: Remains | None = None
        """What is left of the residuals while they are given up (`slim`)."""
        self.bound: Flags = np.zeros(0, np.uint8)
        """As in `models.base.Priors`, of each edge."""
        self.state = self._on(Graph())

    def resize(self, graph: Graph) -> None:
        """Follow the graph: its new participants and edges get rows that say nothing yet."""
        people, edges = len(self.state.people.prior_mean) < len(graph), self.edge_room < graph.edges
        if (people or edges) and self.is_slim:
            self.state = self._on(graph)
            self.fill_out()  # larger arrays lie over nobody's
        self.participants, self.edge_count = len(graph), graph.edges
        if people:
            self._grow_people(room_for(len(graph)))
        if edges:
            self._grow_edges(room_for(graph.edges))
        self.state = self._on(graph)

    def template(self) -> Template[Arrays]:
        """The arrays as they are now, for `copy`."""
        matrix = self.state.system
        nothing = system(Graph(), matrix.off, np.zeros_like(matrix.laid_over), matrix.diagonal)
        alone = self.state._replace(system=nothing, edges=NO_EDGES, data=NO_DATA, rooms=NO_ROOMS)
        alone = _changed(alone, flattened)
        return Template((alone, flattened(self._priors), self._data_rows, self.bound))

    def copy(self, template: Template[Arrays], graph: Graph, *, laid_over: bool) -> "Columns":
        """The columns as they were when the template was made, which take memory where they are changed: by lines
        where they are `laid_over` the template's, and else by pages, which is faster where most changes.

        They follow the graph (which is the same) from then on.
        """
        twin = copy(self)
        twin._remains = None
        twin.state, priors, twin._data_rows, twin.bound = template.copy()
        twin._priors = over(priors) if laid_over else priors
        twin._steps = self._steps.copy()
        twin.state = twin._on(graph)
        if laid_over:
            twin.state = _changed(twin.state, over)
        return twin

    def twin(self, template: Template[Arrays], graph: Graph) -> "Columns | None":
        """The columns as these, which are a copy laid over that template's, are now.

        None where they have outgrown the template, or the system makes no copies that tell what differs.
        """
        if any(map(is_whole, self._overlays())):
            return None
        twin = self.copy(template, graph, laid_over=True)
        if not bring_pages(self.bound, twin.bound):
            return None
        for overlay, like in zip(twin._overlays(), self._overlays(), strict=True):
            lay_like(overlay, like)
        return twin

    def _overlays(self) -> list[Overlay]:
        """What may be laid over something else."""
        found = [self._priors]

        def find(overlay: Overlay) -> Overlay:
            found.append(overlay)
            return overlay

        _changed(self.state, find)
        return found

    def pack(self, most_spare: float = MOST_SPARE) -> None:
        """Give up memory that overlays have had and do not need now, where it is a larger share."""
        pack = partial(packed, most_spare=most_spare)
        self._priors = pack(self._priors)
        state = _changed(self.state, pack)
        self.state = state._replace(edges=state.edges._replace(prior=self._priors))

    def slim(self, graph: Graph) -> None:
        """Give up what takes much memory, and can be had again in some milliseconds (`fill_out`).

        The graph may have grown since the last `resize`.
        """
        if self._remains is None:
            self.state = self._on(graph)
            self.pack(MOST_SPARE_SLIM)
            news = self.state.news
            for numbers in (news.moved, news.later, news.stale):
                _give_back(numbers)
            self._remains = give_up(self.state, self.participants, self.edge_count)

    def fill_out(self) -> None:
        """Have all that `slim` has given up again: whoever reads or changes residuals, or changes Λ, sees to it."""
        if self._remains is not None:
            take_up(self.state, self.edge_count, self._remains)
            self._remains = None

    @property
    def is_slim(self) -> bool:
        """Whether `slim` has given anything up."""
        return self._remains is not None

    def solve_to(self, tolerances: Tolerances, entries: EntryTolerances) -> None:
        """Have other tolerances from now on."""
        inverse = self.state.inverse._replace(tolerances=entries)
        self.state = self.state._replace(inverse=inverse, tolerances=tolerances)

    def move(self, graph: Graph, workspace: Workspace) -> None:
        """Follow that graph from now on, which is this one's at another time, and work in those rooms."""
        self._workspace = workspace
        self.state = self._on(graph)

    @property
    def state(self) -> State:
        """All that kernels work on: held, so that they are called without a look at each of its arrays."""
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        self._state = held(state)

    @property
    def edge_room(self) -> int:
        """How many edges there is room for."""
        return len(self.bound)

    def take_priors(self, rows: Floats) -> None:
        """Give every edge the prior of its row, shape (edges, `edge_priors.PRIOR_COLUMNS`)."""
        self._priors = whole_priors(rows, self.edge_room)
        self.state = self.state._replace(edges=self.state.edges._replace(prior=self._priors))

    def _on(self, graph: Graph) -> State:
        """The state, with this graph's arrays for the ends of edges and for contacts, and rooms for it."""
        state, data = self.state, self._data_rows.T
        n, y, offered, square, own, weight = data[:DATA_COLUMNS]
        coefficient = data[DATA_COLUMNS:]
        return state._replace(
            system=system(graph, state.system.off, state.system.laid_over, state.system.diagonal),
            edges=Edges(graph.tail, graph.head, self._priors, weight, coefficient),
            data=Data(n, y, offered, square, own),
            rooms=self._workspace.rooms(graph, self._steps),
        )

    def _grow_people(self, room: int) -> None:
        state = self.state
        people, inverse, news = state.people, state.inverse, state.news
        self.state = state._replace(
            system=state.system._replace(
                laid_over=_grown(state.system.laid_over, len(bits(room))),
                diagonal=_wider(state.system.diagonal, room, 1.0),
            ),
            people=People(
                prior_mean=_grown(people.prior_mean, room, 0.5),
                scale=_wider(people.scale, room, 0.5),
                prior_variance=_wider(people.prior_variance, room, 1.0),
                lagging=_grown(people.lagging, len(bits(room))),
                x=_longer_table(people.x, room),
                residual=_longer(people.residual, room),
                reference=people.reference,
            ),
            inverse=inverse._replace(
                on_participant=_wider(inverse.on_participant, room, 1.0), healing=healing(room, inverse.healing)
            ),
            news=news._replace(
                told=news.told._replace(people=_longer_table(news.told.people, room, NOT_TOLD)),
                moved=marked(room, news.moved),
                later=marked(room, news.later),
            ),
        )

    def _grow_edges(self, room: int) -> None:
        state = self.state
        inverse, news = state.inverse, state.news
        self.state = state._replace(
            system=state.system._replace(off=_wider(state.system.off, room)),
            inverse=inverse._replace(on_edge=_wider(inverse.on_edge, room)),
            news=news._replace(
                told=news.told._replace(covariance=_wider(news.told.covariance, room, np.inf)),
                stale=marked(room, news.stale),
            ),
        )
        self._priors = whole_priors(rows_of(self._priors), room)
        self._data_rows = _longer(self._data_rows, room)
        self.bound = _grown(self.bound, room)

    def everyone(self) -> Ints:
        """The indexes of all participants, ascending."""
        return np.arange(self.participants, dtype=np.int32)

    def everywhere(self) -> Ints:
        """The indexes of all edges, ascending."""
        return np.arange(self.edge_count, dtype=np.int32)
