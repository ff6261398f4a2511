"""The local Kafka's jars: what `deploy/kafka/pom.xml` pins, fetched once by Maven into a cache folder."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from haystream_service.local.process import ServerUnavailable

_CHECKOUT = Path(__file__).parents[3]
_POM_IN_CHECKOUT = _CHECKOUT / "deploy" / "kafka" / "pom.xml"
_POM_IN_WHEEL = Path(__file__).with_name("kafka-pom.xml")  # the same file: pyproject.toml's force-include
_STAMP = ".pom.sha256"

NO_MAVEN = (
    "Maven is needed once, to fetch Apache Kafka: install it (Debian and Ubuntu: `apt-get install maven`, "
    "macOS: `brew install maven`)"
)


def default_jars_dir() -> Path:
    """`.local/kafka/lib` of the checkout; of an installed package, the same in the user's cache folder."""
    if _POM_IN_CHECKOUT.exists():
        return _CHECKOUT / ".local" / "kafka" / "lib"
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "haystream" / "kafka" / "lib"


def fetch_jars(target: Path | None = None) -> Path:
    """The folder with the jars, fetched by Maven unless they are there. Many processes may call it at once.

    Raises `ServerUnavailable` without Maven, or where it cannot fetch them.
    """
    pom = _POM_IN_CHECKOUT if _POM_IN_CHECKOUT.exists() else _POM_IN_WHEEL
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()
    target = target or default_jars_dir()
    if _is_current(target, digest):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_current(target, digest):  # or another process was quicker
            _copy_dependencies(pom, target, digest)
    return target


def _is_current(target: Path, digest: str) -> bool:
    stamp = target / _STAMP
    return stamp.exists() and stamp.read_text() == digest


def _copy_dependencies(pom: Path, target: Path, digest: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ServerUnavailable(NO_MAVEN)
    # Into a neighbour first: a folder that was half filled when the power went must never look complete.
    with TemporaryDirectory(dir=target.parent, prefix="fetching-") as scratch:
        fresh = Path(scratch) / "lib"
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={fresh}", "-DincludeScope=runtime"]
        done = subprocess.run(
            [maven, "-B", "-q", "-f", str(pom), *goal],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
        if done.returncode != 0:
            said = "\n".join((done.stdout + done.stderr).splitlines()[:8])
            raise ServerUnavailable(f"Maven could not fetch Apache Kafka:\n{said}")
        (fresh / _STAMP).write_text(digest)
        if target.exists():
            shutil.rmtree(target)
        fresh.replace(target)
