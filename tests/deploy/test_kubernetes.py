"""The manifests: what has to agree agrees, and the schemas of Kubernetes hold."""

import shutil
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

from haystream_service.settings import PREFIX, Settings
from haystream_service.settings import load as load_settings

ROOT = Path(__file__).parents[2]
BASE = ROOT / "k8s" / "base"
LEAVING_SECONDS = 10
"""What a worker needs after its drain: leaving the consumer group, closing connections."""
OLDEST_KUBERNETES = "1.29"

OBJECTS = {
    (entry["kind"], entry["metadata"]["name"]): entry
    for name in yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    for entry in yaml.safe_load_all((BASE / name).read_text())
}
STATEFUL_SET = OBJECTS["StatefulSet", "haystream-worker"]
POD = STATEFUL_SET["spec"]["template"]["spec"]
[WORKER] = POD["containers"]
ENV = {variable["name"]: variable.get("value") for variable in WORKER["env"]}


def config_map(folder: str) -> dict[str, str]:
    """The literals of the kustomization's one config map."""
    [generated] = yaml.safe_load((ROOT / "k8s" / folder / "kustomization.yaml").read_text())["configMapGenerator"]
    assert generated["name"] == "haystream-worker"
    return dict(literal.split("=", 1) for literal in generated["literals"])


@pytest.mark.parametrize("folder", ["base", "overlays/example"])
def test_the_environment_is_one_that_the_settings_accept(folder: str) -> None:
    environ = {name: value or "worker-0" for name, value in (config_map(folder) | ENV).items()}
    assert {name.removeprefix(PREFIX).lower() for name in environ} <= Settings.model_fields.keys()
    load_settings(environ=environ)


def test_no_service_puts_its_address_into_a_setting() -> None:
    """A Service named `haystream` would set HAYSTREAM_PORT=tcp://… in the pods of its namespace."""
    assert POD["enableServiceLinks"] is False


def test_a_worker_comes_back_under_the_name_it_had() -> None:
    [identity] = [variable for variable in WORKER["env"] if variable["name"] == "HAYSTREAM_INSTANCE_ID"]
    assert identity["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}


def test_the_grace_period_is_the_drain_and_what_leaving_takes() -> None:
    drain = load_settings(environ={name: value for name, value in ENV.items() if value}).drain_seconds
    assert drain == Settings().drain_seconds
    assert POD["terminationGracePeriodSeconds"] == drain + LEAVING_SECONDS


@pytest.mark.parametrize(
    ("probe", "path"),
    [("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")],
)
def test_probes_ask_the_worker_where_it_serves(probe: str, path: str) -> None:
    [port] = WORKER["ports"]
    assert WORKER[probe]["httpGet"] == {"path": path, "port": port["name"]}
    assert port["containerPort"] == int(ENV["HAYSTREAM_PORT"] or 0) == Settings().port
    assert ENV["HAYSTREAM_HOST"] == "0.0.0.0"


def test_a_live_worker_that_computes_for_half_a_minute_is_not_killed() -> None:
    probe = WORKER["livenessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 30


def test_the_service_the_budget_and_the_monitor_select_the_worker(load: Callable[[str], Any]) -> None:
    labels = STATEFUL_SET["spec"]["template"]["metadata"]["labels"]
    service = OBJECTS["Service", "haystream-worker"]
    assert STATEFUL_SET["spec"]["serviceName"] == service["metadata"]["name"]
    assert STATEFUL_SET["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["selector"] == labels
    assert OBJECTS["PodDisruptionBudget", "haystream-worker"]["spec"]["selector"]["matchLabels"] == labels
    monitor = load("k8s/components/monitoring/service-monitor.yaml")["spec"]
    [endpoint] = monitor["endpoints"]
    assert endpoint["port"] == service["spec"]["ports"][0]["name"]
    assert endpoint["path"] == "/metrics"
    assert monitor["selector"]["matchLabels"].items() >= service["metadata"]["labels"].items()


def test_a_drain_of_nodes_takes_one_worker_at_a_time() -> None:
    assert OBJECTS["PodDisruptionBudget", "haystream-worker"]["spec"]["maxUnavailable"] == 1
    assert STATEFUL_SET["spec"]["replicas"] > 1


def test_the_worker_has_no_rights_and_writes_only_to_tmp() -> None:
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert POD["automountServiceAccountToken"] is False
    assert WORKER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    [mount] = WORKER["volumeMounts"]
    [volume] = POD["volumes"]
    assert (mount["name"], mount["mountPath"]) == (volume["name"], "/tmp")
    assert "emptyDir" in volume


def test_the_worker_has_a_memory_limit_and_no_cpu_limit() -> None:
    assert WORKER["resources"]["limits"].keys() == {"memory"}
    assert WORKER["resources"]["requests"].keys() == {"cpu", "memory"}


def rendered(folder: str) -> list[dict[str, Any]]:
    """The kustomization's objects, where kubectl is there to render them."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not on the PATH")
    done = subprocess.run([kubectl, "kustomize", f"k8s/{folder}"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def holds_schema(entry: dict[str, Any], unavailable: Callable[[str], NoReturn]) -> None:
    if find_spec("kubernetes_validate") is None:
        unavailable("kubernetes-validate is not installed (make install EXTRAS=dev,deploy)")
    import kubernetes_validate

    for version in (OLDEST_KUBERNETES, kubernetes_validate.latest_version()):
        kubernetes_validate.validate(entry, version, strict=True)


@pytest.mark.parametrize("key", OBJECTS, ids="/".join)
def test_manifests_hold_the_schemas_of_kubernetes(
    key: tuple[str, str], unavailable: Callable[[str], NoReturn]
) -> None:
    holds_schema(OBJECTS[key], unavailable)


@pytest.mark.parametrize("folder", ["base", "overlays/example"])
def test_kustomizations_render_to_objects_that_hold_the_schemas(
    folder: str, unavailable: Callable[[str], NoReturn]
) -> None:
    objects = rendered(folder)
    assert {entry["kind"] for entry in objects} >= {"ConfigMap", "Service", "StatefulSet", "PodDisruptionBudget"}
    for entry in objects:
        if entry["kind"] != "ServiceMonitor":  # the operator's, not Kubernetes' own
            holds_schema(entry, unavailable)


def test_the_example_says_where_everything_is() -> None:
    objects = {entry["kind"]: entry for entry in rendered("overlays/example")}
    worker = objects["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]
    assert ":" in worker["image"].rsplit("/", 1)[1]
    [generated, _] = worker["envFrom"]
    assert generated["configMapRef"]["name"] == objects["ConfigMap"]["metadata"]["name"]
    assert {entry["metadata"]["namespace"] for entry in objects.values()} == {"haystream"}
