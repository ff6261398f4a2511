"""A Redis with a replica, and three sentinels that choose another master when the first is gone."""

from contextlib import ExitStack
from typing import Self

from redis import Redis

from haystream_service.local import ValkeyServer
from haystream_service.local.process import HOST
from support.cluster import AT_ONCE, until

NAME = "ours"
PASSWORD = "of-sentinels"


class Sentinel(ValkeyServer):
    """One that watches a master."""

    def __init__(self, master: int) -> None:
        super().__init__()
        self._master = master

    def command(self) -> list[str]:
        """The server's own program, with a file that it writes to."""
        config = self.data_dir / "sentinel.conf"
        config.write_text(
            f"port {self.port}\nbind {HOST}\ndir {self.data_dir}\nsentinel monitor {NAME} {HOST} {self._master} 2\n"
            f"sentinel down-after-milliseconds {NAME} 1000\nsentinel failover-timeout {NAME} 3000\n"
            f"requirepass {PASSWORD}\nsentinel sentinel-pass {PASSWORD}\n"
        )
        return [super().command()[0], str(config), "--sentinel"]

    def answers(self) -> bool:
        """Whether it tells who is master."""
        with Redis(port=self.port, password=PASSWORD) as client:
            return client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME) is not None


class Replicated:
    """`url` is that of the sentinels."""

    def __init__(self) -> None:
        self.master, self.replica = ValkeyServer(), ValkeyServer()
        self.sentinels = [Sentinel(self.master.port) for _ in range(3)]
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        return f"redis://{','.join(f'{HOST}:{sentinel.port}' for sentinel in self.sentinels)}/0"

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for server in (self.master, self.replica):
                stack.enter_context(server)
            with Redis(port=self.master.port) as master, Redis(port=self.replica.port) as replica:
                master.config_set(AT_ONCE[0].removeprefix("--"), AT_ONCE[1])
                replica.replicaof(HOST, self.master.port)
                until(lambda: replica.execute_command("ROLE")[3] == b"connected", "the replica is connected")
            for sentinel in self.sentinels:
                stack.enter_context(sentinel)
            until(lambda: all(map(self._ready, self.sentinels)), "the sentinels know of each other and the replica")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _ready(self, sentinel: Sentinel) -> bool:
        with Redis(port=sentinel.port, password=PASSWORD) as client:
            state = client.sentinel_master(NAME)
        return state["num-slaves"] == 1 and state["num-other-sentinels"] == 2

    def kill(self) -> None:
        """The master dies, when its replica has all that it has; and the first sentinel with it."""
        with Redis(port=self.master.port) as master:
            assert master.execute_command("WAIT", 1, 5000) == 1
        self.master.kill()
        self.sentinels[0].kill()

    def elect(self) -> None:
        """Return when the replica is made master."""
        with Redis(port=self.replica.port) as replica:
            until(lambda: replica.execute_command("ROLE")[0] == b"master", "the replica is chosen")
