"""What every test may ask for: real servers, and names in them that no other test uses.

A server that cannot be had skips the test, with the reason; where CI=true it fails it. `HAYSTREAM_KAFKA` and
`HAYSTREAM_REDIS` name servers to use instead of starting some. A server starts when a first test asks for it.
"""

import gc
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar
from uuid import uuid4

import hypothesis
import pytest
import pytest_asyncio
from aiokafka.admin import AIOKafkaAdminClient
from hypothesis import HealthCheck
from support.pipeline import Pipeline, admin_client, settings_on
from support.seeds import ANOTHER_FAULT, ANOTHER_SEED

import haystream
from haystream_service.local import KafkaServer, LocalServer, ServerUnavailable, ValkeyServer
from haystream_service.settings import Settings

IN_CI = os.environ.get("CI") == "true"

# No deadline: a shared machine's timings say nothing about the code.
hypothesis.settings.register_profile("laptop", deadline=None)
hypothesis.settings.register_profile(
    "ci", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis.settings.load_profile("ci" if IN_CI else "laptop")
COMPILED = "haystream/compiled"
"""Of what the machine code is that is on the disk, in pytest's cache."""
EXAMPLES = {"sample": 30, "all": 200}
"""Of each property, unless it says itself how many."""


@pytest.fixture(autouse=True, scope="module")
def _little_to_look_through() -> None:
    """Leave to itself what is there before a module's tests: whoever collects garbage looks through all else, which
    takes most of a second at the end of a long run."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    """How much of what could go on for ever is run."""
    parser.addoption("--schedules", type=int, default=100, help="simulated schedules (tests/simulation)")
    parser.addoption("--faults", choices=("sample", "all"), default="sample", help="of those that are alike")
    parser.addoption("--seeds", choices=("sample", "all"), default="sample", help="of tests that draw at random")
    parser.addoption("--api-examples", type=int, default=15, help="requests a route (test_schemathesis.py)")
    parser.addoption("--soak-seconds", type=float, default=1200.0, help="how long tests/faults/soak.py lasts")
    parser.addoption("--soak-seed", type=int, help="what it draws from")
    parser.addoption("--upgrade-from", help="a commit, for tests/faults/upgrade.py")
    parser.addoption("--first-schedule", type=int, default=0, help="the first one's seed")
    parser.addoption(
        "--kubernetes", action="store_true", help="start a Kubernetes API server (make test-kubernetes)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Have hypothesis draw as many examples as the seeds ask for."""
    name = "as many as asked"
    hypothesis.settings.register_profile(
        name, hypothesis.settings(), max_examples=EXAMPLES[config.getoption("seeds")]
    )
    hypothesis.settings.load_profile(name)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Have the inner loops compiled, once after each change of the core, and before any test's limit runs out.

    It is done in a process that then ends; those that run tests find the machine code on the disk.
    """
    if hasattr(session.config, "workerinput") or session.config.option.collectonly:
        return
    sources = Path(haystream.__file__).parent.rglob("*.py")
    compiled = [sys.version, max(source.stat().st_mtime_ns for source in sources)]
    cache = getattr(session.config, "cache", None)  # none with -p no:cacheprovider
    if cache is not None and cache.get(COMPILED, None) != compiled:
        session.config.get_terminal_writer().line(
            "compiling the inner loops, for a minute or two where they changed"
        )
        done = subprocess.run([sys.executable, "-c", "from haystream.warm import warm; warm()"])
        if done.returncode == 0:  # else the tests that need it say what is wrong
            cache.set(COMPILED, compiled)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files that take long come first: of several processes none has a long one when the others are done.

    Those that wait for servers stand evenly among those that compute: all along there is something to compute
    while something else is waited for.
    """
    for option, mark in (("seeds", ANOTHER_SEED), ("faults", ANOTHER_FAULT)):
        if config.getoption(option) != "all":
            config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker(mark)])
            items[:] = [item for item in items if not item.get_closest_marker(mark)]
    counts: dict[Path, list[int]] = {}
    for item in items:
        count = counts.setdefault(item.path, [0, 0, 0])
        for number, is_one in enumerate((item.get_closest_marker("slow"), item.get_closest_marker("kafka"), True)):
            count[number] -= bool(is_one)
    of_servers = {path: slow < 0 or kafka < 0 for path, (slow, kafka, _) in counts.items()}
    place: dict[Path, float] = {}
    for kind in (True, False):
        paths = sorted((path for path in counts if of_servers[path] == kind), key=counts.__getitem__)
        place |= {path: number / len(paths) for number, path in enumerate(paths)}
    items.sort(key=lambda item: (place[item.path], item.path))


SHOWN = "shown"


@pytest.fixture
def shown(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """To be called with what a test has to say beside whether it passed; it is printed at the end."""
    return lambda text: record_property(SHOWN, text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was `shown`, of tests that ran in another process too."""
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for text in (text for name, text in report.user_properties if name == SHOWN):
                terminalreporter.write_line(f"{report.nodeid}\n{text}\n")


@dataclass(frozen=True, slots=True)
class NamedKafka:
    """A Kafka that was running before the tests and is left alone by them."""

    bootstrap: str


@dataclass(frozen=True, slots=True)
class NamedValkey:
    """A Valkey or Redis that was running before the tests and is left alone by them."""

    url: str


AT_ONCE = {"log.cleaner.backoff.ms": "200"}
"""What compacts a topic that is to be compacted without waiting for 15 seconds first."""

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
    with started(KafkaServer(fast_start=True, settings=AT_ONCE)) as server:
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


@pytest.fixture
def settings(kafka: KafkaServer | NamedKafka, valkey: ValkeyServer | NamedValkey, topic_prefix: str) -> Settings:
    """A worker's, on the shared servers. A file that needs other servers makes its own with `settings_on`."""
    return settings_on(kafka, valkey, topic_prefix)


@pytest_asyncio.fixture
async def pipeline(settings: Settings) -> AsyncIterator[Pipeline]:
    """The topics of `settings`, and workers on them."""
    async with Pipeline(settings) as pipeline:
        yield pipeline


@pytest_asyncio.fixture
async def admin(settings: Settings) -> AsyncIterator[AIOKafkaAdminClient]:
    """Who may change topics."""
    async with admin_client(settings) as admin:
        yield admin


@pytest.fixture
def password(tmp_path: Path) -> Path:
    """The file of a user's password."""
    file = tmp_path / "password"
    file.write_text("S3cret\n")
    return file
