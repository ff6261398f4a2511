"""Real servers for demos and tests on 127.0.0.1, in temporary folders: Apache Kafka, Valkey, and haystream's own.

Nothing here is asynchronous but `starting`. Every failure that a user can do something about is a
`ServerUnavailable` whose text says what is missing and what helps.
"""

from haystream_service.local.jars import fetch_jars
from haystream_service.local.kafka import KafkaServer
from haystream_service.local.process import LocalServer, ServerUnavailable, free_port
from haystream_service.local.valkey import ValkeyServer

__all__ = ["KafkaServer", "LocalServer", "ServerUnavailable", "ValkeyServer", "fetch_jars", "free_port"]
