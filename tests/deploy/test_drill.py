"""The drill of docs/operations.md: Redis is lost and restored in every way, and nothing differs from a replay."""

import os
import subprocess
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
    done = subprocess.run([root / "deploy" / "drill", *ways], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == ways
    assert all(line.endswith("differences from haystream replay: 0") for line in lines)
