"""The figures of section 5.3."""

from pathlib import Path
from typing import Any

from haystream_service.experiments import figures
from haystream_service.experiments.searches import THINNED

MODELS = ("relevance", "mrf", "mrf-balanced", "independent")


def totals(result: dict[str, Any], path: Path) -> Path:
    """Relevant items found on every network, ±1 standard error: a group of bars for each policy."""
    shown, swept = result["networks"], _swept(result)
    columns = min(2, len(shown))
    lines = -(-len(shown) // columns)
    figure, axes = figures.grid(lines, columns, size=(5.4 * columns, 2.9 * lines))
    for panel, made in zip(axes.flat, shown, strict=False):
        rows = [row for row in result["results"] if row["network"] == made["network"]]
        policies = list(dict.fromkeys(row["policy"] for row in rows))
        heights, colours = {}, []
        for model, p11 in dict.fromkeys((row["model"], row["p11"]) for row in rows):
            mine = {row["policy"]: row["found"] for row in rows if (row["model"], row["p11"]) == (model, p11)}
            found = [mine[policy] for policy in policies]
            heights[model, p11] = [f["mean"] for f in found], [f["se"] for f in found]
            colours.append(_colour(model, swept[model].index(p11), len(swept[model])))
        figures.bars(panel, policies, list(heights.values()), colours)
        size = f"{made['participants']} participants, {made['edges']} edges"
        panel.set_title(f"{size}, {made['relevant']} of {made['items']} relevant", fontsize="small")
    for panel in list(axes.flat)[len(shown) :]:
        panel.set_axis_off()
    figure.supylabel(f"relevant found in {result['steps']}", fontsize="medium")
    _key(figure, result)
    return figures.save(figure, path)


def curves(result: dict[str, Any], name: str, p11: float, path: Path) -> Path:
    """Of the greedy policy on one network: items found, and changes of edge, screening by screening."""
    figure, axes = figures.grid(1, 2, size=(8.4, 3.3))
    for row in result["results"]:
        if (row["network"], row["policy"]) != (name, "greedy") or row["p11"] not in (None, p11):
            continue
        places = _places(row["curve"])
        label = figures.NAMES[row["model"]]
        axes[0, 0].plot(places, row["curve"], color=figures.COLOURS[row["model"]], label=label)
        axes[0, 1].plot(places, row["changes_curve"], color=figures.COLOURS[row["model"]], label=label)
    axes[0, 0].set(xlabel="screened", title="relevant items found")
    axes[0, 1].set(xlabel="screened", title="changes of edge")
    figures.legend(figure, axes[0, 0])
    return figures.save(figure, path)


def details(result: dict[str, Any], path: Path) -> Path:
    """The six panels of the paper's last figure: greedy on one network, two models. Thin lines are single searches,
    thick ones the mean of all.
    """
    figure, axes = figures.grid(3, 2, size=(8.6, 8.4))
    network, shown = result["details"]["network"], result["details"]["models"]
    most = max(count for made in shown.values() for counts in made["good"].values() for count in counts)
    for model, made in shown.items():
        colour, label = figures.COLOURS[model], figures.NAMES[model]
        (mean,) = [
            row
            for row in result["results"]
            if (row["network"], row["policy"], row["model"], row["p11"]) == (network, "greedy", model, made["p11"])
        ]
        for panel, what in zip(axes[0], ("found", "changes"), strict=True):
            _realisations(panel, [each[what] for each in made["realisations"]], colour)
        axes[0, 0].plot(_places(mean["curve"]), mean["curve"], color=colour, linewidth=2.4, label=label)
        axes[0, 1].plot(_places(mean["curve"]), mean["changes_curve"], color=colour, linewidth=2.4)
        for column, level in enumerate(made["good"]):
            axes[1, column].hist(made["good"][level], bins=20, range=(0, most), color=colour, alpha=0.55)
            _realisations(axes[2, column], [each["good"][level] for each in made["realisations"]], colour)
    axes[0, 0].set(title="relevant items found", xlabel="screened")
    axes[0, 1].set(title="changes of edge", xlabel="screened")
    for column, level in enumerate(shown["relevance"]["good"]):
        best = f"best {100 - int(level)} % of edges"
        axes[1, column].set(title=f"screenings of the {best}", xlabel="screenings of them", ylabel="searches")
        axes[2, column].set(title=f"screenings of the {best}", xlabel="screened")
    figures.legend(figure, axes[0, 0])
    return figures.save(figure, path)


def _realisations(panel: Any, lines: list[list[float]], colour: str) -> None:
    for line in lines:
        panel.plot(_places(line), line, color=colour, linewidth=0.6, alpha=0.7)


def _places(curve: list[float]) -> list[int]:
    """Where a thinned curve was read: at the 10th, 20th, … screening."""
    return [THINNED * (k + 1) for k in range(len(curve))]


def _colour(model: str, number: int, of: int) -> Any:
    if model in ("relevance", "mrf-balanced"):
        return figures.COLOURS[model]
    return figures.shade(number, of, "Greys" if model == "mrf" else "OrRd")


def _swept(result: dict[str, Any]) -> dict[str, list[float | None]]:
    """The P₁₁ of each model, over all networks, in order."""
    seen = dict.fromkeys((row["model"], row["p11"]) for row in result["results"])
    return {model: [p11 for m, p11 in seen if m == model] for model in MODELS}


def _key(figure: Any, result: dict[str, Any]) -> None:
    """Colours are the same on all panels."""
    from matplotlib.patches import Patch

    swept = _swept(result)
    handles = [
        Patch(
            color=_colour(model, swept[model].index(p11), len(swept[model])),
            label=figures.NAMES[model] + ("" if p11 is None else f", P₁₁ = {p11:g}"),
        )
        for model in MODELS
        for p11 in swept[model]
    ]
    figure.legend(handles=handles, loc="outside right center", frameon=False, fontsize="x-small")
