"""Entries of an inverse on the graph, corrected or estimated as the matrix changes."""

import numpy as np

from haystream.engines.local.solves.budget import LOOSEST_COLUMN
from haystream.engines.local.solves.healing import Inverse, add_strain, left_out, lower
from haystream.engines.local.solves.solve import (
    CONTACTS_AHEAD,
    VALUE,
    Scratch,
    System,
    add_off_diagonal,
    begin,
    diagonal_of,
    fetch_slabs,
    forget,
    solve,
    touch,
    touched_by,
)
from haystream.memory.arrays import Flags, Floats, Ints, Marked, mark, unmark_all
from haystream.memory.compiled import compiled, inlined
from haystream.memory.overlay import Overlay, add_to, entry, fetch_entry, put
from haystream.memory.prefetch import prefetch

LEAST_DETERMINANT = 0.2
"""Of a change that is estimated: entries that are estimates themselves must not make a variance endless."""

STEPS_AT_ONCE = 2
"""Over so many edges data are looked for that new ones bring nearer; farther away, whoever is then found to have
drifted has his contacts healed."""


@compiled
def other_end(system: System, edge: int, participant: int) -> int:
    """Whom the edge joins the participant to."""
    return int(system.head[edge]) if system.tail[edge] == participant else int(system.tail[edge])


@compiled
def change_row(
    system: System,
    inverse: Inverse,
    participant: int,
    edges: Ints,
    deltas: Floats,
    column: Scratch,
    other: Scratch,
    touched: Marked,
) -> None:
    """Add `deltas` to the off-diagonal entries of `edges`, all of them at `participant`; correct the inverse.

    With u the participant and a the deltas at the edges' other ends, Λ' = Λ + e_u aᵀ + a e_uᵀ. Two local solves,
    k = Λ⁻¹e_u and l = Λ⁻¹a, give Λ'⁻¹ = Λ⁻¹ − [k l] S⁻¹ [k l]ᵀ with S = [[k_u, 1 + aᵀk], [1 + aᵀk, aᵀl]]
    (Woodbury). Those whose diagonal entry this changed by more than what is negligible are `touched`.

    The solves are as close as the tolerance, or less for small deltas, which multiply what they leave out. Where
    the one edge is new, its entry is read off the columns, which are solved anyway. Those of its ends are not:
    where they are off, `heal` has to find out by how much, or would not know whom else to heal.
    """
    unmark_all(touched)
    on_participant, on_edge, tolerances = inverse.on_participant, inverse.on_edge, inverse.tolerances
    first_edge = edges[0]
    new = len(edges) == 1 and entry(system.off, first_edge) == 0.0
    unit = deltas[0] if new else 0.0
    if not new:
        for i in range(len(edges)):
            unit = max(unit, abs(deltas[i]))
    least = tolerances.corrected
    loose = min(least / max(abs(unit), least), tolerances.new if new else LOOSEST_COLUMN)
    begin(system, column, participant, 1.0)
    solve(system, loose, column)
    for i in range(len(edges)):
        begin(system, other, other_end(system, edges[i], participant), 1.0 if new else deltas[i] / unit)
    solve(system, loose, other)
    at_u, at_a = column.cells[:, VALUE], other.cells[:, VALUE]
    if new:
        v = other_end(system, first_edge, participant)
        put(on_edge, first_edge, at_u[v] + left_out(column, at_a))
    s11, s12, s22 = at_u[participant], 1.0, 0.0
    for i in range(len(edges)):
        v = other_end(system, edges[i], participant)
        s12 += deltas[i] * at_u[v]
        s22 += deltas[i] * unit * at_a[v]
    determinant = s11 * s22 - s12 * s12
    kk, kl, ll = s22 / determinant, -s12 * unit / determinant, s11 * unit * unit / determinant
    for t in touched_by(column):
        touch(system, other, t, 0.0)
    for t in touched_by(other):
        if at_u[t] == 0.0 and at_a[t] == 0.0:
            continue
        change = kk * at_u[t] * at_u[t] + 2.0 * kl * at_u[t] * at_a[t] + ll * at_a[t] * at_a[t]
        # No diagonal entry is below 1/Λ_tt; one that is still an estimate might be corrected to below that.
        lower(on_participant, t, change, 1.0 / diagonal_of(system, t))
        factor = (abs(kk) + abs(kl)) * abs(at_u[t]) + (abs(kl) + abs(ll)) * abs(at_a[t])
        add_strain(inverse.healing, t, 2.0 * loose * factor, tolerances.strain)
        first = system.start[t]
        for j in range(first, first + system.degree[t]):
            v = system.contact[j]
            if v > t and (at_u[v] != 0.0 or at_a[v] != 0.0):
                e, across = system.incident[j], at_u[t] * at_a[v] + at_a[t] * at_u[v]
                less = kk * at_u[t] * at_u[v] + kl * across + ll * at_a[t] * at_a[v]
                add_to(on_edge, e, -less)
        if abs(change) > tolerances.negligible or t == participant:
            mark(touched, t)
    for i in range(len(edges)):
        add_off_diagonal(system, edges[i], deltas[i])
    forget(column)
    forget(other)


@compiled
def change_entries(
    system: System,
    inverse: Inverse,
    edges: Ints,
    deltas: Floats,
    ends_wait: bool,
    touched: Marked,
) -> None:
    """Add `deltas` to the off-diagonal entries of many edges, old ones before new, and estimate what moves.

    At an edge and its ends as if there were nobody else: with V the block of Λ⁻¹ there and E the change of Λ,
    V' = V (I + E V)⁻¹. That costs no solve. What two contacts s and t of somebody u have in common is left out, and
    moves by V_us E_ut V_tt + V_ut E_us V_ss to first order: by as much, about, as the edges with u move s and t
    themselves, 2 V_us E_us V_ss. So what moves an end counts as missed there. So does, where ends do not wait, what
    a new edge of u and v moves between a contact s of u and one t of v, V_su E_uv V_vt: much, where data have made
    that much of either. Whom estimates miss too much of waits for healing, and if `ends_wait` so do the ends of new
    edges. These, and the participants whose entry moved by more than what is negligible, are `touched`.
    """
    unmark_all(touched)
    on_participant, on_edge, tolerances = inverse.on_participant, inverse.on_edge, inverse.tolerances
    for i in range(len(edges)):
        e, delta = edges[i], deltas[i]
        u, v = system.tail[e], system.head[e]
        a, b, s = entry(on_participant, u), entry(on_participant, v), entry(on_edge, e)
        new = entry(system.off, e) == 0.0
        if new:
            s = 0.0
        less = max((1.0 + delta * s) ** 2 - delta * delta * a * b, LEAST_DETERMINANT)
        shared = (s * (1.0 + delta * s) - delta * a * b) / less
        put(on_edge, e, shared)
        put(on_participant, u, max(a / less, 1.0 / diagonal_of(system, u)))
        put(on_participant, v, max(b / less, 1.0 / diagonal_of(system, v)))
        add_off_diagonal(system, e, delta)
        if new and not ends_wait and abs(delta) > tolerances.strain:  # no entry is above 1, about
            strain_contacts(system, inverse, u, abs(delta) * largest_shared(system, inverse, v))
            strain_contacts(system, inverse, v, abs(delta) * largest_shared(system, inverse, u))
        missed = 2.0 * abs(delta) * shared * shared
        for t, before in ((u, a), (v, b)):
            now = entry(on_participant, t)
            change = now - before
            strain = np.inf if new and ends_wait else max(missed, abs(change))
            add_strain(inverse.healing, t, strain, tolerances.strain)
            if new or abs(change) > tolerances.negligible:
                mark(touched, t)
            if abs(change) > tolerances.corrected * before:
                first = system.start[t]
                for j in range(first, first + system.degree[t]):
                    part = entry(on_edge, system.incident[j]) / now
                    add_strain(inverse.healing, system.contact[j], part * part * abs(change), tolerances.strain)


@compiled
def largest_shared(system: System, inverse: Inverse, u: int) -> float:
    """The largest entry that somebody has with a contact."""
    largest = 0.0
    for i in range(system.start[u], system.start[u] + system.degree[u]):
        largest = max(largest, abs(entry(inverse.on_edge, system.incident[i])))
    return largest


@compiled
def strain_contacts(system: System, inverse: Inverse, u: int, moved: float) -> None:
    """Strain contacts of somebody whose column has moved by so much somewhere, by what they have of it."""
    for i in range(system.start[u], system.start[u] + system.degree[u]):
        strain = abs(entry(inverse.on_edge, system.incident[i])) * moved
        if strain > inverse.tolerances.corrected:  # memory that is written to is the query's own from then on
            add_strain(inverse.healing, system.contact[i], strain, inverse.tolerances.strain)


@compiled
def find_reached(system: System, inverse: Inverse, which: Ints, taken: Overlay, reached: Flags) -> None:
    """Flag the rows of participants that data have reached: `reached`, shape (len(which),).

    They have reached whoever's entry differs by more than the tolerance from what was `taken` of Q⁻¹. New edges
    bring them further: what data have made of a contact's entry counts times the square of how much of the contact
    is in the other. `taken` is changed so that it says as much."""
    on_participant, tolerances = inverse.on_participant, inverse.tolerances
    for _ in range(STEPS_AT_ONCE):
        for row in range(len(which)):
            u, over_edges = which[row], 0.0
            first = system.start[u]
            for i in range(first, first + system.degree[u]):
                v = system.contact[i]
                at_contact = entry(on_participant, v)
                off = abs(at_contact - entry(taken, v))
                if off > tolerances.corrected:
                    part = entry(inverse.on_edge, system.incident[i]) / at_contact
                    over_edges += part * part * off
            here = entry(on_participant, u)
            own = abs(here - entry(taken, u))
            reached[row] = own > tolerances.corrected or over_edges > tolerances.strain
            if reached[row] != 0 and over_edges > own:
                put(taken, u, here - over_edges)


@inlined
def fetch_entries(system: System, inverse: Inverse, taken: Overlay, on_edge: Floats, place: int) -> None:
    """Have fetched what `take_entries` reads of the contact at that place, as far as it is not laid over."""
    fetch_entry(inverse.on_participant, system.contact[place])
    fetch_entry(taken, system.contact[place])
    fetch_entry(inverse.on_edge, system.incident[place])
    prefetch(on_edge, system.incident[place])


@compiled
def take_entries(
    system: System,
    inverse: Inverse,
    which: Ints,
    reached: Flags,
    on_participant: Floats,
    on_edge: Floats,
    taken: Overlay,
) -> None:
    """Take over to Λ⁻¹ what was solved afresh of Q⁻¹ at these participants: the same, where no data have reached.

    `on_participant`, `on_edge`: the entries of Q⁻¹ on the graph. Whom data have `reached`, row by row, waits for
    healing. So does whoever has an edge to such a one whose entry is not about that of Q⁻¹: data have made it so,
    and it may have been estimated since, when nobody's own entry tells by how much it is off."""
    tolerance, least = inverse.tolerances.corrected, inverse.tolerances.taken
    last_row = len(which) - 1
    for row in range(len(which)):
        u, following = which[row], which[min(row + 1, last_row)]
        fetch_slabs(system, which, row)
        next_first = system.start[following]
        for i in range(next_first, next_first + min(system.degree[following], CONTACTS_AHEAD)):
            fetch_entries(system, inverse, taken, on_edge, i)
        if abs(entry(taken, u) - on_participant[u]) > least:
            put(taken, u, on_participant[u])
        if reached[row] != 0:
            add_strain(inverse.healing, u, np.inf, 0.0)
            continue
        put(inverse.on_participant, u, on_participant[u])
        first = system.start[u]
        last = first + system.degree[u]
        for i in range(first, last):
            if i + CONTACTS_AHEAD < last:
                fetch_entries(system, inverse, taken, on_edge, i + CONTACTS_AHEAD)
            v, e = system.contact[i], system.incident[i]
            by_data = abs(entry(inverse.on_participant, v) - entry(taken, v))
            off = abs(entry(inverse.on_edge, e) - on_edge[e])
            if by_data <= tolerance:
                if off > least:
                    put(inverse.on_edge, e, on_edge[e])
            elif off > inverse.tolerances.strain:
                add_strain(inverse.healing, u, np.inf, 0.0)


@compiled
def change_matrix(system: System, edges: Ints, deltas: Floats) -> None:
    """Add `deltas` to the off-diagonal entries of these edges, and leave the inverse as it is."""
    for i in range(len(edges)):
        add_off_diagonal(system, edges[i], deltas[i])
