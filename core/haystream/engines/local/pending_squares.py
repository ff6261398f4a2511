"""What pending screenings take from variances and covariances: Z Zᵀ = K M Kᵀ, a row of K a participant.

Most entries of a row matter little, and go (`thinned`). Of rows that still have many, as those of people on items
of many have, K M is laid out, so that a product takes as long as the other row is.
"""

from typing import NamedTuple

import numpy as np

from haystream.arrays import Floats, Ints
from haystream.compiled import allocating
from haystream.engines.local.low_rank import Rows, some_rows
from haystream.engines.local.pending_columns import Located
from haystream.engines.local.solve import System

WIDE = 16
"""A row with so many entries is laid out."""

MOST_LAID_OUT = 2**23
"""Of all rows together no more entries are, which take 64 MiB: those of the longest ones."""


class Squared(NamedTuple):
    """K M Kᵀ: between two rows of K it gives theirs of Z Zᵀ."""

    rows: Rows
    """K = D Λ⁻¹U, but for what matters little; q columns."""
    M: Floats
    """G R (G R)ᵀ, shape (q, q)."""
    place: Ints
    """By row of K, that of the same in `KM`, or −1, shape (rows,)."""
    KM: Floats
    """Some rows of K M, shape (k, q)."""


NOTHING = Squared(
    Rows(np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0)),
    np.zeros((0, 0)),
    np.full(1, -1, np.int32),
    np.zeros((0, 0)),
)


def squared_by(rows: Rows, M: Floats) -> Squared:
    """K M Kᵀ by what is best laid out of it."""
    size = np.diff(rows.begin)
    wide = np.flatnonzero(size >= WIDE)
    most = MOST_LAID_OUT // max(len(M), 1)
    if len(wide) > most:
        wide = np.sort(wide[np.argpartition(size[wide], -most)[-most:]])
    place = np.full(len(size), -1, np.int32)
    place[wide] = np.arange(len(wide))
    return Squared(rows, M, place, some_rows(rows, wide.astype(np.int32), len(M)) @ M)


@allocating
def between(squared: Squared, some: Ints, others: Ints) -> Floats:
    """K M Kᵀ between pairs of rows, shape (len(some),)."""
    (begin, _, column, value), (_, M, place, KM) = squared.rows, squared
    products = np.zeros(len(some))
    for k in range(len(some)):
        one, other = some[k], others[k]
        if place[one] < 0:
            one, other = other, one
        at = place[one]
        for j in range(begin[other], begin[other + 1]):
            if at >= 0:
                products[k] += KM[at, column[j]] * value[j]
                continue
            for i in range(begin[one], begin[one + 1]):
                products[k] += value[i] * M[column[i], column[j]] * value[j]
    return products


@allocating
def thinned(system: System, K: Located, limit: float) -> Rows:
    """The rows but for entries that matter little: without them a product with no matrix whose eigenvalues are from
    0 to 1, between a row and itself or that of a contact, is off by more than twice the `limit`.

    Those that are left out of a row are less, together, than the limit over the norm of any such row.
    """
    rows = K.rows
    count, size = len(rows.begin) - 1, np.zeros(len(rows.begin) - 1)
    for row in range(count):
        for i in range(rows.begin[row], rows.begin[row + 1]):
            size[row] += rows.value[i] ** 2
    begin, used = np.zeros(count + 1, np.int64), 0
    column, value = np.empty(len(rows.value), np.int32), np.empty(len(rows.value))
    for number, t in enumerate(rows.people):
        row, first = number + 1, system.start[t]
        largest = size[row]
        for i in range(first, first + system.degree[t]):
            largest = max(largest, size[K.row[system.contact[i]]])
        entries_here = rows.begin[row + 1] - rows.begin[row]
        for i in range(rows.begin[row], rows.begin[row + 1]):
            if rows.value[i] ** 2 * entries_here * largest > limit * limit:
                column[used], value[used] = rows.column[i], rows.value[i]
                used += 1
        begin[row + 1] = used
    return Rows(begin, rows.people, column[:used].copy(), value[:used].copy())
