"""The small matrix between the columns of pending screenings, M of (Λ + E)⁻¹ − Λ'⁻¹ = K M Kᵀ."""

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from haystream.engines.local.pending.parts import Parts
from haystream.memory.arrays import Floats

MOST_ON_DIAGONAL = 1.01
"""On the diagonal of such an inverse (`inverse_of`) nothing is above 1. Where more is, under extreme settings, an
eigenvalue has become too small."""

LEAST_EIGENVALUE = 0.01
"""No eigenvalue of 1 − bᵀKb is taken for smaller: with (Λ + b bᵀ) ≤ Λ + E it is 1/(1 + bᵀΛ⁻¹b) or more."""


def between_columns(parts: Parts, UK: Floats) -> Floats:
    """M = G (J + GᵀUᵀKG)⁻¹ Gᵀ, shape (q, q), of Λ' = Λ + E + U G J GᵀUᵀ; `UK` is UᵀK.

    With − for the columns where J is −1, and + for the others, X = (1 − (GᵀUᵀKG)₋₋)⁻¹ is the inverse with them
    alone, F, of a row for each of these, is X (GᵀUᵀKG)₋₊, and S = (1 + (GᵀUᵀKG)₊₊ + (GᵀUᵀKG)₊₋ F)⁻¹. Between + the
    inverse with all of them is S, between − and + it is F S, and between − it is F S Fᵀ − X.
    """
    inner = parts.from_right(parts.from_right(UK).T)
    inner, less = 0.5 * (inner + inner.T), np.flatnonzero(parts.negative)
    plus = np.flatnonzero(~parts.negative)
    values, Q = np.linalg.eigh(np.eye(len(less)) - inner[np.ix_(less, less)])
    X = (Q / np.maximum(values, LEAST_EIGENVALUE)) @ Q.T
    across = inner[np.ix_(less, plus)]
    F = X @ across
    S = inverse_of(np.eye(len(plus)) + inner[np.ix_(plus, plus)] + across.T @ F)
    inner[np.ix_(plus, plus)], inner[np.ix_(less, plus)] = S, F @ S
    inner[np.ix_(plus, less)], inner[np.ix_(less, less)] = S @ F.T, F @ S @ F.T - X
    return np.ascontiguousarray(parts.from_left(parts.from_left(inner).T))


def inverse_of(matrix: Floats) -> Floats:
    """The inverse of a symmetric matrix whose eigenvalues are 1 or more, but for what solves left."""
    if not matrix.size:  # LAPACK has none of that
        return matrix
    root, failed = dpotrf(matrix, lower=1)
    if not failed:
        below, failed = dpotri(root, lower=1)  # and zeros above
        if not failed and below.diagonal().max(initial=0.0) < MOST_ON_DIAGONAL:
            inverse: Floats = below + below.T
            np.fill_diagonal(inverse, below.diagonal())
            return inverse
    values, Q = np.linalg.eigh(matrix)
    return np.asarray((Q / np.maximum(values, 1.0)) @ Q.T)
