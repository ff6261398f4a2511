"""The repository's files, and the tools that read them."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def load(root: Path) -> Callable[[str], Any]:
    """Reads a YAML file with one document, by its path in the repository."""
    return lambda path: yaml.safe_load((root / path).read_text())


@pytest.fixture(scope="session")
def tool(unavailable: Callable[[str], NoReturn]) -> Callable[[str], str]:
    """The path of a program that CI has and a laptop may lack."""
    return lambda name: shutil.which(name) or unavailable(f"{name} is not on the PATH")
