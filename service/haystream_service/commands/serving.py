"""How the commands that serve end their process."""

import asyncio
import logging
import resource
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from haystream_service.errors import UserError

log = logging.getLogger(__name__)


def served(serving: Coroutine[Any, Any, int]) -> int:
    """The exit code of a service, once it has ended. What its user did not do wrong is logged with where it comes
    from: of a command a line would do, but whoever finds a service ended was not there.

    Raises `UserError`.
    """
    allow_as_many_files_as_may_be()
    try:
        return asyncio.run(serving)
    except UserError:
        raise
    except Exception:
        log.critical("the service ends, for this reason:", exc_info=True)
        return 1


def allow_as_many_files_as_may_be() -> None:
    """Raise how many files may be open to what the system allows at most.

    A worker has a connection for each collection, and mostly may have a thousand files open, unless it asks for
    more: that is for programs that count on small numbers, as no part of this one does.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # where the system names a bound that it does not let anybody have
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
