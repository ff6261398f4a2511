"""Redis over TLS: whom we trust, who trusts us, and certificates that are replaced while a store is open."""

import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis
from support.certificates import Authority
from support.cluster import ClusterServer
from support.secured import tls_in_front

from haystream.events import Item
from haystream_service.errors import UserError
from haystream_service.local import ValkeyServer
from haystream_service.settings import Settings
from haystream_service.store.base import StoreRefused, StoreUnavailable
from haystream_service.store.redis import RedisStore

pytestmark = [pytest.mark.asyncio, pytest.mark.redis]

KEY_PASSWORD = "S3cret"


class Files:
    """The files that a deployment mounts, and what a server of the same authority has."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ca, self.cert, self.key = (folder / f"mounted-{name}.pem" for name in ("ca", "cert", "key"))
        self.password = folder / "mounted-password"
        self._count = 0

    def server(self) -> tuple[Authority, ssl.SSLContext]:
        """A new authority, and a server's context of it that wants certificates from clients."""
        self._count += 1
        authority = Authority(self._folder, f"ca-{self._count}")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.ca)
        context.load_cert_chain(*authority.issue(f"server-{self._count}"))
        context.verify_mode = ssl.CERT_REQUIRED
        return authority, context

    def mount(self, authority: Authority) -> None:
        """Replace the mounted files by some of this authority."""
        password = f"{KEY_PASSWORD}-{self._count}"
        cert, key = authority.issue(f"client-{self._count}", password=password)
        for made, mounted in ((authority.ca, self.ca), (cert, self.cert), (key, self.key)):
            shutil.copy(made, mounted)
        self.password.write_text(password)

    def settings(self, port: int, *, cluster: bool = False) -> Settings:
        return Settings(
            redis=f"rediss://127.0.0.1:{port}/0",
            redis_cluster=cluster,
            redis_ca_file=self.ca,
            redis_cert_file=self.cert,
            redis_key_file=self.key,
            redis_key_password_file=self.password,
        )


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture(params=["server", "cluster"])
def server(request: pytest.FixtureRequest) -> Iterator[ValkeyServer]:
    with ClusterServer() if request.param == "cluster" else request.getfixturevalue("own_valkey") as server:
        yield server


async def _beyond_closed_connections(store: RedisStore) -> None:
    """Ask until it is not for a connection of before, which is found to be closed, that there is no answer."""
    while True:
        try:
            return await store.ping()
        except StoreRefused:
            raise
        except StoreUnavailable:
            pass  # try again


async def test_certificates_that_are_replaced_are_used_for_new_connections(
    server: ValkeyServer, files: Files
) -> None:
    cluster = isinstance(server, ClusterServer)
    authority, context = files.server()
    files.mount(authority)
    async with tls_in_front(server.port, context) as port:
        if cluster:
            async with Redis(port=server.port) as node:
                await node.config_set("cluster-announce-port", port)
        store = RedisStore.open(files.settings(port, cluster=cluster))
        await store.append_items("c", [Item("1", "c", "a", ("b",))])
    another, context = files.server()
    async with tls_in_front(server.port, context, at=port):
        with pytest.raises(StoreRefused, match="certificate is not trusted"):
            await _beyond_closed_connections(store)
        files.mount(another)
        await _beyond_closed_connections(store)
        assert await store.item_count("c") == 1
        await store.close()


async def test_files_that_are_half_written_are_waited_for(
    own_valkey: ValkeyServer, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    authority, context = files.server()
    files.mount(authority)
    async with tls_in_front(own_valkey.port, context) as port:
        store = RedisStore.open(files.settings(port))
        files.key.write_text("-----BEGIN ENC")
        await store.ping()
        assert "cannot be used" in caplog.text
        assert KEY_PASSWORD not in caplog.text
        await store.close()
        with pytest.raises(UserError, match=r"mounted-ca.*mounted-key\.pem cannot be used"):
            RedisStore.open(files.settings(port))


async def test_a_server_that_is_not_trusted_gets_nothing(own_valkey: ValkeyServer, files: Files) -> None:
    authority, context = files.server()
    files.mount(authority)
    async with tls_in_front(own_valkey.port, context) as port:
        store = RedisStore.open(Settings(redis=f"rediss://127.0.0.1:{port}/0"))
        with pytest.raises(StoreRefused, match="its certificate is not trusted"):
            await store.ping()
        await store.close()


async def test_a_client_without_a_certificate_is_not_let_in(own_valkey: ValkeyServer, files: Files) -> None:
    authority, context = files.server()
    files.mount(authority)
    async with tls_in_front(own_valkey.port, context) as port:
        store = RedisStore.open(Settings(redis=f"rediss://127.0.0.1:{port}/0", redis_ca_file=files.ca))
        with pytest.raises(StoreUnavailable):
            await store.ping()
        await store.close()
