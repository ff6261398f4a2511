"""The results of a simulation, drawn."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from haystream_service.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 3
"""Panels beside each other."""


def check() -> None:
    """Raise `UserError` if nothing can be drawn here."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UserError("--out draws, and needs matplotlib: pip install 'haystream[bench]'") from None


def draw(result: dict[str, Any], folder: Path) -> list[Path]:
    """The PNGs of a result of `report`; their paths. Raises `UserError`."""
    if "topics" in result:
        return [_saved(_topics(result), folder / "topics.png")]
    return [_saved(_curves(result), folder / "curves.png"), _saved(_totals(result), folder / "found.png")]


def _curves(result: dict[str, Any]) -> "Figure":
    """Found against screened: a panel a policy, a line a model, with a band of one standard error."""
    policies = _distinct(result, "policy_label")
    figure, panels = _panels(len(policies))
    colours = _colours(result)
    for axes, policy in zip(panels, policies, strict=True):
        for row in _of(result, policy):
            mean, se = np.array(row["curve"]), np.array(row["curve_se"])
            screened = np.arange(1, len(mean) + 1)
            axes.plot(screened, mean, color=colours[row["label"]], linewidth=1.4, label=row["label"])
            axes.fill_between(screened, mean - se, mean + se, color=colours[row["label"]], alpha=0.2, linewidth=0)
        axes.set(title=policy, xlabel="screened")
        axes.tick_params(labelbottom=True)
        axes.grid(visible=True, alpha=0.3)
    panels[0].set_ylabel("relevant items found")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    figure.suptitle(_title(result))
    return figure


def _totals(result: dict[str, Any]) -> "Figure":
    """Found in all screenings: a row a model, a mark a policy, with a bar of one standard error each way."""
    from matplotlib.figure import Figure

    models, policies = _distinct(result, "label"), _distinct(result, "policy_label")
    figure = Figure(figsize=(9, 1.6 + 0.5 * len(models)), layout="constrained")
    axes = figure.subplots()
    place = {model: row for row, model in enumerate(reversed(models))}
    apart = np.linspace(0.28, -0.28, len(policies)) if len(policies) > 1 else np.zeros(1)
    for policy, shift in zip(policies, apart, strict=True):
        rows = _of(result, policy)
        axes.errorbar(
            [row["found"]["mean"] for row in rows],
            [place[row["label"]] + shift for row in rows],
            xerr=[row["found"]["se"] or 0.0 for row in rows],
            fmt="o",
            markersize=4,
            linewidth=1.2,
            label=policy,
        )
    axes.set(
        yticks=list(place.values()),
        yticklabels=list(place),
        xlabel=f"relevant items found in {result['steps']:,} screenings",
        title=_title(result),
    )
    axes.grid(visible=True, axis="x", alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, title="policy")
    return figure


def _topics(result: dict[str, Any]) -> "Figure":
    """The share of what the best found that each found: a row a topic, a column a model and policy."""
    from matplotlib.figure import Figure

    rows, topics = result["results"], result["topics"]
    found = np.array([[topic["found"]["mean"] for topic in row["topics"]] for row in rows]).T
    best = found.max(axis=1, keepdims=True)
    share = np.divide(found, best, out=np.zeros_like(found), where=best > 0)
    figure = Figure(figsize=(3.2 + 0.62 * len(rows), 2.4 + 0.24 * len(topics)), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(share, aspect="auto", vmin=0.0, vmax=1.0, cmap="viridis")
    for (i, j), value in np.ndenumerate(found):
        axes.text(
            j, i, f"{value:.0f}", ha="center", va="center", fontsize=7, color="w" if share[i, j] < 0.6 else "k"
        )
    axes.set_xticks(
        range(len(rows)), [f"{r['label']}, {r['policy_label']}" for r in rows], rotation=40, ha="right", fontsize=8
    )
    axes.set_yticks(range(len(topics)), [f"{t['topic']}  ({t['relevant']:,})" for t in topics], fontsize=8)
    axes.set(ylabel="topic (its relevant items)", title=f"found in {result['steps']:,} screenings")
    figure.colorbar(image, ax=axes, label="share of the most that any found", shrink=0.6)
    return figure


def _title(result: dict[str, Any]) -> str:
    return (
        f"{result['participants']:,} participants, {result['edges']:,} edges, {result['relevant']:,} relevant of "
        f"{result['items']:,} items; {result['runs']} runs"
    )


def _panels(count: int) -> tuple["Figure", list["Axes"]]:
    from matplotlib.figure import Figure

    across, down = min(count, COLUMNS), -(-count // COLUMNS)
    figure = Figure(figsize=(4.2 * across + 2.2, 3.6 * down + 0.5), layout="constrained")
    panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).ravel().tolist()
    for unused in panels[count:]:
        unused.remove()
    return figure, panels[:count]


def _colours(result: dict[str, Any]) -> dict[str, str]:
    """Random order grey, every other model a colour of its own."""
    cycle = iter([f"C{number}" for number in range(7)] * len(result["results"]))
    return {label: "0.4" if label == "random" else next(cycle) for label in _distinct(result, "label")}


def _distinct(result: dict[str, Any], key: str) -> list[str]:
    return list(dict.fromkeys(row[key] for row in result["results"]))


def _of(result: dict[str, Any], policy: str) -> list[dict[str, Any]]:
    return [row for row in result["results"] if row["policy_label"] == policy]


def _saved(figure: "Figure", path: Path) -> Path:
    try:
        figure.savefig(path, dpi=140)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None
    return path
