"""Records as aiokafka reads them, whatever the names of their headers are.

By the protocol a header's name is text, but no broker looks whether it is, and clients write what they are given.
Where it is not UTF-8 aiokafka's consumers raise, again at each attempt: one such record would stop everybody who
reads its partition.
"""

import struct
from collections.abc import Iterator
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.record.default_records import _DefaultRecordBatchPy as PlainBatch
from aiokafka.record.memory_records import MemoryRecords

_LENGTH = struct.Struct(">i")
_BEFORE_LENGTH, _HEAD = 8, 12
"""A batch begins with its first offset, and with how many bytes come after these twelve."""


class _Lenient(bytearray):
    """Bytes of which every part can be decoded: what is no UTF-8 is replaced."""

    def __getitem__(self, index: Any) -> Any:
        part = super().__getitem__(index)
        return _Lenient(part) if isinstance(index, slice) else part

    def decode(self, encoding: str = "utf-8", errors: str = "replace") -> str:
        return super().decode(encoding, "replace")


class _Batch:
    """A batch that is read once more, slowly, where a name raised; whoever reads passes over what he has had."""

    def __init__(self, batch: Any, raw: bytes) -> None:
        self._batch = batch
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        return next(self._batch)  # of a transaction's marker, whose batch is read for itself

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self._batch
        except UnicodeDecodeError:
            plain = iter(PlainBatch(self._raw))  # which uncompresses it
            plain._buffer = _Lenient(plain._buffer)
            yield from plain


class _Records(MemoryRecords):  # type: ignore[misc]  # aiokafka has no types
    def __init__(self, raw: bytes) -> None:
        super().__init__(raw)
        self._raw = raw
        self._at = 0

    def next_batch(self) -> _Batch:
        begin = self._at
        (length,) = _LENGTH.unpack_from(self._raw, begin + _BEFORE_LENGTH)
        self._at = begin + _HEAD + length
        return _Batch(super().next_batch(), self._raw[begin : self._at])


def install() -> None:
    """Have all consumers of this process read so: Faust makes one, which no class of our own would reach."""
    fetcher.MemoryRecords = _Records
