"""What `haystream bench engine` says: its JSON, and which of the design's targets are met."""

import os
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from haystream_service.bench.baselines import Row, Search1000
from haystream_service.bench.engine import Measured
from haystream_service.bench.samples import Timing

LARGE, SMALL, MEDIUM = 1_000_000, 1_000, 10_000
"""Numbers of edges that targets speak of."""
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Target:
    """A target of the design, and what was measured; `met` is None where this run says nothing about it."""

    target: str
    measured: str
    met: bool | None


def as_json(graph: str, sizes: list[Measured], network: Search1000 | None, **run: Any) -> dict[str, Any]:
    """Everything, by the contract: `results` and `baselines`, and more."""
    return {
        "results": [row for size in sizes for row in _results(graph, size, sizes[0])],
        "baselines": baselines(sizes, network),
        "network": None
        if network is None
        else {
            "graph": network.graph,
            "edges": network.edges,
            "participants": network.participants,
            "operations": {name: asdict(timing) for name, timing in network.operations.items()},
        },
        "memory": [
            {
                "graph": graph,
                "edges": size.edges,
                "participants": size.participants,
                "items": size.items,
                "peak_bytes": size.peak_bytes,
                "idle_bytes": size.idle_bytes,
                "changed_bytes_per_verdict": size.changed_bytes,
                "changed_edges_per_verdict": size.changed_edges,
            }
            for size in sizes
        ],
        "targets": [asdict(target) for target in targets(sizes, network)],
        "machine": machine(),
        **run,
    }


def machine() -> dict[str, Any]:
    """What it was measured on."""
    versions = {name: version(name) for name in ("haystream", "numba", "numpy", "scipy")}
    return {"cores": os.cpu_count(), "python": platform.python_version(), **versions}


def _results(graph: str, size: Measured, smallest: Measured) -> list[dict[str, Any]]:
    rows = []
    for operation, timing in size.operations.items():
        first = smallest.operations.get(operation)
        row = {
            "graph": graph,
            "edges": size.edges,
            "operation": operation,
            **asdict(timing),
            "ratio_to": _ratio(timing, first),
            "ratio_to_edges": smallest.edges,
        }
        if operation == "cold-start":
            row["parts_s"] = _rounded(size.cold_start_s)
            row["first_start_s"] = _rounded(size.first_start_s)
        rows.append(row)
    return rows


def baselines(sizes: list[Measured], network: Search1000 | None) -> list[dict[str, Any]]:
    """The baselines' rows, flat; `ratio_to` says how many times as long as the engine's new posterior they take."""
    groups: list[tuple[list[Row], dict[str, Timing]]] = [(size.baselines, size.operations) for size in sizes]
    if network is not None:
        groups.insert(0, (network.baselines, network.operations))
    return [_baseline(row, operations["posterior"]) for rows, operations in groups for row in rows]


def _baseline(row: Row, engine: Timing) -> dict[str, Any]:
    fields = asdict(row)
    timing = fields.pop("timing") or {"p50_us": None, "p99_us": None, "samples": 0}
    return {
        **fields,
        "operation": "verdict",
        **timing,
        "ratio_to": None if row.timing is None else _ratio(row.timing, engine),
        "ratio_to_operation": "posterior",
    }


def _ratio(timing: Timing, other: Timing | None) -> float | None:
    return round(timing.p50_us / other.p50_us, 2) if other and other.p50_us else None


def targets(sizes: list[Measured], network: Search1000 | None) -> list[Target]:
    """The engine's targets in the design, in its order."""
    by_edges = {size.edges: size for size in sizes}
    large, small, medium = (by_edges.get(edges) for edges in (LARGE, SMALL, MEDIUM))
    found = [
        _target(
            "verdict to posterior and top 50, p50 at 1,000,000 edges: under 1 ms", _ms(large, "verdict"), 1.0, "ms"
        ),
        _target(
            "the same, within 5 times its cost at 1,000 edges",
            _ratio(large.operations["verdict"], small.operations["verdict"]) if large and small else None,
            5.0,
            "times",
        ),
        _batch(network),
        _target(
            "cold start at 1,000,000 edges (from a snapshot): under 60 s",
            _s(large, "cold-start"),
            60.0,
            "s",
        ),
        _target("cold start at 10,000 edges (from a snapshot): under 1 s", _s(medium, "cold-start"), 1.0, "s"),
        _target(
            "memory at 1,000,000 edges and 5,000,000 items: under 4 GiB",
            large.peak_bytes / GIB if large and large.items >= 5_000_000 else None,
            4.0,
            "GiB",
        ),
    ]
    differences = [row.max_difference for row in _rows(sizes, network) if row.max_difference is not None]
    worst = max(differences, default=None)
    found.append(
        Target(
            "every mean within 1e-4 of the dense solve",
            "not measured"
            if worst is None
            else f"{worst:.1e}, the worst of all baselines that solve the same form",
            None if worst is None else worst < 1e-4,
        )
    )
    return found


def _rows(sizes: list[Measured], network: Search1000 | None) -> list[Row]:
    return [*(network.baselines if network else ()), *(row for size in sizes for row in size.baselines)]


def _batch(network: Search1000 | None) -> Target:
    what = "at least 300 times as fast per verdict as the paper's batch update, 1,444 nodes, 1,000 verdicts"
    timing = network.baselines[0].timing if network else None
    if network is None or timing is None:
        return Target(what, "not measured", None)
    like, whole = (timing.p50_us / network.operations[name].p50_us for name in ("posterior", "verdict"))
    return Target(
        what, f"{like:.0f} times; {whole:.0f} with the top 50, which the batch update has not", like >= 300
    )


def _rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {part: round(value, 3) for part, value in seconds.items()}


def _target(what: str, value: float | None, limit: float, unit: str) -> Target:
    if value is None:
        return Target(what, "not measured", None)
    return Target(what, f"{value:.3g} {unit}", value < limit)


def _ms(size: Measured | None, operation: str) -> float | None:
    return size.operations[operation].p50_us / 1e3 if size else None


def _s(size: Measured | None, operation: str) -> float | None:
    return size.operations[operation].p50_us / 1e6 if size else None
