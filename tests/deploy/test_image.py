"""deploy/Dockerfile, as far as it can be read without Docker, and its build step run in a clean folder."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from haystream_service.settings import PREFIX, Settings

ROOT = Path(__file__).parents[2]


def instructions() -> list[list[str]]:
    """The Dockerfile's instructions, split at white space."""
    text = (ROOT / "deploy" / "Dockerfile").read_text().replace("\\\n", " ")
    return [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def arguments(name: str) -> list[list[str]]:
    """What follows each instruction of that name."""
    return [words[1:] for words in instructions() if words[0] == name]


COPIED = [source for words in arguments("COPY") if not words[0].startswith("--from=") for source in words[:-1]]


@pytest.mark.parametrize("source", COPIED)
def test_what_is_copied_is_there_and_in_git_and_sent_to_the_builder(source: str) -> None:
    assert (ROOT / source).exists()
    ignored = subprocess.run(["git", "check-ignore", "--quiet", source], cwd=ROOT, capture_output=True)
    assert ignored.returncode != 0
    sent = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    assert f"!{source}" in sent
    assert "*" in sent


def test_it_runs_as_a_user_without_rights() -> None:
    [[user]] = arguments("USER")
    uid, gid = user.split(":")
    assert int(uid) >= 10_000
    assert int(gid) >= 10_000
    position = [words[0] for words in instructions()].index
    assert position("USER") < position("ENTRYPOINT")


def test_it_starts_the_worker_and_names_its_ports() -> None:
    assert arguments("ENTRYPOINT") == [['["entrypoint"]']]
    assert os.access(ROOT / "deploy" / "entrypoint", os.X_OK)
    assert arguments("CMD") == [['["worker"]']]
    assert arguments("EXPOSE") == [[str(Settings().port), str(Settings().api_port)]]


def test_what_it_sets_is_known_and_what_is_compiled_has_a_folder_of_its_own() -> None:
    values = dict(word.split("=", 1) for words in arguments("ENV") for word in words)
    ours = {name.removeprefix(PREFIX).lower() for name in values if name.startswith(PREFIX)}
    assert ours <= Settings.model_fields.keys()
    made = f"--mode 700 {Path(values['NUMBA_CACHE_DIR']).parent}"
    assert any(made in " ".join(words) for words in arguments("RUN"))


def test_kernels_are_compiled_by_the_build_and_copied_from_where_it_put_them() -> None:
    [build] = [words for words in arguments("RUN") if words[0].startswith("NUMBA_CACHE_DIR=")]
    place = build[0].removeprefix("NUMBA_CACHE_DIR=")
    assert f'cp -R {place} "$NUMBA_CACHE_DIR.copy"' in (ROOT / "deploy" / "entrypoint").read_text()
    assert place.startswith(arguments("COPY")[-2][-1])  # what the last stage takes from the first


def test_it_starts_where_nothing_can_be_copied(tmp_path: Path) -> None:
    (tmp_path / "haystream").write_text("#!/bin/sh\necho started $*\n")
    (tmp_path / "haystream").chmod(0o755)
    done = subprocess.run(
        [ROOT / "deploy" / "entrypoint", "worker"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "NUMBA_CACHE_DIR": "/dev/null/kernels"},
        stdout=subprocess.PIPE,
        check=True,
    )
    assert done.stdout == b"started worker\n"


def test_it_has_two_stages_on_one_pinned_image() -> None:
    assert [words[0] for words in arguments("FROM")] == ["${BASE}"] * 2
    assert arguments("ARG")[0] == ["BASE=python:3.11-slim-bookworm"]


def test_it_is_labelled_with_the_version_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [f"VERSION={project['version']}"] in arguments("ARG")
    [labels] = arguments("LABEL")
    assert f"org.opencontainers.image.licenses={project['license']}" in labels


def test_its_bill_of_materials_names_what_is_installed_with_versions() -> None:
    done = subprocess.run([sys.executable, ROOT / "deploy" / "sbom"], capture_output=True, text=True, check=True)
    document = json.loads(done.stdout)
    assert (document["bomFormat"], document["metadata"]["component"]["name"]) == ("CycloneDX", "haystream")
    versions = {each["name"]: each["version"] for each in document["components"]}
    assert versions["numpy"] == version("numpy")
    assert all(each["purl"].startswith("pkg:pypi/") for each in document["components"])


def test_the_lock_holds_everything_that_the_package_asks_for_with_hashes() -> None:
    """What `make install` and the image install; `deploy/lock` writes it."""
    lock = (ROOT / "requirements.lock").read_text()
    blocks = re.split(r"\n(?=[a-z0-9])", lock.split("\n", 2)[2])
    locked: dict[str, list[str]] = {}
    for block in blocks:
        name, version = block.split(" ", 1)[0].split("==")
        locked.setdefault(name, []).append(version)
        assert "--hash=sha256:" in block, name
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for asked in [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]:
        wanted = Requirement(asked)
        if wanted.name != project["name"]:
            versions = locked[canonicalize_name(wanted.name)]
            assert all(wanted.specifier.contains(version) for version in versions), asked
    assert "://" not in lock, "where packages come from is not the lock's to say"


@pytest.mark.slow
def test_what_is_copied_is_enough_to_build_the_package(
    tmp_path: Path, unavailable: Callable[[str], NoReturn]
) -> None:
    """The build stage's `pip install .`, but for the dependencies."""
    if find_spec("hatchling") is None:
        unavailable("hatchling is not installed (make install EXTRAS=dev,deploy)")
    source = tmp_path / "src"
    for name in COPIED:
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, target)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*build, "--wheel-dir", str(tmp_path), str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "haystream_service/local/kafka-pom.xml" in names
    for package in (ROOT / "core" / "haystream", ROOT / "service" / "haystream_service"):
        shipped = {
            str(path.relative_to(package.parent))
            for kind in ("py", "lua", "json")
            for path in package.rglob(f"*.{kind}")
        }
        assert shipped <= names
