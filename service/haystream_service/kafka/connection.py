"""How Kafka is reached: the settings as arguments of aiokafka's clients and of a Faust app, in this one place."""

import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from typing import Any

import aiokafka.errors as kafka_errors
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import create_conn

from haystream_service.kafka import lenient_headers
from haystream_service.kafka.records import BrokerUnavailable
from haystream_service.mounted import MountedSecret, MountedTls
from haystream_service.settings import Settings

REFUSAL_MS = 5000
"""What a broker may take to let one in, or not, where somebody waits for the reason."""
READ_COMMITTED = "read_committed"
"""Of a transaction nothing is read before it is committed, and nothing at all if it is given up."""

lenient_headers.install()


def client_arguments(settings: Settings) -> dict[str, Any]:
    """The keyword arguments with which an aiokafka consumer, producer or admin client reaches Kafka.

    Raises:
        UserError: the certificates or the key cannot be used.
    """
    return {"bootstrap_servers": settings.kafka, **_security(settings)}


def consumer_arguments(settings: Settings) -> dict[str, Any]:
    """The same for a consumer: it reads what is committed, and commits nothing by itself."""
    return {**client_arguments(settings), "enable_auto_commit": False, "isolation_level": READ_COMMITTED}


def faust_arguments(settings: Settings) -> dict[str, Any]:
    """The keyword arguments with which a Faust app reaches Kafka. Raises as `client_arguments` does."""
    import faust
    from yarl import URL

    broker = [URL(f"kafka://{server}") for server in settings.kafka.split(",")]
    security = _security(settings)
    context = security.get("ssl_context")
    credentials: Any = None
    if settings.kafka_sasl:
        credentials = faust.SASLCredentials(
            mechanism=settings.kafka_sasl,
            username=settings.kafka_user,
            password=security["sasl_plain_password"],
            ssl_context=context,
        )
    elif context is not None:
        credentials = faust.SSLCredentials(context)
    return {"broker": broker, "broker_credentials": credentials}


@cache
def _security(settings: Settings) -> Mapping[str, Any]:
    """The arguments that say how one is let in, the same ones for every client.

    What was last read of a file outlives the client that read it: one that is made while a file is being written
    uses that, too.
    """
    arguments: dict[str, Any] = {}
    if settings.kafka_tls:
        arguments["ssl_context"] = MountedTls(
            ca=settings.kafka_ca_file,
            cert=settings.kafka_cert_file,
            key=settings.kafka_key_file,
            key_password=MountedSecret(settings.kafka_key_password, settings.kafka_key_password_file),
        )
    if settings.kafka_sasl:
        _LivePassword.install()
        arguments |= {
            "sasl_mechanism": settings.kafka_sasl,
            "sasl_plain_username": settings.kafka_user,
            "sasl_plain_password": MountedSecret(settings.kafka_password, settings.kafka_password_file),
        }
    protocol = f"{'SASL_' if settings.kafka_sasl else ''}{'SSL' if settings.kafka_tls else 'PLAINTEXT'}"
    return {"security_protocol": protocol, **arguments}


class _LivePassword:
    """Stands where aiokafka's client keeps its password, and answers with the one of this moment.

    A client lives as long as the process, and connects again with the password that it was made with. It is
    Faust that makes one of ours, so a class of our own would not reach it; the attribute does.
    """

    NAME = "_sasl_plain_password"

    @classmethod
    def install(cls) -> None:
        if not isinstance(AIOKafkaClient.__dict__.get(cls.NAME), cls):
            setattr(AIOKafkaClient, cls.NAME, cls())

    def __get__(self, client: Any, owner: type | None = None) -> Any:
        if client is None:
            return self
        kept = client.__dict__[self.NAME]
        return kept.read() if isinstance(kept, MountedSecret) else kept

    def __set__(self, client: Any, value: Any) -> None:
        client.__dict__[self.NAME] = value


async def start(client: AIOKafkaConsumer | AIOKafkaProducer) -> None:
    """Start a client; one that cannot be started is stopped, and what it raised is raised."""
    try:
        await client.start()
    except BaseException:
        await client.stop()
        raise


@contextmanager
def answering(failing: str) -> Iterator[None]:
    """Within it, what Kafka does not do becomes `BrokerUnavailable`, in words that begin with what is `failing`."""
    try:
        yield
    except (kafka_errors.KafkaError, OSError) as error:
        raise BrokerUnavailable(f"{failing}: {error!r}") from error


@asynccontextmanager
async def running(
    client: AIOKafkaConsumer | AIOKafkaProducer, failing: str = "Kafka stopped answering"
) -> AsyncIterator[None]:
    """Within it the client is started, and Kafka `answering`; at the end it is stopped."""
    try:
        with answering(failing):
            await client.start()
            yield
    finally:
        await client.stop()


async def refusal(settings: Settings) -> str | None:
    """Why Kafka does not let us in, in a sentence; None where it does, or where nobody answers at all."""
    arguments = dict(_security(settings))
    if "sasl_plain_password" in arguments:
        arguments["sasl_plain_password"] = arguments["sasl_plain_password"].read()
    for server in settings.kafka.split(","):
        host, _, port = server.rpartition(":")
        try:
            connection = await create_conn(host, int(port), request_timeout_ms=REFUSAL_MS, **arguments)
        except (kafka_errors.KafkaError, OSError, TimeoutError) as error:
            if (why := _refused(error, settings)) is not None:
                return f"Kafka at {server} does not let us in: {why}"
        else:
            connection.close()
            return None
    return None


def _refused(error: BaseException, settings: Settings) -> str | None:
    cause = error.__cause__ or error
    match cause:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted: {cause.verify_message} (HAYSTREAM_KAFKA_CA_FILE)"
        case ssl.SSLError() if "ALERT" in (cause.reason or ""):  # others come from a broker that is being stopped
            return f"TLS: {cause.reason} (HAYSTREAM_KAFKA_CERT_FILE)"
        case kafka_errors.SaslAuthenticationFailed():
            return f"it refuses user {settings.kafka_user!r} or the password (HAYSTREAM_KAFKA_PASSWORD)"
        case kafka_errors.UnsupportedSaslMechanismError() | kafka_errors.IllegalSaslStateError():
            return f"it does not take {settings.kafka_sasl} (HAYSTREAM_KAFKA_SASL)"
    return None
