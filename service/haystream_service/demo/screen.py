"""What a person sees of the demo."""

from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from haystream_service.commands.console import notes
from haystream_service.demo.play import Progress


class Screen:
    """A live view on a terminal; nothing anywhere else."""

    def __init__(self, *, title: str, enabled: bool) -> None:
        self._title = title
        self._live = Live(console=notes, refresh_per_second=8, transient=True) if enabled else None

    def __enter__(self) -> "Screen":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, progress: Progress) -> None:
        """Draw the state of the play."""
        if self._live is not None:
            self._live.update(draw(progress, self._title))


def draw(progress: Progress, title: str) -> RenderableType:
    """The whole view."""
    best = max(progress.found, progress.random_found, 1.0)
    bars = Table.grid(padding=(0, 2))
    for name, value, style in (
        ("haystream", float(progress.found), "green"),
        ("random order", progress.random_found, "yellow"),
    ):
        bar = ProgressBar(total=best, completed=value, width=40, complete_style=style, finished_style=style)
        bars.add_row(name, bar, f"{value:,.0f} relevant found")

    latency = progress.percentiles()
    mean, sd = progress.expected_remaining
    facts = Table.grid(padding=(0, 2))
    facts.add_row("items streamed", f"{progress.items:,} of {len(progress.source):,}")
    facts.add_row("screened", f"{progress.screened:,} of {progress.screenings:,}, {progress.elapsed:.0f} s")
    facts.add_row(
        "verdict → ranking", f"p50 {latency['p50']} ms   p95 {latency['p95']} ms   p99 {latency['p99']} ms"
    )
    facts.add_row("expected remaining", f"{mean:,.0f} ± {sd:,.0f} relevant items")

    last = Table.grid(padding=(0, 2))
    for item_id, participants, relevant in progress.recent:
        mark = Text("relevant", "bold green") if relevant else Text("not relevant", "dim")
        last.add_row(mark, item_id[:40], " – ".join(participants)[:50])
    why = Text("because: ", "dim")
    for share in progress.because[:3]:
        why.append(f"{' – '.join(share['participants'])} {share['share']:+.3f}   ", "dim")
    return Panel(Group(bars, Text(), facts, Text(), last, why), title=title, padding=(1, 2))
