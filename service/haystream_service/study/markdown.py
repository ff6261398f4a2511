"""The result of a simulation as tables of a Markdown page: at the end, early, and topic by topic."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from haystream_service.errors import UserError


def write_markdown(result: Mapping[str, Any], folder: Path) -> None:
    """`results.md`. Raises `UserError`."""
    path = folder / "results.md"
    try:
        topics = by_topic(result) if "topics" in result else ""
        path.write_text(markdown(result) + early(result) + topics, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None


def markdown(result: Mapping[str, Any]) -> str:
    """Found ± standard error, the most of all in bold; of topics the mean, and the geometric mean beside it."""
    rows = result["results"]
    cells: dict[tuple[str, str], str] = {}
    value: Callable[[dict[str, Any]], float] = _geometric if "topics" in result else _mean
    most = max(map(value, rows))
    for row in rows:
        text = _estimate(row["found"])
        if "topics" in result:
            text += f" / {row['geometric_mean']:.2f}"
        cells[row["label"], row["policy_label"]] = f"**{text}**" if value(row) == most else text
    models, policies = (list(dict.fromkeys(pair[side] for pair in cells)) for side in (0, 1))
    return table(
        ["model", *policies], [[model, *(cells[model, policy] for policy in policies)] for model in models]
    )


def early(result: Mapping[str, Any]) -> str:
    """Found in the first screenings, a column a checkpoint, the most of each in bold; empty if there is none."""
    rows, topics = result["results"], "topics" in result
    lines = [[f"{row['label']}, {row['policy_label']}"] for row in rows]
    for at in rows[0]["found_at"]:
        found = [row["found_at"][at] for row in rows]
        texts = [_estimate(of) for of in found]
        values = [float(of["mean"]) for of in found]
        if topics:
            values = [row["geometric_mean_at"][at] for row in rows]
            texts = [f"{text} / {value:.2f}" for text, value in zip(texts, values, strict=True)]
        for line, text, value in zip(lines, texts, values, strict=True):
            line.append(f"**{text}**" if value == max(values) else text)
    header = ["found in", *(f"{int(at):,}" for at in rows[0]["found_at"])]
    return "\n" + table(header, lines) if len(header) > 1 else ""


def by_topic(result: Mapping[str, Any]) -> str:
    """Found of every topic, the most of each in bold."""
    rows = result["results"]
    lines = []
    for number, topic in enumerate(result["topics"]):
        means = [row["topics"][number]["found"]["mean"] for row in rows]
        cells = (f"**{mean:.1f}**" if mean == max(means) else f"{mean:.1f}" for mean in means)
        lines.append([topic["topic"], f"{topic['relevant']:,}", *cells])
    names = (f"{row['label']}, {row['policy_label']}" for row in rows)
    return "\n" + table(["topic", "relevant", *names], lines)


def table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table: the first column on the left, the others on the right."""
    rule = ["---", *("---:" for _ in header[1:])]
    return "".join(f"| {' | '.join(line)} |\n" for line in (header, rule, *lines))


def _mean(row: dict[str, Any]) -> float:
    return float(row["found"]["mean"])


def _geometric(row: dict[str, Any]) -> float:
    return float(row["geometric_mean"])


def _estimate(found: Mapping[str, float | None]) -> str:
    se = found["se"]
    return f"{found['mean']:.1f}" + ("" if se is None else f" ± {se:.1f}")
