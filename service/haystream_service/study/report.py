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

CHECKPOINTS = (100, 300, 500, 1000)
"""Screenings at which it is said what was found: where analysts stop."""


def checkpoints(screened: int) -> tuple[int, ...]:
    """Those of `CHECKPOINTS` that searches of so many screenings come to."""
    return tuple(at for at in CHECKPOINTS if at <= screened)


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
        "results": [_result(plan, finished, pair) for pair in plan.pairs],
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
    rows, at = result["results"], list(result["results"][0]["found_at"])
    if "topics" in result:
        write_csv(
            folder / "results.csv",
            ("model", "policy", *_columns("found", at), "geometric_mean", *(f"geometric_mean_at_{n}" for n in at)),
            (
                (
                    r["label"],
                    r["policy_label"],
                    *_found(r),
                    r["geometric_mean"],
                    *(r["geometric_mean_at"][n] for n in at),
                )
                for r in rows
            ),
        )
        write_csv(
            folder / "topics.csv",
            ("topic", "relevant", "model", "policy", *_columns("found", at)),
            (
                (topic["topic"], topic["relevant"], r["label"], r["policy_label"], *_found(found))
                for r in rows
                for topic, found in zip(result["topics"], r["topics"], strict=True)
            ),
        )
        return
    above = [f"above_p{p}" for p in PERCENTILES]
    write_csv(
        folder / "results.csv",
        (
            "model",
            "policy",
            *_columns("found", at),
            *(f for name in ("edge_changes", *above) for f in (name, f"{name}_se")),
        ),
        (
            (
                r["label"],
                r["policy_label"],
                *_found(r),
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


def _columns(name: str, at: Iterable[str]) -> list[str]:
    """Of a figure at the end, and at the checkpoints; each with its standard error."""
    return [column for of in (name, *(f"{name}_at_{n}" for n in at)) for column in (of, f"{of}_se")]


def _found(row: Mapping[str, Any]) -> list[float | None]:
    """What `_columns` are the names of."""
    return [figure for found in (row["found"], *row["found_at"].values()) for figure in found.values()]


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


def _result(plan: Plan, finished: Finished, pair: tuple[Setting, Setting]) -> dict[str, Any]:
    outcomes = [finished[Task(*pair, plan.queries[0], run)] for run in range(plan.runs)]
    curves = np.array([_curve(outcome) for outcome in outcomes])
    spread = curves.std(axis=0, ddof=1) / np.sqrt(plan.runs) if plan.runs > 1 else np.zeros(curves.shape[1])
    above = np.array([outcome.above for outcome in outcomes])
    return {
        **_named(*pair),
        "found": estimate(curves[:, -1]),
        "found_at": {str(at): estimate(curves[:, at - 1]) for at in checkpoints(curves.shape[1])},
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
    outcomes = [[finished[Task(*pair, query, run)] for run in range(plan.runs)] for query in plan.queries]
    screened = outcomes[0][0].screened

    def found(at: int) -> Floats:
        """Shape (topics, runs)."""
        return np.array([[outcome.found(at) for outcome in row] for row in outcomes], dtype=np.float64)

    end, early = found(screened), {str(at): found(at) for at in checkpoints(screened)}
    return {
        **_named(*pair),
        "found": estimate(end.mean(axis=0)),
        "found_at": {at: estimate(then.mean(axis=0)) for at, then in early.items()},
        "geometric_mean": geometric_mean(end.mean(axis=1)),
        "geometric_mean_at": {at: geometric_mean(then.mean(axis=1)) for at, then in early.items()},
        "topics": [
            {
                "topic": query,
                "found": estimate(end[number]),
                "found_at": {at: estimate(then[number]) for at, then in early.items()},
            }
            for number, query in enumerate(plan.queries)
        ],
    }


def geometric_mean(found: Floats) -> float:
    """Of found + 1, less the 1: a topic with next to nothing to find does not decide everything."""
    return float(np.exp(np.log1p(found).mean()) - 1.0)
