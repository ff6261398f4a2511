"""A real Kubernetes API server, which admits and refuses what a cluster would; nothing runs what it admits."""

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from haystream_service.local.process import free_port

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".local" / "kubernetes"
TOKEN = "of-nobody-else"

Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def kubeconfig(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of an API server that runs, with its etcd, on 127.0.0.1."""
    if not pytestconfig.getoption("--kubernetes"):
        pytest.skip("wants an API server: make test-kubernetes")
    programs = [TOOLS / "bin" / name for name in ("etcd", "kube-apiserver")]
    folder = tmp_path_factory.mktemp("kubernetes")
    etcd, peer, port = (free_port() for _ in range(3))
    subprocess.run(["openssl", "genrsa", "-out", folder / "key", "2048"], check=True, capture_output=True)
    (folder / "tokens").write_text(f"{TOKEN},admin,1,system:masters\n")
    commands = [
        [
            *(programs[0], f"--data-dir={folder / 'etcd'}"),
            *(f"--{kind}-client-urls=http://127.0.0.1:{etcd}" for kind in ("listen", "advertise")),
            *(f"--{kind}-peer-urls=http://127.0.0.1:{peer}" for kind in ("listen", "initial-advertise")),
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
        ],
        [
            *(programs[1], f"--etcd-servers=http://127.0.0.1:{etcd}"),
            *("--bind-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={folder}"),
            *("--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.0.0.0/24"),
            *(f"--service-account-{use}={folder / 'key'}" for use in ("key-file", "signing-key-file")),
            *("--authorization-mode=RBAC", f"--token-auth-file={folder / 'tokens'}"),
            # Its controller, which makes the accounts, does not run.
            *("--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none"),
        ],
    ]
    config = folder / "config"
    server = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    config.write_text(
        yaml.safe_dump(
            {
                "clusters": [{"name": "test", "cluster": server}],
                "users": [{"name": "admin", "user": {"token": TOKEN}}],
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
                "current-context": "test",
            }
        )
    )
    with (folder / "log").open("wb") as log:
        processes = [subprocess.Popen(command, stdout=log, stderr=log) for command in commands]
        try:
            _wait(config, processes, folder / "log")
            yield config
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait(30)


def _wait(config: Path, processes: "list[subprocess.Popen[bytes]]", log: Path) -> None:
    for _ in range(240):
        assert all(process.poll() is None for process in processes), log.read_text()[-3000:]
        if _run(config, "get", "--raw", "/readyz").returncode == 0:
            return
        time.sleep(0.5)
    raise AssertionError(log.read_text()[-3000:])


def _run(config: Path, *arguments: str, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
    command = ["kubectl", "--kubeconfig", str(config), *arguments]
    return subprocess.run(command, cwd=ROOT, input=stdin, capture_output=True, text=True)


@pytest.fixture(scope="session")
def kubectl(kubeconfig: Path) -> Kubectl:
    """Runs kubectl in the repository against the API server."""
    return lambda *arguments, stdin=None: _run(kubeconfig, *arguments, stdin=stdin)
