"""What each screened edge adds to an expectation: its additive share, from one local solve."""

from haystream.arrays import Flags, Floats, Ints
from haystream.compiled import compiled
from haystream.engines.local.solve import VALUE, Scratch, System, begin, forget, solve
from haystream.engines.local.state import MEAN, Edges


@compiled
def collect_shares(
    system: System,
    edges: Edges,
    screened: Ints,
    which: Ints,
    shift: float,
    tolerance: float,
    room: Scratch,
    edge_flags: Flags,
    found: Ints,
    shares: Floats,
) -> int:
    """The shares w_f (d_f − Δ) β̃_fᵀ Λ⁻¹ a of the screened edges f, a = mean over `which` of (1 − ρ_e) β̃_e.

    An edge's own data speak of its own η too: ρ_e (d_e − Δ) / len(which) more, with ρ_e = Var(η_e) w_e.
    `screened`: all edges that may have a weight; gone through where they are fewer than the contacts of whom the
    solve reaches. Returns how many shares there are; `found` and `shares` hold them. `edge_flags` is scratch, zero
    before and after.
    """
    listed = 0
    for i in range(len(which)):
        e = which[i]
        part = (1.0 - edges.residual[e] * edges.weight[e]) / len(which)
        listed = begin(room, edges.tail[e], part * edges.on_tail[e], listed)
        listed = begin(room, edges.head[e], part * edges.on_head[e], listed)
    listed = solve(system, tolerance, room, listed)
    values, contacts = room.cells[:, VALUE], 0
    for i in range(listed):
        t = room.touched[i]
        contacts += system.degree[t] if values[t] != 0.0 else 0
    count = 0
    if len(screened) < contacts:
        for i in range(len(screened)):
            f = screened[i]
            reached = values[edges.tail[f]] != 0.0 or values[edges.head[f]] != 0.0
            if reached and edges.weight[f] != 0.0:
                edge_flags[f] = 1
                found[count] = f
                count += 1
    else:
        for i in range(listed):
            t = room.touched[i]
            first = system.start[t]
            for j in range(first, first + system.degree[t] if values[t] != 0.0 else first):
                f = system.incident[j]
                if edges.weight[f] != 0.0 and edge_flags[f] == 0:
                    edge_flags[f] = 1
                    found[count] = f
                    count += 1
    for i in range(count):
        f = found[i]
        at = edges.on_tail[f] * values[edges.tail[f]] + edges.on_head[f] * values[edges.head[f]]
        shares[i] = (edges.coefficient[MEAN, f] - shift * edges.weight[f]) * at
    for i in range(len(which)):
        e = which[i]
        if edges.weight[e] != 0.0 and edge_flags[e] == 0:
            edge_flags[e] = 1
            found[count] = e
            shares[count] = 0.0
            count += 1
    for i in range(count):
        f = found[i]
        edge_flags[f] = 0
        for j in range(len(which)):
            if which[j] == f:
                own = edges.coefficient[MEAN, f] - shift * edges.weight[f]
                shares[i] += own * edges.residual[f] / len(which)
    forget(room, listed)
    return count
