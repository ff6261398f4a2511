"""What pending screenings add to Λ, B Δw Bᵀ with a column of B an edge, by fewer columns where there are so few.

Edges that people join to each other are a part. Where one has more edges than people, as that of an item without
roles has, its columns are its people's unit vectors; where one person is on all of its edges, and each weighs
little, as those of a mail to a thousand do, one column will do. Of such a part B √Δw P = U G with P orthonormal,
and what B √Δw is but for that adds nothing to Λ: B Δw Bᵀ = U G Gᵀ Uᵀ. Of other edges U is B, G is √Δw, and P is 1.
"""

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from haystream.arrays import Floats, Ints, Longs
from haystream.compiled import compiled
from haystream.engines.local.edge_priors import ON_HEAD, ON_TAIL, numbers
from haystream.engines.local.low_rank import Columns, at_people, columns_of, joined, loosened
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
    P: Floats
    """Shape (m, p)."""


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
        along = [part.P.T @ values[part.rows] for part in self.joined]
        rest = [values[part.rows] - part.P @ of_part for part, of_part in zip(self.joined, along, strict=True)]
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
    tail, head = edges.tail[which], edges.head[which]
    people, on_edges = np.unique(np.concatenate([tail, head]), return_counts=True)
    (centres,) = np.nonzero(on_edges == len(which))
    if len(centres) == 1:
        on_tail, on_head = (root * numbers(edges.prior, which, end) for end in (ON_TAIL, ON_HEAD))
        centre, out = people[centres], tail == people[centres]
        at_centre, at_other = np.where(out, on_tail, on_head), np.where(out, on_head, on_tail)
        if at_centre.all() and (at_other**2).max() <= corrected:
            # What an edge is beside this column is at its other end, and too little to be noticed.
            P = at_centre / np.linalg.norm(at_centre)
            who, value = np.append(centre, np.where(out, head, tail)), np.append(at_centre @ P, at_other * P)
            name: Hashable = (*which.tolist(), *root.tolist())
            column = Columns(np.array([0, len(who)]), who, value)
            return Part(rows, [name], column, np.array([corrected]), np.eye(1), P[:, None])
    if len(which) <= len(people):
        return None
    whole = at_people(edges, which)[1] * root
    Q, size, across = np.linalg.svd(whole, full_matrices=False)
    G = Q * size
    tolerances = loosened(np.abs(G @ G.T).sum(axis=1) * len(people), corrected)
    names: list[Hashable] = [("participant", u) for u in people.tolist()]
    return Part(rows, names, columns_of(people, np.eye(len(people))), tolerances, G, across.T)
