"""The manifests: what has to agree agrees, and the schemas of Kubernetes hold."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

from haystream_service.metrics import TABLE
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


[REBUILD] = OBJECTS["CronJob", "haystream-rebuild"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
OVERLAYS = ["overlays/dev", "overlays/production"]
PASSWORDS = "/etc/haystream/passwords"


def config_map(folder: str) -> dict[str, str]:
    """The literals of the kustomization's one config map."""
    [generated] = yaml.safe_load((ROOT / "k8s" / folder / "kustomization.yaml").read_text())["configMapGenerator"]
    assert generated["name"] == "haystream-worker"
    return dict(literal.split("=", 1) for literal in generated["literals"])


@pytest.mark.parametrize("folder", ["base", "overlays/production"])
def test_the_environment_is_one_that_the_settings_accept(folder: str, tmp_path: Path) -> None:
    environ = {name: value or "worker-0" for name, value in (config_map(folder) | ENV).items()}
    assert {name.removeprefix(PREFIX).lower() for name in environ} <= Settings.model_fields.keys()
    for name in ("kafka", "redis"):
        (tmp_path / name).write_text("secret")
    environ = {name: value.replace(PASSWORDS, str(tmp_path)) for name, value in environ.items()}
    load_settings(environ=environ)


def test_no_service_puts_its_address_into_a_setting() -> None:
    """A Service named `haystream` would set HAYSTREAM_PORT=tcp://… in the pods of its namespace."""
    assert POD["enableServiceLinks"] is False


def test_a_worker_comes_back_under_the_name_it_had() -> None:
    [identity] = [variable for variable in WORKER["env"] if variable["name"] == "HAYSTREAM_INSTANCE_ID"]
    assert identity["valueFrom"] == {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}


def test_the_grace_period_is_the_drain_and_what_leaving_takes() -> None:
    from haystream_service.worker.stopping import STOP_SECONDS

    drain = load_settings(environ={name: value for name, value in ENV.items() if value}).drain_seconds
    assert drain == Settings().drain_seconds
    assert POD["terminationGracePeriodSeconds"] == drain + LEAVING_SECONDS
    assert STOP_SECONDS < LEAVING_SECONDS


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
    assert OBJECTS["PodDisruptionBudget", "haystream-worker"]["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_nobody_who_scales_is_undone_by_an_apply() -> None:
    assert "replicas" not in STATEFUL_SET["spec"]
    for folder in OVERLAYS:
        assert "replicas" not in yaml.safe_load((ROOT / "k8s" / folder / "kustomization.yaml").read_text())


def test_the_rebuild_is_what_the_worker_is_and_waits_to_be_called() -> None:
    job = OBJECTS["CronJob", "haystream-rebuild"]["spec"]
    pod = job["jobTemplate"]["spec"]["template"]["spec"]
    assert job["suspend"] is True
    assert REBUILD["args"] == ["rebuild", "--yes"]
    for name in ("image", "envFrom", "resources", "securityContext", "volumeMounts"):
        assert REBUILD[name] == WORKER[name], name
    for name in ("enableServiceLinks", "automountServiceAccountToken", "securityContext", "volumes"):
        assert pod[name] == POD[name], name


def test_the_worker_has_no_rights_and_writes_to_two_folders_only() -> None:
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert POD["automountServiceAccountToken"] is False
    assert WORKER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounts = {mount["name"]: mount["mountPath"] for mount in WORKER["volumeMounts"]}
    assert mounts == {"tmp": "/tmp", "kernels": "/var/cache/haystream"}
    assert {volume["name"] for volume in POD["volumes"] if "emptyDir" in volume} == mounts.keys()


def test_the_worker_has_a_memory_limit_and_no_cpu_limit() -> None:
    assert WORKER["resources"]["limits"].keys() == {"memory", "ephemeral-storage"}
    assert WORKER["resources"]["requests"].keys() == {"cpu", "memory", "ephemeral-storage"}


def test_queries_are_put_away_before_the_memory_limit_is_reached() -> None:
    limit = WORKER["resources"]["limits"]["memory"]
    assert limit.endswith("Gi")
    assert int(config_map("base")["HAYSTREAM_MEMORY_MIB"]) == int(limit.removesuffix("Gi")) * 1024 * 3 // 4


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


@pytest.mark.parametrize("folder", ["base", *OVERLAYS])
def test_kustomizations_render_to_objects_that_hold_the_schemas(
    folder: str, unavailable: Callable[[str], NoReturn]
) -> None:
    objects = rendered(folder)
    assert {entry["kind"] for entry in objects} >= {"ConfigMap", "Service", "StatefulSet", "PodDisruptionBudget"}
    for entry in objects:
        if entry["apiVersion"] != "monitoring.coreos.com/v1":  # the operator's, not Kubernetes' own
            holds_schema(entry, unavailable)


def objects_of(folder: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The kustomization's objects by kind and name; those with a hash in their name, by the name before it."""
    return {
        (
            entry["kind"],
            re.sub(r"-[a-z0-9]{10}$", "", name) if entry["kind"] in {"ConfigMap", "Secret"} else name,
        ): entry
        for entry in rendered(folder)
        for name in [entry["metadata"]["name"]]
    }


@pytest.mark.parametrize("folder", OVERLAYS)
def test_an_overlay_makes_its_namespace_and_needs_no_operator(folder: str) -> None:
    objects = objects_of(folder)
    [namespace] = [entry for (kind, _), entry in objects.items() if kind == "Namespace"]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    others = [entry for entry in objects.values() if entry is not namespace]
    assert {entry["metadata"]["namespace"] for entry in others} == {namespace["metadata"]["name"]}
    assert not any(entry["apiVersion"].startswith("monitoring.coreos.com") for entry in others)
    deny = objects["NetworkPolicy", "deny"]["spec"]
    assert deny == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


@pytest.mark.parametrize("folder", OVERLAYS)
def test_worker_and_rebuild_read_the_settings_that_were_generated(folder: str) -> None:
    """By a name that ends in a hash: a ConfigMap or Secret that changes is another, and the workers restart."""
    objects = objects_of(folder)
    generated = {kind: objects[kind, "haystream-worker"]["metadata"]["name"] for kind in ("ConfigMap", "Secret")}
    assert all(name != "haystream-worker" for name in generated.values())
    worker = objects["StatefulSet", "haystream-worker"]["spec"]["template"]["spec"]["containers"][0]
    job = objects["CronJob", "haystream-rebuild"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][
        0
    ]
    for container in (worker, job):
        assert ":" in container["image"].rsplit("/", 1)[1]
        assert container["envFrom"] == [
            {"configMapRef": {"name": generated["ConfigMap"]}},
            {"secretRef": {"name": generated["Secret"]}},
        ]


def test_production_refers_to_what_others_make() -> None:
    objects = objects_of("overlays/production")
    worker = objects["StatefulSet", "haystream-worker"]["spec"]["template"]["spec"]
    job = objects["CronJob", "haystream-rebuild"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert worker["priorityClassName"] == "haystream"
    for pod in (worker, job):
        assert pod["imagePullSecrets"] == [{"name": "haystream-registry"}]
        assert {"name": "passwords", "secret": {"secretName": "haystream-passwords"}} in pod["volumes"]
        assert {"name": "passwords", "mountPath": PASSWORDS, "readOnly": True} in pod["containers"][0][
            "volumeMounts"
        ]


def test_the_servers_of_dev_are_those_of_the_compose_file(load: Callable[[str], Any]) -> None:
    objects, services = objects_of("overlays/dev"), load("docker-compose.yml")["services"]
    for name in ("kafka", "valkey"):
        container = objects["StatefulSet", name]["spec"]["template"]["spec"]["containers"][0]
        assert container["image"] == services[name]["image"]
    ports = {name: objects["Service", name]["spec"]["ports"][0]["port"] for name in ("kafka", "valkey")}
    assert config_map("base")["HAYSTREAM_KAFKA"] == f"kafka:{ports['kafka']}"
    assert config_map("base")["HAYSTREAM_REDIS"] == f"redis://valkey:{ports['valkey']}/0"


def test_the_network_lets_the_worker_reach_its_servers_and_prometheus_reach_it(load: Callable[[str], Any]) -> None:
    labels = STATEFUL_SET["spec"]["template"]["metadata"]["labels"] | {"app.kubernetes.io/name": "haystream"}
    policies = [
        *(entry for (kind, _), entry in OBJECTS.items() if kind == "NetworkPolicy"),
        load("k8s/components/monitoring/network-policy.yaml"),
    ]
    assert all(policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items() for policy in policies)
    deny, servers, metrics = (policy["spec"] for policy in policies)
    assert deny["policyTypes"] == ["Ingress", "Egress"]
    assert {port["port"] for rule in servers["egress"] for port in rule["ports"]} == {53, 9092, 6379}
    assert [port["port"] for port in metrics["ingress"][0]["ports"]] == [Settings().port]


def scaled_object() -> dict[str, Any]:
    [entry] = yaml.safe_load_all((ROOT / "k8s" / "components" / "scaling" / "scaled-object.yaml").read_text())
    spec: dict[str, Any] = entry["spec"]
    return spec


def test_no_more_workers_are_made_than_there_are_partitions_and_slowly() -> None:
    spec = scaled_object()
    assert spec["scaleTargetRef"]["name"] == STATEFUL_SET["metadata"]["name"]
    configured = config_map("base") | config_map("overlays/production")
    partitions = int(configured.get("HAYSTREAM_PARTITIONS", Settings().partitions))
    assert 1 <= spec["minReplicaCount"] <= spec["maxReplicaCount"] == partitions
    up = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleUp"]
    assert up["stabilizationWindowSeconds"] >= 60
    assert [policy["value"] for policy in up["policies"]] == [1]


def test_workers_are_scaled_by_metrics_that_there_are() -> None:
    samples = {metric.name for metric in TABLE}
    for trigger in scaled_object()["triggers"]:
        used = set(re.findall(r"haystream_\w+", trigger["metadata"]["query"]))
        assert used
        assert used <= samples


def with_component(path: str, folder: Path) -> list[dict[str, Any]]:
    """The objects of the production overlay with a component, as in a folder of somebody's own."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not on the PATH")
    root = Path(os.path.relpath(ROOT, folder.resolve()))
    (folder / "kustomization.yaml").write_text(
        f"resources: [{root}/k8s/overlays/production]\ncomponents: [{root}/{path}]\nnamespace: haystream\n"
    )
    done = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def test_the_scaling_component_belongs_to_an_overlay(tmp_path: Path) -> None:
    objects = with_component("k8s/components/scaling", tmp_path)
    [scaled] = [entry for entry in objects if entry["kind"] == "ScaledObject"]
    assert scaled["metadata"]["namespace"] == "haystream"


def test_every_dashboard_is_a_config_map_that_grafana_looks_for(tmp_path: Path) -> None:
    objects = with_component("deploy/grafana/dashboards", tmp_path)
    found = [entry for entry in objects if entry["metadata"].get("labels", {}).get("grafana_dashboard") == "1"]
    shipped = {file.name: file.read_text() for file in (ROOT / "deploy" / "grafana" / "dashboards").glob("*.json")}
    assert {name: text for entry in found for name, text in entry["data"].items()} == shipped


API = {
    (entry["kind"], entry["metadata"]["name"]): entry
    for name in yaml.safe_load((ROOT / "k8s/components/api/kustomization.yaml").read_text())["resources"]
    for entry in yaml.safe_load_all((ROOT / "k8s/components/api" / name).read_text())
}
API_POD = API["Deployment", "haystream-api"]["spec"]["template"]["spec"]


@pytest.mark.parametrize("key", API, ids="/".join)
def test_manifests_of_the_api_hold_the_schemas_of_kubernetes(
    key: tuple[str, str], unavailable: Callable[[str], NoReturn]
) -> None:
    holds_schema(API[key], unavailable)


def test_the_api_has_the_settings_and_the_rights_of_the_worker() -> None:
    [api] = API_POD["containers"]
    for name in ("image", "envFrom", "securityContext"):
        assert api[name] == WORKER[name], name
    for name in ("enableServiceLinks", "automountServiceAccountToken"):
        assert API_POD[name] == POD[name], name
    assert API_POD["securityContext"].items() >= POD["securityContext"].items()
    assert {mount["mountPath"] for mount in api["volumeMounts"] if not mount.get("readOnly")} == {
        mount["mountPath"] for mount in WORKER["volumeMounts"]
    }
    environ = {variable["name"]: variable["value"] for variable in api["env"]}
    environ["HAYSTREAM_API_KEYS_FILE"] = str(ROOT / "LICENSE")
    settings = load_settings(environ=environ)
    ports = {port["name"]: port["containerPort"] for port in api["ports"]}
    assert ports == {"api": settings.api_port, "http": settings.port}


def test_what_is_about_the_api_selects_it(load: Callable[[str], Any]) -> None:
    labels = API["Deployment", "haystream-api"]["spec"]["template"]["metadata"]["labels"]
    assert API["Service", "haystream-api"]["spec"]["selector"] == labels
    assert API["PodDisruptionBudget", "haystream-api"]["spec"]["selector"]["matchLabels"] == labels
    assert API["NetworkPolicy", "haystream-api"]["spec"]["podSelector"]["matchLabels"] == labels
    scaler = API["HorizontalPodAutoscaler", "haystream-api"]["spec"]
    assert scaler["scaleTargetRef"]["name"] == "haystream-api"
    assert scaler["minReplicas"] >= 2
    assert "replicas" not in API["Deployment", "haystream-api"]["spec"]
    monitor = load("k8s/components/monitoring/api-monitor.yaml")["spec"]
    assert monitor["selector"]["matchLabels"] == API["Service", "haystream-api"]["metadata"]["labels"]
    [endpoint] = monitor["endpoints"]
    assert endpoint["port"] in {port["name"] for port in API["Service", "haystream-api"]["spec"]["ports"]}


def test_the_grace_period_of_the_api_is_what_it_takes_to_be_forgotten_and_to_end() -> None:
    from haystream_service.api.serve import GRACE_SECONDS

    [api] = API_POD["containers"]
    forgotten = int(api["lifecycle"]["preStop"]["exec"]["command"][1])
    assert API_POD["terminationGracePeriodSeconds"] >= forgotten + GRACE_SECONDS + LEAVING_SECONDS


def test_the_api_belongs_to_an_overlay(tmp_path: Path) -> None:
    """As it is in production, with the line of the component let in."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH")
    shutil.copytree(ROOT / "k8s", tmp_path / "k8s")
    overlay = tmp_path / "k8s" / "overlays" / "production"
    file = overlay / "kustomization.yaml"
    file.write_text(file.read_text().replace("# - ../../components/api", "- ../../components/api"))
    done = subprocess.run(["kubectl", "kustomize", overlay], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    objects = list(yaml.safe_load_all(done.stdout))
    [deployment] = [entry for entry in objects if entry["kind"] == "Deployment"]
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert deployment["metadata"]["namespace"] == "haystream"
    assert ":" in container["image"].rsplit("/", 1)[1]
    assert container["envFrom"][0]["configMapRef"]["name"] != "haystream-worker"
    # It logs in to Kafka as the user that docs/operations.md gives rights to, who is not the workers'.
    [settings] = [entry["data"] for entry in objects if entry["kind"] == "ConfigMap"]
    login = {each["name"]: each["value"] for each in container["env"] if "KAFKA" in each["name"]}
    assert f"User:{login['HAYSTREAM_KAFKA_USER']} " in (ROOT / "docs" / "operations.md").read_text()
    assert {name: settings[name] != value for name, value in login.items()} == dict.fromkeys(login, True)
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {str(Path(value).parent) for value in login.values() if value.startswith("/")} <= mounts
