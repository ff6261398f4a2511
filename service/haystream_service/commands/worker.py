"""`haystream worker`."""

import sys
from pathlib import Path

from haystream_service.blas import use_one_thread
from haystream_service.commands.serving import served
from haystream_service.logs import configure
from haystream_service.settings import load


def run(*, config: Path | None = None) -> None:
    """Serve until told to stop; ends the process with the exit code. Raises `UserError`."""
    settings = load(config)
    configure(settings.log_format)
    use_one_thread()
    from haystream_service.worker.serve import serve  # Faust, numpy and numba take a second to import

    sys.exit(served(serve(settings)))
