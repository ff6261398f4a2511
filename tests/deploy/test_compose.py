"""docker-compose.yml: its file paths exist, its settings are ours, its servers are those that tests run on."""

import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn
from xml.etree import ElementTree

import pytest

from haystream_service.settings import PREFIX, Settings
from haystream_service.settings import load as load_settings

LEAVING_SECONDS = 10


@pytest.fixture(scope="session")
def services(load: Callable[[str], Any]) -> dict[str, Any]:
    """The compose file's services, by name."""
    found: dict[str, Any] = load("docker-compose.yml")["services"]
    return found


def test_it_holds_the_compose_schema(root: Path, unavailable: Callable[[str], NoReturn]) -> None:
    if find_spec("check_jsonschema") is None:
        unavailable("check-jsonschema is not installed (make install EXTRAS=dev,deploy)")
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*check, "docker-compose.yml"], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_api_is_what_the_worker_is_but_for_its_port_and_keys(services: dict[str, Any], root: Path) -> None:
    api, worker = services["api"], services["worker"]
    assert api["command"] == ["api"]
    assert api["profiles"] == ["api"]  # without a file of keys it would not start
    for name in ("build", "image", "read_only", "tmpfs", "cap_drop", "security_opt", "restart"):
        assert api[name] == worker[name], name
    environ = {**api["environment"], "HAYSTREAM_API_KEYS_FILE": str(root / "LICENSE")}
    settings = load_settings(environ=environ)
    assert api["ports"] == [f"127.0.0.1:{settings.api_port}:{settings.api_port}"]
    assert f"127.0.0.1:{settings.api_port}/healthz" in api["healthcheck"]["test"][-1]


def test_the_workers_environment_is_one_that_the_settings_accept(services: dict[str, Any]) -> None:
    environ = services["worker"]["environment"]
    assert {name.removeprefix(PREFIX).lower() for name in environ} <= Settings.model_fields.keys()
    settings = load_settings(environ=environ)
    assert settings.kafka.split(":")[0] in services
    assert services["worker"]["stop_grace_period"] == f"{settings.drain_seconds + LEAVING_SECONDS:g}s"


def test_the_worker_waits_for_healthy_servers(services: dict[str, Any]) -> None:
    for name, condition in services["worker"]["depends_on"].items():
        assert condition == {"condition": "service_healthy"}
        assert services[name]["healthcheck"]


def test_the_worker_has_no_rights_and_writes_to_two_folders_only(services: dict[str, Any]) -> None:
    worker = services["worker"]
    assert worker["read_only"] is True
    assert worker["tmpfs"] == ["/tmp", "/var/cache/haystream:uid=10001,gid=10001,mode=0700"]
    assert worker["cap_drop"] == ["ALL"]
    assert worker["security_opt"] == ["no-new-privileges:true"]


def test_kafka_is_the_version_that_the_tests_run_on(root: Path, services: dict[str, Any]) -> None:
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    pom = ElementTree.parse(root / "deploy" / "kafka" / "pom.xml")
    versions = {
        dependency.findtext("m:artifactId", namespaces=space): dependency.findtext("m:version", namespaces=space)
        for dependency in pom.iterfind(".//m:dependency", space)
    }
    assert services["kafka"]["image"] == f"apache/kafka:{versions['kafka_2.13']}"


def test_valkey_keeps_what_it_acknowledged(services: dict[str, Any]) -> None:
    command = services["valkey"]["command"]
    assert command[command.index("--appendonly") + 1] == "yes"
    assert services["valkey"]["volumes"]


def test_everything_comes_back_after_a_reboot(services: dict[str, Any]) -> None:
    assert {name: service.get("restart") for name, service in services.items()} == dict.fromkeys(
        services, "unless-stopped"
    )


def test_ports_are_open_to_this_machine_only(services: dict[str, Any]) -> None:
    ports = {name: service.get("ports", []) for name, service in services.items()}
    assert all(port.startswith("127.0.0.1:") for opened in ports.values() for port in opened)
    port = Settings().port
    assert ports["worker"] == [f"127.0.0.1:{port}:{port}"]


def test_images_are_pinned_and_mounted_files_exist(root: Path, services: dict[str, Any]) -> None:
    for service in services.values():
        if "build" not in service:
            assert not service["image"].endswith(":latest")
            assert ":" in service["image"]
        for volume in service.get("volumes", []):
            if volume.startswith("./"):
                assert (root / volume.split(":")[0]).exists(), volume
