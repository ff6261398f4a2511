"""A Redis Cluster of one node."""

import time
from typing import Self

from redis import Redis

from haystream_service.local import ValkeyServer


class ClusterServer(ValkeyServer):
    """One node that serves all slots of a cluster, and refuses a command whose keys lie in different ones."""

    def command(self) -> list[str]:
        return [*super().command(), "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1"]

    def start(self) -> Self:
        super().start()
        with Redis(port=self.port) as node:
            node.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            while b"cluster_state:ok" not in node.execute_command("CLUSTER", "INFO"):
                time.sleep(0.02)
        return self
