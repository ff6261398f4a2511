"""`haystream demo`: watch it find relevant mail."""

import asyncio
import math
from pathlib import Path

from haystream_service.commands.console import notes, write_json
from haystream_service.demo.play import Progress, play
from haystream_service.demo.screen import Screen
from haystream_service.demo.stage import Stage, stage
from haystream_service.sources import Source, synthetic, table


def run(*, headless: bool, seconds: float, screenings: int, source: Path | None, seed: int, json: bool) -> None:
    """Play the demo, print its summary, stop what it started."""
    items: Source = synthetic(seed=seed) if source is None else table(source)
    asyncio.run(_run(items, headless=headless, seconds=seconds, screenings=screenings, json=json))


async def _run(source: Source, *, headless: bool, seconds: float, screenings: int, json: bool) -> None:
    notes.print(
        f"{source.name}: {len(source):,} items on {source.edges:,} pairs, {source.relevant:,} of them relevant"
    )
    notes.print("starting Kafka, Redis and a worker; the first time takes half a minute …")
    async with stage() as on:
        notes.print(f"runs on {on.kafka}; {on.redis}")
        with Screen(title=source.name, enabled=notes.is_terminal and not headless) as screen:
            progress = await play(
                on.bus, source, seconds=seconds, screenings=screenings, on_progress=screen.show
            )
    if json:
        write_json(summary(progress, on))
    else:
        _print(progress)


def summary(progress: Progress, on: Stage) -> dict[str, object]:
    """The result as one JSON object."""
    latency = {name: None if math.isnan(value) else value for name, value in progress.percentiles().items()}
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
        "expected_remaining": dict(zip(("mean", "sd"), progress.expected_remaining, strict=True)),
        "latency_ms": latency,
        "seconds": round(progress.elapsed, 1),
    }


def _print(progress: Progress) -> None:
    latency = progress.percentiles()
    found, random = progress.found, progress.random_found
    times = f", {found / random:.1f} times as many" if random else ""
    print(  # noqa: T201 - the command's result
        f"screened {progress.screened:,} of {progress.items:,} items and found {found:,} of "
        f"{progress.source.relevant:,} relevant ones; random order finds {random:.0f}{times}\n"
        f"verdict to ranking: p50 {latency['p50']} ms, p95 {latency['p95']} ms, p99 {latency['p99']} ms "
        f"over {progress.verdicts:,} verdicts"
    )
