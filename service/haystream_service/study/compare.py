"""Finished simulations side by side: a page's tables, and one figure of all.

    python -m haystream_service.study.compare DIR … [--against MODEL,POLICY] [--at N] [--swept] [--figure FILE.png]

A DIR is what `haystream simulate --out DIR` left. Standard output has a Markdown table for each.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from haystream.ranking.policies import POLICIES
from haystream_service.errors import UserError
from haystream_service.study import plots
from haystream_service.study.markdown import table
from haystream_service.study.models import MODELS
from haystream_service.study.paired import Estimate, Study, read_study
from haystream_service.study.plan import Pair, Setting, pair_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REFERENCE = (Setting("rates"), Setting("look-ahead"))
MARKERS = "osD^v"
"""One a policy: colours alone are not told apart by everyone."""


def by_policy(study: Study, against: Pair = REFERENCE) -> str:
    """Models down, policies across, the most in bold; then each model's best policy less the reference.

    Where there are several queries, also its ratio to the reference, with an error over queries.
    """
    models = study.rows()
    most = max(study.total(study.best(model)).value for model in models)
    policies = [policy for policy in map(Setting, POLICIES) if any((m, policy) in study.found for m in models)]
    lines = []
    for model in models:
        totals = [study.total((model, policy)) if (model, policy) in study.found else None for policy in policies]
        cells = [_cell(total, most) for total in totals]
        lines.append([model.label, *cells, _difference(study, study.best(model), against)])
        if study.queries > 1:
            lines[-1].append(_ratio(study, study.best(model), against))
    header = ["model", *(policy.label for policy in policies), f"its best − {pair_label(against)}"]
    return table([*header, *(["ratio, over queries"] if study.queries > 1 else [])], lines)


def swept(study: Study, against: Pair = REFERENCE) -> str:
    """Of every model that was tried with several options: its defaults, and the best of all in hindsight."""
    lines = []
    for name in MODELS:
        for policy in map(Setting, POLICIES):
            tried = [pair for pair in study.found if (pair[0].name, pair[1]) == (name, policy)]
            plain = (Setting(name), policy)
            if plain not in tried or len(tried) == 1:
                continue
            best = max(tried, key=lambda pair: study.total(pair).value)
            found = (str(study.total(pair)) for pair in (plain, best))
            chosen = best[0].label.removeprefix(name).strip() or "the defaults"
            differences = (_difference(study, best, other) for other in (plain, against))
            lines.append([name, policy.label, *found, chosen, str(len(tried)), *differences])
    header = ["model", "policy", "defaults", "best in hindsight", "which is", "of", "less its defaults"]
    return table([*header, f"less {pair_label(against)}"], lines)


def draw(studies: Sequence[Study], path: Path, against: Pair = REFERENCE) -> None:
    """A panel a study, a row a model, a mark a policy; a line where the reference is. Raises `UserError`."""
    plots.check()
    from matplotlib.figure import Figure

    rows = list(dict.fromkeys(model for study in studies for model in study.rows()))
    across = min(4, len(studies))
    down = -(-len(studies) // across)
    figure = Figure(figsize=(2.2 + 2.6 * across, 0.9 + (0.7 + 0.27 * len(rows)) * down), layout="constrained")
    panels = figure.subplots(down, across, sharey=True, squeeze=False).ravel().tolist()
    for axes, study in zip(panels, studies, strict=False):
        _panel(axes, study, rows, against)
    for unused in panels[len(studies) :]:
        unused.remove()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    try:
        figure.savefig(path, dpi=140)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None


def _panel(axes: "Axes", study: Study, rows: Sequence[Setting], against: Pair) -> None:
    place = {model: -number for number, model in enumerate(rows)}
    for number, policy in enumerate(map(Setting, POLICIES)):
        models = [model for model in study.rows() if (model, policy) in study.found]
        totals = [study.total((model, policy)) for model in models]
        axes.errorbar(
            [total.value for total in totals],
            [place[model] + 0.3 - 0.15 * number for model in models],
            xerr=[total.se for total in totals],
            fmt=MARKERS[number % len(MARKERS)],
            color=f"C{number}",
            markersize=3.5,
            linewidth=1.0,
            label=policy.name,
        )
    if against in study.found:
        axes.axvline(study.total(against).value, color="0.6", linewidth=0.8, linestyle="--")
    axes.set(title=study.name, yticks=list(place.values()), yticklabels=[model.label for model in rows])
    axes.grid(visible=True, axis="x", alpha=0.3)


def _difference(study: Study, pair: Pair, other: Pair) -> str:
    if pair == other or other not in study.found:
        return ""
    return f"{study.less(pair, other):+}"


def _ratio(study: Study, pair: Pair, other: Pair) -> str:
    return "" if pair == other or other not in study.found else str(study.ratio(pair, other))


def _cell(total: Estimate | None, most: float) -> str:
    if total is None:
        return ""
    return f"**{total}**" if total.value == most else str(total)


def _pair(text: str) -> Pair:
    model, _, policy = text.partition(",")
    if model not in MODELS or policy not in POLICIES:
        raise argparse.ArgumentTypeError(f"expected a model, a comma and a policy, not {text!r}")
    return Setting(model), Setting(policy)


def main() -> None:
    """Print the tables of the folders that are named, and draw them. Exit code 2: that cannot be done."""
    parser = argparse.ArgumentParser(description="Tables of finished simulations, with paired differences.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    parser.add_argument("--against", type=_pair, default=REFERENCE, metavar="MODEL,POLICY")
    parser.add_argument(
        "--swept", action="store_true", help="defaults, and the best of the options that were tried"
    )
    parser.add_argument("--at", type=int, metavar="N", help="found in the first N screenings")
    parser.add_argument("--figure", type=Path, metavar="FILE.png")
    given = parser.parse_args()
    try:
        studies = [read_study(folder, at=given.at) for folder in given.folders]
        if given.figure is not None:
            draw(studies, given.figure, given.against)
    except UserError as error:
        parser.error(str(error))
    show = swept if given.swept else by_policy
    sys.stdout.write("\n".join(f"### {study.name}\n{show(study, given.against)}" for study in studies))


if __name__ == "__main__":
    main()
