"""A Redis Cluster: of one node, or of three that have a replica each."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Self

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from haystream_service.local import ValkeyServer, free_port
from haystream_service.local.process import HOST

SLOTS = 16384
MASTERS = 3
SILENT_MILLISECONDS = 1000
"""A node that has been silent for so long is taken to be gone."""
AT_ONCE = ("--repl-diskless-sync-delay", "0")
"""A replica does not wait for five seconds until others may have come."""


class Node(ValkeyServer):
    """One of a cluster, which has no slots yet."""

    def __init__(self) -> None:
        super().__init__()
        # Unsaid it is 10,000 above the node's own, where a client of anything may be given it as its source port.
        self.bus_port = free_port()

    def command(self) -> list[str]:
        cluster = {
            "enabled": "yes",
            "announce-ip": HOST,
            "port": str(self.bus_port),
            "node-timeout": str(SILENT_MILLISECONDS),
        }
        options = (part for name, value in cluster.items() for part in (f"--cluster-{name}", value))
        return [*super().command(), *AT_ONCE, *options]

    def ask(self, *command: Any) -> Any:
        """What it answers to a command."""
        with Redis(host=HOST, port=self.port, decode_responses=True) as client:
            return client.execute_command(*command)

    @property
    def id(self) -> str:
        return str(self.ask("CLUSTER", "MYID"))

    @property
    def serves(self) -> bool:
        """Whether it knows of a node for every slot."""
        return "cluster_state:ok" in str(self.ask("CLUSTER", "INFO"))

    @property
    def is_master(self) -> bool:
        return str(self.ask("ROLE")[0]) == "master"


class ClusterServer(Node):
    """One node that serves all slots of a cluster, and refuses a command whose keys lie in different ones."""

    def start(self) -> Self:
        super().start()
        self.ask("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
        until(lambda: self.serves, "it serves")
        return self


class Cluster:
    """Three masters, each with a third of the slots and a replica. `url` is of one of them."""

    def __init__(self) -> None:
        self.masters = [Node() for _ in range(MASTERS)]
        self.replicas = [Node() for _ in range(MASTERS)]
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        return self.masters[0].url

    def __enter__(self) -> Self:
        nodes = [*self.masters, *self.replicas]
        with ExitStack() as stack:
            for node in nodes:
                stack.enter_context(node)
            for number, master in enumerate(self.masters):
                first, last = SLOTS * number // MASTERS, SLOTS * (number + 1) // MASTERS - 1
                master.ask("CLUSTER", "ADDSLOTSRANGE", first, last)
                master.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            for node in nodes[1:]:
                self.masters[0].ask("CLUSTER", "MEET", HOST, node.port, node.bus_port)
            until(lambda: all(node.serves for node in nodes), "every node knows of all slots")
            for master, replica in zip(self.masters, self.replicas, strict=True):
                replica.ask("CLUSTER", "REPLICATE", master.id)
            until(lambda: all(replica.ask("ROLE")[3] == "connected" for replica in self.replicas), "replicas")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def owner(self, key: str) -> int:
        """Which of the masters has the key."""
        slot = self.slot(key)
        return next(
            number
            for number, master in enumerate(self.masters)
            for first, last, (_, port, *_) in _ranges(self.masters[0])
            if first <= slot <= last and port == master.port
        )

    def slot(self, key: str) -> int:
        return int(self.masters[0].ask("CLUSTER", "KEYSLOT", key))

    def migrate(self, slot: int, source: Node, target: Node) -> None:
        """Move a slot with all that is in it, key by key, as `valkey-cli --cluster reshard` does."""
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1):
            source.ask("MIGRATE", HOST, target.port, "", 0, 5000, "KEYS", *keys)
            time.sleep(0.05)  # clients meet a slot of which some is here and some there
        for node in (target, source, *self.masters):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.id)

    def fail_over(self, number: int) -> None:
        """Master and replica change places, without a loss: the master hands over."""
        master, replica = self.masters[number], self.replicas[number]
        replica.ask("CLUSTER", "FAILOVER")
        until(lambda: replica.is_master and not master.is_master, "the replica has taken over")
        self.masters[number], self.replicas[number] = replica, master

    def kill(self, number: int) -> None:
        """The master dies, when its replica has all that it has."""
        assert self.masters[number].ask("WAIT", 1, 5000) == 1
        self.masters[number].kill()

    def elect(self, number: int) -> None:
        """Return when the others have made the replica of a master that died one."""
        master, replica = self.masters[number], self.replicas[number]
        until(lambda: replica.is_master and replica.serves, "the replica is elected")
        self.masters[number], self.replicas[number] = replica, master


def _ranges(node: Node) -> Any:
    return [(first, last, master) for first, last, master, *_ in node.ask("CLUSTER", "SLOTS")]


def until(condition: Callable[[], bool], what: str) -> None:
    """Return once it holds; a server that does not answer just now counts as: not yet."""
    give_up = time.monotonic() + 60
    while True:
        try:
            if condition():
                return
        except RedisConnectionError:
            pass
        assert time.monotonic() < give_up, what
        time.sleep(0.02)
