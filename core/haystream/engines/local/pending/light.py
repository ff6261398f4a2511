"""What pending screenings of items of many people add to Λ, by few columns where they add little to most of them.

To whom such an item adds little is *light* (`budget.LIGHT_FACTOR`). With W = B √Δw, and J diagonal and ±1,

    W Wᵀ = E + U J Uᵀ        E diagonal, at those who are light

- A mail is a **star**: an edge's √Δw β̃ is a at the sender and c at the other end. With A = Σ a²,

      W Wᵀ = E + u uᵀ − b bᵀ        u = √A at the sender, and at the others, as b, a c/√A        E = c² there.

- An item without roles among very many is a **crowd**: what it adds beside E has few eigenvalues that matter, and
  often one.
"""

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from haystream.engines.local.inverse.low_rank import Columns, OnDiagonal, columns_of
from haystream.engines.local.solves.budget import AMPLIFIED, LIGHT_FACTOR, NEGLECTED_SHARE
from haystream.engines.local.state.edge_priors import ON_HEAD, ON_TAIL, numbers
from haystream.engines.local.state.state import Edges
from haystream.memory.arrays import Floats, Ints, Longs, Switches

LEAST_PER_COLUMN = 4
"""So many people a crowd has for each of its columns, or more; and more edges than that a star."""


class Lot(NamedTuple):
    """The pending screenings of items that lie on the same edges."""

    rows: Longs
    """Which of all edges these are, shape (k,)."""
    share: Floats
    """Of the pending screenings there, shape (k,)."""


class Screenings(NamedTuple):
    """Pending screenings on m edges."""

    which: Ints
    """The edges, shape (m,)."""
    root: Floats
    """√Δw of these."""
    people: Ints
    """At their ends, ascending, shape (n,)."""
    place: Longs
    """The ends of each among these, shape (m, 2)."""
    at: Floats
    """√Δw β̃ there: W."""

    def sources(self, values: Floats) -> Floats:
        """W v of a number v of each edge, shape (n,)."""
        return np.bincount(self.place.ravel(), (self.at * values[:, None]).ravel(), len(self.people)).astype(float)

    def along(self, values: Floats) -> Floats:
        """Wᵀ v of a number v of each participant, shape (m,)."""
        return np.asarray((self.at * values[self.place]).sum(axis=1))


NO_SCREENINGS = Screenings(
    np.zeros(0, np.int32),
    np.zeros(0),
    np.zeros(0, np.int32),
    np.zeros((0, 2), np.int64),
    np.zeros((0, 2)),
)


def screenings(edges: Edges, which: Ints, root: Floats) -> Screenings:
    """Screenings that add as much to the weights of these edges as the square of `root`, shape (m,)."""
    ends = np.column_stack([edges.tail[which], edges.head[which]])
    people, place = np.unique(ends, return_inverse=True)
    at = root[:, None] * np.column_stack([numbers(edges.prior, which, end) for end in (ON_TAIL, ON_HEAD)])
    return Screenings(which, root, people, place.reshape(ends.shape), at)


class LightColumn(NamedTuple):
    """A column of a star or a crowd."""

    name: Hashable
    column: Columns
    negative: bool
    """Whether J is −1."""


class Light(NamedTuple):
    """What lots of light people add."""

    few: list[LightColumn]
    E: OnDiagonal
    rest: Floats
    """The share of each edge's screenings that is not in it, shape (m,)."""


class _Wide(NamedTuple):
    """A lot of an item of many people."""

    lot: Lot
    name: Hashable
    """Of its edges and what it adds to their weights."""
    at: Floats
    """Its part of W, shape (k, 2)."""
    people: Longs
    """Which of all are its, shape (p,)."""
    place: Longs
    """The ends of its edges among them, shape (k, 2)."""
    size: Floats
    """What it adds to their diagonal, shape (p,)."""


def light_of(some: Screenings, lots: list[Lot], corrected: float) -> Light:
    """What lots add by few columns (`parts_of`)."""
    limit, few = np.sqrt(LIGHT_FACTOR * corrected), list[LightColumn]()
    (added, squares_of_b), rest, stars = np.zeros((2, len(some.people))), np.ones(len(some.which)), []
    for each in (_wide(some, lot) for lot in lots if len(lot.rows) > LEAST_PER_COLUMN):
        is_light = added[each.people] + each.size <= limit
        (centres,) = np.nonzero(np.bincount(each.place.ravel()) == len(each.place))
        if len(centres) == 1:
            star = _star(each, centres.item(), is_light)
            if len(star.rows) <= LEAST_PER_COLUMN:
                continue
            stars.append((each, star))
            added[each.people[star.others]] += star.at_others**2
            squares_of_b[each.people[star.others]] += star.b**2
            rest[each.lot.rows[star.rows]] -= each.lot.share[star.rows]
        else:
            crowd = _crowd(each, some.people[each.people], is_light, NEGLECTED_SHARE * corrected)
            if crowd is None:
                continue
            few += crowd
            added[each.people] += np.where(is_light, each.size, 0.0)
            rest[each.lot.rows] -= each.lot.share
    for each, star in stars:
        has_b = AMPLIFIED**2 * squares_of_b[each.people[star.others]].max() > NEGLECTED_SHARE * corrected
        few += _columns(star, each, some.people[each.people], has_b=has_b)
    added[added <= corrected] = 0.0
    (where,) = np.nonzero(added)
    return Light(few, OnDiagonal(some.people[where], added[where]), np.maximum(rest, 0.0))


def _wide(some: Screenings, lot: Lot) -> _Wide:
    root = np.sqrt(lot.share)
    at = some.at[lot.rows] * root[:, None]
    people, place = np.unique(some.place[lot.rows], return_inverse=True)
    place = place.reshape(at.shape)
    name = some.which[lot.rows].tobytes(), (some.root[lot.rows] * root).tobytes()
    return _Wide(lot, name, at, people, place, np.bincount(place.ravel(), (at * at).ravel()).astype(float))


class _Star(NamedTuple):
    """Edges of one participant to light ones."""

    centre: int
    rows: Longs
    """Of the lot."""
    others: Longs
    at_centre: Floats
    at_others: Floats

    @property
    def b(self) -> Floats:
        """At the others."""
        return np.asarray(self.at_others * self.at_centre / np.linalg.norm(self.at_centre))


def _star(wide: _Wide, centre: int, light: Switches) -> _Star:
    """The star of a lot: of its edges, all of which the centre has, those to light people."""
    each, other_end = np.arange(len(wide.place)), np.where(wide.place[:, 0] == centre, 1, 0)
    at_centre, other = wide.at[each, 1 - other_end], wide.place[each, other_end]
    rows = np.flatnonzero(light[other] & (at_centre != 0.0)) if not light[centre] else np.zeros(0, np.int64)
    return _Star(centre, rows, other[rows], at_centre[rows], wide.at[each, other_end][rows])


def _columns(star: _Star, wide: _Wide, people: Ints, *, has_b: bool) -> list[LightColumn]:
    """The columns of a star, u and b; or u alone, where what b takes from any entry of the inverse, (Σ_h b_h K_uh)²
    or less, is too little to be noticed."""
    b, who = star.b, people[star.others]
    at_all = np.append(np.linalg.norm(star.at_centre), b)
    u = Columns(np.array([0, len(who) + 1]), np.append(people[star.centre], who), at_all)
    beside = Columns(np.array([0, len(who)]), who, b)
    named = (wide.name, star.rows.tobytes())
    return [
        LightColumn(("star", *named), u, negative=False),
        LightColumn(("beside", *named), beside, negative=True),
    ][: 1 + has_b]


def _crowd(wide: _Wide, people: Ints, light: Switches, neglected: float) -> list[LightColumn] | None:
    """The columns of a crowd, if they are few."""
    if np.median(wide.at[:, 0] * wide.at[:, 1]) > neglected:
        return None  # among n who all are alike, this is the least of n − 1 eigenvalues
    M = squared(wide.place, wide.at, len(people))
    values, Q = np.linalg.eigh(M - np.diag(np.where(light, wide.size, 0.0)))
    (matters,) = np.nonzero(np.abs(values) > neglected)
    if LEAST_PER_COLUMN * len(matters) > len(people):
        return None
    U = columns_of(people, Q[:, matters] * np.sqrt(np.abs(values[matters])))
    of_people = light.tobytes()
    return [
        LightColumn(("crowd", number, wide.name, of_people), U.of(number), negative=value < 0.0)
        for number, value in enumerate(values[matters].tolist())
    ]


def squared(place: Longs, on: Floats, count: int) -> Floats:
    """W Wᵀ, shape (count, count), of a matrix W with two entries in each column: `on`, in the rows `place`, both of
    shape (m, 2)."""
    on_diagonal = np.bincount(place.ravel(), (on * on).ravel(), count)
    beside = np.bincount(place[:, 0] * count + place[:, 1], on[:, 0] * on[:, 1], count * count)
    beside = beside.reshape(count, count)
    return np.asarray(np.diag(on_diagonal) + beside + beside.T)
