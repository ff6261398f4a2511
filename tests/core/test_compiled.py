"""The cache of machine code: an edit of a function that another file's loop calls must not go unnoticed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from haystream.memory import compiled as module
from haystream.memory.overlay import size_of

# Two edits in one second and of one size are the same to the bytecode cache, which is not what this is about.
ENVIRONMENT = {"PYTHONDONTWRITEBYTECODE": "1"}
CALLEE = "from haystream.memory.compiled import compiled\n\n@compiled\ndef inner(x):\n    return x {sign} 1.0\n"
CALLER = (
    "from haystream.memory.compiled import compiled\nfrom haystream.callee import inner\n\n"
    "@compiled\ndef outer(x):\n    return 10.0 * inner(x)\n"
)


def run(
    folder: Path, code: str = "from haystream.caller import outer; print(outer(2.0))", **environment: str
) -> float:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, stdout=subprocess.PIPE, check=True, env=ENVIRONMENT | environment
    )
    return float(done.stdout)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    package = tmp_path / "haystream"
    (package / "memory").mkdir(parents=True)
    shutil.copy(module.__file__, package / "memory" / "compiled.py")
    for folder in (package, package / "memory"):
        (folder / "__init__.py").touch()
    (package / "caller.py").write_text(CALLER)
    (package / "callee.py").write_text(CALLEE.format(sign="+"))
    return package


def test_an_edit_of_a_callee_in_another_file_is_compiled_in(package: Path) -> None:
    assert run(package.parent) == 30.0
    assert machine_code(package), "nothing was cached, so this test shows nothing"
    (package / "callee.py").write_text(CALLEE.format(sign="-"))
    assert run(package.parent) == 10.0


def test_an_edit_two_imports_away_is_compiled_in(package: Path) -> None:
    (package / "parts").mkdir()
    (package / "parts" / "__init__.py").touch()
    (package / "parts" / "steps.py").write_text("STEP = 1.0\n")
    callee = CALLEE.format(sign="+").replace("1.0", "steps.STEP")
    (package / "callee.py").write_text(f"from haystream.parts import steps\n{callee}")
    assert run(package.parent) == 30.0
    (package / "parts" / "steps.py").write_text("STEP = 2.0\n")
    assert run(package.parent) == 40.0


def test_an_edit_of_what_no_loop_is_made_of_compiles_nothing_again(package: Path) -> None:
    (package / "shell.py").write_text("from haystream.caller import outer\n")
    assert run(package.parent) == 30.0
    made = machine_code(package)
    (package / "shell.py").write_text("from haystream.caller import outer as again\n")
    assert run(package.parent) == 30.0
    assert machine_code(package) == made


def test_without_a_folder_that_can_be_written_to_it_is_compiled_all_the_same(package: Path) -> None:
    (package / "__pycache__").touch()  # so nobody, not even root, can write beside the source
    assert run(package.parent, HOME="/dev/null") == 30.0
    assert run(package.parent, HOME="/dev/null", NUMBA_CACHE_DIR="/dev/null") == 30.0
    assert not machine_code(package)
    told = "from haystream.caller import outer; from haystream.memory.compiled import cached; print(int(cached()))"
    assert run(package.parent, told, HOME="/dev/null") == 0
    assert run(package.parent, told, HOME="/dev/null", NUMBA_CACHE_DIR=str(package)) == 1


@pytest.mark.parametrize("kept", [0, 40], ids=["empty", "cut off"])
@pytest.mark.parametrize("name", ["*.nbi", "*.nbc"])
def test_machine_code_that_cannot_be_read_is_made_again(package: Path, name: str, kept: int) -> None:
    assert run(package.parent) == 30.0
    whole = {path: path.read_bytes() for path in machine_code(package)}
    for path in package.rglob(name):
        path.write_bytes(whole[path][:kept])
    assert run(package.parent) == 30.0
    assert all(len(path.read_bytes()) == len(content) for path, content in whole.items())


def test_what_cannot_be_written_is_no_reason_not_to_compile(package: Path) -> None:
    code = "from unittest.mock import patch; from haystream.caller import outer\n"
    full = "patch('numba.core.caching.IndexDataCacheFile._open_for_write', side_effect=OSError(28, 'disk full'))"
    assert run(package.parent, f"{code}with {full}: print(outer(2.0))") == 30.0


def test_what_is_for_compiled_callers_refuses_others() -> None:
    with pytest.raises(TypeError, match="size_of is for compiled callers only"):
        size_of(3)


def machine_code(package: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in package.rglob("*.nb?")}
