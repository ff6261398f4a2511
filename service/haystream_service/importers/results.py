"""What importers yield, and how they open files."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from haystream.errors import Code
from haystream_service.errors import UserError
from haystream_service.wire import ItemRecord


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row or message that is no item: where it is, why not (a `Code`, or `unreadable`), and in words."""

    where: str
    code: str
    detail: str


Imported = ItemRecord | Skipped


class ImportFailed(UserError):  # noqa: N818 - it reads as what happened
    """The source as a whole cannot be read."""


def too_large(where: str, detail: str) -> Skipped:
    """What is not even looked at, for its size."""
    return Skipped(where, Code.TOO_LARGE.value, detail)


PACKED = b"\x1f\x8b"
"""What gzip begins with, and no text."""
UNREADABLE = (OSError, EOFError, zlib.error)
"""What is raised while a file is read that `unpacked` gives; EOFError where a .gz ends too early."""


def unpacked(file: BufferedReader, path: Path) -> BufferedReader | gzip.GzipFile:
    """What is in the file, unpacked where it is gzip's, or its name says so."""
    packed = path.suffix.lower() == ".gz" or file.peek(len(PACKED)).startswith(PACKED)
    return gzip.GzipFile(fileobj=file) if packed else file


def reason(error: BaseException) -> str:
    """Why a file cannot be read, without its name."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


@contextmanager
def opened(path: Path) -> Iterator[BufferedReader | gzip.GzipFile]:
    """The file, `unpacked`; what goes wrong while it is read is an `ImportFailed`."""
    try:
        with path.open("rb") as file:
            yield unpacked(file, path)
    except UNREADABLE as error:
        raise ImportFailed(f"cannot read {path}: {reason(error)}") from None
