"""A single-node Apache Kafka (KRaft: broker and controller in one process)."""

import shutil
import socket
import struct
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from haystream_service.local.jars import fetch_jars
from haystream_service.local.process import HOST, LocalServer, ServerUnavailable, free_port

NO_JAVA = (
    "Java 17 or newer is needed to run Apache Kafka: install it (Debian and Ubuntu: `apt-get install "
    "default-jre-headless`, macOS: `brew install openjdk`)"
)

_ONE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    # One node holds every copy, so the internal topics need no more than one, nor many partitions.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # A first consumer need not wait for others to join.
    "group.initial.rebalance.delay.ms": "0",
    # A misspelt topic must fail here as it would in production.
    "auto.create.topics.enable": "false",
    # After a SIGKILL the controller must notice soon that the broker it knew is gone.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # The default buffer alone is a quarter of the heap.
    "log.cleaner.dedupe.buffer.size": "16777216",
}


class KafkaServer(LocalServer):
    """Apache Kafka on a free port; `bootstrap` is what clients need.

    `fast_start` compiles less (never for a benchmark). `settings` adds to or replaces lines of
    server.properties, `jvm` to Java's options. `jars` is where the jars are kept (default: see `default_jars_dir`).
    """

    name = "Apache Kafka"

    def __init__(
        self,
        *,
        data_dir: Path | None = None,
        earlier_port: int | None = None,
        jars: Path | None = None,
        fast_start: bool = False,
        settings: Mapping[str, str] | None = None,
        jvm: Sequence[str] = (),
    ) -> None:
        super().__init__(data_dir=data_dir, start_seconds=60.0, earlier_port=earlier_port)
        self._jars = jars
        self._controller_port = free_port()
        self._settings = dict(settings or {})
        self._jvm = ["-Xmx512m", "-XX:+UseSerialGC", *(["-XX:TieredStopAtLevel=1"] if fast_start else []), *jvm]

    @property
    def bootstrap(self) -> str:
        """The address to give to a client: `127.0.0.1:PORT`."""
        return f"{HOST}:{self.port}"

    def command(self) -> list[str]:
        """Java with the jars; formats the data directory before a first start."""
        java = shutil.which("java")
        if java is None:
            raise ServerUnavailable(NO_JAVA)
        jars = fetch_jars(self._jars)
        classes = classes_of(java, jars)
        shared = [f"-XX:SharedArchiveFile={classes}"] if classes.exists() else []
        run = [java, *shared, *self._jvm, "-cp", str(jars / "*")]
        properties = self.data_dir / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._properties().items()))
        if not (self._log_dir / "meta.properties").exists():
            self._format(run, properties)
        return [*run, "kafka.Kafka", str(properties)]

    def answers(self) -> bool:
        """Whether the broker answers an ApiVersions request, which it does once it is registered."""
        correlation = 1
        request = struct.pack(">hhih", 18, 0, correlation, -1)  # key ApiVersions, version 0, id, no client name
        with socket.create_connection((HOST, self.port), timeout=2.0) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            with connection.makefile("rb") as stream:
                head = stream.read(10)  # size, correlation id, error code
        return len(head) == 10 and struct.unpack(">iih", head)[1:] == (correlation, 0)

    @property
    def _log_dir(self) -> Path:
        return self.data_dir / "kafka"

    def _properties(self) -> dict[str, str]:
        controller = f"{HOST}:{self._controller_port}"
        return {
            **_ONE_NODE,
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self._log_dir),
            **self._settings,
        }

    def _format(self, run: list[str], properties: Path) -> None:
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = [*run, "kafka.tools.StorageTool", "format", f"-t={cluster}", "-c", str(properties)]
        done = subprocess.run(tool, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
        if done.returncode != 0:
            said = "\n".join((done.stdout + done.stderr).splitlines()[:8])
            raise ServerUnavailable(
                f"Apache Kafka could not prepare its data directory (it needs Java 17):\n{said}"
            )


def classes_of(java: str, jars: Path) -> Path:
    """The file with the jars' classes as this Java has them in memory, where it was made (`keep_classes`)."""
    return jars / f"classes-{Path(java).resolve().stat().st_mtime_ns:x}.jsa"


def keep_classes(jars: Path | None = None) -> None:
    """Make that file, unless it is there: a server starts sooner with it. Runs one for some seconds.

    Raises:
        ServerUnavailable: no server can be had. Where Java can make no such file, there is none.
    """
    java, jars = shutil.which("java"), fetch_jars(jars)
    if java is None:
        raise ServerUnavailable(NO_JAVA)
    if classes_of(java, jars).exists():
        return
    with TemporaryDirectory(dir=jars.parent, prefix="classes-") as scratch:
        made = Path(scratch) / "classes"
        with KafkaServer(jars=jars, fast_start=True, jvm=[f"-XX:ArchiveClassesAtExit={made}"]):
            pass  # they are written as it ends
        reads = [java, "-Xshare:on", f"-XX:SharedArchiveFile={made}", "-cp", str(jars / "*"), "-version"]
        if made.exists() and subprocess.run(reads, capture_output=True).returncode == 0:
            made.replace(classes_of(java, jars))
