"""A collection's part of the prior as bytes: what a cold start would have to compute again."""

import struct

import numpy as np

from haystream.models.prior_snapshot import Snapshot
from haystream.scope import Scope
from haystream_service.store.tables import DIGEST_BYTES

_HEADER = struct.Struct(f"<4sII{DIGEST_BYTES}s")
"""What this is and its version, participants, edges, digest of the edges; then both columns as float32."""
_MARK = b"inv1"


def inverse_name(correlation: float, tolerance: float, scope: Scope | None) -> str:
    """What a snapshot is kept as. A scope has a graph of its own, and so snapshots."""
    name = f"inverse:{correlation!r}:{tolerance!r}"
    return name if scope is None else f"{name}:{scope.key}"


def write_snapshot(snapshot: Snapshot) -> bytes:
    """The snapshot as little-endian bytes, 4 for every participant and edge."""
    columns = snapshot.on_participant, snapshot.on_edge
    header = _HEADER.pack(_MARK, *map(len, columns), snapshot.digest)
    return header + b"".join(np.ascontiguousarray(column, dtype="<f4").tobytes() for column in columns)


def read_snapshot(raw: bytes) -> Snapshot | None:
    """What `write_snapshot` wrote, or None for anything else: a later version's, or half of one."""
    if len(raw) < _HEADER.size:
        return None
    mark, people, edges, digest = _HEADER.unpack_from(raw)
    if mark != _MARK or len(raw) != _HEADER.size + 4 * (people + edges):
        return None
    columns = np.frombuffer(raw, dtype="<f4", offset=_HEADER.size).astype(np.float32)
    return Snapshot(digest, columns[:people], columns[people:])
