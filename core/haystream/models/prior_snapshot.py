"""What can be kept of the prior on a graph, for `engines.local.inverse` to start from, as plain values."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Q⁻¹ on the graph, as it was when the graph had so many participants and edges: enough to start from."""

    digest: bytes
    """Of those edges (`Graph.digest`)."""
    on_participant: NDArray[np.float32]
    """(Q⁻¹)_uu, shape (participants,)."""
    on_edge: NDArray[np.float32]
    """(Q⁻¹)_uv, shape (edges,)."""
