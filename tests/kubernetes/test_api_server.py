"""The manifests and the commands of docs/operations.md, against a real API server."""

import copy
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
NEEDS_PODS = ("rollout status", "logs", "wait")
"""Commands that wait for what only runs in a cluster."""

Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]


def commands() -> list[str]:
    """Every kubectl command of docs/operations.md, in its order."""
    text = (ROOT / "docs" / "operations.md").read_text()
    found = re.findall(r"^ {4,}(kubectl .*)$", text, re.MULTILINE)
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
    found = yaml.safe_load(kubectl("-n", namespace, "get", "statefulset,cronjob", "-o", "yaml").stdout)["items"]
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


@pytest.mark.usefixtures("pasted")
def test_monitoring_is_applied_where_its_operator_is(kubectl: Kubectl, tmp_path: Path) -> None:
    crds = ROOT / ".local" / "kubernetes" / "crds"
    for name in ("servicemonitors", "prometheusrules"):
        file = crds / f"monitoring.coreos.com_{name}.yaml"
        assert kubectl("apply", "--server-side", "-f", str(file)).returncode == 0
        crd = f"crd/{name}.monitoring.coreos.com"
        assert kubectl("wait", "--for=condition=Established", crd, "--timeout=60s").returncode == 0
    overlay, monitoring = (
        os.path.relpath(ROOT / "k8s" / path, tmp_path) for path in ("overlays/production", "components/monitoring")
    )
    kustomization = {"namespace": "haystream", "resources": [overlay], "components": [monitoring]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    done = kubectl("apply", "-k", str(tmp_path))
    assert done.returncode == 0, done.stderr
    shown = kubectl(
        "-n", "haystream", "get", "servicemonitors,prometheusrules,networkpolicies", "-o", "name"
    ).stdout
    assert "servicemonitor.monitoring.coreos.com/haystream-worker" in shown
    assert "prometheusrule.monitoring.coreos.com/haystream-worker" in shown
    assert "networkpolicy.networking.k8s.io/haystream-metrics" in shown
