"""How the settings become arguments of aiokafka's clients and of Faust."""

from pathlib import Path

import faust
import pytest

import haystream_service
from haystream_service.kafka_connection import client_arguments, faust_arguments
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


def test_every_client_is_made_with_these_arguments():
    root = Path(haystream_service.__file__).parent
    others = [path.name for path in root.rglob("*.py") if "bootstrap_servers" in path.read_text()]
    assert others == ["kafka_connection.py"]
