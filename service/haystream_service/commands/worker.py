"""`haystream worker`."""

import asyncio
import logging
import sys
from pathlib import Path

from haystream_service.errors import UserError
from haystream_service.settings import SettingsError, load
from haystream_service.sparingly import Sparingly


def run(*, config: Path | None = None) -> None:
    """Serve until told to stop; ends the process with the exit code. Raises `UserError`."""
    try:
        settings = load(config)
    except SettingsError as error:
        raise UserError(str(error)) from None
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    for handler in logging.getLogger().handlers:
        handler.addFilter(Sparingly())
    # Faust and aiokafka narrate every step of every rebalance.
    for chatty in ("faust", "mode", "aiokafka"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    from haystream_service.worker.serve import serve  # Faust, numpy and numba take a second to import

    sys.exit(asyncio.run(serve(settings)))
