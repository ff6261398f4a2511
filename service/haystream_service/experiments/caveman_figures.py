"""The figures of section 5.2."""

from pathlib import Path
from typing import Any

from haystream_service.experiments import figures


def networks(result: dict[str, Any], path: Path) -> Path:
    """Relevant participants red, irrelevant ones blue, for each ρ."""
    shown = result["networks"]
    figure, axes = figures.grid(1, len(shown), size=(2.4 * len(shown), 2.6))
    for panel, made in zip(axes[0], shown, strict=True):
        colours = [figures.RELEVANT if relevant else figures.IRRELEVANT for relevant in made["relevant"]]
        figures.graph(panel, pairs=made["pairs"], colours=colours, widths=[0.4] * len(made["pairs"]), node_size=22)
        panel.set_title(
            f"ρ = {made['rho']:g}\nI: edges {made['moran_edges']:.2f}, nodes {made['moran_nodes']:.2f}", fontsize=8
        )
    return figures.save(figure, path)


def totals(result: dict[str, Any], networks_: str, path: Path) -> Path:
    """Relevant items found by the greedy policy, ±1 standard error, against ρ."""
    means = sorted({row["mean"] for row in result["results"]})
    figure, axes = figures.grid(1, len(means), size=(4.3 * len(means), 4.3), sharey=True)
    for panel, mean in zip(axes[0], means, strict=True):
        chosen = [
            row
            for row in result["results"]
            if (row["networks"], row["mean"], row["policy"]) == (networks_, mean, "greedy")
        ]
        settings = list(dict.fromkeys((row["model"], row["p11"]) for row in chosen))
        swept = [p11 for _, p11 in settings if p11 is not None]
        for model, p11 in settings:
            rows = [row for row in chosen if (row["model"], row["p11"]) == (model, p11)]
            label = "Bayes linear" if p11 is None else f"independent, P₁₁ = {p11:g}"
            panel.errorbar(
                [row["rho"] for row in rows],
                [row["found"]["mean"] for row in rows],
                yerr=[row["found"]["se"] for row in rows],
                label=label,
                color=figures.COLOURS["relevance"] if p11 is None else figures.shade(swept.index(p11), len(swept)),
                linewidth=2.2 if p11 is None else 1.0,
                capsize=2,
                zorder=3 if p11 is None else 2,
            )
        panel.set(title=f"prior mean {mean:g}", xlabel="ρ")
        panel.set_xticks([row["rho"] for row in rows])
        panel.legend(frameon=False, fontsize="x-small", ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    axes[0, 0].set_ylabel(f"relevant found in {result['steps']}")
    return figures.save(figure, path)
