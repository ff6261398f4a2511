"""Kafka and Valkey as they are where not everybody may do everything."""

import asyncio
import hashlib
import secrets
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from haystream_service.local import KafkaServer
from haystream_service.local.process import HOST, free_port
from support.certificates import Authority

USER = "worker"
LISTENERS = {"TLS": "SSL", "MTLS": "SSL", "SASLTLS": "SASL_SSL", "SASL": "SASL_PLAINTEXT"}
ITERATIONS = 4096
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""Settings with which nobody who logs in may do anything that is not allowed."""
RESOURCES = {"topic": 2, "group": 3, "cluster": 4}
PATTERNS = {"literal": 3, "prefixed": 4}
OPERATIONS = {"Read": 3, "Write": 4, "Create": 5, "Describe": 8, "DescribeConfigs": 10, "IdempotentWrite": 12}
ALLOW = 3
ASKED_SECONDS = 20.0


class Right(NamedTuple):
    """What the user may do."""

    resource: str
    name: str
    pattern: str
    operation: str


MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class SecuredKafka(KafkaServer):
    """A Kafka that listens in every secured way, each on a port of its own; `bootstrap` is in the clear.

    `plain_password` is the user's for PLAIN, for as long as the server runs; for SCRAM `set_password` sets one.
    Whoever comes in the clear may do everything, and where nothing else is asked for (`AUTHORIZED`) so may others.
    """

    def __init__(self, folder: Path, *, plain_password: str, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(fast_start=True, settings=settings)
        self.authority = Authority(folder)
        self._ports = {name: free_port() for name in LISTENERS}
        self.plain_password = plain_password
        cert, key = self.authority.issue("broker")
        self._keystore = folder / "broker.keystore.pem"
        self._keystore.write_bytes(key.read_bytes() + cert.read_bytes())

    def at(self, listener: str) -> str:
        """A listener's address."""
        return f"{HOST}:{self._ports[listener]}"

    def set_password(self, password: str) -> None:
        """Make it the user's, for both sorts of SCRAM."""
        for number, sort in enumerate(("sha256", "sha512"), start=1):
            salt = secrets.token_bytes(16)
            salted = hashlib.pbkdf2_hmac(sort, password.encode(), salt, ITERATIONS)
            upsertion = _compact(USER.encode()) + struct.pack(">bi", number, ITERATIONS)
            upsertion += _compact(salt) + _compact(salted) + b"\0"
            # AlterUserScramCredentials, version 0, for which aiokafka has no request: no deletion, one upsertion.
            answer = self._ask(struct.pack(">hhih", 51, 0, 1, -1) + b"\0" + b"\1\2" + upsertion + b"\0")
            # Correlation, no tags, throttled, then one result: a name, no error and no text of it.
            assert answer[9:] == b"\2" + _compact(USER.encode()) + b"\0\0\0\0\0", answer

    def allow(self, right: Right) -> None:
        """Let the user do that."""
        self._authorize(30, right)

    def forbid(self, right: Right) -> None:
        """Take it back."""
        self._authorize(31, right)

    def _authorize(self, key: int, right: Right) -> None:
        """CreateAcls or DeleteAcls, version 1, for which aiokafka has no requests: of one right."""
        strings = [_string(text) for text in (right.name, f"User:{USER}", "*")]
        what = (
            struct.pack(">b", RESOURCES[right.resource]) + strings[0] + struct.pack(">b", PATTERNS[right.pattern])
        )
        what += strings[1] + strings[2] + struct.pack(">bb", OPERATIONS[right.operation], ALLOW)
        answer = self._ask(struct.pack(">hhihi", key, 1, 1, -1, 1) + what)
        # Correlation, throttled, then one result: its error.
        assert struct.unpack(">iiih", answer[:14])[2:] == (1, 0), answer

    def _ask(self, request: bytes) -> bytes:
        # A broker that has not heard from its controller yet what that takes hangs up on whatever is meant for it.
        give_up = time.monotonic() + ASKED_SECONDS
        while not (answer := self._answer(request)):
            assert time.monotonic() < give_up, "the broker hangs up"
            time.sleep(0.1)
        return answer

    def _answer(self, request: bytes) -> bytes:
        """What the broker answers; nothing where it hangs up."""
        with socket.create_connection((HOST, self.port), timeout=ASKED_SECONDS) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            with connection.makefile("rb") as stream:
                size = stream.read(4)
                return stream.read(*struct.unpack(">i", size)) if size else b""

    def _properties(self) -> dict[str, str]:
        plain = super()._properties()
        listeners = {name: f"{name}://{self.at(name)}" for name in LISTENERS}
        protocols = ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items())
        module = "org.apache.kafka.common.security"
        secured = {
            "listeners": ",".join([plain["listeners"], *listeners.values()]),
            "advertised.listeners": ",".join([plain["advertised.listeners"], *listeners.values()]),
            "listener.security.protocol.map": f"{plain['listener.security.protocol.map']},{protocols}",
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.ca),
            "listener.name.mtls.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        }
        for listener in ("sasltls", "sasl"):
            jaas = f"listener.name.{listener}"
            secured[f"{jaas}.plain.sasl.jaas.config"] = (
                f'{module}.plain.PlainLoginModule required user_{USER}="{self.plain_password}";'
            )
            for sort in MECHANISMS[1:]:
                secured[f"{jaas}.{sort.lower()}.sasl.jaas.config"] = f"{module}.scram.ScramLoginModule required;"
        return {**plain, **secured, **self._settings}


def _string(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def _compact(value: bytes) -> bytes:
    """A short string or bytes as the newer requests of Kafka have them."""
    return bytes([len(value) + 1]) + value


@asynccontextmanager
async def tls_in_front(port: int, context: ssl.SSLContext, *, at: int = 0) -> AsyncIterator[int]:
    """The port (`at`, or any) of a proxy that speaks TLS and hands what it gets on to a server that does not."""
    connections: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        their_reader, their_writer = await asyncio.open_connection(HOST, port)
        connections.update((writer, their_writer))
        tasks = [
            asyncio.create_task(_pass_on(reader, their_writer)),
            asyncio.create_task(_pass_on(their_reader, writer)),
        ]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for end in (writer, their_writer):
            end.close()
            connections.discard(end)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    server = await asyncio.start_server(serve, HOST, at, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for end in list(connections):
            end.close()
        await server.wait_closed()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
