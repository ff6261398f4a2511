"""How Redis is reached: the settings as a client of redis-py."""

from typing import Any, cast

from redis.asyncio import Redis, SSLConnection
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from typing_extensions import override

from haystream_service.mounted import MountedSecret, MountedTls
from haystream_service.settings import Settings


def redis_client(settings: Settings, *, connect_seconds: float) -> Redis | RedisCluster:
    """A client of the server, or of the cluster that it is a node of. It connects at the first call.

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
    }
    password = MountedSecret(settings.redis_password, settings.redis_password_file)
    if password:
        options["credential_provider"] = _Credentials(settings.redis_user, password)
    client: Redis | RedisCluster
    if settings.redis_cluster:
        client = RedisCluster.from_url(settings.redis, **options)
    else:
        client = Redis.from_url(settings.redis, **options)
    if settings.redis.startswith("rediss:"):
        _encrypt(client, settings)
    return client


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


def _encrypt(client: Redis | RedisCluster, settings: Settings) -> None:
    tls = MountedTls(
        ca=settings.redis_ca_file,
        cert=settings.redis_cert_file,
        key=settings.redis_key_file,
        key_password=MountedSecret(settings.redis_key_password, settings.redis_key_password_file),
    )
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
