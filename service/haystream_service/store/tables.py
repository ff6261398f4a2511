"""Tables as bytes, and what makes two writes the same write. Shared by the stores.

A row lies at its place: its number (uint32), then its columns (float64), all little-endian.
"""

import struct
from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
import orjson
from numpy.typing import NDArray

from haystream.events import ItemFact, Withdrawal
from haystream.posterior.rows import NOBODY as NO_ROW
from haystream.posterior.rows import Rows
from haystream_service.store.base import Change
from haystream_service.store.shapes import Unreadable

DIGEST_BYTES = 16

HEADER = struct.Struct("<II")
"""Of a run of rows: byte offset and length."""


def packed(patch: Rows) -> bytes:
    """The rows as `save.lua` reads them: of each run of neighbours its byte offset, its length, its bytes."""
    rows = np.ascontiguousarray(patch.rows, dtype="<f8").view("<u4")
    cells = np.empty((len(rows), 1 + rows.shape[1]), "<u4")
    cells[:, 0], cells[:, 1:] = patch.index, rows
    return in_runs(patch.place, cells).tobytes()


def in_runs(place: NDArray[np.int32], cells: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Rows for whoever writes them to their places: of each run of neighbours its offset and its length, in bytes,
    then its cells.

    place: (k,), of each row. cells: (k, words of 4 bytes).
    """
    count, words = cells.shape
    order = place.argsort()
    place = place[order]
    begins = np.ones(count, np.bool_)
    np.not_equal(place[1:], place[:-1] + 1, out=begins[1:])
    (first,) = begins.nonzero()
    header = words * first + 2 * np.arange(len(first))
    found = np.empty(words * count + 2 * len(first), "<u4")
    found[header] = 4 * words * place[first]
    found[header + 1] = 4 * words * np.diff(first, append=count)
    of_rows = np.ones(len(found), np.bool_)
    of_rows[header] = of_rows[header + 1] = False
    found[of_rows] = cells[order].ravel()
    return found


def runs(blob: bytes) -> Iterator[tuple[int, bytes]]:
    """(byte offset, bytes) of each run that `packed` wrote."""
    at = 0
    while at < len(blob):
        offset, length = HEADER.unpack_from(blob, at)
        at += HEADER.size
        yield offset, blob[at : at + length]
        at += length


def table(raw: bytes, columns: int) -> Rows:
    """The rows that the bytes hold, in the order of their places; somebody's all of them. Raises `Unreadable`."""
    cells = np.frombuffer(_whole(raw, 4 + 8 * columns), dtype=[("index", "<u4"), ("row", "<f8", columns)])
    place = np.flatnonzero(cells["index"] != NO_ROW).astype(np.int32)
    return Rows(cells["index"][place].astype(np.uint32), _finite(cells["row"][place]), place)


def whole_table(raw: bytes, columns: int) -> Rows:
    """The same of a table as formats 1 to 3 have it: everybody's rows in their order, without numbers."""
    rows = _finite(np.frombuffer(_whole(raw, 8 * columns), dtype="<f8").reshape(-1, columns))
    everybody = np.arange(len(rows), dtype=np.int32)
    return Rows(everybody.astype(np.uint32), rows, everybody)


def _whole(raw: bytes, row_bytes: int) -> bytes:
    """The bytes, where they are whole rows."""
    if len(raw) % row_bytes:
        raise Unreadable("rows", f"rows of {row_bytes} bytes", f"{len(raw)} bytes")
    return raw


def _finite(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rows as numbers of this machine, where all are finite."""
    if not np.isfinite(rows).all():
        raise Unreadable("rows", "numbers", "what is not finite")
    return rows.astype(np.float64)


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
    facts = (*position.offsets, position.cursor)
    verdicts = sorted(verdict.verdict_id for verdict in change.verdicts)
    content.update(orjson.dumps([change.revision, change.partition, facts, verdicts]))
    return content.hexdigest()
