"""`haystream demo`: watch it find relevant mail."""

import asyncio
import logging
from pathlib import Path

from haystream_service.commands.signals import stop_on_signals
from haystream_service.console import notes, plain, write_json
from haystream_service.demo.play import play
from haystream_service.demo.progress import Progress
from haystream_service.demo.screen import Screen
from haystream_service.demo.stage import Stage, stage
from haystream_service.sources import ITEMS_PER_EDGE, Source, read_source, synthetic

MOST_ITEMS = 100_000
"""Of a simulation. A larger network gets fewer items an edge, or the streaming would take all the time."""


def run(
    *, headless: bool, seconds: float, screenings: int, source: Path | None, seed: int, edges: int, json: bool
) -> None:
    """Play the demo, print its summary, stop what it started. Raises `UserError`."""
    items = _simulated(seed, edges) if source is None else _read(source)
    try:
        asyncio.run(_run(items, headless=headless, seconds=seconds, screenings=screenings, json=json))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def _simulated(seed: int, edges: int) -> Source:
    return synthetic(seed=seed, edges=edges, items_per_edge=min(ITEMS_PER_EDGE, MOST_ITEMS / edges))


def _read(path: Path) -> Source:
    with notes.status(f"reading {plain(str(path))}"):
        source = read_source(path)
    if source.skipped:
        codes = ", ".join(f"{count} {code}" for code, count in source.skipped.most_common())
        notes.print(f"{source.skipped.total():,} left out: {codes}")
    return source


async def _run(source: Source, *, headless: bool, seconds: float, screenings: int, json: bool) -> None:
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # what matters of it is raised, too
    stop_on_signals()
    notes.print(
        f"{source.name}: {len(source):,} items on {source.edges:,} pairs, {source.relevant:,} of them relevant",
        markup=False,
    )
    notes.print("starting Kafka, Redis and a worker; the first time takes a minute or more ...")
    try:
        async with stage() as on:
            notes.print(f"runs on {on.kafka}; {on.redis}", markup=False)
            if on.api is not None:
                address, token = on.api
                notes.print(f"the queue API is at {address}/docs meanwhile, for the token {token}", markup=False)
            with Screen(title=source.name, enabled=notes.is_terminal and not headless) as screen:
                progress = await play(
                    on.bus, source, seconds=seconds, screenings=screenings, on_progress=screen.show
                )
            notes.print("stopping what was started ...")
    except asyncio.CancelledError:
        notes.print("stopped")
        raise
    if json:
        write_json(summary(progress, on))
    else:
        print(in_words(progress))  # noqa: T201 - the command's result


def summary(progress: Progress, on: Stage) -> dict[str, object]:
    """The result as one JSON object."""
    left = progress.expected_remaining
    return {
        "runs_on": {"kafka": on.kafka, "redis": on.redis},
        "source": progress.source.name,
        "edges": progress.source.edges,
        "relevant": progress.source.relevant,
        "items": progress.items,
        "verdicts": progress.verdicts,
        "screened": progress.screened,
        "found": progress.found,
        "random": {"found": round(progress.random_found, 1)},
        "expected_remaining": left and left.model_dump(),
        "latency_ms": progress.latency_ms(),
        "seconds": round(progress.elapsed, 1),
    }


def in_words(progress: Progress) -> str:
    """The result for a person."""
    latency = ", ".join(f"{name} {value} ms" for name, value in progress.latency_ms().items())
    times = f", {progress.times_random:.1f} times as many" if progress.times_random is not None else ""
    return (
        f"screened {progress.screened:,} of {progress.items:,} items and found {progress.found:,} of "
        f"{progress.source.relevant:,} relevant ones; random order finds {progress.random_found:.0f}{times}\n"
        f"verdict to ranking: {latency} over {progress.verdicts:,} verdicts"
    )
