"""Repetitions in several processes, with results that do not depend on how many."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from haystream_service.processes import pool

Task = TypeVar("Task")
Result = TypeVar("Result")


class Spread(Protocol):
    """Does work on every task, and returns the results in the order of the tasks."""

    def __call__(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """A task says all that its result depends on, its seed too."""
        ...


@contextmanager
def workers(processes: int, advance: Callable[[], None]) -> Iterator[Spread]:
    """So many processes, all fresh, but for a single one: that is this one. `advance` is called after each task.

    `work` and tasks are pickled.
    """
    if processes == 1:
        yield _over(map, advance)
        return
    with pool(processes) as executor:
        yield _over(executor.map, advance)


def _over(each: Callable[..., Any], advance: Callable[[], None]) -> Spread:
    def spread(work: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        results = []
        for result in each(work, tasks):
            results.append(result)
            advance()
        return results

    return spread
