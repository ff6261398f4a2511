"""What importers yield, and how they open files."""

import gzip
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from haystream.errors import Code, Rejected
from haystream_service.errors import UserError
from haystream_service.wire import DEFAULT_LIMITS, ItemRecord, Limits, encode_record, item_record


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row or message that is no item: where it is, why not (a `Code`, or `unreadable`), and in words."""

    where: str
    code: str
    detail: str


Imported = ItemRecord | Skipped


class ImportFailed(UserError):  # noqa: N818 - it reads as what happened
    """The source as a whole cannot be read."""


def imported(where: str, fields: Mapping[str, Any], *, limits: Limits = DEFAULT_LIMITS) -> Imported:
    """The item with these fields, or why it is none."""
    try:
        record = item_record(fields, limits=limits)
    except Rejected as rejected:
        return Skipped(where, rejected.code.value, rejected.detail)
    size = len(encode_record(record))
    if size > limits.message_bytes:
        return too_large(where, f"the item would have {size} bytes, at most {limits.message_bytes} are taken")
    return record


def too_large(where: str, detail: str) -> Skipped:
    """What is not even looked at, for its size."""
    return Skipped(where, Code.TOO_LARGE.value, detail)


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The file, unpacked if its name ends in .gz; what goes wrong while it is read is an `ImportFailed`."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            yield cast(IO[bytes], file)
    except (OSError, EOFError) as error:  # EOFError: a .gz that ends too early
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ImportFailed(f"cannot read {path}: {reason}") from None
