"""The pages for operators: their tables of settings, topics and metrics are those of the code."""

import re
from pathlib import Path

from support.operator_pages import operator_pages

from haystream_service.kafka.admin import TOPICS
from haystream_service.kafka.records import SOURCES
from haystream_service.metrics import TABLE
from haystream_service.settings import PREFIX, Settings


def rows(first: str) -> list[list[str]]:
    """The cells of the pages' table whose first heading is `first`, without the headings."""
    [_, after] = operator_pages().split(f"\n| {first} |")
    table = after.split("\n\n", 1)[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_every_setting_stands_there_with_its_default() -> None:
    shown = {cells[0]: cells[1] for cells in rows("variable")}
    assert shown == {
        f"`{PREFIX}{name.upper()}`": "" if field.default is None else f"`{field.default}`"
        for name, field in Settings.model_fields.items()
    }
    assert all(cells[2] for cells in rows("variable"))


def test_every_topic_stands_there_as_a_worker_makes_it() -> None:
    shown = {
        name.strip("`"): {
            key: value.strip("`")
            for key, value in (("cleanup.policy", policy), ("retention.ms", retention), ("max.message.bytes", size))
            if value and value != "as the broker has it"
        }
        for name, _, policy, retention, size, _ in rows("topic")
    }
    assert shown == {Settings().topic(name): config for name, config in TOPICS.items()}


def test_every_metric_stands_there_as_in_the_table() -> None:
    assert rows("metric") == [
        [f"`{metric.name}`", metric.kind.__name__.lower(), ", ".join(metric.labels), metric.help]
        for metric in TABLE
    ]


def test_whatever_a_worker_reads_is_kept_for_ever_and_held() -> None:
    text = " ".join(operator_pages().split())
    for said in (
        r"([^.]*) are the log of record",
        r"Everything that was ever said, for ever, unless you delete it: the topics ([^.]*) have no end",
        r"leave `retention.ms=-1` on ([^.]*), and set it",
        r"copies ([^.]*) to new topics",
    ):
        [topics] = re.findall(said, text)
        assert set(re.findall(r"`(\w+)`", topics)) == set(SOURCES.values()), said


def test_of_several_pods_no_log_is_cut_by_default(root: Path) -> None:
    """kubectl shows the last ten lines of each pod where these are chosen by a label, whatever --since says."""
    pages = [*(root / "docs").rglob("*.md"), root / "README.md"]
    commands = [command for page in pages for command in re.findall(r"kubectl .*logs -l .*", page.read_text())]
    assert commands
    assert [command for command in commands if "--tail=" not in command] == []
