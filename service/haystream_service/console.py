"""How commands write: results to standard output, everything else to standard error."""

import os
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp
from typing import IO, Any

import orjson
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

notes = Console(stderr=True, highlight=False, soft_wrap=True)
"""For people: progress, warnings, summaries beside a result."""
WIDEST_COLUMNS = 1000
"""Columns of what is no terminal."""
EASY_TO_READ = 120
"""Columns up to which no heading is broken into lines, where there is as much room."""
FRAME_COLUMNS = 3
"""Columns that a table takes beside the text of each of its own."""


def results() -> Console:
    """Standard output, for results as people read them.

    Where that is a file or a pipe, and `COLUMNS` says nothing else, a table takes the room it needs: numbers that
    are cut off say nothing.
    """
    room = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else WIDEST_COLUMNS
    return Console(highlight=False, soft_wrap=True, width=room)


def write_json(value: Any) -> None:
    """One JSON object on standard output, on one line."""
    sys.stdout.buffer.write(orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE))
    sys.stdout.buffer.flush()


@contextmanager
def whole(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of the one at the path once all is written, and otherwise leaves that as it was.

    What is there and is no file, such as a pipe, is written to as it comes. Raises `OSError`.
    """
    if path.exists() and not path.is_file():  # before links are followed: that of a pipe leads nowhere
        with path.open("wb") as file:
            yield file
        return
    path = path.resolve()
    # Beside it, under a name that nobody else has: what is read may have any other.
    descriptor, name = mkstemp(dir=path.parent, prefix=f".{path.name}.")
    new = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            new.chmod(path.stat().st_mode if path.exists() else 0o666 & ~_umask())
            yield file
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _umask() -> int:
    """What a new file may not be, which can be asked for only by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def shown(text: str) -> str:
    """The text for a terminal: nothing in it moves the cursor, or turns the direction of what follows."""
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in {"Cc", "Cf", "Cs"})


def plain(text: str) -> str:
    """The text in the markup of a `Console`, letter by letter, and `shown`."""
    return escape(shown(text))


class Upright:
    """A table with a line a measure and a column a case: many measures fit in.

    It goes on in another below where the cases do not all fit beside each other.
    """

    def __init__(self, title: str, measures: Sequence[str], cases: Sequence[tuple[str, Sequence[str]]]) -> None:
        """`cases`: of each the name, and its values in the order of the measures."""
        self._title = title
        self._measures = measures
        self._cases = cases

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The tables that this is where so much room is."""
        columns = [(name, values, _width((name, *values))) for name, values in self._cases]
        whole = sum(width + FRAME_COLUMNS for _, _, width in columns) + _width(self._measures) + FRAME_COLUMNS + 1
        if whole > min(options.max_width, EASY_TO_READ):
            columns = [(name, values, _width((*name.split(), *values))) for name, values in self._cases]
        first, title = _width(self._measures), self._title
        while columns:
            count, room = 0, options.max_width - first - FRAME_COLUMNS - 1
            while count < len(columns) and (not count or columns[count][2] + FRAME_COLUMNS <= room):
                room -= columns[count][2] + FRAME_COLUMNS
                count += 1
            beside, columns = columns[:count], columns[count:]
            headings = (Column(name, justify="right", width=width) for name, _, width in beside)
            table = Table(Column("", width=first), *headings, title=title)
            for measure, *values in zip(self._measures, *(values for _, values, _ in beside), strict=True):
                table.add_row(measure, *values)
            yield table
            title = f"{self._title}, continued"


def _width(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts), default=0)


@contextmanager
def progress(title: str, total: float | None) -> Iterator["Bar"]:
    """A bar on standard error where that is a terminal, else nothing. `total` None: it is not known."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=notes, transient=True, disable=not notes.is_terminal) as bars:
        yield Bar(bars, bars.add_task(title, total=total))


class Bar:
    """A progress bar that may be told often: it draws a few times a second."""

    def __init__(self, bars: Progress, task: Any) -> None:
        self._bars = bars
        self._task = task

    def advance(self, by: float = 1) -> None:
        """So much more is done."""
        self._bars.advance(self._task, by)


def size(path: Path) -> int | None:
    """The file's size where that says how much there is to read: not of what is packed or piped."""
    return path.stat().st_size if path.is_file() and path.suffix.lower() != ".gz" else None
