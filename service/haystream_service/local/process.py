"""A server process on 127.0.0.1: started, asked until it answers, stopped, killed, started again in place."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from haystream_service.local import guard

HOST = "127.0.0.1"
STOP_SECONDS = 15.0
"""What an orderly stop may take. A server that needs longer is killed: it holds a demo's or a test's data."""
LOG_LINES = 15

# Below every usual range of ephemeral ports. In that range a client that keeps dialling a stopped server can
# be given the server's own port as its source port, connect to itself, and keep the server from coming back.
_PORTS = range(20_000, 32_000)
_held: dict[int, socket.socket] = {}
"""Ports that this process has been given, each with the socket that holds it: several are drawn, here and in
processes beside this one, before the first is listened on."""

_GROUP, _USER, _SYSTEM = 2, 11, 12
"""Of what /proc/PID/stat says after the command's name: the process group, and ticks of the clock by mode."""


class ServerUnavailable(Exception):  # noqa: N818 - it says what the user meets
    """A local server cannot be had here. The text says what is missing and what helps; show it as it is."""


def free_port(earlier: int | None = None) -> int:
    """A TCP port of 127.0.0.1 that nobody listens on, and that no process here has been given by this function.

    It is held for as long as this process lives, where the system can: elsewhere it is one that nobody listened
    on a moment ago, and that was not returned before. An `earlier` one is given again where nobody listens on it,
    also while the system remembers connections of the server that had it.
    """
    again = [] if earlier is None or earlier not in _PORTS else [earlier]
    for port in chain(again, (_PORTS[secrets.randbelow(len(_PORTS))] for _ in range(200))):
        if port in _held:
            continue
        holder = socket.socket()
        try:
            if port == earlier:
                holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind((HOST, port))
        except OSError:
            holder.close()
            continue
        _held[port] = holder
        if sys.platform == "linux":
            # There two sockets may have one port while none of them, or only one, listens, if both say so. Every
            # server does; the sockets above do not, nor those that the system finds a port for.
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        else:
            holder.close()
        return port
    raise ServerUnavailable(f"no free port of {HOST} between {_PORTS.start} and {_PORTS.stop}")


class LocalServer(ABC):
    """One server process, its port and its data directory; a context manager that starts and closes it.

    `port` and `data_dir` stay the same from one start to the next. A data directory that was not named is
    temporary, and removed by `close`. The process dies with this one, even with a SIGKILL.
    """

    name: str
    """What a person calls the server."""

    def __init__(self, *, data_dir: Path | None, start_seconds: float, earlier_port: int | None = None) -> None:
        self._temporary: TemporaryDirectory[str] | None = None
        if data_dir is None:
            self._temporary = TemporaryDirectory(prefix="haystream-", ignore_cleanup_errors=True)
            data_dir = Path(self._temporary.name)
        self.data_dir = data_dir
        self.port = free_port(earlier_port)
        self._start_seconds = start_seconds
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """What to run, after preparing what it needs. Raises `ServerUnavailable`."""

    def environment(self) -> dict[str, str] | None:
        """The process's environment variables; None for a copy of ours."""
        return None

    @abstractmethod
    def answers(self) -> bool:
        """Whether the server takes part in its own protocol. May raise `OSError`, which means no."""

    def waits_for(self) -> str:
        """What the server says keeps it from answering; nothing where it does not say."""
        return ""

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def exit_report(self) -> str | None:
        """The code with which the process ended by itself, and the last that it said; None where it did not."""
        code = self._process.poll() if self._process is not None else None
        return None if code is None else f"{self.name} ended by itself with code {code}\n{self._log_tail()}"

    @property
    def log(self) -> Path:
        """The file that gets the server's output, of all its starts."""
        return self.data_dir / "server.log"

    def start(self) -> Self:
        """The server, started unless it runs, once it answers. Raises `ServerUnavailable`."""
        if self.running:
            return self
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._process = self._launch(self.command())
        try:
            self._await_answer(self._process)
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """End the server in its own orderly way; the data stay. Does nothing if it does not run."""
        if self._process is None:
            return
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
        self._reap()

    def kill(self) -> None:
        """End the server with SIGKILL, as a crash would; the data stay as they are."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._reap()

    def cpu_seconds(self) -> float:
        """CPU time that the server has taken since its start, with all that it started; 0 where nobody says.

        To a hundredth of a second or so: it is what the system counts.
        """
        if self._process is None:
            return 0.0
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            if int(fields[_GROUP]) == self._process.pid:
                ticks += int(fields[_USER]) + int(fields[_SYSTEM])
        return ticks / os.sysconf("SC_CLK_TCK")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """The process stands still inside (SIGSTOP): it takes connections and bytes, and answers none."""
        self._signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(signal.SIGCONT)

    def restart(self) -> Self:
        """Stop the server if it runs, and start it on the same port and data."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Stop the server and remove its data, unless their directory was named."""
        self.stop()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _launch(self, command: list[str]) -> "subprocess.Popen[bytes]":
        """The process, in a group of its own, writing to the log; it dies with this one."""
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__, *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment(),
                start_new_session=True,
            )

    def _await_answer(self, process: subprocess.Popen[bytes]) -> None:
        give_up = time.monotonic() + self._start_seconds
        while process.poll() is None:
            try:
                if self.answers():
                    return
            except OSError:
                pass  # try again: it does not listen yet
            if time.monotonic() > give_up:
                raise ServerUnavailable(
                    f"{self.name} did not answer within {self._start_seconds:g} seconds\n{self._log_tail()}"
                )
            time.sleep(0.05)
        raise ServerUnavailable(f"{self.name} ended while starting\n{self._log_tail()}")

    def _log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES:])

    def _signal(self, number: signal.Signals) -> None:
        process = self._process
        if process is not None and process.poll() is None:  # not reaped yet, so the group's id is still its own
            os.killpg(process.pid, number)

    def _reap(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
