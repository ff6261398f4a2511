"""Repetitions in several processes, with results that do not depend on how many."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def spread(
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    processes: int,
    advance: Callable[[], None] = lambda: None,
) -> list[Result]:
    """`work` on every task, in the order of the tasks. A task says all that its result depends on, its seed too.

    `work` and tasks are sent to fresh processes, but for one process, where everything is done here.
    `advance` is called when a task is done.
    """
    results = []
    if processes == 1:
        for task in tasks:
            results.append(work(task))
            advance()
        return results
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for result in pool.map(work, tasks):
            results.append(result)
            advance()
    return results
