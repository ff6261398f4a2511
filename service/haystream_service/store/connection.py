"""How Redis is reached: the settings as a client of redis-py."""

from typing import Any, cast
from urllib.parse import urlsplit

from redis.asyncio import Redis, SSLConnection
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool, SentinelManagedConnection
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from typing_extensions import override

from haystream_service.mounted import MountedSecret, MountedTls
from haystream_service.settings import Settings

MOST_CONNECTIONS = 10_000
"""To one server: as many as Redis takes of all its clients, unless it is told otherwise. A client's own bound is a
hundred, and what is asked beyond it fails at once. How much is asked of one server at a time is bound elsewhere
(`redis_calls.ASKED_AT_ONCE`), but each collection in memory is followed on a connection of its own.
"""
SENTINEL_PORT = 26379
"""Where none is named."""
SENTINEL_SECONDS = 1.0
"""For a sentinel to answer."""


def redis_client(settings: Settings, *, connect_seconds: float) -> Redis | RedisCluster:
    """A client of the server, of the cluster that it is a node of, or of the server that the sentinels name.

    It connects at the first call.

    It neither waits nor tries again by itself: its user does that, and counts it. Every new connection has the
    password and the certificates of that moment.

    Raises:
        UserError: the certificates or the key cannot be used.
    """
    options: dict[str, Any] = {
        "protocol": 2,
        "socket_timeout": None,
        "socket_connect_timeout": connect_seconds,
        "retry": Retry(NoBackoff(), 0),
        "max_connections": MOST_CONNECTIONS,
    }
    password = MountedSecret(settings.redis_password, settings.redis_password_file)
    if password:
        options["credential_provider"] = _Credentials(settings.redis_user, password)
    tls = _tls(settings) if settings.redis.startswith("rediss:") else None
    if settings.redis_sentinel is not None:
        return _behind_sentinels(settings, settings.redis_sentinel, tls, options)
    client: Redis | RedisCluster
    if settings.redis_cluster:
        client = RedisCluster.from_url(settings.redis, **options)
    else:
        client = Redis.from_url(settings.redis, **options)
    if tls is not None:
        _encrypt(client, tls)
    return client


def _behind_sentinels(settings: Settings, name: str, tls: MountedTls | None, options: dict[str, Any]) -> Redis:
    """A client of whichever server the sentinels call master: it asks them for every new connection.

    A server that is found to be a replica since loses its connection, and the next one leads to the new master.
    """
    url = urlsplit(settings.redis)
    # A sentinel that does not answer must not keep the others from being asked.
    asked: dict[str, Any] = {**options, "socket_timeout": SENTINEL_SECONDS, "credential_provider": None}
    asked["socket_connect_timeout"] = SENTINEL_SECONDS
    password = MountedSecret(settings.redis_sentinel_password, settings.redis_sentinel_password_file)
    if password:
        asked["credential_provider"] = _Credentials(None, password)
    addresses = [urlsplit(f"//{host}") for host in url.netloc.split(",")]
    sentinels = cast(Any, Sentinel)(
        [(each.hostname, each.port or SENTINEL_PORT) for each in addresses], sentinel_kwargs=asked
    )
    kind = SentinelManagedConnection
    if tls is not None:
        options = {**options, "tls": tls}
        kind = _ManagedTlsConnection
        for sentinel in sentinels.sentinels:
            _encrypt(sentinel, tls)
    database = int(url.path.strip("/") or 0)
    pool = {"connection_pool_class": _SentinelPool, "connection_class": kind}
    return cast(Redis, sentinels.master_for(name, db=database, **pool, **options))


class _Credentials(CredentialProvider):
    """Asked for at every new connection."""

    def __init__(self, user: str | None, password: MountedSecret) -> None:
        self._user = user
        self._password = password

    @override
    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        password = self._password.read()
        return (self._user, password) if self._user else (password,)

    @override
    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        return self.get_credentials()


class _Given:
    """Stands in for redis-py's own context, which a connection would read its files for only once."""

    def __init__(self, context: MountedTls) -> None:
        self._context = context

    def get(self) -> MountedTls:
        return self._context


class _TlsConnection(SSLConnection):
    def __init__(self, *, tls: MountedTls, **options: Any) -> None:
        super().__init__(**options)
        self.ssl_context = cast(Any, _Given(tls))


class _SentinelPool(SentinelConnectionPool):
    """Closes the connections to the sentinels with its own."""

    @override
    async def aclose(self) -> None:
        await super().aclose()
        for sentinel in self.sentinel_manager.sentinels:
            await sentinel.aclose()


class _ManagedTlsConnection(SentinelManagedConnection, _TlsConnection):
    """To whichever server sentinels name, over TLS."""


def _tls(settings: Settings) -> MountedTls:
    return MountedTls(
        ca=settings.redis_ca_file,
        cert=settings.redis_cert_file,
        key=settings.redis_key_file,
        key_password=MountedSecret(settings.redis_key_password, settings.redis_key_password_file),
    )


def _encrypt(client: Redis | RedisCluster, tls: MountedTls) -> None:
    if isinstance(client, Redis):
        pool = client.connection_pool
        pool.connection_class = _TlsConnection
        pool.connection_kwargs["tls"] = tls
        return
    # A cluster's client takes no class of connections: the nodes that it knows and will know of are told.
    for kwargs in (client.connection_kwargs, *(node.connection_kwargs for node in client.startup_nodes)):
        kwargs["tls"] = tls
    client.connection_kwargs["connection_class"] = _TlsConnection
    for node in client.startup_nodes:
        node.connection_class = _TlsConnection
