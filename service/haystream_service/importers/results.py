"""What importers yield, and how they open files."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

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


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The file, unpacked if its name ends in .gz; what goes wrong while it is read is an `ImportFailed`."""
    try:
        with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb") as file:
            yield cast(IO[bytes], file)
    except (OSError, EOFError, zlib.error) as error:  # EOFError: a .gz that ends too early
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ImportFailed(f"cannot read {path}: {reason}") from None
