"""Processes for work that is to be done beside this one, or alone; none of them outlives this one."""

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


def pool(processes: int, prepare: Callable[..., object] | None = None, *given: Any) -> ProcessPoolExecutor:
    """So many fresh processes, which call `prepare(*given)` first, and end with this one, however it ends.

    What they are given is pickled.
    """
    return ProcessPoolExecutor(processes, get_context("spawn"), initializer=_begin, initargs=(prepare, given))


def alone(work: Callable[[], T]) -> T:
    """What the work comes to in a process of its own: so is its peak of memory, and what it leaves slows nobody."""
    with pool(1) as executor:
        return executor.submit(work).result()


def _begin(prepare: Callable[..., object] | None, given: tuple[Any, ...]) -> None:
    Thread(target=_end_with_parent, daemon=True).start()
    if prepare is not None:
        prepare(*given)


def _end_with_parent() -> None:
    """A pool's process whose parent was killed would wait for work for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
