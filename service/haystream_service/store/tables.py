"""Tables of float64 as bytes, and what makes two writes the same write. Shared by the stores."""

import struct
from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
import orjson
from numpy.typing import NDArray

from haystream.events import Item
from haystream.tables import Rows
from haystream_service.store.base import Change

DIGEST_BYTES = 16


def runs(patch: Rows) -> Iterator[tuple[int, bytes]]:
    """The patch as (byte offset, bytes) for each run of neighbouring rows."""
    if not len(patch.index):
        return
    index = patch.index.astype(np.int64)
    rows = np.ascontiguousarray(patch.rows, dtype="<f8")
    width = rows.shape[1] * rows.itemsize
    starts = np.flatnonzero(np.diff(index, prepend=index[0] - 2) != 1).tolist()
    for start, stop in zip(starts, [*starts[1:], len(index)], strict=True):
        yield int(index[start]) * width, rows[start:stop].tobytes()


def packed(patch: Rows) -> bytes:
    """All runs of the patch in one blob, as `save.lua` reads it."""
    return b"".join(struct.pack("<II", offset, len(run)) + run for offset, run in runs(patch))


def table(raw: bytes, columns: int) -> NDArray[np.float64]:
    """The table that the bytes hold, shape (rows, columns); a copy, so that it can be written to."""
    return np.frombuffer(raw, dtype="<f8").astype(np.float64).reshape(-1, columns)


def digest(item: Item) -> bytes:
    """What an item says, in 16 bytes. Two items with one id and different digests are in conflict."""
    content = orjson.dumps([item.sender, item.participants])
    return blake2b(content, digest_size=DIGEST_BYTES).digest()


def fingerprint(change: Change) -> str:
    """Tells a retry of a save whose reply was lost from a save by somebody else with the same revision.

    The ranking counts everything that was decided and bears the revision and the time of publishing; the
    position tells which events were in the batch.
    """
    position = change.position
    content = blake2b(change.ranking, digest_size=DIGEST_BYTES)
    facts = (position.queries_offset, position.verdicts_offset, position.cursor)
    verdicts = sorted(verdict.verdict_id for verdict in change.verdicts)
    content.update(orjson.dumps([change.revision, change.partition, facts, verdicts]))
    return content.hexdigest()
