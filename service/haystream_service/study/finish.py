"""Runs what is left of a plan's searches, and shows how far it is."""

from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path

from haystream_service.console import notes, progress
from haystream_service.study.journal import Journal
from haystream_service.study.plan import Pair, Plan, Task
from haystream_service.study.simulation import Outcome, Searches, simulate


def finish(
    planned: Plan, searches: Searches, *, processes: int, out: Path | None, anew: Collection[Pair] = ()
) -> dict[Task, Outcome]:
    """The outcome of every task: those that the journal in `out` has, and the others, which it then has as well.

    Searches of the pairs in `anew` are made again, and take the place of those that are there.

    Raises:
        UserError: a process came to an early end, or the journal cannot be used.
    """
    tasks, finished = planned.tasks(), dict[Task, Outcome]()
    with ExitStack() as stack:
        journal = None if out is None else stack.enter_context(Journal(out, searches))
        if journal is not None:
            finished = journal.finished
        left = [task for task in tasks if task not in finished or (task.model, task.policy) in anew]
        if len(left) < len(tasks):
            notes.print(f"{len(tasks) - len(left):,} of {len(tasks):,} searches are there already")
        bar = stack.enter_context(progress(f"{len(left):,} searches", len(left)))
        for task, outcome in simulate(left, searches, processes=processes):
            if journal is None:
                finished[task] = outcome
            else:
                journal.add(task, outcome)
            bar.advance()
    return finished
