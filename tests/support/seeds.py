"""How many seeds a long test is run with."""

from typing import Any

import pytest

ANOTHER = "another_seed"


def seeds(count: int) -> list[Any]:
    """Seeds to parametrize a test with: the first one, and where `--seeds all` asks for them so many in all."""
    return [0, *(pytest.param(seed, marks=getattr(pytest.mark, ANOTHER)) for seed in range(1, count))]
