"""Tables of float64 as bytes, and what makes two writes the same write. Shared by the stores."""

import struct
from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
import orjson
from numpy.typing import NDArray

from haystream.events import ItemFact, Withdrawal
from haystream.posterior_tables import Rows
from haystream_service.store.base import Change

DIGEST_BYTES = 16

HEADER = struct.Struct("<II")
"""Of a run of rows: byte offset and length."""


def packed(patch: Rows) -> bytes:
    """The patch as `save.lua` reads it: of each run of neighbouring rows its byte offset, its length, its bytes."""
    count, words = len(patch.index), 2 * patch.rows.shape[1]
    index = patch.index.astype(np.int64)
    first = np.flatnonzero(np.diff(index, prepend=-2) != 1)
    run = np.repeat(np.arange(len(first)), np.diff(first, append=count))
    at = words * np.arange(count) + 2 * (run + 1)
    blob = np.empty(2 * len(first) + words * count, dtype="<u4")
    rows = np.ascontiguousarray(patch.rows, dtype="<f8")
    blob[at[:, np.newaxis] + np.arange(words)] = rows.view("<u4")
    blob[at[first] - 2] = 4 * words * index[first]
    blob[at[first] - 1] = 4 * words * np.diff(first, append=count)
    return blob.tobytes()


def runs(blob: bytes) -> Iterator[tuple[int, bytes]]:
    """(byte offset, bytes) of each run that `packed` wrote."""
    at = 0
    while at < len(blob):
        offset, length = HEADER.unpack_from(blob, at)
        at += HEADER.size
        yield offset, blob[at : at + length]
        at += length


def table(raw: bytes, columns: int) -> NDArray[np.float64]:
    """The table that the bytes hold, shape (rows, columns); a copy, so that it can be written to."""
    return np.frombuffer(raw, dtype="<f8").astype(np.float64).reshape(-1, columns)


NOBODY = bytes(DIGEST_BYTES)
"""The digest of an item of which nothing is known but that it is withdrawn."""


def digest(item: ItemFact) -> bytes:
    """Who is on an item, in 16 bytes. Two with one id and different digests, neither NOBODY, are in conflict."""
    if isinstance(item, Withdrawal):
        return NOBODY
    content = orjson.dumps([item.sender, item.participants])
    return blake2b(content, digest_size=DIGEST_BYTES).digest()


def fingerprint(change: Change) -> str:
    """Tells a retry of a save whose reply was lost from a save by somebody else with the same revision.

    The ranking counts everything that was decided and bears the revision and the time of publishing; the
    position tells which events were in the batch.
    """
    position = change.position
    content = blake2b(change.ranking, digest_size=DIGEST_BYTES)
    facts = (position.queries_offset, position.verdicts_offset, position.leases_offset, position.cursor)
    verdicts = sorted(verdict.verdict_id for verdict in change.verdicts)
    content.update(orjson.dumps([change.revision, change.partition, facts, verdicts]))
    return content.hexdigest()
