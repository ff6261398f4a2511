"""The drill of docs/recovery.md: Redis is lost and restored in every way, and nothing differs from a replay."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from haystream_service.local import KafkaServer


@pytest.mark.kafka
@pytest.mark.redis
@pytest.mark.slow
def test_redis_is_lost_and_restored(root: Path, kafka: KafkaServer, pytestconfig: pytest.Config) -> None:
    environment = os.environ | {"HAYSTREAM_KAFKA": kafka.bootstrap}
    every = pytestconfig.getoption("faults") == "all"
    ways = ["file", "snapshot", "topics", "older"] if every else ["older"]
    drill = [sys.executable, root / "deploy" / "drill", *ways]
    done = subprocess.run(drill, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == ways
    assert all(line.endswith("differences from haystream replay: 0") for line in lines)
