"""How the experiments' figures look: colours, error bars, files."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from haystream_service.errors import UserError

COLOURS = {
    "mrf": "#222222",
    "constrained": "#1f6fb4",
    "unconstrained": "#e08214",
    "local": "#1f6fb4",
    "relevance": "#1f6fb4",
    "independent": "#c8553d",
    "mrf-balanced": "#3d9970",
    "random": "#999999",
}
"""A model has the same colour everywhere."""
NAMES = {
    "mrf": "Markov random field",
    "constrained": "Bayes linear, constrained",
    "unconstrained": "Bayes linear, unconstrained",
    "relevance": "Bayes linear",
    "independent": "independent",
    "mrf-balanced": "the field, prior mean kept",
    "random": "random order",
}
RELEVANT, IRRELEVANT = "#c8553d", "#5b8fc7"
"""Participants in drawings of networks, as in the paper."""
POLICY_COLOURS = {
    "greedy": "#1f6fb4",
    "epsilon-greedy": "#e08214",
    "bayes-ucb": "#3d9970",
    "look-ahead": "#8e44ad",
}
STYLE = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": "medium",
    "axes.labelsize": "small",
    "font.size": 9,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
}
DPI = 110
COLOURS_IN_A_FILE = 64


def check() -> None:
    """Raise `UserError` if nothing can be drawn here."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UserError("figures need matplotlib: pip install 'haystream[bench]'") from None


def grid(rows: int, columns: int, *, size: tuple[float, float], **options: Any) -> tuple[Any, Any]:
    """A figure and its axes, an array of shape (rows, columns). `size` is of the figure, in inches."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        return figure, figure.subplots(rows, columns, squeeze=False, **options)


def save(figure: Any, path: Path) -> Path:
    """The file, a PNG of few colours so that it is small. Raises `UserError` where it cannot be written."""
    from PIL import Image

    drawn = BytesIO()
    figure.savefig(drawn, dpi=DPI)
    try:
        Image.open(drawn).convert("RGB").quantize(COLOURS_IN_A_FILE).save(path, format="PNG", optimize=True)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None
    return path


def shade(number: int, of: int, family: str = "OrRd") -> Any:
    """One of a family of colours: light to dark, for the settings of one model."""
    import matplotlib as mpl

    return mpl.colormaps[family](0.35 + 0.6 * number / max(of - 1, 1))


def legend(figure: Any, axes: Any, *, columns: int | None = None) -> None:
    """One legend for all panels, above them."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=columns or len(labels), frameon=False, fontsize="small"
    )


def graph(axes: Any, *, pairs: Sequence[Sequence[int]], colours: Sequence[str], **options: Any) -> None:
    """A network, laid out by springs. `widths`: of the edges; `node_size`: of the participants."""
    import networkx as nx

    drawn: nx.Graph[int] = nx.Graph()
    drawn.add_nodes_from(range(len(colours)))
    drawn.add_edges_from((u, v) for u, v in pairs)
    place = nx.spring_layout(drawn, seed=1, iterations=200, k=2.2 / len(drawn) ** 0.5)
    order = list(drawn.edges)
    given = dict(zip(((min(p), max(p)) for p in pairs), options.get("widths", [0.6] * len(pairs)), strict=True))
    widths = [given[min(p), max(p)] for p in order]
    nx.draw_networkx_edges(drawn, place, ax=axes, edgelist=order, width=widths, edge_color="0.45")
    nx.draw_networkx_nodes(
        drawn, place, ax=axes, node_color=list(colours), node_size=options.get("node_size", 60), edgecolors="white"
    )
    axes.set_axis_off()


def bars(
    axes: Any,
    groups: Sequence[str],
    heights: Sequence[tuple[Sequence[float], Sequence[float]]],
    colours: Sequence[Any],
) -> None:
    """Grouped bars with ±1 standard error. `heights`: a colour's means and standard errors, one for each group."""
    width = 0.85 / len(heights)
    for number, ((means, errors), colour) in enumerate(zip(heights, colours, strict=True)):
        offset = (number - (len(heights) - 1) / 2) * width
        places = [place + offset for place in range(len(groups))]
        axes.bar(places, means, width, yerr=errors, color=colour, error_kw={"linewidth": 0.8})
    axes.set_xticks(range(len(groups)), groups)
    axes.grid(visible=False, axis="x")
