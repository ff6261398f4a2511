"""The small matrix between the columns of pending screenings, M of (Λ + E)⁻¹ − Λ'⁻¹ = K M Kᵀ."""

from contextlib import suppress

import numpy as np

from haystream.arrays import Floats
from haystream.engines.local.pending.parts import Parts

LARGEST = 1.01
"""On the diagonal of such an inverse (`inverse_root`) nothing is above 1. Where more is, under extreme settings, an
eigenvalue has become too small."""

LEAST_EIGENVALUE = 0.01
"""No eigenvalue of 1 − bᵀKb is taken for smaller: with (Λ + b bᵀ) ≤ Λ + E it is 1/(1 + bᵀΛ⁻¹b) or more."""


def between_columns(parts: Parts, UK: Floats) -> Floats:
    """M = G (J + GᵀUᵀKG)⁻¹ Gᵀ, shape (q, q), of Λ' = Λ + E + U G J GᵀUᵀ; `UK` is UᵀK.

    With − for the columns where J is −1, and + for the others, X = (1 − (GᵀUᵀKG)₋₋)⁻¹ is the inverse with them
    alone, and F, of a row for each column, is 1 and X (GᵀUᵀKG)₋₊: of the inverse with all of them
    F (1 + (GᵀUᵀKG)₊₊ + (GᵀUᵀKG)₊₋ X (GᵀUᵀKG)₋₊)⁻¹ Fᵀ, less X.
    """
    inner = parts.from_right(parts.from_right(UK).T)
    inner, less = 0.5 * (inner + inner.T), np.flatnonzero(parts.negative)
    plus = np.flatnonzero(~parts.negative)
    values, Q = np.linalg.eigh(np.eye(len(less)) - inner[np.ix_(less, less)])
    X = (Q / np.maximum(values, LEAST_EIGENVALUE)) @ Q.T
    across = inner[np.ix_(less, plus)]
    F, of_less = np.zeros((len(inner), len(plus))), np.zeros((len(inner), len(inner)))
    F[plus, np.arange(len(plus))], F[less] = 1.0, X @ across
    of_less[np.ix_(less, less)] = X
    root = F @ inverse_root(np.eye(len(plus)) + inner[np.ix_(plus, plus)] + across.T @ X @ across)
    root = parts.from_left(root)
    return np.asarray(root @ root.T - parts.from_left(parts.from_left(of_less).T))


def inverse_root(matrix: Floats) -> Floats:
    """R with R Rᵀ the inverse of a symmetric matrix whose eigenvalues are 1 or more, but for what solves left."""
    with suppress(np.linalg.LinAlgError):
        root = np.linalg.inv(np.linalg.cholesky(matrix)).T
        if (root * root).sum(axis=1).max(initial=0.0) < LARGEST:
            return np.asarray(root)
    values, Q = np.linalg.eigh(matrix)
    return np.asarray(Q / np.sqrt(np.maximum(values, 1.0)))
