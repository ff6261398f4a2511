"""`haystream` as a process of its own, forked from one that has imported and loaded everything: it starts at once.

What takes a process seconds before its first line of work is the same each time: imports, and machine code from its
cache. A parent does it once; its children are processes like any other, with a group of their own to be signalled.
As a script this file is that parent. It reads a request a line, forks, tells how its children ended, and ends, with
all of them, at the end of its input.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from haystream_service.local.services import ApiProcess, WorkerProcess

LOOK_SECONDS = 0.01


class Parent:
    """The process that forks: started once, and ended with this one."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - for as long as this process lives
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )
        self._turn = threading.Lock()

    def ask(self, **request: Any) -> Any:
        """The answer."""
        assert self._process.stdin
        assert self._process.stdout
        answer = b""
        with self._turn, suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        if not answer:
            self._errors.seek(0)
            raise AssertionError(f"the process that forks has ended:\n{self._errors.read().decode()}")
        return json.loads(answer)

    def close(self) -> None:
        """End it, and its children."""
        self._process.communicate()
        self._errors.close()


STARTING = threading.Lock()


def parent() -> Parent:
    """The one of this process, whichever thread asks first."""
    with STARTING:
        return _started()


@cache
def _started() -> Parent:
    made = Parent()
    atexit.register(made.close)
    return made


class Forked:
    """A child, with what is needed here of `subprocess.Popen`."""

    stdin = None

    def __init__(
        self, arguments: list[str], environment: Mapping[str, str], *, out: Path, err: Path, first: str = ""
    ) -> None:
        """Run `haystream` with the arguments; `first` is Python to be carried out before. Output is appended."""
        request = {"arguments": arguments, "environment": dict(environment), "out": str(out), "err": str(err)}
        self.pid: int = parent().ask(**request, first=first)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, or the negative number of the signal that ended it; None while it runs."""
        if self.returncode is None:
            self.returncode = parent().ask(ended=self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The same, once it has ended. Raises `subprocess.TimeoutExpired`."""
        give_up = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if give_up is not None and time.monotonic() > give_up:
                raise subprocess.TimeoutExpired("haystream", timeout or 0.0)
            time.sleep(LOOK_SECONDS)
        return code


class ForkedWorker(WorkerProcess):
    """`haystream worker`, forked. `first` is Python to be carried out in it before."""

    def __init__(self, settings: Mapping[str, str], *, first: str = "") -> None:
        super().__init__(settings)
        self._first = first

    def _launch(self, command: list[str]) -> Any:
        return Forked(["worker"], self.environment() or {}, out=self.log, err=self.log, first=self._first)


class ForkedApi(ApiProcess):
    """`haystream api`, forked."""

    def _launch(self, command: list[str]) -> Any:
        return Forked(["api"], self.environment() or {}, out=self.log, err=self.log)


def _serve() -> str:
    """Answer requests; return in a child, with what it has to carry out first."""
    from haystream.warm import warm

    warm()
    children: set[int] = set()
    codes: dict[int, int] = {}
    """Of those that have ended: more than one thread may ask for a child, and it can be reaped once."""
    for line in sys.stdin:
        request = json.loads(line)
        if "ended" in request:
            child = request["ended"]
            pid, status = os.waitpid(child, os.WNOHANG) if child in children else (0, 0)
            if pid:
                children.remove(pid)
                codes[pid] = os.waitstatus_to_exitcode(status)
            answer = codes.get(child)
        else:
            answer = os.fork()
            os.setpgid(answer, answer)  # here and there: whichever comes first
            if answer == 0:
                return _become(request)
            children.add(answer)
            codes.pop(answer, None)
        print(json.dumps(answer), flush=True)  # noqa: T201
    for child in children:
        os.killpg(child, signal.SIGKILL)
    os._exit(0)


def _become(request: dict[str, Any]) -> str:
    out, err = (os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND) for name in ("out", "err"))
    for number, opened in enumerate((os.open(os.devnull, os.O_RDONLY), out, err)):
        os.dup2(opened, number)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["haystream", *request["arguments"]]
    return request["first"]


if __name__ == "__main__":
    from haystream_service.api import serve as _  # noqa: F401 - to have them
    from haystream_service.cli import main
    from haystream_service.worker import serve as __  # noqa: F401

    exec(_serve())
    main()
