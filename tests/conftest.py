"""What every test may ask for: real servers, and names in them that no other test uses.

A server that cannot be had skips the test, with the reason; where CI=true it fails it. `HAYSTREAM_KAFKA` and
`HAYSTREAM_REDIS` name servers to use instead of starting some. A server starts when a first test asks for it.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import NoReturn, TypeVar
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

from haystream_service.local import KafkaServer, LocalServer, ServerUnavailable, ValkeyServer

IN_CI = os.environ.get("CI") == "true"

# No deadline: a shared machine's timings say nothing about the code.
settings.register_profile("laptop", deadline=None)
settings.register_profile(
    "ci", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ci" if IN_CI else "laptop")


def pytest_addoption(parser: pytest.Parser) -> None:
    """How much of what could go on for ever is run."""
    parser.addoption("--schedules", type=int, default=200, help="simulated schedules (tests/simulation)")
    parser.addoption("--faults", choices=("sample", "all"), default="sample", help="which faults (tests/faults)")
    parser.addoption("--soak-seconds", type=float, default=1200.0, help="how long tests/faults/soak.py lasts")
    parser.addoption("--soak-seed", type=int, help="what it draws from")
    parser.addoption("--first-schedule", type=int, default=0, help="the first one's seed")
    parser.addoption(
        "--kubernetes", action="store_true", help="start a Kubernetes API server (make test-kubernetes)"
    )


@dataclass(frozen=True, slots=True)
class NamedKafka:
    """A Kafka that was running before the tests and is left alone by them."""

    bootstrap: str


@dataclass(frozen=True, slots=True)
class NamedValkey:
    """A Valkey or Redis that was running before the tests and is left alone by them."""

    url: str


Server = TypeVar("Server", bound=LocalServer)


def _unavailable(reason: str) -> NoReturn:
    if IN_CI:
        pytest.fail(f"CI has to have it: {reason}", pytrace=False)
    pytest.skip(reason)


@contextmanager
def started(server: Server) -> Iterator[Server]:
    """The server, running; where it cannot be had the test is skipped, and in CI fails."""
    with closing(server):
        try:
            server.start()
        except ServerUnavailable as missing:
            _unavailable(str(missing))
        yield server


@pytest.fixture(scope="session")
def unavailable() -> Callable[[str], NoReturn]:
    """To be called with a reason where a test lacks a tool: skips it, and in CI fails it."""
    return _unavailable


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaServer | NamedKafka]:
    """The shared Kafka: `.bootstrap`. Do not stop it; ask for `own_kafka` to break one."""
    named = os.environ.get("HAYSTREAM_KAFKA")
    if named:
        yield NamedKafka(named)
        return
    with started(KafkaServer(fast_start=True)) as server:
        yield server


@pytest.fixture(scope="session")
def valkey() -> Iterator[ValkeyServer | NamedValkey]:
    """The shared Valkey: `.url`. Do not stop or flush it; ask for `own_valkey` to break one."""
    named = os.environ.get("HAYSTREAM_REDIS")
    if named:
        yield NamedValkey(named)
        return
    with started(ValkeyServer()) as server:
        yield server


@pytest.fixture(scope="session")
def redis_url(valkey: ValkeyServer | NamedValkey) -> str:
    """The address of the shared Valkey."""
    return valkey.url


@pytest.fixture
def own_kafka() -> Iterator[KafkaServer]:
    """A Kafka for this test alone, to be stopped, killed and restarted."""
    with started(KafkaServer(fast_start=True)) as server:
        yield server


@pytest.fixture
def own_valkey() -> Iterator[ValkeyServer]:
    """A Valkey for this test alone, to be stopped, killed and restarted."""
    with started(ValkeyServer()) as server:
        yield server


@pytest.fixture
def topic_prefix() -> str:
    """`Settings.topic_prefix` of this test alone; also a name for its consumer group."""
    return f"test-{uuid4().hex[:12]}"


@pytest.fixture
def redis_prefix() -> str:
    """`Settings.redis_prefix` of this test alone."""
    return f"test-{uuid4().hex[:12]}"
