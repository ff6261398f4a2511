"""deploy/alertmanager, asked of a real Alertmanager: symptoms page, causes are tickets, one fault is one page."""

import json
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Queue
from typing import Any, NoReturn

import pytest
import yaml

from haystream_service.local.process import free_port

CONFIG = "deploy/alertmanager/alertmanager.yml"
ALERTS = "deploy/prometheus/alerts.yml"


def names(load: Callable[[str], Any]) -> dict[str, str]:
    """The severity of each alert."""
    rules = [rule for group in load(ALERTS)["groups"] for rule in group["rules"]]
    return {rule["alert"]: rule["labels"]["severity"] for rule in rules if "alert" in rule}


def test_it_inhibits_only_alerts_that_there_are(load: Callable[[str], Any]) -> None:
    for rule in load(CONFIG)["inhibit_rules"]:
        assert rule["equal"] == ["namespace", "job"]
        for matcher in rule["source_matchers"] + rule["target_matchers"]:
            [pattern] = re.findall(r'"(.*)"', matcher)
            assert any(re.fullmatch(pattern, name) for name in names(load)), matcher
            for word in re.findall(r"\w+", pattern):
                assert any(word in name for name in names(load)), matcher


def test_amtool_agrees(root: Path, tool: Callable[[str], str]) -> None:
    done = subprocess.run([tool("amtool"), "check-config", CONFIG], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def receiver() -> Iterator[tuple[str, "Queue[tuple[str, Any]]"]]:
    """A webhook's address, and what comes in: the path and the notification."""
    received: Queue[tuple[str, Any]] = Queue()

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.put((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with closing(server.socket):
        yield f"http://127.0.0.1:{server.server_port}", received
        server.shutdown()


@contextmanager
def alertmanager(program: str, config: Any, folder: Path) -> Iterator[str]:
    """The address of an Alertmanager that runs on the configuration."""
    file = folder / "alertmanager.yml"
    file.write_text(yaml.safe_dump(config))
    url = f"127.0.0.1:{free_port()}"
    command = [program, f"--config.file={file}", f"--storage.path={folder / 'data'}"]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            [*command, f"--web.listen-address={url}", "--cluster.listen-address="], stdout=log, stderr=log
        ) as process,
    ):
        try:
            for _ in range(600):
                assert process.poll() is None, (folder / "log").read_text()
                try:
                    urllib.request.urlopen(f"http://{url}/-/ready", timeout=10).close()
                    break
                except urllib.error.URLError:
                    time.sleep(0.1)
            yield f"http://{url}"
        finally:
            process.terminate()


@pytest.fixture
def program(tool: Callable[[str], str], unavailable: Callable[[str], NoReturn]) -> str:
    """Alertmanager, by the name that Debian gives it, with the templates that Debian keeps beside it."""
    if not Path("/usr/share/prometheus/alertmanager/default.tmpl").exists():
        unavailable("Alertmanager's templates are not in /usr/share/prometheus/alertmanager")
    return tool("prometheus-alertmanager")


def test_a_redis_that_is_away_is_one_page_and_a_ticket_that_says_why(
    program: str, load: Callable[[str], Any], tmp_path: Path
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
        staging | {"alertname": "HaystreamRankingsSlow"},
    ]
    severity = names(load)
    alerts = [{"labels": each | {"severity": severity[each["alertname"]]}} for each in labels]
    with receiver() as (hook, received):
        config = load(CONFIG)
        config["route"]["group_wait"] = "2s"
        for each in config["receivers"]:
            each["webhook_configs"][0]["url"] = f"{hook}/{each['name']}"
        with alertmanager(program, config, tmp_path) as url:
            request = urllib.request.Request(
                f"{url}/api/v2/alerts", json.dumps(alerts).encode(), {"Content-Type": "application/json"}
            )
            urllib.request.urlopen(request, timeout=30).close()
            got = [received.get(timeout=60) for _ in range(3)]
    told = sorted(
        (path, body["groupLabels"]["namespace"], [alert["labels"]["alertname"] for alert in body["alerts"]])
        for path, body in got
    )
    assert told == [
        ("/pages", "prod", ["HaystreamNoReadyWorker"]),
        ("/pages", "staging", ["HaystreamRankingsSlow"]),
        ("/tickets", "prod", ["HaystreamServerErrors"]),
    ]
    assert received.empty()
