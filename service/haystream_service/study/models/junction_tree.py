"""Exact marginals of a binary Markov random field with a factor on every edge, by messages between cliques.

Time and memory are exponential in the size of the largest clique alone: on a graph that is nearly a tree an
inference takes microseconds. The cliques are those of min-fill elimination (networkx); messages are Hugin's.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import networkx as nx
import numba
import numpy as np
from networkx.algorithms.approximation import treewidth_min_fill_in
from numpy.typing import NDArray

from haystream_service.errors import UserError

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]

Function = TypeVar("Function", bound=Callable[..., Any])

LARGEST = 20
"""Participants in a clique, at most: a table of so many has a million entries, and an inference takes a tenth of a
second or more."""


class JunctionTree:
    """A graph's cliques in a tree. Clique c's table is tables[start[c] : start[c + 1]], an entry for each of the
    states of its participants: bit i of the state is Z of the clique's participant i. Parents come before children.

    `pairs`: shape (edges, 2), participants 0 … m-1, each of them on an edge.

    Raises:
        UserError: a clique would have more than `LARGEST` participants.
    """

    def __init__(self, participants: int, pairs: Longs) -> None:
        graph: nx.Graph[int] = nx.Graph(pairs.tolist())
        # No elimination has a smaller width than the largest core, which is known at once: min-fill takes minutes
        # on a graph that is far from a tree.
        width = max(nx.core_number(graph).values())
        if width < LARGEST:
            width, tree = treewidth_min_fill_in(graph)
        if width >= LARGEST:
            raise UserError(
                f"exact inference is out of reach here: it needs tables of 2^{width + 1} entries or more"
            )
        cliques, parent = _rooted(tree)
        self.largest = max(map(len, cliques))
        separators = [
            tuple(v for v in clique if p >= 0 and v in cliques[p])
            for clique, p in zip(cliques, parent, strict=True)
        ]
        places = _starts(separators)
        self._parent = np.array(parent, dtype=np.int64)
        self._start = _starts(cliques)
        self._room = int(places[-1])
        # Where the states of a clique, and those of its parent, stand in the separator between the two.
        self._below = np.concatenate(
            [_states(c, s) + at for c, s, at in zip(cliques, separators, places, strict=False)]
        )
        above = [
            _states(cliques[p] if p >= 0 else (), s) + at
            for p, s, at in zip(parent, separators, places, strict=False)
        ]
        self._above, self._above_start = np.concatenate(above), np.cumsum([0, *map(len, above)])
        # Each edge's factor stands in one clique that holds both ends; likewise each participant is read in one.
        homes = _homes(cliques, participants)
        self._edge_clique = np.array([min(homes[u] & homes[v]) for u, v in pairs.tolist()], dtype=np.int64)
        edge_states = [
            _states(cliques[c], (v, u)) for c, (u, v) in zip(self._edge_clique, pairs.tolist(), strict=True)
        ]
        self._edge_state, self._edge_start = np.concatenate(edge_states), np.cumsum([0, *map(len, edge_states)])
        self._clique_of = [min(home) for home in homes]
        self._relevant = [_states(cliques[c], (v,)) == 1 for v, c in enumerate(self._clique_of)]

    def __len__(self) -> int:
        """The number of participants."""
        return len(self._clique_of)

    def joints(self, factors: Floats) -> Floats:
        """P(z_u, z_v) of every edge, where P(z) ∝ Π factors[e, 2 z_u + z_v]; both of shape (edges, 4).

        Raises:
            FloatingPointError: the product is 0 in every state, or too small for a double.
        """
        joint = np.zeros((len(self._edge_clique), 4))
        tables = self._calibrated(factors)
        _read_edges(tables, self._start, self._edge_clique, self._edge_start, self._edge_state, joint)
        return np.asarray(joint / joint.sum(axis=1, keepdims=True))

    def means(self, factors: Floats, *, given: int | None = None) -> Floats:
        """P(z_v = 1), shape (participants,), given that Z of participant `given` is 1. Raises as `joints`."""
        tables = self._calibrated(factors, given)
        mean = np.empty(len(self._clique_of))
        for v, (clique, relevant) in enumerate(zip(self._clique_of, self._relevant, strict=True)):
            table = tables[self._start[clique] : self._start[clique + 1]]
            mean[v] = table[relevant].sum() / table.sum()
        return mean

    def _calibrated(self, factors: Floats, given: int | None = None) -> Floats:
        """The tables when all messages have passed: each is its clique's marginal, but for its scale."""
        tables = np.ones(self._start[-1])
        _multiply_factors(tables, self._start, self._edge_clique, self._edge_start, self._edge_state, factors)
        if given is not None:
            begin = self._start[self._clique_of[given]]
            tables[begin : begin + len(self._relevant[given])] *= self._relevant[given]
        separators = np.ones((2, self._room))
        if not _pass_messages(
            tables, separators, self._start, self._parent, self._below, self._above, self._above_start
        ):
            raise FloatingPointError("the factors of the Markov random field are 0 in every state")
        return tables


def _rooted(tree: "nx.Graph[frozenset[int]]") -> tuple[list[tuple[int, ...]], list[int]]:
    """The cliques, parents before children, and each one's parent, -1 at a root."""
    order: list[frozenset[int]] = []
    parents: list[int] = []
    place: dict[frozenset[int], int] = {}
    for root in sorted(tree, key=sorted):
        waiting = [] if root in place else [(root, -1)]
        while waiting:
            clique, parent = waiting.pop()
            place[clique] = len(order)
            order.append(clique)
            parents.append(parent)
            below = sorted((other for other in tree[clique] if other not in place), key=sorted)
            waiting += [(other, place[clique]) for other in below]
    return [tuple(sorted(clique)) for clique in order], parents


def _states(clique: Sequence[int], subset: Sequence[int]) -> Longs:
    """For every state of the clique, the state of these of its participants (bit i: the i-th of them)."""
    states = np.arange(2 ** len(clique))
    found = np.zeros_like(states)
    for i, v in enumerate(subset):
        found |= (states >> clique.index(v) & 1) << i
    return found


def _starts(cliques: Sequence[Sequence[int]]) -> Longs:
    return np.cumsum([0, *(2 ** len(clique) for clique in cliques)])


def _homes(cliques: Sequence[Sequence[int]], participants: int) -> list[set[int]]:
    homes: list[set[int]] = [set() for _ in range(participants)]
    for number, clique in enumerate(cliques):
        for v in clique:
            homes[v].add(number)
    return homes


def _compiled(function: Function) -> Function:
    """A loop in machine code. The core's own `compiled` keeps a cache that is good for the core's sources alone."""
    return cast(Function, numba.njit(cache=True, error_model="numpy")(function))


@_compiled
def _multiply_factors(
    tables: Floats, start: Longs, clique: Longs, edge_start: Longs, edge_state: Longs, factors: Floats
) -> None:
    for e in range(len(clique)):
        begin = start[clique[e]]
        for i in range(edge_start[e + 1] - edge_start[e]):
            tables[begin + i] *= factors[e, edge_state[edge_start[e] + i]]


@_compiled
def _read_edges(
    tables: Floats, start: Longs, clique: Longs, edge_start: Longs, edge_state: Longs, joint: Floats
) -> None:
    for e in range(len(clique)):
        begin = start[clique[e]]
        for i in range(edge_start[e + 1] - edge_start[e]):
            joint[e, edge_state[edge_start[e] + i]] += tables[begin + i]


@_compiled
def _scale(table: Floats) -> bool:
    largest = table.max()
    if not largest > 0.0:
        return False
    table /= largest
    return True


@_compiled
def _pass_messages(
    tables: Floats,
    separators: Floats,
    start: Longs,
    parent: Longs,
    below: Longs,
    above: Longs,
    above_start: Longs,
) -> bool:
    """To the roots and back; `separators` is room, shape (2, entries). False if a table has become 0."""
    up, down = separators
    for c in range(len(parent) - 1, -1, -1):
        p = parent[c]
        if p >= 0:
            entries = below[start[c] : start[c + 1]]
            up[entries] = 0.0
            for i in range(len(entries)):
                up[entries[i]] += tables[start[c] + i]
            for i in range(start[p + 1] - start[p]):
                tables[start[p] + i] *= up[above[above_start[c] + i]]
            # To a maximum of 1 after every message: a hub has hundreds, and their product may be no double.
            if not _scale(tables[start[p] : start[p + 1]]):
                return False
    for c in range(len(parent)):
        p = parent[c]
        if p >= 0:
            entries = below[start[c] : start[c + 1]]
            down[entries] = 0.0
            for i in range(start[p + 1] - start[p]):
                down[above[above_start[c] + i]] += tables[start[p] + i]
            for i in range(len(entries)):
                if up[entries[i]] > 0.0:
                    tables[start[c] + i] *= down[entries[i]] / up[entries[i]]
        if not _scale(tables[start[c] : start[c + 1]]):
            return False
    return True
