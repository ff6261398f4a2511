"""Another reference Δ₀ for side MEAN (`sides`), which says the same."""

from haystream.engines.local.changes.push import exceeds
from haystream.engines.local.solves.sides import COMMON, MEAN
from haystream.engines.local.state.state import SQUARE, State
from haystream.memory.arrays import Ints, mark
from haystream.memory.compiled import compiled
from haystream.memory.overlay import add_to_cell, cell


@compiled
def refer(state: State, screened: Ints, participants: int, reference: float) -> None:
    """Have side MEAN count from this shift of the common mean. `screened`: all edges that have a weight.

    With δ the move of the reference, and o and x₂ side COMMON and its solution, b' = b − δ o is solved by
    x' = x − δ x₂ up to r' = r − δ r₂. In b'ᵀx' + r'ᵀx', δ has the factor −2 (bᵀx₂ + xᵀr₂), which the border takes
    from Σ c. No reading changes, but whoever has a residual of either above its tolerance is unpushed. Whoever has
    a reach has moved, as readers may have been told of it well enough for another shift only.
    """
    edges, data, people, sums = state.edges, state.data, state.people, state.sums
    limits, unpushed = state.tolerances.sides, state.rooms.unpushed
    move, coefficients = reference - people.reference[0], 0.0
    for e in screened:
        weight = edges.weight[e]
        if weight == 0.0:
            continue
        coefficients += edges.coefficient[MEAN, e]
        edges.coefficient[MEAN, e] -= move * weight
        square = edges.coefficient[MEAN, e] * edges.coefficient[MEAN, e] / weight
        sums.data[SQUARE] += square - data.square[e]
        data.square[e] = square
    taken_back = coefficients - sums.border[MEAN]
    sums.form[MEAN] += move * (move * sums.form[COMMON] - 2.0 * taken_back)
    sums.border[MEAN] -= move * sums.border[COMMON]
    for u in range(participants):
        moved, left = cell(people.x, u, COMMON), people.residual[u, COMMON]
        if moved != 0.0:
            add_to_cell(people.x, u, MEAN, -move * moved)
        if left != 0.0:
            people.residual[u, MEAN] -= move * left
            if exceeds(state, u, MEAN, limits[MEAN]) or exceeds(state, u, COMMON, limits[COMMON]):
                mark(unpushed, u)
    people.reference[0] = reference


@compiled
def mark_reached(state: State, participants: int) -> None:
    """Have all who have a reach looked at again: readers may have been told of it well enough for another shift of
    the common mean only."""
    for u in range(participants):
        if cell(state.people.x, u, COMMON) != 0.0:
            mark(state.news.moved, u)
