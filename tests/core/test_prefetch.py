"""What is fetched ahead changes nothing, wherever it is said to lie."""

import numpy as np

from haystream.memory.arrays import Floats, Ints
from haystream.memory.compiled import compiled
from haystream.memory.prefetch import prefetch


@compiled
def sum_of(vector: Floats, matrix: Floats, order: Ints) -> float:
    total = 0.0
    for i in range(len(order)):
        prefetch(vector, order[min(i + 1, len(order) - 1)])
        prefetch(matrix, order[i] + 1_000_000)
        total += vector[order[i]] + matrix[order[i], 1]
    return total


def test_rows_that_are_there_and_rows_that_are_not() -> None:
    rng = np.random.default_rng(0)
    vector, matrix, order = rng.random(50), rng.random((50, 3)), rng.permutation(50).astype(np.int32)
    before = vector.copy(), matrix.copy()
    assert np.isclose(sum_of(vector, matrix, order), vector.sum() + matrix[:, 1].sum())
    np.testing.assert_array_equal(vector, before[0])
    np.testing.assert_array_equal(matrix, before[1])
