"""What is started for a bench or an experiment ends with whoever started it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from haystream_service.processes import alone

PATIENCE = 60.0
LOOK_SECONDS = 0.05


def waits(folder: Path, _: int = 0) -> None:
    """Say which process this is, and do nothing more."""
    (folder / str(os.getpid())).touch()
    time.sleep(10 * PATIENCE)


def in_bench(folder: Path) -> None:
    alone(partial(waits, folder))


def in_experiment(folder: Path) -> None:
    from haystream_service.experiments.parallel import workers

    with workers(2, lambda: None) as spread:
        spread(partial(waits, folder), range(2))


def until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(LOOK_SECONDS)


def runs(process: int) -> bool:
    """Whether it is there, and more than what nobody has asked for the exit code of."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="Linux says there which processes run")
@pytest.mark.parametrize(("where", "processes"), [(in_bench, 1), (in_experiment, 2)])
def test_processes_end_when_who_started_them_is_killed(
    tmp_path: Path, where: Callable[[Path], None], processes: int
) -> None:
    script = tmp_path / "start.py"  # which they import as well, and find no work in it
    script.write_text(
        f"import sys\nfrom pathlib import Path\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        f"import test_processes\nif __name__ == '__main__':\n"
        f"    test_processes.{where.__name__}(Path({str(tmp_path / 'began')!r}))\n"
    )
    began = tmp_path / "began"
    began.mkdir()
    with subprocess.Popen([sys.executable, str(script)]) as starter:
        try:
            until(lambda: len(list(began.iterdir())) == processes)
        finally:
            starter.send_signal(signal.SIGKILL)
    until(lambda: not any(runs(int(file.name)) for file in began.iterdir()))
