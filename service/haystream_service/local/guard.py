"""Runs a command and kills it when this process's parent is gone, however the parent ended.

    python guard.py COMMAND [ARGUMENT ...]

The parent holds the other end of standard input and never writes to it: end of file means that it is gone.
Linux's PR_SET_PDEATHSIG would not do: it fires when the parent's *thread* that started the process ends.
The guard leads a process group of its own with the command in it, so a signal to the group reaches both.
"""

import os
import signal
import subprocess
import sys
import threading


def _kill_all_at_end_of_input() -> None:
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGKILL)


def main() -> int:
    """Run the command; its return code."""
    # A handler, not SIG_IGN, which the command would inherit: it ends on SIGTERM, and the guard after it.
    signal.signal(signal.SIGTERM, lambda *_: None)
    threading.Thread(target=_kill_all_at_end_of_input, daemon=True).start()
    return subprocess.call(sys.argv[1:], stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    os._exit(main() & 0xFF)  # past the thread that still reads standard input
