"""How the settings become arguments of aiokafka's clients and of Faust."""

import ssl
from pathlib import Path

import faust
import pytest
from support.certificates import Authority

import haystream_service
from haystream_service.errors import UserError
from haystream_service.kafka.connection import client_arguments, faust_arguments
from haystream_service.settings import Settings

SASL = {"kafka_sasl": "SCRAM-SHA-512", "kafka_user": "me", "kafka_password": "S3cret"}


@pytest.mark.parametrize(
    ("given", "protocol"),
    [
        ({}, "PLAINTEXT"),
        ({"kafka_tls": True}, "SSL"),
        (SASL, "SASL_PLAINTEXT"),
        ({"kafka_tls": True, **SASL}, "SASL_SSL"),
    ],
)
def test_the_protocol_is_what_was_asked_for(given, protocol):
    settings = Settings(**given)
    assert client_arguments(settings)["security_protocol"] == protocol
    credentials = faust_arguments(settings)["broker_credentials"]
    assert protocol == (credentials.protocol.value if credentials else "PLAINTEXT")
    if "SASL" in protocol:
        assert isinstance(credentials, faust.SASLCredentials)
        assert credentials.mechanism.value == "SCRAM-SHA-512"
    assert "S3cret" not in repr((client_arguments(settings), credentials, vars(credentials or faust)))


def trusted(context: ssl.SSLContext) -> list[str]:
    """The names of those whom a connection that is made now trusts."""
    connection = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="localhost")
    return [dict(part for (part,) in known["subject"])["commonName"] for known in connection.context.get_ca_certs()]


def test_a_client_that_is_made_while_files_are_written_uses_what_was_last_in_them(tmp_path, caplog):
    mounted, password = tmp_path / "mounted.pem", tmp_path / "password"
    mounted.write_bytes(Authority(tmp_path, "first").ca.read_bytes())
    password.write_text("S3cret")
    given = {**SASL, "kafka_password": None, "kafka_password_file": password}
    settings = Settings(kafka_tls=True, kafka_ca_file=mounted, **given)
    early = client_arguments(settings)
    assert early["sasl_plain_password"].read() == "S3cret"
    mounted.write_text("-----BEGIN CERT")
    password.unlink()
    late = client_arguments(settings)
    assert trusted(early["ssl_context"]) == trusted(late["ssl_context"]) == ["first"]
    assert late["sasl_plain_password"].read() == "S3cret"
    assert "cannot be used" in caplog.text
    mounted.write_bytes(Authority(tmp_path, "second").ca.read_bytes())
    password.write_text("another")
    assert trusted(early["ssl_context"]) == trusted(late["ssl_context"]) == ["second"]
    assert late["sasl_plain_password"].read() == "another"


def test_files_that_cannot_be_used_from_the_start_are_told_of(tmp_path):
    mounted = tmp_path / "mounted.pem"
    mounted.write_text("-----BEGIN CERT")
    with pytest.raises(UserError, match=r"mounted\.pem cannot be used"):
        client_arguments(Settings(kafka_tls=True, kafka_ca_file=mounted))


def test_every_client_is_made_with_these_arguments():
    root = Path(haystream_service.__file__).parent
    others = [path.name for path in root.rglob("*.py") if "bootstrap_servers" in path.read_text()]
    assert others == ["connection.py"]
