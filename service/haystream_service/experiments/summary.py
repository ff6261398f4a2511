"""Numbers over repetitions."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def mean_se(values: ArrayLike) -> dict[str, float]:
    """The mean over repetitions, and its standard error (0 for a single one)."""
    each = np.asarray(values, dtype=np.float64)
    spread = float(each.std(ddof=1) / np.sqrt(len(each))) if len(each) > 1 else 0.0
    return {"mean": float(each.mean()), "se": spread}


def paired(first: Any, second: Any) -> dict[str, float]:
    """`mean_se` of first − second, repetition by repetition: they shared their items and their chance."""
    return mean_se(np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64))
