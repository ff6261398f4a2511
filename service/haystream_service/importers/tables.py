"""Item tables: CSV with the columns item_id, sender and recipients, or participants.

And, where there are such columns: sent_at, uri, relevant, and on request (`Making.text`) subject and text. A URI
(`Making.uri`) may name any column.
"""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self, TextIO

from haystream_service.importers.contents import bounded, unescaped
from haystream_service.importers.making import PLAIN, Making
from haystream_service.importers.results import Imported, ImportFailed, Skipped, opened, too_large

SEPARATOR = ";"
"""Between the people in one cell."""
CHARACTERS_SHOWN = 200
"""Characters of a wrong first line."""
ROW_CHARACTERS = 1 << 20
"""Characters of one row: an item of more could not be produced."""
SKIMMED_CHARACTERS = 64 << 20
"""Characters of one line that are skimmed for its end. What has none by then is no table: a packed file of a few
megabytes can hold billions of characters."""
QUOTED_CELL = re.compile(r'(^|,)[ \t]*+("(?:[^"]|"")*+(?:"|\Z))[ \t]*+(?=[,\r\n]|\Z)')
"""With the comma before it, and blanks around it that belong to nothing; one that goes on in the next line, too."""
QUOTE_AND_BLANK = re.compile(r'"[ \t]|[ \t]"')
COLUMNS = ("item_id", "sender", "recipients", "participants", "sent_at", "uri", "relevant")
CONTENTS = ("subject", "text")
TRUE, FALSE = {"1", "1.0", "true", "yes", "relevant"}, {"0", "0.0", "false", "no", "irrelevant"}
"""With a point where somebody's table had empty cells, and so a column of numbers."""


class RowTooLarge(Exception):  # noqa: N818 - it becomes a `Skipped`
    """More than ROW_CHARACTERS came, and no row ended."""


class Lines:
    """The lines of a text, of which no more than ROW_CHARACTERS are held. The row that is too large is left out."""

    def __init__(self, path: Path, text: TextIO) -> None:
        self.number = 0
        """Of the last line read, from 1."""
        self.row_begins = 1
        """The number of the line that the row begins with."""
        self._path = path
        self._text = text
        self._of_row = 0

    def begin_row(self) -> None:
        """A row begins with the next line; only inside of quotes does it have more."""
        self._of_row = 0
        self.row_begins = self.number + 1

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        line = self._text.readline(ROW_CHARACTERS)
        if not line:
            raise StopIteration
        self.number += 1
        self._of_row += len(line)
        if self._of_row < ROW_CHARACTERS:
            return _without_blanks_around_quotes(line, within=self.number > self.row_begins)
        skimmed, rest = ROW_CHARACTERS, line
        while rest and not rest.endswith(("\n", "\r")):
            rest = self._text.readline(ROW_CHARACTERS)
            skimmed += len(rest)
            if skimmed > SKIMMED_CHARACTERS:
                problem = f"line {self.number} has more than {SKIMMED_CHARACTERS} characters"
                raise ImportFailed(f"{self._path} is no table: {problem}")
        raise RowTooLarge


def _without_blanks_around_quotes(line: str, *, within: bool) -> str:
    """The line without blanks between a cell's quotes and the commas; `within` a cell its beginning is text."""
    if not QUOTE_AND_BLANK.search(line):
        return line
    return QUOTED_CELL.sub(r"\1\2", f'"{line}')[1:] if within else QUOTED_CELL.sub(r"\1\2", line)


def read_csv(path: Path, making: Making = PLAIN, *, labels: Sequence[str] = ()) -> Iterator[Imported]:
    """The table's items, one row at a time; UTF-8, unpacked where the name ends in .gz.

    Cells of `recipients` and `participants` hold ids with `;` between. `relevant` (1, 0, true, false, …) is
    kept in the item's labels, and so is the text of the columns named in `labels`. Other columns are left alone.
    Raises `UserError`, also while iterating.
    """
    # Bytes that are not UTF-8 become lone surrogates, which the record's validation refuses row by row. Of subject
    # and text it never sees them: these are read as mail's are.
    with (
        opened(path) as file,
        io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="") as text,
    ):
        lines = Lines(path, text)
        # Strict: a quote that nobody closes would make one cell of all that follows.
        rows = csv.reader(lines, strict=True)
        csv.field_size_limit(ROW_CHARACTERS)  # of all tables that the process reads: rows are bounded in any case
        columns = _columns(path, rows, lines, labels)
        making.check(columns)
        contents = CONTENTS if making.text else ()
        read = {*COLUMNS, *contents, *labels, *(making.uri.names if making.uri else ())}
        if twice := next((name for name in columns if name in read and columns.count(name) > 1), None):
            raise ImportFailed(f"{path} has more than one column {twice}")
        if making.text and not set(CONTENTS) & set(columns):
            raise ImportFailed(f"{path} has neither a column subject nor a column text")
        while True:
            lines.begin_row()
            try:
                cells = next(rows, None)
            except csv.Error as error:
                problem = f"not CSV from line {lines.row_begins} on: {error}"
                yield Skipped(f"{path.name}:{lines.number}", "unreadable", problem)
                continue
            except RowTooLarge:
                yield too_large(f"{path.name}:{lines.number}", f"a row has more than {ROW_CHARACTERS} characters")
                continue
            if cells is None:
                return
            if not any(map(str.strip, cells)):
                continue
            where = f"{path.name}:{lines.number}"
            if len(cells) > len(columns):
                yield Skipped(where, "unreadable", f"more cells than the {len(columns)} columns")
                continue
            row = dict.fromkeys(columns) | dict(zip(columns, cells, strict=False))
            yield making.item(where, _fields(row, labels, contents=making.text), row)


def _columns(path: Path, rows: Iterator[list[str]], lines: Lines, labels: Sequence[str]) -> list[str]:
    """The names in the first line that is not empty, without blanks around them."""
    try:
        columns = [name.strip() for name in next(_filled(rows, lines), [])]
    except csv.Error as error:
        raise ImportFailed(f"{path} is no table: {error}") from None
    except RowTooLarge:
        raise ImportFailed(
            f"{path} is no table: its first line has more than {ROW_CHARACTERS} characters"
        ) from None
    have = set(columns)
    shown = ", ".join(columns)[:CHARACTERS_SHOWN].replace("\t", r"\t") or "none"
    if not shown.isprintable():
        raise ImportFailed(f"{path} is no table: its first line is not text in UTF-8")
    if "item_id" not in have or not ({"sender", "recipients"} <= have or "participants" in have):
        raise ImportFailed(
            f"{path} needs the columns item_id, sender and recipients (or item_id and participants), with commas "
            f"between; it has {shown}"
        )
    for label in labels:
        if label not in have:
            raise ImportFailed(f"{path} has no column {label}; it has {shown}")
    return columns


def _filled(rows: Iterator[list[str]], lines: Lines) -> Iterator[list[str]]:
    """The rows with something in a cell."""
    for cells in rows:
        if any(map(str.strip, cells)):
            yield cells
        lines.begin_row()


def _fields(row: dict[str, str | None], labels: Sequence[str], *, contents: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {"item_id": (row["item_id"] or "").strip()}
    for name in ("sent_at", "uri"):
        fields[name] = (row.get(name) or "").strip() or None
    if contents:
        fields |= bounded(*(unescaped(row.get(name) or "") for name in CONTENTS))._asdict()
    if participants := _people(row.get("participants")):
        fields["participants"] = participants
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
