"""What computes nothing loads no compiler, no linear algebra, no engine: they take longer to load than all else."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

CONTRACTS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["tool"]["importlinter"][
    "contracts"
]
(CONTRACT,) = (contract for contract in CONTRACTS if "loads no compiler" in contract["name"])
LOADED = """
import json
import sys
from importlib import import_module
from pkgutil import walk_packages

names, heavy = map(json.loads, sys.argv[1:])
found = {}
for name in names:
    module = import_module(name)
    for part in walk_packages(getattr(module, "__path__", ()), name + "."):
        import_module(part.name)
    found[name] = [each for each in heavy if each in sys.modules]
print(json.dumps(found))
"""


def test_what_computes_nothing_loads_no_compiler() -> None:
    """import-linter reads what modules import, and this what a process then has: importing a module runs its
    packages' `__init__`, too."""
    names, heavy = CONTRACT["source_modules"], CONTRACT["forbidden_modules"]
    command = [sys.executable, "-c", LOADED, json.dumps(names), json.dumps(heavy)]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    assert json.loads(found.stdout) == {name: [] for name in names}
