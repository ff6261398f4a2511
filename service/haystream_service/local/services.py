"""haystream's own services as processes on 127.0.0.1, as they run in production."""

import os
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from haystream_service.local.process import LocalServer, free_port
from haystream_service.settings import PREFIX

START_SECONDS = 600.0
"""What a start may take. The first compiles the inner loops, a minute or two of work, for which a busy machine
needs several times as long; a process that ends is found out at once."""


class WorkerProcess(LocalServer):
    """`haystream worker` as a process of its own, as it runs in production."""

    name = "the haystream worker"

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__(data_dir=None, start_seconds=START_SECONDS)
        self._waits_for = ""
        # A folder that is removed here, whatever becomes of the process.
        ours = {"HOST": "127.0.0.1", "PORT": str(self.port), "DATA_DIR": str(self.data_dir)}
        self._settings = {**settings, **{PREFIX + name: value for name, value in ours.items()}}

    def command(self) -> list[str]:
        """The worker, by this interpreter."""
        return [sys.executable, "-c", "from haystream_service.cli import main; main()", "worker"]

    def environment(self) -> dict[str, str]:
        """Ours, but no HAYSTREAM_ setting of it: the demo must not touch a real deployment's topics."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        return {**kept, **self._settings}

    def answers(self) -> bool:
        """Whether it says that it is ready."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2.0) as response:
                return bool(response.status == 200)
        except urllib.error.HTTPError as error:
            with error:
                self._waits_for = error.read().decode(errors="replace").strip()
            return False
        except urllib.error.URLError:
            return False  # not yet

    def waits_for(self) -> str:
        """What it said when it was last asked whether it is ready."""
        return self._waits_for


class ApiProcess(WorkerProcess):
    """`haystream api` as a process of its own; `port` has its probes."""

    name = "the haystream API"

    def __init__(self, settings: Mapping[str, str], keys: Path, *, earlier_port: int | None = None) -> None:
        self.api_port = free_port(earlier_port)
        ours = {"API_PORT": str(self.api_port), "API_KEYS_FILE": str(keys)}
        super().__init__({**settings, **{PREFIX + name: value for name, value in ours.items()}})

    @property
    def address(self) -> str:
        """Where it is used."""
        return f"http://127.0.0.1:{self.api_port}"

    def command(self) -> list[str]:
        """The API, by this interpreter."""
        return [*super().command()[:-1], "api"]
