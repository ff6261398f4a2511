"""How commands that start servers are stopped: in order, however often one asks for it."""

import asyncio
import signal


def stop_on_signals() -> None:
    """Ctrl-C and SIGTERM cancel this task, once: what was started is stopped in order, however often they come."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None

    def stop() -> None:
        if not task.cancelling():
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
