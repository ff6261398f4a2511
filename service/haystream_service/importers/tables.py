"""Item tables: CSV with the columns item_id, sent_at, sender, recipients, or participants; and relevant."""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from haystream_service.importers.results import Imported, ImportFailed, Skipped, imported, opened
from haystream_service.wire import DEFAULT_LIMITS, Limits

SEPARATOR = ";"
"""Between the people in one cell."""
SHOWN = 200
"""Characters of a wrong first line."""
TRUE, FALSE = {"1", "true", "yes", "relevant"}, {"0", "false", "no", "irrelevant"}


def read_csv(
    path: Path, *, collection: str = "default", labels: Sequence[str] = (), limits: Limits = DEFAULT_LIMITS
) -> Iterator[Imported]:
    """The table's items, one row at a time; UTF-8, unpacked where the name ends in .gz.

    Cells of `recipients` and `participants` hold ids with `;` between. `relevant` (1, 0, true, false, …) is
    kept in the item's labels, and so is the text of the columns named in `labels`. Other columns are left alone.
    Raises `ImportFailed`, also while iterating.
    """
    # Bytes that are not UTF-8 become lone surrogates, which the record's validation refuses row by row.
    with (
        opened(path) as file,
        io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="") as text,
    ):
        rows = csv.DictReader(text)
        _check_columns(path, rows.fieldnames, labels)
        while True:
            try:
                row = next(rows, None)
            except csv.Error as error:
                yield Skipped(f"{path.name}:{rows.line_num + 1}", "unreadable", f"not CSV: {error}")
                continue
            if row is None:
                return
            where = f"{path.name}:{rows.line_num}"
            if None in row:  # where DictReader puts cells beyond the last column
                yield Skipped(where, "unreadable", f"more cells than the {len(row) - 1} columns")
                continue
            yield imported(where, _fields(row, collection, labels), limits=limits)


def _check_columns(path: Path, columns: Any, labels: Sequence[str]) -> None:
    have = set(columns or ())
    shown = ", ".join(columns or ())[:SHOWN] or "none"
    if not shown.isprintable():
        raise ImportFailed(f"{path} is no table: its first line is not text")
    if "item_id" not in have or not ({"sender", "recipients"} <= have or "participants" in have):
        raise ImportFailed(
            f"{path} needs the columns item_id, sender and recipients (or item_id and participants); it has {shown}"
        )
    for label in labels:
        if label not in have:
            raise ImportFailed(f"{path} has no column {label}; it has {shown}")


def _fields(row: dict[str, str | None], collection: str, labels: Sequence[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {"item_id": (row["item_id"] or "").strip(), "collection": collection}
    if row.get("sent_at"):
        fields["sent_at"] = (row["sent_at"] or "").strip()
    if row.get("participants"):
        fields["participants"] = _people(row["participants"])
    else:
        fields["sender"] = (row.get("sender") or "").strip() or None
        fields["recipients"] = _people(row.get("recipients"))
    kept: dict[str, Any] = {label: text for label in labels if (text := (row[label] or "").strip())}
    relevant = (row.get("relevant") or "").strip().lower()
    if relevant in TRUE or relevant in FALSE:
        kept["relevant"] = relevant in TRUE
    if kept:
        fields["labels"] = kept
    return fields


def _people(cell: str | None) -> tuple[str, ...]:
    return tuple(name for part in (cell or "").split(SEPARATOR) if (name := part.strip()))
