"""A shell as a new terminal has it."""

import subprocess
from pathlib import Path


def sourced(file: Path, command: str) -> str:
    """What the command writes in a shell that has no variables but those that the file sets, and the usual PATH."""
    fresh = ["env", "-i", "PATH=/usr/bin:/bin", "sh", "-c", f'. "$0" && {command}', str(file)]
    return subprocess.run(fresh, capture_output=True, text=True, check=True).stdout
