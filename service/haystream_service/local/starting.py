"""How an event loop waits for a local server to start."""

import asyncio
from contextlib import AsyncExitStack
from typing import TypeVar

from haystream_service.console import notes
from haystream_service.local.process import LocalServer

AGAIN_SECONDS = 0.1
"""Between two times that a start which is broken off is stopped."""
TELL_SECONDS = 10.0
"""How long a start is waited for in silence, and how often it is asked what it waits for after that."""

Server = TypeVar("Server", bound=LocalServer)


async def started(stack: AsyncExitStack, server: Server) -> Server:
    """The server, answering; it is closed with the stack. A start that is cancelled is broken off."""
    stack.push_async_callback(asyncio.to_thread, server.close)
    starting = asyncio.ensure_future(asyncio.to_thread(server.start))
    told = ""
    try:
        while not (await asyncio.wait({starting}, timeout=TELL_SECONDS))[0]:
            if (waits_for := server.waits_for()) not in {"", told}:
                notes.print(f"{server.name} is not ready yet: {waits_for}", markup=False)
                told = waits_for
    except asyncio.CancelledError:
        while not starting.done():  # nothing may be closed under its feet, nor may it be about to run
            await asyncio.to_thread(server.stop)
            await asyncio.wait({starting}, timeout=AGAIN_SECONDS)
        await asyncio.gather(starting, return_exceptions=True)  # why it has not started is of no interest now
        raise
    return starting.result()
