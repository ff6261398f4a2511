"""The figures of sections 5.1.2 and 5.1.3."""

from pathlib import Path
from typing import Any

from haystream_service.experiments import figures

LABELS = {
    "z_mean": "E[Z]",
    "z_variance": "Var[Z]",
    "p_mean": "E[P]",
    "p_variance": "Var[P]",
}


def networks(result: dict[str, Any], path: Path) -> Path:
    """Who is in it: terrorists red, irrelevant participants blue; an edge is as wide as its items are relevant."""
    shown = [made for made in result["networks"] if made["density"] == "sparse"]
    figure, axes = figures.grid(1, len(shown), size=(5.2 * len(shown), 4.6))
    for panel, made in zip(axes[0], shown, strict=True):
        figures.graph(
            panel,
            pairs=made["pairs"],
            colours=[figures.RELEVANT if relevant else figures.IRRELEVANT for relevant in made["relevant"]],
            widths=[0.3 + 4.0 * rate for rate in made["rates"]],
        )
        panel.set_title(f"prior conditional {made['conditional']}")
    return figures.save(figure, path)


def boxes(result: dict[str, Any], density: str, conditional: int, path: Path) -> Path:
    """Differences, field less Bayes linear: median, quartiles, whiskers at the 2.5 % and 97.5 % quantiles."""
    figure, axes = figures.grid(1, len(LABELS), size=(11.0, 3.0))
    rows = [r for r in result["accuracy"] if (r["density"], r["conditional"]) == (density, conditional)]
    for panel, (quantity, label) in zip(axes[0], LABELS.items(), strict=True):
        shown = [row for row in rows if row["quantity"] == quantity]
        stats = []
        for row in shown:
            low, q1, median, q3, high = row["quantiles"]
            stats.append({"med": median, "q1": q1, "q3": q3, "whislo": low, "whishi": high, "fliers": []})
        panel.bxp(
            stats,
            showfliers=False,
            widths=0.6,
            patch_artist=True,
            boxprops={"facecolor": "#cfe0f1", "edgecolor": figures.COLOURS["relevance"]},
            medianprops={"color": figures.COLOURS["relevance"]},
        )
        panel.set_xticks(range(1, len(shown) + 1), [str(row["observations"]) for row in shown])
        panel.axhline(0.0, color="0.3", linewidth=0.8)
        panel.set_title(label)
        panel.grid(visible=False, axis="x")
    axes[0, 0].set_ylabel("field − Bayes linear")
    figure.supxlabel("observations", fontsize="medium")
    return figures.save(figure, path)


def curves(result: dict[str, Any], path: Path) -> Path:
    """Relevant items found, on average: the field dotted, Bayes linear solid."""
    figure, axes = figures.grid(1, 2, size=(8.0, 3.4), sharey=True)
    for panel, conditional in zip(axes[0], (1, 2), strict=True):
        for row in result["decisions"]:
            if row["conditional"] == conditional:
                style = ":" if row["model"] == "mrf" else "-"
                label = f"{row['policy']}, {figures.NAMES[row['model']]}"
                panel.plot(row["curve"], style, color=figures.POLICY_COLOURS[row["policy"]], label=label)
        panel.set(title=f"prior conditional {conditional}", xlabel="screened")
    axes[0, 0].set_ylabel("relevant items found")
    figures.legend(figure, axes[0, 0], columns=3)
    return figures.save(figure, path)
