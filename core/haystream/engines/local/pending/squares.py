"""What pending screenings take from variances and covariances: K M Kᵀ + L m Lᵀ, a row of K and L a participant.

K has the columns that M, which is dense, mixes; L those of light participants, and m is diagonal. Most entries of a
row of K matter little, and go (`thinned`). Of rows that still have many, as those of people on items of many have,
K M is laid out, so that a product takes as long as the other row is.
"""

from typing import NamedTuple

import numpy as np

from haystream.engines.local.inverse.low_rank import NO_COLUMNS, Columns, Rows, by_rows, some_columns, some_rows
from haystream.engines.local.pending.columns import Located, at_sources
from haystream.engines.local.pending.inverse import between_columns
from haystream.engines.local.pending.parts import NO_PARTS, Parts
from haystream.engines.local.solves.budget import THINNED_FACTOR
from haystream.engines.local.solves.solve import System
from haystream.engines.local.state.state import State
from haystream.memory.arrays import Floats, Ints
from haystream.memory.compiled import allocating
from haystream.memory.overlay import entries

WIDE_ROW_ENTRIES = 16
"""A row with so many entries is laid out."""

MOST_LAID_OUT = 2**23
"""Of all rows together no more entries are, which take 64 MiB: those of the longest ones."""


class Squared(NamedTuple):
    """Products of rows by what is best laid out of them (`between`)."""

    rows: Rows
    """K = D (Λ + E)⁻¹U, but for what matters little; q columns."""
    M: Floats
    """Shape (q, q)."""
    place: Ints
    """By row of K, that of the same in `KM`, or −1, shape (rows,)."""
    KM: Floats
    """Some rows of K M, shape (k, q)."""
    light: Rows
    """L = D (Λ + E)⁻¹ at l columns; the same rows."""
    m: Floats
    """Shape (l,)."""


NO_ROWS = Rows(np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0))
NO_SQUARES = Squared(NO_ROWS, np.zeros((0, 0)), np.full(1, -1, np.int32), np.zeros((0, 0)), NO_ROWS, np.zeros(0))


class Taken(NamedTuple):
    """What pending screenings take, and what it was made of."""

    parts: Parts
    columns: Columns
    """(Λ + E)⁻¹U."""
    D: Floats
    """Of those in these columns."""
    people: Ints
    """The same, of row 1, 2, …"""
    M: Floats
    """Between the columns of U but for the last (`pending.inverse`)."""
    squared: Squared
    variance: Floats
    """What V loses, by row."""


NOBODY = np.zeros(0, np.int32)
NOTHING_TAKEN = Taken(NO_PARTS, NO_COLUMNS, np.zeros(0), NOBODY, np.zeros((0, 0)), NO_SQUARES, np.zeros(1))


def taken_by(state: State, parts: Parts, columns: Columns, row: Ints) -> Taken:
    """What these parts take. `row`, shape (participants,), is zero before, and then each one's row."""
    q, light = parts.mixed, len(parts.E.people)
    everything, E = by_rows(columns, row), parts.E.added
    D = entries(state.people.scale, everything.people)
    K, L = Located(some_columns(everything, 0, q), row), some_columns(everything, q, q + light)
    M = between_columns(parts, at_sources(parts.U, K, q, q))
    m = E / (1.0 - E * on_diagonal(L, row[parts.E.people]))
    leaves_out = THINNED_FACTOR * state.inverse.tolerances.corrected
    of_mixed = thinned(state.system, K, leaves_out / (2.0 * parts.most))
    squared = squared_by(scaled(of_mixed, D), M, scaled(L, D), m)
    each = np.arange(len(D) + 1, dtype=np.int32)
    return Taken(parts, columns, D, everything.people, M, squared, between(squared, each, each))


def squared_by(rows: Rows, M: Floats, light: Rows, m: Floats) -> Squared:
    """K M Kᵀ + L m Lᵀ by what is best laid out of it."""
    size = np.diff(rows.begin)
    wide = np.flatnonzero(size >= WIDE_ROW_ENTRIES)
    most = MOST_LAID_OUT // max(len(M), 1)
    if len(wide) > most:
        wide = np.sort(wide[np.argpartition(size[wide], -most)[-most:]])
    place = np.full(len(size), -1, np.int32)
    place[wide] = np.arange(len(wide))
    return Squared(rows, M, place, some_rows(rows, wide.astype(np.int32), len(M)) @ M, light, m)


@allocating
def between(squared: Squared, some: Ints, others: Ints) -> Floats:
    """K M Kᵀ + L m Lᵀ between pairs of rows, shape (len(some),)."""
    (begin, _, column, value), (_, M, place, KM, light, m) = squared.rows, squared
    products = np.zeros(len(some))
    for k in range(len(some)):
        one, other = some[k], others[k]
        i, j, i_end, j_end = light.begin[one], light.begin[other], light.begin[one + 1], light.begin[other + 1]
        while i < i_end and j < j_end:
            difference = light.column[i] - light.column[j]
            if difference == 0:
                products[k] += light.value[i] * m[light.column[i]] * light.value[j]
            i += difference <= 0
            j += difference >= 0
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


def scaled(some: Rows, D: Floats) -> Rows:
    """Each row times a number of its participant, shape (rows − 1,)."""
    return some._replace(value=some.value * np.repeat(D, np.diff(some.begin[1:])))


@allocating
def on_diagonal(some: Rows, row: Ints) -> Floats:
    """The entry of column i in the row number row[i], shape (columns,)."""
    values = np.zeros(len(row))
    for i in range(len(row)):
        for k in range(some.begin[row[i]], some.begin[row[i] + 1]):
            if some.column[k] == i:
                values[i] = some.value[k]
    return values


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
