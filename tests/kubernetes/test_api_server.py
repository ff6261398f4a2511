"""The manifests and the commands of the pages for operators, against a real API server."""

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.operator_pages import operator_pages

ROOT = Path(__file__).parents[2]
NAMESPACES = {"dev": "haystream-dev", "production": "haystream"}
"""By overlay."""
NEEDS_PODS = ("rollout status", "logs", "wait", "exec")
"""Commands that wait for what only runs in a cluster."""

Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]


def commands() -> list[str]:
    """Every kubectl command of the pages for operators, in their order."""
    found = re.findall(r"^ {4,}(kubectl .*)$", operator_pages(), re.MULTILINE)
    return [command for command in dict.fromkeys(found) if not any(f" {words}" in command for words in NEEDS_PODS)]


@pytest.fixture(scope="session")
def pasted(kubeconfig: Path) -> dict[str, "subprocess.CompletedProcess[str]"]:
    """What each command of the page said, one after the other."""
    environment = os.environ | {"KUBECONFIG": str(kubeconfig)}
    return {
        command: subprocess.run(
            command, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        for command in commands()
    }


@pytest.mark.parametrize("command", commands())
def test_the_page_works_as_pasted(command: str, pasted: "dict[str, subprocess.CompletedProcess[str]]") -> None:
    done = pasted[command]
    assert done.returncode == 0, done.stderr
    # A pod that restricted Pod Security would refuse is warned of when its template is applied.
    said = [line for line in done.stderr.splitlines() if "version difference" not in line]
    assert said == []


@pytest.mark.usefixtures("pasted")
def test_an_apply_does_not_undo_a_scale(kubectl: Kubectl) -> None:
    for replicas in ("5", "2"):
        assert kubectl("-n", "haystream", "scale", "statefulset/haystream-worker", f"--replicas={replicas}").stdout
        assert kubectl("apply", "-k", "k8s/overlays/production").returncode == 0
        path = "jsonpath={.spec.replicas}"
        assert kubectl("-n", "haystream", "get", "statefulset/haystream-worker", "-o", path).stdout == replicas


def pods(kubectl: Kubectl, namespace: str) -> dict[str, dict[str, Any]]:
    """A pod of each template in the namespace, as its controller would make it."""
    found = yaml.safe_load(kubectl("-n", namespace, "get", "statefulset,deployment,cronjob", "-o", "yaml").stdout)[
        "items"
    ]
    made = {}
    for entry in found:
        spec = entry["spec"]
        template = spec["template"] if "template" in spec else spec["jobTemplate"]["spec"]["template"]
        name = entry["metadata"]["name"]
        volumes = [
            {"name": claim["metadata"]["name"], "emptyDir": {}} for claim in spec.get("volumeClaimTemplates", [])
        ]
        pod_spec = template["spec"] | {"volumes": template["spec"].get("volumes", []) + volumes}
        made[name] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-try", "labels": template["metadata"]["labels"]},
            "spec": pod_spec,
        }
    return made


@pytest.mark.usefixtures("pasted")
@pytest.mark.parametrize(
    ("namespace", "names"),
    [
        ("haystream", {"haystream-worker", "haystream-rebuild"}),
        ("haystream-dev", {"haystream-worker", "haystream-rebuild", "kafka", "valkey"}),
    ],
)
def test_every_pod_is_admitted_where_restricted_is_enforced(
    kubectl: Kubectl, namespace: str, names: set[str]
) -> None:
    made = pods(kubectl, namespace)
    assert made.keys() == names
    for pod in made.values():
        done = kubectl("-n", namespace, "create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(pod))
        assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("pasted")
def test_a_pod_with_more_rights_is_refused(kubectl: Kubectl) -> None:
    pod = copy.deepcopy(pods(kubectl, "haystream")["haystream-worker"])
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    done = kubectl("-n", "haystream", "create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(pod))
    assert done.returncode != 0
    assert "violates PodSecurity" in done.stderr


@pytest.mark.usefixtures("pasted")
def test_a_pod_whose_priority_nobody_made_is_refused(kubectl: Kubectl) -> None:
    pod = copy.deepcopy(pods(kubectl, "haystream")["haystream-worker"])
    pod["spec"]["priorityClassName"] = "nobody-made-it"
    pod["spec"].pop("priority", None)
    done = kubectl("-n", "haystream", "create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(pod))
    assert done.returncode != 0
    assert "no PriorityClass" in done.stderr


@pytest.mark.usefixtures("pasted")
def test_a_changed_setting_or_secret_restarts_the_workers(kubectl: Kubectl, tmp_path: Path) -> None:
    base = os.path.relpath(ROOT / "k8s" / "overlays" / "production", tmp_path)
    rendered = []
    for changed in (
        {},
        {"configMapGenerator": "HAYSTREAM_MAX_BATCH=500"},
        {"secretGenerator": "HAYSTREAM_REDIS=x"},
    ):
        generators = {
            kind: [{"name": "haystream-worker", "behavior": "merge", "literals": [literal]}]
            for kind, literal in changed.items()
        }
        kustomization = {"resources": [base], "namespace": "haystream", **generators}
        (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        done = kubectl("apply", "--dry-run=server", "-o", "yaml", "-k", str(tmp_path))
        assert done.returncode == 0, done.stderr
        [template] = [
            entry["spec"]["template"]
            for entry in yaml.safe_load(done.stdout)["items"]
            if entry["kind"] == "StatefulSet"
        ]
        rendered.append(yaml.safe_dump(template))
    assert len(set(rendered)) == 3


ON_OBJECTS = re.compile(r"kubectl -n haystream (?:get|describe|scale|delete pod) [^`\n]*")
"""The commands of a runbook that ask for nothing but the API server."""


def runbook_commands() -> list[str]:
    """Those of every runbook, each once."""
    pages = sorted((ROOT / "docs" / "runbooks").glob("*.md"))
    return sorted({command.strip() for page in pages for command in ON_OBJECTS.findall(page.read_text())})


COMPONENTS = {
    "k8s/components/api": {
        "deployment.apps/haystream-api",
        "horizontalpodautoscaler.autoscaling/haystream-api",
        "networkpolicy.networking.k8s.io/haystream-api",
    },
    "k8s/components/monitoring": {
        "servicemonitor.monitoring.coreos.com/haystream-worker",
        "prometheusrule.monitoring.coreos.com/haystream-worker",
        "networkpolicy.networking.k8s.io/haystream-metrics",
    },
    "k8s/components/scaling": {"scaledobject.keda.sh/haystream-worker"},
    "deploy/grafana/dashboards": {
        f"configmap/haystream-dashboard-{name}" for name in ("pipeline", "model", "queries")
    },
}
"""What each adds to an overlay."""
OPERATORS = ("k8s/components/monitoring", "k8s/components/scaling")


def apply_with(
    kubectl: Kubectl, folder: Path, overlay: str, *components: str
) -> "subprocess.CompletedProcess[str]":
    """Apply an overlay with components, as a folder of somebody's own would."""
    kustomization = {
        "namespace": NAMESPACES[overlay],
        "resources": [os.path.relpath(ROOT / "k8s" / "overlays" / overlay, folder.resolve())],
        "components": [os.path.relpath(ROOT / component, folder.resolve()) for component in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return kubectl("apply", "-k", str(folder))


def test_the_api_is_added_as_its_page_says(
    kubectl: Kubectl, kubeconfig: Path, pasted: object, tmp_path: Path
) -> None:
    """Its line let in, its Secret made; then its pod is admitted, and finds by name what it refers to."""
    shutil.copytree(ROOT / "k8s", tmp_path / "k8s")
    overlay = tmp_path / "k8s" / "overlays" / "production"
    file = overlay / "kustomization.yaml"
    file.write_text(file.read_text().replace("# - ../../components/api", "- ../../components/api"))
    done = kubectl("apply", "-k", str(overlay))
    assert done.returncode == 0, done.stderr
    page = (ROOT / "docs" / "api.md").read_text().split("\n## Operating it\n")[1]
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"KUBECONFIG": str(kubeconfig), "PATH": programs}
    for command in re.findall(r"^ {4}((?:haystream|kubectl) .*)$", page.split("\n## ")[0], re.MULTILINE):
        ran = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
    pod = pods(kubectl, "haystream")["haystream-api"]
    done = kubectl("-n", "haystream", "create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(pod))
    assert done.returncode == 0, done.stderr
    keys = {}
    for volume in (each["secret"] for each in pod["spec"]["volumes"] if "secret" in each):
        found = kubectl("-n", "haystream", "get", "secret", volume["secretName"], "-o", "json")
        assert found.returncode == 0, found.stderr
        keys[volume["secretName"]] = json.loads(found.stdout)["data"].keys()
    assert keys == {"haystream-api-keys": {"keys.json"}, "haystream-passwords": {"kafka", "kafka-api", "redis"}}


@pytest.fixture(scope="session")
def inhabited(kubectl: Kubectl, pasted: object, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Production with the API; a worker and an API server as the controllers would make them, admitted."""
    done = apply_with(kubectl, tmp_path_factory.mktemp("api"), "production", "k8s/components/api")
    assert done.returncode == 0, done.stderr
    found = pods(kubectl, "haystream")
    for name in ("haystream-worker", "haystream-api"):
        found[name]["metadata"]["name"] = f"{name}-0"
        done = kubectl("-n", "haystream", "create", "-f", "-", stdin=yaml.safe_dump(found[name]))
        assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("inhabited")
@pytest.mark.parametrize("command", runbook_commands())
def test_a_runbooks_command_works_as_pasted(kubeconfig: Path, command: str) -> None:
    environment = os.environ | {"KUBECONFIG": str(kubeconfig)}
    # A pod that is deleted would come back; here nobody makes it, so it stays.
    command = command.split(" | ")[0].replace("=N", "=3").replace("delete pod", "delete --dry-run=server pod")
    done = subprocess.run(command, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.usefixtures("pasted")
@pytest.mark.parametrize("component", OPERATORS)
def test_what_an_operator_is_for_is_refused_where_there_is_none(
    kubectl: Kubectl, tmp_path: Path, component: str
) -> None:
    done = apply_with(kubectl, tmp_path, "production", component)
    assert done.returncode != 0
    assert "no matches for kind" in done.stderr


@pytest.fixture(scope="session")
def operators(kubectl: Kubectl) -> None:
    """The custom resources of the Prometheus operator and of KEDA; from here on they are there."""
    for file in sorted((ROOT / ".local" / "kubernetes" / "crds").glob("*/*.yaml")):
        # Applied by the server: these are longer than the annotation that a client would put them into.
        done = kubectl("apply", "--server-side", "-f", str(file))
        assert done.returncode == 0, done.stderr
        name = yaml.safe_load(file.read_text())["metadata"]["name"]
        assert kubectl("wait", "--for=condition=Established", f"crd/{name}", "--timeout=60s").returncode == 0


@pytest.mark.usefixtures("pasted", "operators")
@pytest.mark.parametrize("overlay", NAMESPACES)
def test_every_overlay_takes_every_component(kubectl: Kubectl, tmp_path: Path, overlay: str) -> None:
    done = apply_with(kubectl, tmp_path, overlay, *COMPONENTS)
    assert done.returncode == 0, done.stderr
    kinds = "servicemonitors,prometheusrules,networkpolicies,scaledobjects,configmaps,deployments,hpa"
    shown = kubectl("-n", NAMESPACES[overlay], "get", kinds, "-o", "name").stdout.split()
    assert set(shown) >= set().union(*COMPONENTS.values())


@pytest.mark.usefixtures("pasted", "operators")
@pytest.mark.parametrize("overlay", NAMESPACES)
def test_a_server_takes_over_what_a_client_applied(kubectl: Kubectl, tmp_path: Path, overlay: str) -> None:
    assert apply_with(kubectl, tmp_path, overlay, *COMPONENTS).returncode == 0
    shown = ("-n", NAMESPACES[overlay], "get", "statefulset", "-o", "jsonpath={.items[*].metadata.generation}")
    before = kubectl(*shown).stdout
    done = kubectl("apply", "--server-side", "-k", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert kubectl(*shown).stdout == before


ENDED = {
    "Complete": {"succeeded": 1, "completionTime": "2026-01-31T12:00:01Z"},
    "Failed": {"failed": 1},
}
"""What a Job's controller says of one that has ended, by condition."""


@pytest.mark.usefixtures("pasted")
@pytest.mark.parametrize(
    ("condition", "before_it"), [("Complete", "SuccessCriteriaMet"), ("Failed", "FailureTarget")]
)
def test_a_rebuild_is_waited_for_until_it_ends_in_any_way(
    kubectl: Kubectl, kubeconfig: Path, condition: str, before_it: str
) -> None:
    (command,) = re.findall(r"^ +(kubectl .* wait .* job/rebuild .*)$", operator_pages(), re.MULTILINE)
    command = command.replace("--timeout=1h", "--timeout=1s")

    def waited() -> int:
        return subprocess.run(command, shell=True, env=os.environ | {"KUBECONFIG": str(kubeconfig)}).returncode

    assert (
        kubectl("-n", "haystream", "create", "job", "rebuild", "--from=cronjob/haystream-rebuild").returncode == 0
    )
    try:
        assert waited() != 0
        then = "2026-01-31T12:00:00Z"
        said = [{"type": each, "status": "True", "lastTransitionTime": then} for each in (before_it, condition)]
        status = {"startTime": then, "conditions": said, **ENDED[condition]}
        change = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
        done = kubectl("-n", "haystream", "patch", "job", "rebuild", *change)
        assert done.returncode == 0, done.stderr
        assert waited() == 0
    finally:
        kubectl("-n", "haystream", "delete", "job", "rebuild")


@pytest.mark.usefixtures("pasted", "operators")
def test_scaling_is_paused_and_goes_on_as_the_page_says(kubectl: Kubectl, tmp_path: Path) -> None:
    assert apply_with(kubectl, tmp_path, "production", "k8s/components/scaling").returncode == 0
    commands = re.findall(r"`kubectl (.* annotate [^`]*)`", operator_pages())
    assert len(commands) == 2
    for command, paused in zip(commands, ("0", ""), strict=True):
        done = kubectl(*command.split())
        assert done.returncode == 0, done.stderr
        path = r"jsonpath={.metadata.annotations.autoscaling\.keda\.sh/paused-replicas}"
        assert kubectl("-n", "haystream", "get", "scaledobject/haystream-worker", "-o", path).stdout == paused


@pytest.mark.usefixtures("pasted", "operators")
@pytest.mark.parametrize(
    ("file", "path", "value", "refusal"),
    [
        ("scaling/scaled-object.yaml", ("spec", "maxReplicaCount"), "as many as it takes", "spec.maxReplicaCount"),
        ("scaling/scaled-object.yaml", ("spec", "triggers"), None, "spec.triggers: Required value"),
        ("monitoring/rules.yaml", ("spec", "groups", 0, "rules", 0, "expr"), None, "expr: Required value"),
        ("monitoring/service-monitor.yaml", ("spec", "endpoints", 0, "interval"), "soon", "endpoints[0].interval"),
    ],
)
def test_an_operator_does_not_get_what_it_cannot_read(
    kubectl: Kubectl, file: str, path: tuple[str | int, ...], value: str | None, refusal: str
) -> None:
    entry = yaml.safe_load((ROOT / "k8s" / "components" / file).read_text())
    at: Any = entry
    for step in path[:-1]:
        at = at[step]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    done = kubectl("-n", "haystream", "create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(entry))
    assert done.returncode != 0
    assert refusal in done.stderr
