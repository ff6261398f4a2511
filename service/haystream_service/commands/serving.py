"""How the commands that serve end their process."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from haystream_service.errors import UserError

log = logging.getLogger(__name__)


def served(serving: Coroutine[Any, Any, int]) -> int:
    """The exit code of a service, once it has ended. What its user did not do wrong is logged with where it comes
    from: of a command a line would do, but whoever finds a service ended was not there.

    Raises `UserError`.
    """
    try:
        return asyncio.run(serving)
    except UserError:
        raise
    except Exception:
        log.critical("the service ends, for this reason:", exc_info=True)
        return 1
