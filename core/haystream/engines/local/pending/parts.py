"""What pending screenings add to Λ, B Δw Bᵀ with a column of B an edge, by as few columns as there can be.

    B Δw Bᵀ = E + U G J Gᵀ Uᵀ        E and J diagonal, ±1 in J

Items of many people have columns of their own (`pending.light`), and E is theirs. Of all others, edges that people
join to each other are a part. Where one has more edges than people, its columns are its people's unit vectors, and
G is a root of what it adds. Of other edges U is B, and G is √Δw. J is 1 of both.
"""

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from haystream.engines.local.inverse.low_rank import NO_COLUMNS, NOWHERE, Columns, OnDiagonal, joined, loosened
from haystream.engines.local.pending.light import Lot, Screenings, light_of, squared
from haystream.engines.local.solves.budget import LIGHT_COLUMN_FACTOR
from haystream.engines.local.state.edge_priors import ON_HEAD, ON_TAIL, numbers
from haystream.engines.local.state.state import Edges
from haystream.memory.arrays import Floats, Ints, Longs, Switches
from haystream.memory.compiled import compiled

LEAST_SHARE = 1e-10
"""What adds less to Λ than that share of what adds most there is along no column. An edge of whose screenings less
is left over is in no part either."""


class Part(NamedTuple):
    """Columns that have a G together."""

    names: list[Hashable]
    U: Columns
    tolerances: Floats
    G: Floats
    """Shape (q, p)."""


class Parts(NamedTuple):
    """The parts of all pending screenings, one after the other."""

    root: Floats
    """G of the first columns, which have a number each, shape (a,)."""
    joined: list[Part]
    """Of the next ones."""
    negative: Switches
    """Where J is −1, shape (p,)."""
    E: OnDiagonal
    """The last columns of U are the unit vectors of these people."""
    names: list[Hashable]
    """Of all columns of U. Columns of one name are the same, as long as no edge's prior moves."""
    U: Columns
    tolerances: Floats
    """Down to what residuals they are solved."""
    most: float
    """No eigenvalue of G Gᵀ is larger."""

    @property
    def mixed(self) -> int:
        """How many columns there are but for the last."""
        return len(self.names) - len(self.E.people)

    def from_right(self, matrix: Floats) -> Floats:
        """A matrix of shape (…, q) times G, shape (…, p)."""
        begin = len(self.root)
        blocks = [matrix[:, :begin] * self.root]
        for part in self.joined:
            end = begin + len(part.G)
            blocks.append(matrix[:, begin:end] @ part.G)
            begin = end
        return np.hstack(blocks)

    def from_left(self, matrix: Floats) -> Floats:
        """G times a matrix of shape (p, …), shape (q, …)."""
        begin = len(self.root)
        blocks = [self.root[:, None] * matrix[:begin]]
        for part in self.joined:
            end = begin + part.G.shape[1]
            blocks.append(part.G @ matrix[begin:end])
            begin = end
        return np.vstack(blocks)


NO_PARTS = Parts(np.zeros(0), [], np.zeros(0, np.bool_), NOWHERE, [], NO_COLUMNS, np.zeros(0), 0.0)


def parts_of(edges: Edges, some: Screenings, lots: list[Lot], corrected: float) -> Parts:
    """The parts of pending screenings.

    Args:
        lots: what of them is of items of many people, as far as anybody knows.
        corrected: down to what residuals columns are solved that matter as much as those of a verdict.
    """
    few, E, rest = light_of(some, lots, corrected)
    kept = np.flatnonzero(rest > LEAST_SHARE)
    root, place, at = some.root[kept], some.place[kept], some.at[kept]
    root, at = root * np.sqrt(rest[kept]), at * np.sqrt(rest[kept])[:, None]
    part_of_person, (tail, head) = np.arange(len(some.people)), place.T.copy()
    find_parts(tail, head, part_of_person)
    part_of = part_of_person[tail]
    sizes, is_alone, parts = np.bincount(part_of, minlength=1), np.ones(len(kept), np.bool_), []
    for number in np.flatnonzero(sizes > 1).tolist():
        rows = np.flatnonzero(part_of == number)
        people, ends = np.unique(place[rows], return_inverse=True)
        if len(rows) > len(people):
            M = squared(ends.reshape(-1, 2), at[rows], len(people))
            parts.append(_part(some.people[people], M, corrected))
            is_alone[rows] = False
    alone = np.flatnonzero(is_alone)
    which, weight = some.which[kept[alone]], root[alone] ** 2
    on = np.column_stack([numbers(edges.prior, which, end) for end in (ON_TAIL, ON_HEAD)])
    B = Columns(np.arange(0, on.size + 1, 2), some.people[place[alone]].ravel(), on.ravel())
    of_few = np.array([np.abs(each.column.value).max() for each in few])
    negative = np.zeros(len(alone) + len(few) + sum(part.G.shape[1] for part in parts), np.bool_)
    negative[len(alone) : len(alone) + len(few)] = [each.negative for each in few]
    return Parts(
        np.append(root[alone], np.ones(len(few))),
        parts,
        negative,
        E,
        [
            *which.tolist(),
            *(each.name for each in few),
            *(name for part in parts for name in part.names),
            *(("light", u) for u in E.people.tolist()),
        ],
        joined([B, *(each.column for each in few), *(part.U for part in parts), unit_vectors(E.people)]),
        np.concatenate(
            [
                loosened(weight * sizes[part_of[alone]], corrected),
                loosened(LIGHT_COLUMN_FACTOR * of_few, corrected),
                *(part.tolerances for part in parts),
                loosened(LIGHT_COLUMN_FACTOR * E.added, corrected),
            ]
        ),
        max([*weight, *(1.0 for _ in few), *((part.G**2).sum(axis=0).max() for part in parts)], default=1.0),
    )


def unit_vectors(people: Ints) -> Columns:
    """Columns that are 1 at one of these people each."""
    return Columns(np.arange(len(people) + 1), people, np.ones(len(people)))


@compiled
def find_parts(tail: Longs, head: Longs, part_of: Longs) -> None:
    """Give people, who have a number each, the smallest of all whom edges join them to."""
    changed = True
    while changed:
        changed = False
        for u, v in zip(tail, head):  # noqa: B905 - no loop that is compiled knows `strict`
            least = min(part_of[u], part_of[v])
            changed |= part_of[u] != part_of[v]
            part_of[u], part_of[v] = least, least


def _part(people: Ints, M: Floats, corrected: float) -> Part:
    """Edges that add M = W Wᵀ, by a column for each of their people."""
    values, Q = np.linalg.eigh(M)
    counts = values > LEAST_SHARE * values[-1]
    names: list[Hashable] = [("participant", u) for u in people.tolist()]
    tolerances = loosened(np.abs(M).sum(axis=1) * len(people), corrected)
    return Part(names, unit_vectors(people), tolerances, Q[:, counts] * np.sqrt(values[counts]))
