"""The figure of the calibration: expected over true remaining."""

from pathlib import Path
from typing import Any

from haystream_service.experiments import figures

COLOURS = {
    ("rates", "look-ahead-by-set"): "0.15",
    ("rates", "look-ahead"): figures.POLICY_COLOURS["look-ahead"],
    ("rates", "greedy"): figures.POLICY_COLOURS["greedy"],
    ("rates", "random"): figures.COLOURS["random"],
    ("relevance", "look-ahead"): figures.COLOURS["independent"],
    ("relevance", "greedy"): figures.POLICY_COLOURS["epsilon-greedy"],
}
"""By model and policy."""
MOST = 6.0
"""Expected over true: what lies above is left out of the panel."""


def ratios(result: dict[str, Any], path: Path) -> Path:
    """A panel for every network: the mean over repetitions, and a bar of ± 2 of the sd that was given."""
    shown = list(dict.fromkeys(row["network"] for row in result["results"]))
    columns = min(4, len(shown))
    lines = -(-len(shown) // columns)
    figure, axes = figures.grid(lines, columns, size=(2.9 * columns, 2.7 * lines), sharey=True)
    for panel, name in zip(axes.flat, shown, strict=False):
        rows = [row for row in result["results"] if row["network"] == name and row["ratio"] is not None]
        asked = list(dict.fromkeys(row["screened"] for row in rows))
        for number, (rival, colour) in enumerate(COLOURS.items()):
            mine = [row for row in rows if (row["model"], row["policy"]) == rival]
            panel.errorbar(
                [asked.index(row["screened"]) + 0.12 * (number - (len(COLOURS) - 1) / 2) for row in mine],
                [row["ratio"] for row in mine],
                yerr=[2.0 * row["sd"]["mean"] / row["truth"]["mean"] for row in mine],
                fmt="o",
                markersize=3.5,
                color=colour,
                label=", ".join(rival),
            )
        panel.axhline(1.0, color="0.3", linewidth=0.8)
        panel.set_xticks(range(len(asked)), [str(count) for count in asked])
        panel.set_title(name, fontsize="small")
        panel.set_ylim(-0.5, MOST)
    for panel in list(axes.flat)[len(shown) :]:
        panel.set_axis_off()
    figure.supxlabel("screened", fontsize="medium")
    figure.supylabel("expected remaining over true", fontsize="medium")
    figures.legend(figure, axes.flat[0], columns=min(3, len(COLOURS)))
    return figures.save(figure, path)
