"""A serving process computes small matrices, beside other processes: in one thread."""

import json
import os
import subprocess
import sys

import pytest

from haystream_service.blas import VARIABLES

SERVED = """
import sys
from haystream_service.commands import {command}
from haystream_service.errors import UserError
import haystream_service.settings
assert "numpy" not in sys.modules
class Served(Exception): pass
def serve(*_):
    raise Served
import types
module = types.ModuleType("haystream_service.{where}.serve")
module.serve = serve
sys.modules[module.__name__] = module
try:
    {command}.run()
except Served:
    pass
import numpy, scipy.linalg
from threadpoolctl import threadpool_info
print([pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"])
"""


@pytest.mark.parametrize(("command", "where"), [("worker", "worker"), ("api", "api")])
def test_a_server_computes_in_one_thread(command: str, where: str) -> None:
    program = [sys.executable, "-c", SERVED.format(command=command, where=where)]
    silent = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(program, capture_output=True, text=True, check=True, env=silent)
    threads = json.loads(done.stdout)
    assert set(threads) == {1}, threads


REBUILT = """
import os, sys, types
from haystream_service.cli import topics
module = types.ModuleType("haystream_service.commands.rebuild")
module.run = lambda **_: print([os.environ.get("OPENBLAS_NUM_THREADS"), "numpy" in sys.modules])
sys.modules[module.__name__] = module
import haystream_service.commands
haystream_service.commands.rebuild = module
topics.rebuild()
"""


def test_so_does_a_rebuild_which_asks_before_numpy_is_there() -> None:
    silent = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run([sys.executable, "-c", REBUILT], capture_output=True, text=True, check=True, env=silent)
    assert done.stdout.strip() == "['1', False]"
