"""docs/architecture.md has a map, by which whoever is new finds the right folder; each file that a page names is
where the page says."""

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = {
    name.strip("/").rpartition("/")[2]
    for name in re.findall(r"`([\w/*]+(?:\.py)?)`", (ROOT / "docs/architecture.md").read_text())
}


@pytest.mark.parametrize(
    "folder",
    [
        "core/haystream",
        "core/haystream/engines",
        "core/haystream/engines/local",
        "service/haystream_service",
        "service/haystream_service/worker",
    ],
)
def test_every_file_is_on_the_map(folder: str) -> None:
    there = {path.stem for path in (ROOT / folder).iterdir() if path.suffix == ".py" or any(path.glob("*.py"))}
    lacking = {stem for stem in there if not any(fnmatch(stem, name.removesuffix(".py")) for name in NAMED)}
    assert lacking == {"__init__"}


def test_import_linter_holds_the_layers_of_every_folder_of_the_core() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    held = [name for contract in contracts if contract.get("exhaustive") for name in contract["containers"]]
    core = ROOT / "core"
    folders = {".".join(path.parent.relative_to(core).parts) for path in core.rglob("*.py")}
    assert folders - {name for name in held if held.count(name) == 1} == set()


def test_every_file_that_a_page_names_is_there() -> None:
    there = [
        f"/{path.relative_to(ROOT)}"
        for folder in ("core", "deploy", "service", "tests")
        for path in (ROOT / folder).rglob("*.py")
    ]
    named = {
        (page.name, name)
        for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"))
        for name in re.findall(r"`([\w/]+\.py)`", page.read_text())
    }
    assert len(named) > 100
    assert not {(page, name) for page, name in named if not any(path.endswith(f"/{name}") for path in there)}
