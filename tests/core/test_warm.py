"""What is compiled is compiled before the first event: else a verdict would wait for seconds on a new machine."""

import subprocess
import sys
from pathlib import Path

HISTORY = Path(__file__).parents[1] / "support" / "varied_history.py"


def test_no_loop_is_compiled_for_an_event() -> None:
    done = subprocess.run([sys.executable, HISTORY], capture_output=True, text=True, cwd=HISTORY.parents[1])
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
