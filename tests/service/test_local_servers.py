"""The servers that the other tests and the demo stand on."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import redis
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from haystream_service.local import (
    KafkaServer,
    LocalServer,
    ServerUnavailable,
    ValkeyServer,
    jars,
    kafka,
    process,
    valkey,
)
from haystream_service.local.process import HOST, free_port


async def _produce(bootstrap: str, topic: str, *values: bytes) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
        for value in values:
            await producer.send_and_wait(topic, value, partition=0)


async def _consume(bootstrap: str, topic: str, count: int) -> list[bytes]:
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return [(await consumer.getone()).value for _ in range(count)]


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.asyncio
async def test_kafka_keeps_what_it_acknowledged_through_a_kill_and_a_restart(own_kafka: KafkaServer) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=own_kafka.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic("facts", num_partitions=1, replication_factor=1)])
    await admin.close()
    await _produce(own_kafka.bootstrap, "facts", b"before")
    bootstrap = own_kafka.bootstrap

    own_kafka.kill()
    assert not own_kafka.running
    own_kafka.start()
    await _produce(own_kafka.bootstrap, "facts", b"after the kill")
    own_kafka.restart()

    assert own_kafka.bootstrap == bootstrap
    assert await _consume(bootstrap, "facts", 2) == [b"before", b"after the kill"]


@pytest.mark.redis
def test_valkey_keeps_what_it_acknowledged_through_a_kill_and_a_restart(own_valkey: ValkeyServer) -> None:
    with redis.Redis.from_url(own_valkey.url) as client:
        client.set("fact", "kept")
        own_valkey.kill()
        own_valkey.start()
        assert client.get("fact") == b"kept"
        own_valkey.restart()
        assert client.get("fact") == b"kept"


@pytest.mark.redis
def test_closing_removes_the_temporary_data(own_valkey: ValkeyServer) -> None:
    assert own_valkey.data_dir.is_dir()
    own_valkey.close()
    assert not own_valkey.data_dir.exists()


@pytest.mark.redis
def test_a_server_dies_with_a_parent_that_is_killed(own_valkey: ValkeyServer, tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys\nfrom pathlib import Path\nfrom haystream_service.local import ValkeyServer\n"
            "server = ValkeyServer(data_dir=Path(sys.argv[1])).start()\n"
            "print(server.port, flush=True)\nsys.stdin.read()",
            str(tmp_path),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with parent:
        assert parent.stdout is not None
        port = int(parent.stdout.readline())
        with socket.create_connection((HOST, port), timeout=30) as connection:
            os.kill(parent.pid, signal.SIGKILL)
            # The server is gone: its end is closed, or reset where it had not accepted the connection yet.
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""


class _Broken(LocalServer):
    name = "the broken server"

    def command(self) -> list[str]:
        return ["sh", "-c", "echo what is wrong; exit 3"]

    def answers(self) -> bool:
        raise ConnectionRefusedError


class _Silent(_Broken):
    def command(self) -> list[str]:
        return ["sleep", "60"]


class _Busy(_Broken):
    def command(self) -> list[str]:
        return ["sh", "-c", "while :; do :; done"]

    def answers(self) -> bool:
        return self.cpu_seconds() > 0


def test_what_a_server_takes_of_the_processors_is_counted() -> None:
    server = _Busy(data_dir=None, start_seconds=30)
    assert server.cpu_seconds() == 0
    with server:
        assert server.cpu_seconds() > 0
    assert server.cpu_seconds() == 0


def test_a_server_that_ends_while_starting_shows_its_last_words() -> None:
    with pytest.raises(ServerUnavailable, match=r"(?s)the broken server ended while starting.*what is wrong"):
        _Broken(data_dir=None, start_seconds=30).__enter__()


def test_a_server_that_never_answers_is_ended() -> None:
    server = _Silent(data_dir=None, start_seconds=0)
    with pytest.raises(ServerUnavailable, match="did not answer within 0 seconds"), server:
        pass
    assert not server.running
    assert not server.data_dir.exists()


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="what a process has in memory is looked up in /proc")
@pytest.mark.usefixtures("own_kafka")  # there can be one
def test_classes_are_kept_once_and_used_by_the_next_start(tmp_path: Path) -> None:
    folder = tmp_path / "lib"
    folder.mkdir()
    for each in jars.fetch_jars().iterdir():
        if each.suffix != ".jsa":
            (folder / each.name).symlink_to(each)
    kafka.keep_classes(folder)
    (kept,) = folder.glob("*.jsa")
    made = kept.stat().st_mtime_ns
    kafka.keep_classes(folder)
    assert kept.stat().st_mtime_ns == made
    assert [each.name for each in tmp_path.iterdir()] == ["lib"]
    assert not _somebody_uses(kept)
    with KafkaServer(jars=folder, fast_start=True):
        assert _somebody_uses(kept)


def _somebody_uses(file: Path) -> bool:
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if str(file) in maps.read_text():
                return True
    return False


def test_without_java_the_text_says_what_helps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerUnavailable) as problem, KafkaServer():
        pass
    assert str(problem.value) == kafka.NO_JAVA


def test_without_maven_the_text_says_what_helps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerUnavailable) as problem:
        jars.fetch_jars(tmp_path / "jars")
    assert str(problem.value) == jars.NO_MAVEN


def test_jars_that_cannot_be_fetched_say_so_and_leave_nothing_that_looks_complete(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    maven.write_text("#!/bin/sh\necho '[ERROR] no route to host'\nexit 1\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{maven.parent}:{os.environ['PATH']}")
    with pytest.raises(ServerUnavailable, match=r"(?s)could not fetch Apache Kafka.*no route to host"):
        jars.fetch_jars(tmp_path / "jars")
    assert not (tmp_path / "jars").exists()


def test_without_valkey_the_text_says_what_helps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(valkey, "_packaged_binary", lambda: None)
    with pytest.raises(ServerUnavailable) as problem, ValkeyServer():
        pass
    assert str(problem.value) == valkey.NO_VALKEY


def test_free_ports_are_free_and_below_the_ephemeral_range() -> None:
    port = free_port()
    with socket.create_server((HOST, port)):
        assert 1024 < port < 32_768


def test_ports_of_servers_that_are_yet_to_start_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    held: dict[int, socket.socket] = {}
    monkeypatch.setattr(process, "_held", held)
    drawn = [free_port() for _ in range(500)]
    for holder in held.values():
        holder.close()
    assert len(set(drawn)) == 500


def test_an_earlier_port_is_given_again_unless_somebody_listens_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    earlier, held = free_port(), dict[int, socket.socket]()
    monkeypatch.setattr(process, "_held", held)  # as in the next process
    with socket.create_server((HOST, earlier)) as server:
        client = socket.create_connection((HOST, earlier))
        server.accept()[0].close()  # which the server begins, so the system remembers the connection for a minute
        client.close()
        assert free_port(earlier) != earlier
    assert free_port(earlier) == earlier
    assert free_port(earlier) != earlier
    assert free_port(80) != 80
    for holder in held.values():
        holder.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a port cannot be held for another process")
def test_a_port_that_was_given_is_given_to_no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = free_port()
    monkeypatch.setattr(process, "_PORTS", range(ours, ours + 1))
    monkeypatch.setattr(process, "_held", {})  # as in a process that has been given nothing
    with pytest.raises(ServerUnavailable, match="no free port"):
        free_port()
    for _ in range(2):  # and its server listens there, starts again, and is the only one to
        with socket.create_server((HOST, ours)) as server:
            with socket.create_connection((HOST, ours)), server.accept()[0]:
                pass
            with pytest.raises(OSError, match="in use"):
                socket.create_server((HOST, ours))
