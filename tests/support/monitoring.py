"""A real Prometheus and a real Alertmanager, and where notifications arrive."""

import json
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

import yaml

from haystream_service.local.process import LocalServer


class _Configured(LocalServer):
    """A server that is given a file of YAML, and answers on /-/ready."""

    def __init__(self, program: str, config: Any) -> None:
        super().__init__(data_dir=None, start_seconds=60.0)
        self._program = program
        self._config = config

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def _file(self) -> Path:
        file = self.data_dir / "config.yml"
        file.write_text(yaml.safe_dump(self._config))
        return file

    def answers(self) -> bool:
        with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2.0) as response:
            return bool(response.status == 200)


class Alertmanager(_Configured):
    """Takes alerts, and tells the webhooks of its configuration."""

    name = "Alertmanager"

    def command(self) -> list[str]:
        return [
            self._program,
            f"--config.file={self._file()}",
            f"--storage.path={self.data_dir / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--cluster.listen-address=",
        ]


class Prometheus(_Configured):
    """Scrapes, evaluates rules, and answers queries."""

    name = "Prometheus"

    def command(self) -> list[str]:
        return [
            self._program,
            f"--config.file={self._file()}",
            f"--storage.tsdb.path={self.data_dir / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    def ask(self, path: str, **parameters: str) -> Any:
        """The data that its API answers with."""
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10.0) as response:
            return json.load(response)["data"]


@dataclass(frozen=True, slots=True)
class Told:
    """One alert of one notification."""

    receiver: str
    name: str
    firing: bool
    labels: Mapping[str, str]
    began: str
    """Tells this occurrence of the alert from its next."""
    at: float
    """On the monotonic clock."""


class Receiver:
    """A webhook: remembers everything that arrives, in order."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.bodies: Queue[tuple[str, Any]] = Queue()
        """The path and the content of each notification."""
        self.told: list[Told] = []

    def take(self, path: str, body: Any) -> None:
        """A notification came."""
        for alert in body["alerts"]:
            labels, firing = alert["labels"], alert["status"] == "firing"
            self.told.append(
                Told(path.strip("/"), labels["alertname"], firing, labels, alert["startsAt"], time.monotonic())
            )
        self.bodies.put((path, body))


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver that listens."""

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.take(self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    server.daemon_threads = True
    receiver = Receiver(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with closing(server.socket):
        yield receiver
        server.shutdown()


def sent_to(config: Any, hook: str, **waits: str) -> Any:
    """Alertmanager's configuration with its receivers' webhooks there, each on a path of its name."""
    config["route"].update(waits)
    for each in config["receivers"]:
        each["webhook_configs"][0]["url"] = f"{hook}/{each['name']}"
    return config
