"""Alerts, runbooks and dashboards say nothing that the metrics table does not know."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Histogram

from haystream_service.metrics import TABLE
from haystream_service.settings import Settings

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RUNBOOKS = ROOT / "docs" / "runbooks"
HEADINGS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]

ALERTS = [
    rule for group in yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
DASHBOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))

SERIES = {
    name: metric
    for metric in TABLE
    for name in (
        [f"{metric.name}_{part}" for part in ("bucket", "sum", "count")]
        if metric.kind is Histogram
        else [metric.name]
    )
}
"""What can be asked for in a query: a histogram has three series and none of its own name."""
FROM_PROMETHEUS = {"instance", "job", "le"}


def expressions() -> Iterator[tuple[str, str]]:
    """Every query of every alert and dashboard, with where it stands."""
    for alert in ALERTS:
        yield alert["alert"], alert["expr"]
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                yield f"{path.stem}: {panel['title']}", target["expr"]


EXPRESSIONS = sorted(expressions())


@pytest.mark.parametrize(("where", "expr"), EXPRESSIONS)
def test_queries_use_only_metrics_and_labels_of_the_table(where: str, expr: str) -> None:
    used = set(re.findall(r"\bhaystream_\w+", expr))
    assert used <= SERIES.keys()
    assert used or "process_resident_memory_bytes" in expr
    known = {label for name in used for label in SERIES[name].labels} | FROM_PROMETHEUS
    grouped = {label for group in re.findall(r"\bby \(([^)]*)\)", expr) for label in group.split(", ")}
    matched = set(re.findall(r'(\w+)\s*[=!]~?\s*"', expr))
    assert grouped | matched <= known


def test_the_dashboard_shows_every_metric() -> None:
    shown = " ".join(expr for where, expr in EXPRESSIONS if ": " in where)
    unseen = {metric.name for metric in TABLE if not re.search(rf"\b{metric.name}(_bucket)?\b", shown)}
    assert unseen == set()


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboard_panels_have_ids_of_their_own_and_do_not_overlap(path: Path) -> None:
    panels = json.loads(path.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_dashboards_read_the_provisioned_datasource(load: Callable[[str], Any]) -> None:
    [source] = load("deploy/grafana/provisioning/datasources/prometheus.yml")["datasources"]
    for path in DASHBOARDS:
        uids = set(re.findall(r'"uid": "(\w+)"\n\s+}', path.read_text()))
        assert uids == {source["uid"]}


def test_alerts_and_runbooks_match_one_to_one() -> None:
    names = [alert["alert"] for alert in ALERTS]
    assert len(set(names)) == len(names)
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == set(names)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_names_its_runbook_and_how_bad_it_is(alert: dict[str, Any]) -> None:
    assert alert["annotations"]["runbook_url"] == f"docs/runbooks/{alert['alert']}.md"
    assert alert["annotations"]["summary"]
    assert alert["labels"]["severity"] in {"critical", "warning"}
    assert alert["for"]


@pytest.mark.parametrize("path", sorted(RUNBOOKS.glob("*.md")), ids=lambda path: path.stem)
def test_a_runbook_has_the_four_parts_and_knows_what_it_names(path: Path) -> None:
    text = path.read_text()
    assert text.startswith(f"# {path.stem}\n")
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    assert parts[1::2] == HEADINGS
    assert all(part.strip() for part in parts[2::2])
    assert set(re.findall(r"\bhaystream_\w+", text)) <= {metric.name for metric in TABLE}
    assert {name.lower() for name in re.findall(r"\bHAYSTREAM_(\w+)", text)} <= Settings.model_fields.keys()
    for target in re.findall(r"\]\(([^)#]+)", text):
        assert (path.parent / target).is_file(), target


def test_every_alert_is_tested_firing_and_not_firing_yet() -> None:
    cases: dict[str, list[bool]] = {}
    for test in yaml.safe_load((PROMETHEUS / "alerts_test.yml").read_text())["tests"]:
        for case in test["alert_rule_test"]:
            cases.setdefault(case["alertname"], []).append(bool(case["exp_alerts"]))
    assert cases.keys() == {alert["alert"] for alert in ALERTS}
    assert all(set(fires) == {True, False} for fires in cases.values()), cases


@pytest.mark.parametrize(
    "arguments",
    [["check", "config", "prometheus.yml"], ["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]],
    ids=lambda arguments: " ".join(arguments),
)
def test_promtool_agrees(arguments: list[str], tool: Callable[[str], str]) -> None:
    done = subprocess.run([tool("promtool"), *arguments], cwd=PROMETHEUS, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_memory_alert_fires_below_the_memory_limit(load: Callable[[str], Any]) -> None:
    [alert] = [alert for alert in ALERTS if alert["alert"] == "HaystreamMemoryHigh"]
    [worker] = load("k8s/base/worker.yaml")["spec"]["template"]["spec"]["containers"]
    limit = worker["resources"]["limits"]["memory"]
    assert alert["expr"].endswith(f"> 0.9 * {limit.removesuffix('Gi')} * 1024 * 1024 * 1024")


def test_the_mailbox_alert_fires_before_a_mailbox_pauses_reading() -> None:
    [alert] = [alert for alert in ALERTS if alert["alert"] == "HaystreamMailboxesFull"]
    assert int(alert["expr"].split(">")[1]) < Settings().mailbox_size


def test_prometheus_scrapes_the_worker_where_it_serves(load: Callable[[str], Any]) -> None:
    [job] = load("deploy/prometheus/prometheus.yml")["scrape_configs"]
    assert job["job_name"] == "haystream-worker"
    assert job["static_configs"] == [{"targets": [f"worker:{Settings().port}"]}]
