"""`haystream bench audit`: how exact the engine is after a long history."""

from rich.table import Table

from haystream_service.bench import audit
from haystream_service.console import notes, results, write_json


def run(job: audit.Job, *, json: bool) -> None:
    """Audit the engine after a long history."""
    result = audit.run(job, notes.print)
    if json:
        write_json(result)
        return
    what = (
        f"{result['verdicts']:,} verdicts on {result['edges']:,} edges, {result['sampled']:,} participants sampled"
    )
    table = Table("largest error of", "under load", "at rest", title=what)
    for name in result["at_rest"]:
        table.add_row(name, *(f"{result[when][name]:.1e}" for when in ("under_load", "at_rest")))
    results().print(table)
