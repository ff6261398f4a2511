"""The figure of section 5.1.1: what is believed of each variable, observation by observation."""

from pathlib import Path
from typing import Any

from haystream_service.experiments import figures

PANELS = (("z", 0, "Z₀"), ("z", 1, "Z₁"), ("z", 2, "Z₂"), ("p", 0, "P₀₁"), ("p", 1, "P₁₂"))
DRAWN = {"mrf": "-", "constrained": "-", "unconstrained": "--"}
"""Models and their line styles; the local engine's curves lie on the constrained ones."""


def draw(result: dict[str, Any], name: str, path: Path) -> Path:
    """Expectations above, variances below. Dots are the observations on an edge, filled if relevant."""
    figure, axes = figures.grid(2, len(PANELS), size=(10.5, 4.6), sharex=True)
    rows = {row["model"]: row for row in result["results"] if row["observations"] == name}
    seen = result["observations"][name]
    for column, (variable, index, label) in enumerate(PANELS):
        for panel, moment in zip(axes[:, column], ("mean", "variance"), strict=True):
            for model, style in DRAWN.items():
                values = rows[model][f"{variable}_{moment}"][index]
                panel.plot(values, style, color=figures.COLOURS[model], label=figures.NAMES[model])
            panel.set_title(f"E[{label}]" if moment == "mean" else f"Var[{label}]")
        if variable == "p":
            _rug(axes[0, column], [(k + 1, o["relevant"]) for k, o in enumerate(seen) if o["edge"] == index])
        else:
            axes[0, column].axhspan(1.0, 10.0, color="0.93", zorder=0)
            axes[0, column].axhspan(-10.0, 0.0, color="0.93", zorder=0)
    _common_limits(axes[0, :3])
    _common_limits(axes[0, 3:])
    _common_limits(axes[1, :3])
    _common_limits(axes[1, 3:])
    for panel in axes[1]:
        panel.set_xticks(range(len(seen) + 1))
    figure.supxlabel("observations", fontsize="medium")
    figures.legend(figure, axes[0, 0])
    return figures.save(figure, path)


def _rug(panel: Any, seen: list[tuple[int, int]]) -> None:
    for place, relevant in seen:
        face = "0.2" if relevant else "white"
        panel.plot(
            place, 0.04, "o", transform=panel.get_xaxis_transform(), color=face, markeredgecolor="0.2", markersize=5
        )


def _common_limits(panels: Any) -> None:
    """The same scale for what can be compared, from the curves alone."""
    values = [y for panel in panels for line in panel.lines if len(line.get_ydata()) > 1 for y in line.get_ydata()]
    low, high = min(values), max(values)
    margin = 0.08 * (high - low)
    for panel in panels:
        panel.set_ylim(low - margin, high + margin)
