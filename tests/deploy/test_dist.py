"""`make dist`: the wheel and the sdist hold all that runs, and the wheel runs where nothing else is."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (ROOT / "core" / "haystream", ROOT / "service" / "haystream_service")
EVENTS = (
    {"topic": "queries", "value": {"query_id": "q"}},
    {"topic": "items", "value": {"item_id": "m", "sender": "ann", "recipients": ["bob"]}},
)
LOADS = """
import json, pathlib
from importlib.resources import files
from haystream_service.store.redis import RedisStore
import haystream_service
assert pathlib.Path(haystream_service.__file__).is_relative_to(pathlib.Path.cwd()), haystream_service.__file__
RedisStore.connect("redis://127.0.0.1:1/0")
for schema in files("haystream_service").joinpath("schemas").iterdir():
    json.loads(schema.read_text())
print(len(files("haystream_service.local").joinpath("kafka-pom.xml").read_text()))
"""

UV = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, unavailable: Callable[[str], NoReturn]) -> Path:
    """A folder with a wheel and an sdist, the wheel made from the sdist, as `make dist` does it."""
    if find_spec("hatchling") is None or UV is None:
        unavailable("hatchling or uv is not installed (make install EXTRAS=dev,deploy)")
    folder = tmp_path_factory.mktemp("dist")
    build = [UV, "build", "--quiet", "--no-build-isolation", "--python", sys.executable, "--out-dir", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def shipped() -> set[str]:
    """What of the packages has to be in both: by path below core or service."""
    kinds = ("py", "lua", "json", "typed")
    return {
        str(path.relative_to(package.parent))
        for package in PACKAGES
        for kind in kinds
        for path in package.rglob(f"*{kind}")
        if "__pycache__" not in path.parts
    }


def test_both_hold_every_module_script_and_schema(built: Path) -> None:
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert shipped() | {"haystream_service/local/kafka-pom.xml"} <= names
    assert not [name for name in names if not name.startswith("haystream")]
    with tarfile.open(sdist) as archive:
        members = {name.partition("/")[2] for name in archive.getnames()}
    sources = {member.partition("/")[2] for member in members}
    assert shipped() <= sources
    assert {"pyproject.toml", "README.md", "LICENSE", "deploy/kafka/pom.xml"} <= members


def as_the_page_says(wheel: Path) -> list[str]:
    """What docs/operations.md gives uv to install the wheel."""
    page = (ROOT / "docs" / "operations.md").read_text()
    [command] = re.findall(r"^    uv (pip install .*)$", page, re.MULTILINE)
    named = command.replace("dist/haystream-0.1.0-py3-none-any.whl", str(wheel))
    assert named != command
    return shlex.split(named.replace("requirements.lock", str(ROOT / "requirements.lock")))


def test_the_wheel_runs_in_an_environment_that_has_nothing_else(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    place = tmp_path / "empty"
    outside = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=outside, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(str(UV), "venv", "--quiet", "--python", sys.executable, str(place))
    run(str(UV), *as_the_page_says(wheel), "--quiet", "--python", str(place))
    haystream = str(place / "bin" / "haystream")
    (packages,) = place.glob("lib/python*/site-packages")
    for machine_code in (ROOT / "core").rglob("*.nb[ci]"):  # to compile the same loops again takes a minute or two
        folder = packages / machine_code.parent.relative_to(ROOT / "core")
        folder.mkdir(exist_ok=True)
        shutil.copy(machine_code, folder)
    assert run(haystream, "--version").strip() in wheel.name
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    assert json.loads(run(haystream, "replay", "events.jsonl", "--json"))["query_id"] == "q"
    assert int(run(str(place / "bin" / "python"), "-c", LOADS)) > 0
    assert "Search items" in run(haystream, "simulate", "--help")
    assert run(haystream, "api-key", "kim", "--role", "analyst", "--to", "keys.json")
