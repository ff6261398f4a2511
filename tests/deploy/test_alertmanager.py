"""deploy/alertmanager, asked of a real Alertmanager: symptoms page, causes are tickets, one fault is one page."""

import json
import re
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from support.monitoring import Alertmanager, receiving, sent_to

CONFIG = "deploy/alertmanager/alertmanager.yml"
ALERTS = "deploy/prometheus/alerts.yml"


def names(load: Callable[[str], Any]) -> dict[str, str]:
    """The severity of each alert."""
    rules = [rule for group in load(ALERTS)["groups"] for rule in group["rules"]]
    return {rule["alert"]: rule["labels"]["severity"] for rule in rules if "alert" in rule}


def test_it_inhibits_only_alerts_that_there_are(load: Callable[[str], Any]) -> None:
    for rule in load(CONFIG)["inhibit_rules"]:
        # The API is another job than the workers.
        jobs = {"Api" in " ".join(rule[f"{side}_matchers"]) for side in ("source", "target")}
        assert rule["equal"] == (["namespace", "job"] if len(jobs) == 1 else ["namespace"])
        for matcher in rule["source_matchers"] + rule["target_matchers"]:
            [pattern] = re.findall(r'"(.*)"', matcher)
            assert any(re.fullmatch(pattern, name) for name in names(load)), matcher
            for word in re.findall(r"\w+", pattern):
                assert any(word in name for name in names(load)), matcher


def test_amtool_agrees(root: Path, tool: Callable[[str], str]) -> None:
    done = subprocess.run([tool("amtool"), "check-config", CONFIG], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def program(tool: Callable[[str], str], unavailable: Callable[[str], NoReturn]) -> str:
    """Alertmanager, by the name that Debian gives it, with the templates that Debian keeps beside it."""
    if not Path("/usr/share/prometheus/alertmanager/default.tmpl").exists():
        unavailable("Alertmanager's templates are not in /usr/share/prometheus/alertmanager")
    return tool("prometheus-alertmanager")


def test_a_redis_that_is_away_is_one_page_and_a_ticket_that_says_why(
    program: str, load: Callable[[str], Any]
) -> None:
    prod = {"namespace": "prod", "job": "haystream-worker"}
    staging = {"namespace": "staging", "job": "haystream-worker"}
    stalled = [
        {"alertname": "HaystreamPartitionStalled", "topic": topic, "partition": str(partition)}
        for topic in ("haystream.verdicts", "haystream.items")
        for partition in range(6)
    ]
    labels = [
        *(prod | alert for alert in stalled),
        prod | {"alertname": "HaystreamNoReadyWorker"},
        prod | {"alertname": "HaystreamVerdictsWaiting"},
        prod | {"alertname": "HaystreamWorkerNotReady", "instance": "w0"},
        prod | {"alertname": "HaystreamServerErrors", "server": "redis"},
        prod | {"alertname": "HaystreamApiFailing", "job": "haystream-api"},
        staging | {"alertname": "HaystreamRankingsSlow"},
    ]
    severity = names(load)
    alerts = [{"labels": each | {"severity": severity[each["alertname"]]}} for each in labels]
    with receiving() as receiver:
        config = sent_to(load(CONFIG), receiver.url, group_wait="2s")
        with Alertmanager(program, config) as alertmanager:
            request = urllib.request.Request(
                f"{alertmanager.url}/api/v2/alerts",
                json.dumps(alerts).encode(),
                {"Content-Type": "application/json"},
            )
            urllib.request.urlopen(request, timeout=30).close()
            got = [receiver.bodies.get(timeout=60) for _ in range(3)]
    told = sorted(
        (path, body["groupLabels"]["namespace"], [alert["labels"]["alertname"] for alert in body["alerts"]])
        for path, body in got
    )
    assert told == [
        ("/pages", "prod", ["HaystreamNoReadyWorker"]),
        ("/pages", "staging", ["HaystreamRankingsSlow"]),
        ("/tickets", "prod", ["HaystreamServerErrors"]),
    ]
    assert receiver.bodies.empty()
