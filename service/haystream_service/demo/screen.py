"""What a person sees of the demo. All of it is ASCII, or drawn by rich, which knows what a terminal can show."""

from types import TracebackType
from typing import Self

from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from haystream_service.console import notes
from haystream_service.demo.progress import Progress

WIDEST_COLUMNS = 100
ECHO_COLUMNS = 2
"""Columns left free: a terminal that shows ^C in them does not wrap, and the view can be wiped away whole."""
SHARES_NAMED = 3
"""Pairs named as the reason for an item."""
LABEL_COLUMNS = len("verdict to ranking")
NAME_CHARACTERS = 20
"""Characters shown of a participant: two of them fit beside the label in 80 columns."""


class Screen:
    """A live view on a terminal; nothing anywhere else."""

    def __init__(self, *, title: str, enabled: bool) -> None:
        self._title = title
        self._live = Live(console=notes, refresh_per_second=8, transient=True) if enabled else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, progress: Progress) -> None:
        """Draw the state of the play."""
        if self._live is not None:
            self._live.update(draw(progress, self._title, width=min(notes.width - ECHO_COLUMNS, WIDEST_COLUMNS)))


def draw(progress: Progress, title: str, *, width: int) -> RenderableType:
    """The whole view, as of now, in so many columns."""
    parts = (_bars(progress), Text(), _facts(progress), Text(), _last_read(progress))
    return Panel(Group(*parts), title=escape(title), padding=(1, 2), width=width)


def _bars(progress: Progress) -> Table:
    """What share of all that was read is relevant, here and in random order."""
    table = _grid(LABEL_COLUMNS, None)
    table.add_column(ratio=1)
    for name, found, style in (
        ("haystream", float(progress.found), "green"),
        ("random order", progress.random_found, "yellow"),
    ):
        bar = ProgressBar(
            total=max(progress.screened, 1), completed=found, complete_style=style, finished_style=style
        )
        table.add_row(name, Text(f"{found:,.0f} relevant", style), bar)
    return table


def _facts(progress: Progress) -> Table:
    latency = "   ".join(
        f"{name} {'-' if value is None else f'{value:,.1f} ms'}" for name, value in progress.latency_ms().items()
    )
    left = progress.expected_remaining
    table = _grid(LABEL_COLUMNS, None)
    table.add_row("streamed", f"{progress.items:,} of {len(progress.source):,} items")
    table.add_row("read", f"{progress.screened:,} of {progress.screenings:,} in {progress.elapsed:.0f} s")
    table.add_row("relevant left", f"{left.mean:,.0f} expected, give or take {left.sd:,.0f}" if left else "-")
    table.add_row("verdict to ranking", latency)
    return table


def _last_read(progress: Progress) -> Table:
    table = _grid(LABEL_COLUMNS, None)
    table.add_column()  # gives way to the others
    for read in progress.recent:
        mark = Text("relevant", "bold green") if read.relevant else Text("not relevant", "dim")
        table.add_row(mark, Text(_people(read.participants)), Text(read.item_id, "dim", no_wrap=True))
    if progress.recent:
        for number, share in enumerate(progress.recent[-1].because[:SHARES_NAMED]):
            why = "" if number else "read because of"
            table.add_row(*(Text(t, "dim") for t in (why, _people(share.participants), f"{share.share:+.3f}")))
    return table


def _grid(*widths: int | None) -> Table:
    """A table without lines, whose cells are cut and never wrapped: the view keeps its height."""
    table = Table.grid(padding=(0, 2))
    for width in widths:
        table.add_column(no_wrap=True, width=width)
    return table


def _people(participants: tuple[str, ...]) -> str:
    # Of an address, what is before the @ says more than the rest.
    return _cut(
        " - ".join(_cut(who.partition("@")[0] or who, NAME_CHARACTERS) for who in participants),
        2 * NAME_CHARACTERS + 3,
    )


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 2] + ".."
