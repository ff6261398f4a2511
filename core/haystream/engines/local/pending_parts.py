"""What pending screenings add to Λ, B Δw Bᵀ with a column of B an edge, by fewer columns where there are so few.

Edges that people join to each other are a part. Where one has more edges than people, as that of an item without
roles has, its columns are its people's unit vectors; where one person is on all of its edges, and each weighs
little, as those of a mail to a thousand do, one column will do. Of such a part B √Δw P = U G with P orthonormal,
and what B √Δw is but for that adds nothing to Λ: B Δw Bᵀ = U G Gᵀ Uᵀ. Of other edges U is B, G is √Δw, and P is 1.

There P = Wᵀ A, with a row of W a person, which has two entries an edge. So P is never laid out: people who hold
items of many each have tens of thousands of edges between hundreds of people.
"""

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from haystream.arrays import Floats, Ints, Longs
from haystream.compiled import compiled
from haystream.engines.local.edge_priors import ON_HEAD, ON_TAIL, numbers
from haystream.engines.local.low_rank import Columns, columns_of, joined, loosened
from haystream.engines.local.state import Edges


class Part(NamedTuple):
    """m edges of fewer columns, q."""

    rows: Longs
    """Which of all edges they are, shape (m,)."""
    names: list[Hashable]
    """Of the columns of U."""
    U: Columns
    tolerances: Floats
    G: Floats
    """Shape (q, p)."""
    ends: Longs
    """Where W has entries, shape (m, 2), or (m, 1) where one row is all that is asked of it."""
    on: Floats
    """These entries."""
    A: Floats
    """Shape (rows of W, p)."""

    def along(self, values: Floats) -> tuple[Floats, Floats]:
        """Pᵀv of a number v of each edge, shape (p,), and what of v is not along P, shape (m,)."""
        of_rows = np.bincount(self.ends.ravel(), (self.on * values[:, None]).ravel(), len(self.A))
        along = self.A.T @ of_rows
        return along, values - (self.on * (self.A @ along)[self.ends]).sum(axis=1)


LEAST_SHARE = 1e-10
"""What adds less to Λ than that share of what adds most there is along no column."""


class Parts(NamedTuple):
    """All of the edges."""

    alone: Longs
    """Which of them have a column each, that are the first of U, shape (a,)."""
    root: Floats
    """√Δw of these."""
    joined: list[Part]
    names: list[Hashable]
    """Of all columns of U. Columns of one name are the same, as long as no edge's prior moves."""
    U: Columns
    tolerances: Floats
    """Down to what residuals they are solved."""
    most: float
    """No eigenvalue of G Gᵀ is larger."""

    def from_right(self, matrix: Floats) -> Floats:
        """A matrix of shape (…, q) times G, shape (…, p)."""
        begin = len(self.alone)
        blocks = [matrix[:, :begin] * self.root]
        for part in self.joined:
            end = begin + len(part.G)
            blocks.append(matrix[:, begin:end] @ part.G)
            begin = end
        return np.hstack(blocks)

    def from_left(self, matrix: Floats) -> Floats:
        """G times a matrix of shape (p, …), shape (q, …)."""
        begin = len(self.alone)
        blocks = [self.root[:, None] * matrix[:begin]]
        for part in self.joined:
            end = begin + part.G.shape[1]
            blocks.append(part.G @ matrix[begin:end])
            begin = end
        return np.vstack(blocks)

    def along(self, values: Floats) -> tuple[Floats, Floats]:
        """Pᵀv of a number v of each edge, shape (p,), and what of v is not along P."""
        of_parts = [part.along(values[part.rows]) for part in self.joined]
        along, rest = [along for along, _ in of_parts], [rest for _, rest in of_parts]
        return np.concatenate([values[self.alone], *along]), np.concatenate([np.zeros(0), *rest])


def parts_of(edges: Edges, which: Ints, root: Floats, corrected: float) -> Parts:
    """The parts of the edges in `which`, shape (k,).

    Args:
        root: √Δw of these, shape (k,).
        corrected: down to what residuals columns are solved that matter as much as those of a verdict.
    """
    people, ends = np.unique(np.stack([edges.tail[which], edges.head[which]]), return_inverse=True)
    tail, head = ends.reshape(2, -1)
    part_of_person = np.arange(len(people))
    find_parts(tail, head, part_of_person)
    part_of = part_of_person[tail]
    sizes, is_alone, joined_edges = np.bincount(part_of), np.ones(len(which), np.bool_), []
    for number in np.flatnonzero(sizes > 1).tolist():
        rows = np.flatnonzero(part_of == number)
        part = _part(edges, which[rows], rows, root[rows], corrected)
        if part is not None:
            joined_edges.append(part)
            is_alone[rows] = False
    alone = np.flatnonzero(is_alone)
    named, weight = which[alone], root[alone] ** 2
    at = np.column_stack([edges.tail[named], edges.head[named]])
    on = np.column_stack([numbers(edges.prior, named, end) for end in (ON_TAIL, ON_HEAD)])
    B = Columns(np.arange(0, at.size + 1, 2), at.ravel(), on.ravel())
    return Parts(
        alone,
        root[alone],
        joined_edges,
        [*named.tolist(), *(name for part in joined_edges for name in part.names)],
        joined([B, *(part.U for part in joined_edges)]),
        np.concatenate(
            [loosened(weight * sizes[part_of[alone]], corrected), *(part.tolerances for part in joined_edges)]
        ),
        max([weight.max(initial=0.0), *((part.G**2).sum(axis=0).max() for part in joined_edges)]),
    )


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


def _part(edges: Edges, which: Ints, rows: Longs, root: Floats, corrected: float) -> Part | None:
    """These edges as a part, if that takes fewer columns than they are."""
    ends = np.column_stack([edges.tail[which], edges.head[which]])
    on = root[:, None] * np.column_stack([numbers(edges.prior, which, end) for end in (ON_TAIL, ON_HEAD)])
    people, place, on_edges = np.unique(ends, return_inverse=True, return_counts=True)
    place = place.reshape(ends.shape)
    (centres,) = np.nonzero(on_edges == len(which))
    if len(centres) == 1:
        at_centre, at_other = on[place == centres], on[place != centres]
        if at_centre.all() and (at_other**2).max() <= corrected:
            # What an edge is beside this column is at its other end, and too little to be noticed.
            norm = np.linalg.norm(at_centre)
            who = np.append(people[centres], ends[place != centres])
            column = Columns(np.array([0, len(who)]), who, np.append(norm, at_other * at_centre / norm))
            name: Hashable = (*which.tolist(), *root.tolist())
            G, on_centre = np.eye(1), (np.zeros((len(which), 1), np.int64), at_centre[:, None])
            return Part(rows, [name], column, np.array([corrected]), G, *on_centre, G / norm)
    if len(which) <= len(people):
        return None
    M = squared(place, on, len(people))
    values, Q = np.linalg.eigh(M)
    counts = values > LEAST_SHARE * values[-1]
    size, Q = np.sqrt(values[counts]), Q[:, counts]
    names: list[Hashable] = [("participant", u) for u in people.tolist()]
    tolerances = loosened(np.abs(M).sum(axis=1) * len(people), corrected)
    U = columns_of(people, np.eye(len(people)))
    return Part(rows, names, U, tolerances, Q * size, place, on, Q / size)


def squared(place: Longs, on: Floats, count: int) -> Floats:
    """W Wᵀ, shape (count, count), of a matrix W with two entries in each column: `on`, in the rows `place`, both of
    shape (m, 2)."""
    on_diagonal = np.bincount(place.ravel(), (on * on).ravel(), count)
    beside = np.bincount(place[:, 0] * count + place[:, 1], on[:, 0] * on[:, 1], count * count)
    beside = beside.reshape(count, count)
    return np.asarray(np.diag(on_diagonal) + beside + beside.T)
