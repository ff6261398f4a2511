"""What the searches of a simulation come to: means with standard errors, as one object and as tables."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haystream_service.errors import UserError
from haystream_service.study.network import Network
from haystream_service.study.plan import Plan, Setting, Task
from haystream_service.study.simulation import PERCENTILES, Outcome, Searches, thresholds

Floats = NDArray[np.float64]
Finished = Mapping[Task, Outcome]


def estimate(values: Floats) -> dict[str, float | None]:
    """Mean and its standard error (None of a single value)."""
    se = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return {"mean": float(values.mean()), "se": se}


def as_json(plan: Plan, searches: Searches, finished: Finished) -> dict[str, Any]:
    """The result of a simulation of one query: DESIGN's object, and more."""
    (network,) = searches.networks.values()
    return {
        **_what(plan, searches, network),
        "relevant": int(network.relevant.sum()),
        "rates": {f"p{p}": level for p, level in zip(PERCENTILES, thresholds(network), strict=True)},
        "results": [_result(plan, finished, pair, network) for pair in plan.pairs],
    }


def topics_as_json(plan: Plan, searches: Searches, finished: Finished) -> dict[str, Any]:
    """The result of a simulation of many queries over one network."""
    networks = searches.networks
    relevant = {query: int(network.relevant.sum()) for query, network in networks.items()}
    return {
        **_what(plan, searches, next(iter(networks.values()))),
        "relevant": sum(relevant.values()),
        "topics": [{"topic": query, "relevant": count} for query, count in relevant.items()],
        "results": [_over_topics(plan, finished, pair) for pair in plan.pairs],
    }


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table. Raises `UserError`."""
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([header, *rows])
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None


def write_tables(result: dict[str, Any], folder: Path) -> None:
    """`results.csv`, and `curves.csv` or `topics.csv`. Raises `UserError`."""
    rows = result["results"]
    if "topics" in result:
        write_csv(
            folder / "results.csv",
            ("model", "policy", "found", "found_se", "geometric_mean"),
            ((r["label"], r["policy_label"], *r["found"].values(), r["geometric_mean"]) for r in rows),
        )
        write_csv(
            folder / "topics.csv",
            ("topic", "relevant", "model", "policy", "found", "found_se"),
            (
                (topic["topic"], topic["relevant"], r["label"], r["policy_label"], *found["found"].values())
                for r in rows
                for topic, found in zip(result["topics"], r["topics"], strict=True)
            ),
        )
        return
    above = [f"above_p{p}" for p in PERCENTILES]
    write_csv(
        folder / "results.csv",
        ("model", "policy", *(f for name in ("found", "edge_changes", *above) for f in (name, f"{name}_se"))),
        (
            (
                r["label"],
                r["policy_label"],
                *r["found"].values(),
                *r["edge_changes"].values(),
                *(figure for name in above for figure in r[name].values()),
            )
            for r in rows
        ),
    )
    write_csv(
        folder / "curves.csv",
        ("screened", *(f"{r['label']}, {r['policy_label']}" for r in rows)),
        zip(range(1, len(rows[0]["curve"]) + 1), *(r["curve"] for r in rows), strict=True),
    )


def _what(plan: Plan, searches: Searches, network: Network) -> dict[str, Any]:
    return {
        "source": network.name,
        "participants": len(network.participants),
        "edges": network.edges,
        "items": len(network.relevant),
        "steps": searches.steps,
        "runs": plan.runs,
        "seed": searches.seed,
    }


def _named(model: Setting, policy: Setting) -> dict[str, Any]:
    return {
        "model": model.name,
        "policy": policy.name,
        "options": dict(model.options) | dict(policy.options),
        "label": model.label,
        "policy_label": policy.label,
    }


def _result(plan: Plan, finished: Finished, pair: tuple[Setting, Setting], network: Network) -> dict[str, Any]:
    outcomes = [finished[Task(*pair, plan.queries[0], run)] for run in range(plan.runs)]
    curves = np.array([_curve(outcome) for outcome in outcomes])
    spread = curves.std(axis=0, ddof=1) / np.sqrt(plan.runs) if plan.runs > 1 else np.zeros(curves.shape[1])
    above = np.array([outcome.above for outcome in outcomes])
    return {
        **_named(*pair),
        "found": estimate(curves[:, -1]),
        "edge_changes": estimate(np.array([outcome.edge_changes for outcome in outcomes], dtype=np.float64)),
        **{f"above_p{p}": estimate(above[:, column]) for column, p in enumerate(PERCENTILES)},
        "curve": curves.mean(axis=0).round(4).tolist(),
        "curve_se": spread.round(4).tolist(),
    }


def _curve(outcome: Outcome) -> Floats:
    curve = np.zeros(outcome.screened)
    curve[np.array(outcome.hits, dtype=np.int64) - 1] = 1.0
    return np.cumsum(curve)


def _over_topics(plan: Plan, finished: Finished, pair: tuple[Setting, Setting]) -> dict[str, Any]:
    found = np.array(
        [[len(finished[Task(*pair, query, run)].hits) for run in range(plan.runs)] for query in plan.queries],
        dtype=np.float64,
    )
    return {
        **_named(*pair),
        "found": estimate(found.mean(axis=0)),
        "geometric_mean": geometric_mean(found.mean(axis=1)),
        "topics": [
            {"topic": query, "found": estimate(row)} for query, row in zip(plan.queries, found, strict=True)
        ],
    }


def geometric_mean(found: Floats) -> float:
    """Of found + 1, less the 1: a topic with next to nothing to find does not decide everything."""
    return float(np.exp(np.log1p(found).mean()) - 1.0)
