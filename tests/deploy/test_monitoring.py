"""Alerts, runbooks and dashboards say nothing that the metrics table does not know."""

import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from prometheus_client import Histogram, generate_latest

from haystream.errors import Code
from haystream_service.cli import app
from haystream_service.demo.stage import Stage
from haystream_service.labelled_gauges import QueryNumbers
from haystream_service.metrics import (
    OBJECTIVE_SECONDS,
    TABLE,
    ApiMetrics,
    Metrics,
    MetricsTable,
    new_registry,
    table,
)
from haystream_service.settings import Settings

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
OPERATOR = "k8s/components/monitoring/rules.yaml"
RUNBOOKS = ROOT / "docs" / "runbooks"
HEADINGS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]

RULES = [
    rule for group in yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
ALERTS = [rule for rule in RULES if "alert" in rule]
SYMPTOMS = {
    "HaystreamApiAway",
    "HaystreamApiFailing",
    "HaystreamNoReadyWorker",
    "HaystreamPartitionStalled",
    "HaystreamRankingsSlow",
    "HaystreamVerdictsWaiting",
}
"""What analysts notice. Everything else is a cause, or may become a symptom."""
RUNBOOK_URL = "https://runbooks.example.com/haystream"
DASHBOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))

PANELS = {
    (panel["title"], dashboard["title"].removeprefix("haystream: ").replace(" ", "-"))
    for dashboard in (json.loads(path.read_text()) for path in DASHBOARDS)
    for panel in dashboard["panels"]
}
"""Each with the heading of docs/dashboards.md that it is under."""

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
FROM_PROMETHEUS = {"namespace", "instance", "job", "le"}
OF_ALERTS = {"alertname", "alertstate"}
EVERY_PROCESS = {"up", "process_resident_memory_bytes", "process_start_time_seconds"}
"""What Prometheus has of every process: to be told apart by its job."""


def expressions() -> Iterator[tuple[str, str]]:
    """Every query of every rule and dashboard, with where it stands."""
    for rule in RULES:
        yield rule.get("alert") or rule["record"].replace(":", " "), rule["expr"]
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                yield f"{path.stem}: {panel['title']}", target["expr"]


EXPRESSIONS = sorted(expressions())


@pytest.mark.parametrize(("where", "expr"), EXPRESSIONS)
def test_queries_use_only_metrics_and_labels_of_the_table(where: str, expr: str) -> None:
    used = set(re.findall(r"\bhaystream_\w+", expr))
    assert used <= SERIES.keys()
    recorded = set(re.findall(r"\bhaystream:[\w:]+", expr))
    assert recorded <= {rule.get("record") for rule in RULES}
    assert used | recorded or any(name in expr for name in EVERY_PROCESS)
    known = {label for name in used for label in SERIES[name].labels} | FROM_PROMETHEUS
    grouped = {label for group in re.findall(r"\bby \(([^)]*)\)", expr) for label in group.split(", ")}
    matched = set(re.findall(r'(\w+)\s*[=!]~?\s*"', expr))
    assert grouped | matched <= known | (OF_ALERTS if "ALERTS{" in expr else set())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_tells_environments_apart(rule: dict[str, Any]) -> None:
    """What it sums up keeps the labels `namespace` and `job`; a process of any kind is one of haystream's job."""
    across_jobs = rule["expr"].replace("unless on (namespace) max_over_time(\n  ALERTS{", "")
    groups = re.findall(r"\b(?:by|on) \(([^)]*)\)", across_jobs)
    assert all(group.startswith("namespace, job") for group in groups)
    assert len(re.findall(r"\b(?:sum|min|max|group|count|avg)\b", rule["expr"])) == len(
        re.findall(r"\bby \(", rule["expr"])
    )
    for name in EVERY_PROCESS - {"process_start_time_seconds"}:
        assert len(re.findall(rf"\b{name}\b", rule["expr"])) == rule["expr"].count(f'{name}{{job=~".*haystream')


def test_the_dashboards_show_every_metric() -> None:
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


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboards_let_a_reader_choose_and_ask_only_for_that(path: Path) -> None:
    dashboard = json.loads(path.read_text())
    variables = {each["name"]: each for each in dashboard["templating"]["list"]}
    assert {"datasource", "namespace", "instance"} <= variables.keys()
    assert ("query" in variables) == (path.stem == "haystream-queries")
    assert all(each["allValue"] == ".*" for each in variables.values() if each["type"] == "query")
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            assert target["datasource"]["uid"] == panel["datasource"]["uid"] == "${datasource}"
            selectors = re.findall(r"\{[^{}]*\}", target["expr"])
            assert selectors
            assert all('namespace=~"$namespace"' in selector for selector in selectors), target["expr"]
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= variables.keys() | {"__rate_interval"}


def test_the_written_dashboards_are_those_of_their_source(tmp_path: Path) -> None:
    pytest.importorskip("grafana_foundation_sdk", reason="what writes the dashboards is an extra: deploy")
    render = [sys.executable, "-B", ROOT / "deploy" / "grafana" / "render", tmp_path]
    subprocess.run(render, check=True)
    written = {path.name: path.read_text() for path in tmp_path.glob("*.json")}
    assert written == {path.name: path.read_text() for path in DASHBOARDS}
    assert len(written) == 3


def test_the_page_of_the_dashboards_names_and_shows_what_there_is() -> None:
    page = (ROOT / "docs" / "dashboards.md").read_text()
    for path in DASHBOARDS:
        dashboard = json.loads(path.read_text())
        assert f"images/{path.stem}.png" in page
        assert (ROOT / "docs" / "images" / f"{path.stem}.png").is_file()
        for panel in dashboard["panels"]:
            if panel["type"] != "row":
                assert f"| {panel['title']} | {panel['description']} |" in page


def test_what_draws_the_dashboards_knows_who_is_scraped(load: Callable[[str], Any], root: Path) -> None:
    jobs = {job["job_name"] for job in load("deploy/prometheus/prometheus.yml")["scrape_configs"]}
    draw = (root / "deploy" / "grafana" / "draw").read_text()
    [scraped] = re.findall(r"^SCRAPED = (\{.*\})$", draw, re.MULTILINE)
    known = ast.literal_eval(scraped)
    assert known.keys() == jobs
    assert set(known.values()) <= {each.name for each in fields(Stage)}


def test_there_are_heat_maps() -> None:
    kinds = [panel["type"] for path in DASHBOARDS for panel in json.loads(path.read_text())["panels"]]
    assert kinds.count("heatmap") >= 3


def test_the_first_dashboard_of_the_compose_file_is_there(load: Callable[[str], Any]) -> None:
    grafana = load("docker-compose.yml")["services"]["grafana"]["environment"]
    home = Path(grafana["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert home.name in {path.name for path in DASHBOARDS}
    assert home.parent.name == "dashboards"


def test_alerts_and_runbooks_match_one_to_one() -> None:
    names = [alert["alert"] for alert in ALERTS]
    assert len(set(names)) == len(names)
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == set(names)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_names_its_runbook_and_how_bad_it_is(alert: dict[str, Any]) -> None:
    assert alert["annotations"]["runbook_url"] == f"{RUNBOOK_URL}/{alert['alert']}.md"
    assert alert["annotations"]["summary"]
    assert alert["labels"]["severity"] == ("critical" if alert["alert"] in SYMPTOMS else "warning")
    assert alert["for"]


@pytest.mark.parametrize("path", sorted(RUNBOOKS.glob("*.md")), ids=lambda path: path.stem)
def test_a_runbook_has_the_four_parts_and_knows_what_it_names(path: Path) -> None:
    text = path.read_text()
    assert text.startswith(f"# {path.stem}\n")
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    assert parts[1::2] == HEADINGS
    assert all(part.strip() for part in parts[2::2])
    assert set(re.findall(r"\bhaystream_\w+", text)) <= SERIES.keys() | {metric.name for metric in TABLE}
    assert {name.lower() for name in re.findall(r"\bHAYSTREAM_(\w+)", text)} <= Settings.model_fields.keys()
    [(panel, dashboard)] = re.findall(r"## Diagnosis\nPanel: \[(.*)\]\(\.\./dashboards\.md#(.*)\)", text)
    assert (panel, dashboard) in PANELS
    for target in re.findall(r"\]\(([^)#]+)", text):
        assert (path.parent / target).is_file(), target


def test_the_runbook_of_dead_letters_knows_every_code() -> None:
    text = (RUNBOOKS / "HaystreamDeadLetters.md").read_text()
    # No record's: a query is stopped for it.
    assert {code for code in Code if f"`{code}`" not in text} == {Code.TOO_MUCH_WORK}


def pasted(text: str) -> list[str]:
    """The commands of a runbook: what is indented as code, and what begins with a program in backquotes."""
    inline = re.findall(r"`((?:kubectl|haystream|deploy/)[^`]* [^`]*)`", text)
    return [line.strip() for line in re.findall(r"^ {4,}\S.*$", text, re.MULTILINE)] + inline


@pytest.mark.parametrize("path", sorted(RUNBOOKS.glob("*.md")), ids=lambda path: path.stem)
def test_a_runbook_names_commands_that_there_are(path: Path) -> None:
    diagnosis = path.read_text().split("## Diagnosis\n")[1].split("\n## ")[0]
    assert re.search(r"^ {4,}\S", diagnosis, re.MULTILINE)
    for command in pasted(path.read_text()):
        if command.startswith("kubectl"):
            assert command.startswith("kubectl -n haystream "), command
        program = re.search(r"(?:^|-- )haystream ([a-z-]+)(?: ([a-z-]+)(?= |$))?", command)
        if program:
            group, sub = program.groups()
            named = typer.main.get_command(app).commands[group]  # type: ignore[attr-defined]
            assert sub is None or sub in getattr(named, "commands", {sub}), command


def copied(tmp_path: Path) -> Path:
    """A folder with the rules' source and what renders it; the operator's goes into it, too."""
    for name in ("render", "alerts.in.yml"):
        (tmp_path / "deploy" / "prometheus").mkdir(parents=True, exist_ok=True)
        shutil.copy(PROMETHEUS / name, tmp_path / "deploy" / "prometheus" / name)
    (tmp_path / "k8s" / "components" / "monitoring").mkdir(parents=True)
    return tmp_path


def rendered(folder: Path, *options: str) -> tuple[str, ...]:
    """The rules for Prometheus and for its operator, written into that folder."""
    subprocess.run([sys.executable, folder / "deploy" / "prometheus" / "render", *options], check=True)
    plain, operator = (folder / path for path in ("deploy/prometheus/alerts.yml", OPERATOR))
    return tuple(path.read_text() if path.exists() else "" for path in (plain, operator))


def test_the_written_rules_are_those_of_their_source(tmp_path: Path) -> None:
    assert rendered(copied(tmp_path)) == ((PROMETHEUS / "alerts.yml").read_text(), (ROOT / OPERATOR).read_text())


def test_an_installation_says_where_its_runbooks_are_and_its_job_and_memory(tmp_path: Path) -> None:
    values = ["--runbooks", "https://wiki/hay/", "--job", "review/.*", "--memory-gib", "8"]
    plain, operator = rendered(copied(tmp_path), *values)
    assert yaml.safe_load(operator)["spec"] == yaml.safe_load(plain)
    for alert in ALERTS:
        assert f"https://wiki/hay/{alert['alert']}.md" in plain
    assert 'process_resident_memory_bytes{job=~"review/.*"} > 0.9 * 8 * 1024 ^ 3' in plain
    assert RUNBOOK_URL not in plain
    assert "haystream-worker" not in plain


def test_the_rules_and_the_worker_mean_the_same_objective() -> None:
    text = " ".join(rule["expr"] for rule in RULES)
    assert set(re.findall(r'verdict_to_ranking_seconds_bucket\{le="([^"]*)"', text)) == {str(OBJECTIVE_SECONDS)}
    assert {rule["record"].split(":")[-1] for rule in RULES if "verdicts_bad" in rule.get("record", "")} == {
        f"ratio_rate{window}" for window in ("5m", "30m", "1h", "6h", "3d", "30d")
    }


def test_hastened_rules_are_the_same_with_shorter_times(tmp_path: Path) -> None:
    to = tmp_path / "fast.yml"
    rendered(copied(tmp_path), "--faster", "12", "--to", str(to))
    fast = [rule for group in yaml.safe_load(to.read_text())["groups"] for rule in group["rules"]]
    assert [rule.get("alert") or rule["record"] for rule in fast] == [
        rule.get("alert") or rule["record"] for rule in RULES
    ]
    by_name = {rule["alert"]: rule for rule in fast if "alert" in rule}
    assert by_name["HaystreamNoReadyWorker"]["for"] == "15000ms"
    assert "[10000ms]" in by_name["HaystreamNoReadyWorker"]["expr"]
    assert "offset 25000ms" in by_name["HaystreamPartitionStalled"]["expr"]
    assert by_name["HaystreamVerdictsWaiting"]["expr"].endswith("> 5")
    assert "increase1h >= 10" in by_name["HaystreamRankingsSlow"]["expr"]


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


@pytest.mark.parametrize("kind", [Metrics, ApiMetrics])
def test_promtool_finds_nothing_wrong_with_the_metrics(
    kind: type[MetricsTable], tool: Callable[[str], str]
) -> None:
    registry = new_registry()
    metrics = ApiMetrics(registry) if kind is ApiMetrics else Metrics(registry, labelled_queries=1)
    if isinstance(metrics, Metrics):
        for name in ("a", "b"):
            metrics.queries.report(name, QueryNumbers(1, 1, 1.0, 1.0))
    for metric in table(kind):
        if metric.labels:
            getattr(metrics, metric.attribute).labels(*metric.labels)
    text = generate_latest(registry)
    for metric in table(kind):
        assert re.search(rf"^{metric.name}(_bucket)?(\{{.*\}})? ".encode(), text, re.MULTILINE), metric.name
    done = subprocess.run([tool("promtool"), "check", "metrics"], input=text, capture_output=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_the_memory_alert_fires_below_the_memory_limit(load: Callable[[str], Any]) -> None:
    [alert] = [alert for alert in ALERTS if alert["alert"] == "HaystreamMemoryHigh"]
    [worker] = load("k8s/base/worker.yaml")["spec"]["template"]["spec"]["containers"]
    limit = worker["resources"]["limits"]["memory"]
    assert alert["expr"].endswith(f"> 0.9 * {limit.removesuffix('Gi')} * 1024 ^ 3")


def test_the_mailbox_alert_fires_before_a_mailbox_pauses_reading() -> None:
    [alert] = [alert for alert in ALERTS if alert["alert"] == "HaystreamMailboxesFull"]
    assert int(alert["expr"].split(">")[1]) < Settings().mailbox_size


def test_prometheus_scrapes_the_worker_where_it_serves(load: Callable[[str], Any]) -> None:
    jobs = load("deploy/prometheus/prometheus.yml")["scrape_configs"]
    assert [job["job_name"] for job in jobs] == ["haystream-worker", "haystream-api"]
    assert [job["static_configs"] for job in jobs] == [
        [{"targets": [f"{name}:{Settings().port}"]}] for name in ("worker", "api")
    ]
