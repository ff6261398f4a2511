"""A Redis Cluster of one node."""

import time
from typing import Self

from redis import Redis

from haystream_service.local import ValkeyServer, free_port
from haystream_service.local.process import HOST


class ClusterServer(ValkeyServer):
    """One node that serves all slots of a cluster, and refuses a command whose keys lie in different ones."""

    def __init__(self) -> None:
        super().__init__()
        # Unsaid it is 10,000 above the node's own, where a client of anything may be given it as its source port.
        self._bus_port = free_port()

    def command(self) -> list[str]:
        cluster = {"enabled": "yes", "announce-ip": HOST, "port": str(self._bus_port)}
        options = (part for name, value in cluster.items() for part in (f"--cluster-{name}", value))
        return [*super().command(), *options]

    def start(self) -> Self:
        super().start()
        with Redis(port=self.port) as node:
            node.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            while b"cluster_state:ok" not in node.execute_command("CLUSTER", "INFO"):
                time.sleep(0.02)
        return self
